# 060_bloat.pl: a steady update-mode view does not bloat. Two million events of 32 groups in 1-minute windows,
# 32 a batch, so that nearly every event is an update: the result table stays within 100 pages of what its
# rows need, the state log and the tables of positions stay small.
#
#   SA_EVENTS=n     how many events (default 2,000,000)
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Utils;
use Test::More;

use StreamAggTest;

my $events = $ENV{SA_EVENTS} || 2_000_000;
my $node = make_node('bloat');
$node->start;
$node->safe_psql('postgres', <<'SQL');
CREATE EXTENSION stream_agg;
CREATE FOREIGN TABLE s (k int NOT NULL, ts timestamptz, v int) SERVER stream_staged
	OPTIONS (event_time 'ts', watermark '10 seconds');
CREATE MATERIALIZED VIEW v WITH (stream_agg.continuous, stream_agg.trigger = 'manual', stream_agg.max_batch_rows = 32) AS
	SELECT window_start, k, count(*) AS n, sum(v) AS total, max(v) AS top, avg(v) AS mean
	FROM s, tumble(ts, '1 minute') GROUP BY window_start, k;
SQL

# Half a minute of event time for every 100,000 events: ten windows for two million.
$node->safe_psql('postgres', <<"SQL");
INSERT INTO s SELECT i % 32, timestamptz '2024-01-01 00:00:00Z' + i / 32 * interval '9.6 ms', i % 1000
FROM generate_series(0, $events - 1) i;
SQL
$node->safe_psql('postgres', "CALL stream_agg.run('s')");

is($node->safe_psql('postgres', "SELECT sum(n), sum(total) FROM v"),
	$node->safe_psql('postgres', "SELECT count(*), sum(i % 1000) FROM generate_series(0, $events - 1) i"), 'the answer');
$node->safe_psql('postgres', 'CREATE TABLE fresh AS SELECT * FROM v');
my ($pages, $needed) = split /\|/,
	$node->safe_psql('postgres', "SELECT pg_relation_size('v') / 8192, pg_relation_size('fresh') / 8192");
cmp_ok($pages, '<=', $needed + 100, "result table: $pages pages, $needed needed");
my $log = $node->safe_psql('postgres', 'SELECT sum(pg_relation_size(state)) / 1048576 FROM stream_agg.view_config');
cmp_ok($log, '<=', 64, "state log: $log MB");
my $positions = $node->safe_psql('postgres',
	"SELECT greatest(pg_relation_size('stream_agg.view_position'), pg_relation_size('stream_agg.staged_stream'), pg_relation_size('stream_agg.staged_order')) / 8192");
cmp_ok($positions, '<=', 50, "tables of positions: at most $positions pages");

$node->stop;
done_testing();
