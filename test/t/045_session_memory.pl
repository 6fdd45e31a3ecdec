# 045_session_memory.pl: many more sessions are open than memory for state holds: they leave it, and come back when events
# touch them, in update mode with states in the result and in the log, and in append mode, where late events may correct
# them or not; unlogged; through an orderly restart and a kill, until all close at once. Views are right, and stay within twice the limit.
#
#   SA_SEED=n           (default: from the clock)
#   SA_GROUPS=n         how many keys (default 40,000)
#   SA_LIMIT=kilobytes  of stream_agg.state_memory (default 92 bytes a key)
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Utils;
use Test::More;

use StreamAggCrowd;
use StreamAggOracle;
use StreamAggTest;

my $seed = $ENV{SA_SEED} || time % 1_000_000;
my $keys = $ENV{SA_GROUPS} || 40_000;
my $limit = $ENV{SA_LIMIT} || int($keys / 11);
my $rows = 10_000;    # that are written at a time
note "SA_SEED=$seed";

my %aggs = (counted => 'count(*) AS n, sum(v) AS total, max(pad) AS top', averaged => 'count(*) AS n, avg(v) AS mean, max(pad) AS top');
my %views = (counted => [ 'counted', 'update', 'heap' ], averaged => [ 'averaged', 'update', 'heap' ], closed => [ 'averaged', 'append', 'heap' ],
	corrected => [ 'averaged', 'append', 'heap', '10 minutes' ],
	unlogged => [ 'averaged', 'update', 'unlogged' ], closed_unlogged => [ 'averaged', 'append', 'unlogged' ]);

my $node = make_node('session_memory', conf => "stream_agg.state_memory = '${limit}kB'\nstream_agg.segment_size = '4MB'\nwork_mem = '64MB'\nautovacuum = off\n");
$node->start;
$node->safe_psql('postgres', <<'SQL' . join('', map { create_view($_) } sort keys %views));
CREATE EXTENSION stream_agg;
CREATE TABLE l (k int NOT NULL, at timestamptz NOT NULL, v int, pad text);
CREATE FOREIGN TABLE s (k int NOT NULL, at timestamptz NOT NULL, v int, pad text) SERVER stream_staged
	OPTIONS (event_time 'at', watermark '1 hour', max_future 'infinity');
SQL

sub create_view
{
	my ($name) = @_;
	my ($aggs, $mode, $state, $lateness) = @{ $views{$name} };
	return "CREATE MATERIALIZED VIEW $name WITH (stream_agg.continuous, stream_agg.trigger = 'manual', stream_agg.output_mode = '$mode',"
	  . " stream_agg.state = '$state', stream_agg.allowed_lateness = '" . ($lateness // 0) . "', stream_agg.max_batch_rows = 4000) AS SELECT k, window_start, window_end, $aggs{$aggs}"
	  . " FROM s, session(at, '10 minutes') GROUP BY k, window_start, window_end;\n";
}

my $crowd = StreamAggCrowd->new(node => $node, views => [ keys %views ], limit => $limit, rows => $rows,
	values => 'i % 100, repeat((i % 10)::text, 200)');

# Views against the sessions of the same events; those in append mode hold what is closed. They count what is not forgotten.
sub compare
{
	my ($what) = @_;
	my $sessions = StreamAggOracle::sessions('true', 'k') =~ s/,\s*\z//r;
	my $sql = "CREATE TEMP TABLE sessions AS WITH kept AS MATERIALIZED (SELECT *, at AS own_start, at + interval '10 minutes' AS own_end FROM l),"
	  . " $sessions TABLE sessions;\n";
	$sql .= "CREATE TEMP TABLE ${_}_answer AS SELECT k, window_start, window_end, $aggs{$_} FROM sessions GROUP BY k, window_start, window_end;\n"
	  for sort keys %aggs;
	my %answers;
	for my $name (sort keys %views)
	{
		my ($aggs, $mode, $state, $lateness) = @{ $views{$name} };
		$lateness //= 0;
		$answers{$name} = "SELECT * FROM ${aggs}_answer" . ($mode eq 'append' ?
			" WHERE window_end < (SELECT watermark FROM stream_agg.views WHERE view = '$name'::regclass)" : '');
		$sql .= "SELECT '$name is not counted right' FROM stream_agg.views v, LATERAL (SELECT count(*) FROM ${aggs}_answer"
		  . " WHERE window_end >= v.watermark - interval '$lateness') x (n) WHERE view = '$name'::regclass AND (groups <> n OR windows <> n);\n";
	}
	return $crowd->compare($what, $sql, %answers);
}

my $any = "abs(hashint8(i + $seed)::bigint) % $keys";
$crowd->feed('new sessions', $keys, "i::bigint * 7919 % $keys", "i % 1000 * interval '1 second'");
is($node->safe_psql('postgres', 'SELECT count(*), min(groups), max(groups) FROM stream_agg.views'), join('|', scalar keys %views, $keys, $keys), 'all are open');
$crowd->feed('sessions that come back', $rows, $any, "interval '20 minutes' + i % 600 * interval '1 second'");
$crowd->feed('others before them', $rows / 2, $any, "interval '-30 minutes' + i % 1800 * interval '1 second'");
compare('while they are open');
my $log = -s $node->logfile;
$node->restart;
$crowd->feed('after a restart', $rows / 2, $any, "interval '15 minutes' + i % 1800 * interval '1 second'");
is($crowd->rebuilds($log), 0, 'unlogged state survives an orderly stop');
$log = -s $node->logfile;
kill_server($node);
$node->start;
$crowd->feed('after a kill', $rows / 2, $any, "interval '12 minutes' + i % 1800 * interval '1 second'");
is($crowd->rebuilds($log), 2, 'and is made again after a kill');
$crowd->feed('some close', $rows / 2, "$any % 100", "interval '80 minutes'");
compare('when some have closed');
kill_server($node);
$node->start;
$crowd->feed('after another kill', $rows / 2, "$any % 100", "interval '90 minutes' + i % 1800 * interval '1 second'");
compare('when they have been made again from later on');
$crowd->feed('closing', 10, 'i', "interval '1 day'");
compare('after they have closed');
is($node->safe_psql('postgres', 'SELECT DISTINCT groups FROM stream_agg.views'), '10', 'they are forgotten');

is_deeply([ unexpected_crashes($node) ], [], 'no crash');
$node->stop;
done_testing();
