#!/usr/bin/perl
# kafka_pace.pl RATE SECONDS CUSTOMERS TICKS: so many events a second, as of now, as lines for kafka_tool: a bunch every
# millisecond. TICKS gets a time a line: the beginning, and before each bunch.
use strict;
use warnings;
use POSIX qw(strftime);
use Time::HiRes qw(time sleep);

my ($rate, $seconds, $customers, $ticks) = @ARGV;
my $bunch = $rate / 1000;
open(my $log, '>', $ticks) or die "$ticks: $!\n";
$| = 1;
my $start = time;
printf $log "%.6f\n", $start;
for my $tick (1 .. 1000 * $seconds)
{
	my $wait = $start + $tick / 1000 - time;
	sleep($wait) if $wait > 0;
	my $now = time;
	my $text = strftime('%Y-%m-%dT%H:%M:%S', gmtime($now)) . sprintf('.%03dZ', 1000 * ($now - int($now)));
	printf $log "%.6f\n", $now;
	print join '', map { sprintf qq({"customer_id":"C%05d","event_type":"purchase","event_time":"$text","event_id":"%08x-0000-4000-8000-%012x","amount":%.2f}\n),
		rand($customers), $tick, $_, int(rand(40000)) / 4 } 1 .. $bunch;
}
