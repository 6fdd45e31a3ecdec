#!/usr/bin/perl
# report.pl WORKLOAD FILE: a table of medians, and the targets beside what was reached. Each line of FILE:
# contestant, rows, seconds, server CPU seconds, bytes of WAL, median and 99th percentile of the delay
# until visible (ms, or -), CPU seconds of the rest of the machine. The lines of a repetition follow each other, and ratios are taken inside it.
use strict;
use warnings;

my %name = (
	a => 'COPY into a plain table, nothing else',
	s => 'COPY into a staged stream, no view',
	b => 'stream_agg: staged stream, view, immediate',
	d => 'statement trigger, ON CONFLICT DO UPDATE',
	e => 'queue table, DELETE RETURNING, ON CONFLICT');

my ($workload, $file) = @ARGV;
my (%runs, @order);
open(my $in, '<', $file) or die "$file: $!\n";
while (<$in>)
{
	my ($c, $rows, $seconds, $cpu, $wal, $p50, $p99, $others) = split;
	push @order, $c unless $runs{$c};
	push @{ $runs{$c} }, { rate => $rows / $seconds, cpu => 1e6 * $cpu / $rows, wal => $wal / $rows, p50 => $p50, p99 => $p99,
		others => 100 * $others / $seconds };
}

sub median
{
	my @values = sort { $a <=> $b } grep { $_ ne '-' } @_;
	return undef unless @values;
	return ($values[ $#values / 2 ] + $values[ @values / 2 ]) / 2;
}
sub of { my ($c, $what) = @_; return median(map { $_->{$what} } @{ $runs{$c} }) }

# Of two contestants: the median of the ratios in each repetition.
sub ratio
{
	my ($one, $other, $what) = @_;
	return undef unless $runs{$one} && $runs{$other};
	return median(map { $runs{$one}[$_]{$what} / $runs{$other}[$_]{$what} } 0 .. $#{ $runs{$one} });
}
sub show { my ($format, $value) = @_; return defined $value ? sprintf($format, $value) : '-' }

printf "    %-42s %9s %7s %8s %8s  %s\n", '', 'events/s', 'of (a)', 'CPU us', 'WAL B', 'visible after, p50 / p99';
for my $c (@order)
{
	my $delay = defined of($c, 'p50') ? sprintf('%.0f / %.0f ms', of($c, 'p50'), of($c, 'p99')) : $c eq 'd' ? 'at once' : '-';
	printf "(%s) %-42s %8.0fk %7s %8.2f %8.1f  %s\n", $c, $name{$c}, of($c, 'rate') / 1000,
		show('%.2f', ratio($c, 'a', 'rate')), of($c, 'cpu'), of($c, 'wal'), $delay;
}

# Two processes of the server work at once in (b) and (e): they suffer most.
my @busy = grep { of($_, 'others') > 10 } @order;
printf "    NOTE: other processes took %.0f %% of a core meanwhile: the rates of (b) and (e) are too low\n",
	median(map { of($_, 'others') } @busy) if @busy;

# Targets: what, which ratio or value, at least or at most.
my @targets = (
	[ '(s) events/s, of (a)', ratio('s', 'a', 'rate'), '>=', 0.80 ],
	[ '(b) events/s, of (a)', ratio('b', 'a', 'rate'), '>=', $workload eq 'w1' ? 0.85 : 0.60 ],
	($workload eq 'w2' ? [ '(b) events/s, of (d)', ratio('b', 'd', 'rate'), '>=', 3 ] : ()),
	[ '(b) CPU per event, of (d)', ratio('b', 'd', 'cpu'), '<', 1 ],
	[ '(b) WAL per event, of (d)', ratio('b', 'd', 'wal'), '<', 1 ],
	[ '(b) visible after, p99, s', defined of('b', 'p99') ? of('b', 'p99') / 1000 : undef, '<', 1 ]);
print "\n";
for my $target (grep { $runs{b} || $_->[0] =~ /^\(s\)/ } @targets)
{
	my ($what, $value, $than, $limit) = @$target;
	next unless defined $value;
	my $met = $than eq '<' ? $value < $limit : $value >= $limit;
	printf "    %-32s %6.2f   target %2s %-4s   %s\n", $what, $value, $than, $limit, $met ? 'met' : 'MISSED';
}
