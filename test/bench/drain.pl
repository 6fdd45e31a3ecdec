#!/usr/bin/perl
# drain.pl ROWS UPSERT: contestant (e)'s second session: a loop that moves what is in the queue "events"
# into the totals, until so many rows have come. Prints the time after each commit, and the rows so far.
use strict;
use warnings;
use IPC::Open2;
use Time::HiRes qw(time sleep);

use constant VACUUM_EVERY => 200_000;	# rows; without it each turn reads past all that went before

my ($rows, $upsert) = @ARGV;
open2(my $out, my $in, qw(psql -XqAt -v ON_ERROR_STOP=1));

sub ask
{
	print $in "$_[0];\n";
	$in->flush;
	my $answer = <$out>;
	defined $answer or die "the session ended\n";
	chomp $answer;
	return $answer;
}

my $sum = 0;
my $vacuumed = 0;
$| = 1;
ask('SET plan_cache_mode = force_custom_plan; SELECT 1');
print "ready\n";
while ($sum < $rows)
{
	my $n = ask("WITH arrived AS (DELETE FROM events RETURNING *), kept AS ($upsert) SELECT count(*) FROM arrived");
	$sum += $n;
	printf "%.6f|%d\n", time, $sum;
	if ($sum - $vacuumed >= VACUUM_EVERY)
	{
		ask('VACUUM events; SELECT 1');
		$vacuumed = $sum;
	}
	sleep(0.01) if $n == 0;
}
