#!/usr/bin/perl
# kafka_report.pl WORKLOAD FILE: a table of medians, and the targets beside what was reached. Each line of FILE:
# contestant, events, batches, seconds, CPU seconds, result rows written for each event, shares of the seconds spent in
# reading, folding, writing, committing (or -), and how much of a core the rest of the machine had. The lines of a
# repetition follow each other, and ratios are taken inside it.
#
# kafka_report.pl batches: what the size of batches does to the number of writes, from the files *.batches.
use strict;
use warnings;

my %name = (
	consume => 'the client library alone',
	decode => 'and decoded into batches',
	fold => 'and folded; nothing written',
	write => 'and written, in one session',
	update => 'stream_agg, update mode',
	append => 'stream_agg, append mode',
	statement => 'decoded, then GROUP BY, ON CONFLICT');
my @fields = qw(events batches seconds cpu writes reading folding writing committing others);

sub median
{
	my @values = sort { $a <=> $b } grep { $_ ne '-' } @_;
	return undef unless @values;
	return ($values[ $#values / 2 ] + $values[ @values / 2 ]) / 2;
}

sub show { my ($format, $value) = @_; return defined $value ? sprintf($format, $value) : '-' }

sub lines
{
	my ($file) = @_;
	open(my $in, '<', $file) or return ();
	return map { [split] } <$in>;
}

sub report_batches
{
	my %what = (latency => 'keeping up, 1,000 customers', k1 => 'in backlog, 1,000 customers', k2 => 'in backlog, 100,000 customers');
	my @found = map { lines("$_.batches") } qw(latency k1 k2);
	return unless @found;
	print "batches and writes, update mode:   events/batch   result rows written/event\n";
	printf "    %-30s %12.0f   %10.3f\n", $what{ $_->[0] }, @$_[ 1, 2 ] for @found;
	print "\n";
	return;
}

my ($workload, $file) = @ARGV;
if ($workload eq 'batches')
{
	report_batches();
	exit;
}

my (%runs, @order);
for my $line (lines($file))
{
	my ($c, @values) = @$line;
	my %run;
	@run{@fields} = @values;
	$run{rate} = $run{events} / $run{seconds};
	$run{cpu} *= 1e6 / $run{events};
	$run{size} = $run{events} / $run{batches} if $run{batches} > 0;
	push @order, $c unless $runs{$c};
	push @{ $runs{$c} }, \%run;
}

sub of { my ($c, $what) = @_; return median(map { $_->{$what} // '-' } @{ $runs{$c} }) }

# Of two contestants: the median of the ratios in each repetition.
sub ratio
{
	my ($one, $other, $what) = @_;
	return undef unless $runs{$one} && $runs{$other};
	return median(map { $runs{$one}[$_]{$what} / $runs{$other}[$_]{$what} } 0 .. $#{ $runs{$one} });
}

printf "%-10s %-36s %9s %8s %9s %9s %9s\n", '', '', 'events/s', 'of fold', 'CPU s/M', 'ev./batch', 'writes/ev';
for my $c (@order)
{
	my $writes = $c =~ /consume|decode|fold/ ? undef : of($c, 'writes');
	printf "%-10s %-36s %8.0fk %8s %9.2f %9s %9s\n", $c, $name{$c}, of($c, 'rate') / 1000, show('%.2f', ratio($c, 'fold', 'rate')),
		of($c, 'cpu'), $c eq 'consume' ? '-' : show('%.0f', of($c, 'size')), show('%.3f', $writes);
}

# Where the sessions' time went, and so how fast the writes alone would be.
print "\n";
for my $c (grep { defined of($_, 'folding') && !/consume|decode|fold/ } @order)
{
	my ($reading, $folding, $writing, $committing) = map { of($c, $_) } qw(reading folding writing committing);
	my $alone = $writing + $committing;
	printf "    %s: %.0f %% of the time reading, %.0f %% folding, %.0f %% writing, %.0f %% committing", $c,
		map { 100 * $_ } $reading, $folding, $writing, $committing;
	printf "; the writes alone: %.0f k rows a second", of($c, 'rate') * of($c, 'writes') / $alone / 1000 if $alone > 0;
	print "\n";
}

my @busy = grep { of($_, 'others') > 0.1 } @order;
printf "    NOTE: other processes took %.0f %% of a core meanwhile\n", 100 * median(map { of($_, 'others') } @busy) if @busy;

my @targets =
	$workload eq 'k1'
	? ([ 'update, events/s, of fold', ratio('update', 'fold', 'rate'), 0.75 ], [ 'append, events/s, of fold', ratio('append', 'fold', 'rate'), 0.75 ])
	: ([ 'update, events/s, of statement', ratio('update', 'statement', 'rate'), 2.2 ],
		[ 'append, events/s, of statement', ratio('append', 'statement', 'rate'), 2.2 ]);
print "\n";
for my $target (@targets)
{
	my ($what, $value, $limit) = @$target;
	next unless defined $value;
	printf "    %-32s %6.2f   target >= %-4s   %s\n", $what, $value, $limit, $value >= $limit ? 'met' : 'MISSED';
}

if ($runs{update})
{
	open(my $out, '>', "$workload.batches") or die "$workload.batches: $!\n";
	print $out join(' ', $workload, of('update', 'size'), of('update', 'writes')), "\n";
}
