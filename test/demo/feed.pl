#!/usr/bin/perl
# feed.pl FILE SECONDS [plain]: a file of COPY rows as a script for psql that copies them into the stream
# flights, 200 rows a transaction, spread evenly over that many seconds. plain: just the lines, at that pace.
use strict;
use warnings;
use IO::Handle;
use Time::HiRes qw(time sleep);

use constant ROWS => 200;

my ($file, $seconds, $plain) = @ARGV;
my ($before, $after) = $plain ? ('', '') : ("COPY flights FROM STDIN;\n", "\\.\n");
open(my $in, '<', $file) or die "$file: $!\n";
my @rows = <$in>;
my $start = time;
STDOUT->autoflush(1);
for (my $first = 0; $first < @rows; $first += ROWS)
{
	my $last = $first + ROWS - 1 < $#rows ? $first + ROWS - 1 : $#rows;
	my $wait = $start + $seconds * $first / @rows - time;
	sleep($wait) if $wait > 0;
	print $before, @rows[$first .. $last], $after;
}
