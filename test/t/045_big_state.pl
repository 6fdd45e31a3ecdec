# 045_big_state.pl: many more groups are open than memory for state holds, and come and go: update mode with states in the
# result and in the log, append mode, unlogged; through an orderly restart and a kill, until their window closes. Views are right,
# and stay within twice the limit. The same with ten million groups: make big-state.
#
#   SA_SEED=n           (default: from the clock)
#   SA_GROUPS=n         how many (default 300,000)
#   SA_LIMIT=kilobytes  of stream_agg.state_memory (default 20.48 bytes a group: 6,000)
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Utils;
use Test::More;

use StreamAggCrowd;
use StreamAggTest;

my $seed = $ENV{SA_SEED} || time % 1_000_000;
my $groups = $ENV{SA_GROUPS} || 300_000;
my $limit = $ENV{SA_LIMIT} || int($groups / 50);
my $rows = 25_000;    # that are written at a time
note "SA_SEED=$seed";

# Of some aggregates the state is their result, of others it is not.
my %queries = (
	counted => "SELECT window_start, k, count(*) AS n, sum(v) AS total, max(v) AS top FROM %s, tumble(at, '1 day') GROUP BY window_start, k",
	averaged => "SELECT window_start, k, count(*) AS n, avg(v) AS mean FROM %s, tumble(at, '1 day') GROUP BY window_start, k");
my %views = (counted => [ 'counted', 'update', 'heap' ], averaged => [ 'averaged', 'update', 'heap' ],
	closed => [ 'averaged', 'append', 'heap' ], unlogged => [ 'averaged', 'update', 'unlogged' ], closed_unlogged => [ 'averaged', 'append', 'unlogged' ]);

my $node = make_node('big_state', conf => "stream_agg.state_memory = '${limit}kB'\nstream_agg.segment_size = '4MB'\nwork_mem = '64MB'\nautovacuum = off\n");
$node->start;
$node->safe_psql('postgres', <<'SQL' . join('', map { create_view($_) } sort keys %views));
CREATE EXTENSION stream_agg;
CREATE TABLE l (k int NOT NULL, at timestamptz NOT NULL, v int);
CREATE FOREIGN TABLE s (k int NOT NULL, at timestamptz NOT NULL, v int) SERVER stream_staged
	OPTIONS (event_time 'at', watermark '1 hour', max_future 'infinity');
SQL

sub create_view
{
	my ($name) = @_;
	my ($query, $mode, $state) = @{ $views{$name} };
	return "CREATE MATERIALIZED VIEW $name WITH (stream_agg.continuous, stream_agg.trigger = 'manual', stream_agg.output_mode = '$mode',"
	  . " stream_agg.state = '$state', stream_agg.max_batch_rows = 10000) AS " . sprintf($queries{$query}, 's') . ";\n";
}

my $crowd = StreamAggCrowd->new(node => $node, views => [ keys %views ], limit => $limit, rows => $rows, values => 'i % 100');

# Views against their queries over the same events; those in append mode hold what is closed.
sub compare
{
	my ($what) = @_;
	my $sql = join('', map { "CREATE TEMP TABLE ${_}_answer AS " . sprintf($queries{$_}, 'l') . ";\n" } sort keys %queries);
	my %answers;
	for my $name (keys %views)
	{
		my ($query, $mode) = @{ $views{$name} };
		$answers{$name} = "SELECT * FROM ${query}_answer" . ($mode eq 'append' ?
			" WHERE window_start + interval '1 day' <= (SELECT watermark FROM stream_agg.views WHERE view = '$name'::regclass)" : '');
	}
	return $crowd->compare($what, $sql, %answers);
}

# Groups come into being in no order, and all are in one window.
$crowd->feed('new groups', $groups, "i::bigint * 7919 % $groups", "i % 1000 * interval '1 minute'");
my $open = $node->safe_psql('postgres', 'SELECT count(*), min(groups), max(groups) FROM stream_agg.views');
is($open, join('|', scalar keys %views, $groups, $groups), 'all groups are open');
my $any = "abs(hashint8(i + $seed)::bigint) % $groups";
$crowd->feed('groups that come back', $rows, $any, "interval '20 hours'");
my $log = -s $node->logfile;
$node->restart;
$crowd->feed('after a restart', $rows, $any, "interval '21 hours'");
is($crowd->rebuilds($log), 0, 'unlogged state survives an orderly stop');
$log = -s $node->logfile;
kill_server($node);
$node->start;
$crowd->feed('after a kill', $rows, $any, "interval '22 hours'");
is($crowd->rebuilds($log), 2, 'and is made again after a kill');
$crowd->feed('a few of them', $rows, "$any % 100", "interval '23 hours'");
compare('while the window is open');
$node->restart;
$crowd->feed('closing', 10, 'i', "interval '2 days 1 hour'");
compare('after it has closed');
is($node->safe_psql('postgres', 'SELECT DISTINCT groups FROM stream_agg.views'), '10', 'its groups are forgotten');

is_deeply([ unexpected_crashes($node) ], [], 'no crash');
$node->stop;
done_testing();
