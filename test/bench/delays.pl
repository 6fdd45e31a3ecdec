#!/usr/bin/perl
# delays.pl LOADED SEEN ROWS: how long committed rows took to be visible, in ms: median and 99th percentile
# over the transactions, of ROWS rows each. LOADED: a time a line, the start and after each commit.
# SEEN: lines "time|rows visible by then", others are passed over.
use strict;
use warnings;

my ($loaded, $seen, $rows) = @ARGV;

sub lines
{
	open(my $file, '<', $_[0]) or die "$_[0]: $!\n";
	chomp(my @lines = <$file>);
	return @lines;
}

my (undef, @commits) = lines($loaded);
my @samples = map { /^(\d+\.\d+)\|(\d+)$/ ? [ $1, $2 ] : () } lines($seen);
my @delays;
my $s = 0;
for my $i (0 .. $#commits)
{
	$s++ while $s < @samples && $samples[$s][1] < ($i + 1) * $rows;
	last if $s == @samples;
	my $delay = $samples[$s][0] - $commits[$i];
	push @delays, $delay > 0 ? $delay : 0;
}
die "rows of " . (@commits - @delays) . " transactions were never seen\n" if @delays < @commits;
@delays = sort { $a <=> $b } @delays;
printf "%.0f %.0f\n", map { 1000 * $delays[ int($_ * $#delays + 0.5) ] } 0.5, 0.99;
