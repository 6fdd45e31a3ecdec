#!/usr/bin/perl
# kafka_events.pl EVENTS CUSTOMERS DISTANCE: events as JSON, one a line. Event times ascend by so many microseconds, with
# up to ten seconds of disorder. Amounts are multiples of 1/4, so that their sums do not depend on the order.
use strict;
use warnings;
use POSIX qw(strftime);

use constant { FIRST => 1767322800, DISORDER => 10 };    # 2026-01-02 03:00

my ($events, $customers, $distance) = @ARGV;
my @kinds = qw(page_view purchase refund search);
my %text;    # of a second
srand(1);
for my $i (0 .. $events - 1)
{
	my $time = FIRST + $i * $distance / 1e6 - rand(DISORDER);
	my $second = int($time);
	$text{$second} //= strftime('%Y-%m-%dT%H:%M:%S', gmtime($second));
	printf '{"customer_id":"C%05d","event_type":"%s","event_time":"%s.%03dZ","event_id":"%08x-%04x-4%03x-8%03x-%012x","amount":%.2f}' . "\n",
		rand($customers), $kinds[ $i % 4 ], $text{$second}, 1000 * ($time - $second), rand(2**32), rand(2**16), rand(2**12),
		rand(2**12), rand(2**48), int(rand(40000)) / 4;
}
