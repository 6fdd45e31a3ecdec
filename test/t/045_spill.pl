# 045_spill.pl: unlogged state that memory has no room for goes to the view's spill table, all of it when the worker
# stops in order; it is back from there without reading again, and made again after every other end. Heap state beside
# it, in as little memory.
#
#   SA_SEED=n    repeats a run
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Utils;
use Test::More;

use StreamAggTest;

my $seed = $ENV{SA_SEED} // int(rand(2**31));
note "seed $seed";
srand($seed);

my $keys = 3000;
my $node = make_node('spill', conf => "stream_agg.state_memory = '128kB'\n");
$node->start;
$node->safe_psql('postgres', <<"SQL");
CREATE EXTENSION stream_agg;
CREATE AGGREGATE ids(int) (sfunc = array_append, stype = int[], initcond = '{}');
CREATE TABLE l (id int, k int, at timestamptz, v int);
CREATE FOREIGN TABLE s (id int, k int, at timestamptz, v int) SERVER stream_staged
	OPTIONS (event_time 'at', watermark '10 minutes', max_future 'infinity');
CREATE PROCEDURE feed(first int, last int) LANGUAGE sql AS \$\$
	WITH x AS (INSERT INTO l SELECT i, hashint4(i) % $keys, '2024-01-01Z'::timestamptz + (i - i * 7 % 500) * interval '400 milliseconds', i % 50
		FROM generate_series(first, last) i RETURNING *)
	INSERT INTO s SELECT * FROM x;
\$\$;
SQL
my %queries = (
	closed => 'SELECT window_start, k, count(*) AS n, avg(v) AS mean, ids(id) AS ids FROM %s, tumble(at, \'15 minutes\') GROUP BY 1, 2',
	kept => 'SELECT window_start, k, count(*) AS n, stddev(v::numeric) AS spread, max(v) AS top FROM %s, hop(at, \'20 minutes\', \'10 minutes\') GROUP BY 1, 2');
my @views;
for my $kind (sort keys %queries)
{
	for my $state (qw(heap unlogged))
	{
		my $mode = $kind eq 'closed' ? 'append' : 'update';
		push @views, "${kind}_$state";
		$node->safe_psql('postgres', "CREATE MATERIALIZED VIEW ${kind}_$state WITH (stream_agg.continuous, stream_agg.output_mode = '$mode',"
			  . " stream_agg.state = '$state', stream_agg.trigger = 'manual', stream_agg.max_batch_rows = " . (300 + int(rand(3000))) . ") AS "
			  . sprintf($queries{$kind}, 's'));
	}
}

my $fed = 0;

sub feed
{
	my ($count) = @_;
	$node->safe_psql('postgres', 'CALL feed(' . ($fed + 1) . ', ' . ($fed + $count) . "); CALL stream_agg.run('s', '180 s')");
	$fed += $count;
	return;
}

sub is_right
{
	my ($name) = @_;
	my $sql = "SET TIME ZONE 'UTC';\n";
	for my $view (@views)
	{
		my ($kind) = $view =~ /^(\w+)_/;
		my $answer = sprintf($queries{$kind}, '(SELECT * FROM l ORDER BY id) l');
		$answer .= " HAVING window_start + interval '15 minutes' <= (SELECT max(at) - interval '10 minutes' FROM l)" if $kind eq 'closed';
		$sql .= "SELECT '$view', x FROM ((($answer) EXCEPT ALL TABLE $view) UNION ALL (TABLE $view EXCEPT ALL ($answer))) x LIMIT 3;\n";
	}
	is($node->safe_psql('postgres', $sql), '', $name);
	is($node->safe_psql('postgres', 'SELECT view, status, read, late FROM stream_agg.views WHERE NOT (' . balanced_counters()
			  . " AND status = 'running' AND late = 0 AND read = $fed)"), '', "$name: everything is read once");
	return;
}

my $offset = 0;

# How many views have been read again since the last call.
sub rebuilt
{
	my $log = slurp_file($node->logfile, $offset);
	$offset = -s $node->logfile;
	return scalar(() = $log =~ /records again to rebuild its state/g);
}

$node->append_conf('postgresql.conf', "log_min_messages = log\n");
$node->reload;
feed(8000) for 1 .. 3;
is_right('state in little memory');
is($node->safe_psql('postgres', "SELECT view, groups FROM stream_agg.views WHERE view::text LIKE 'kept%' AND groups <>"
		  . " (SELECT count(*) FROM kept_heap WHERE window_start + interval '20 minutes' > watermark)"), '', 'groups are counted, wherever they are');
is($node->safe_psql('postgres', "SELECT view, state_bytes FROM stream_agg.views WHERE state_bytes > 4 * 128 * 1024"), '', 'most of them are not in memory');
is($node->safe_psql('postgres', "SELECT view FROM stream_agg.view_config WHERE view::text LIKE '%unlogged' AND coalesce(pg_relation_size(spill), 0) = 0"), '',
	'but in the spill tables');

for my $round (1 .. 2)
{
	rebuilt();
	$node->restart;
	feed(1500);
	is(rebuilt(), 0, "round $round: after an orderly stop nothing is read again");
	terminate_workers($node);
	feed(1500);
	is(rebuilt(), 0, "round $round: nor when a worker is told to end");
	is_right("round $round: saved and restored");
	ok(crash_child($node, "SELECT pid FROM pg_stat_activity WHERE backend_type = 'stream_agg worker'"), "round $round: the worker is killed");
	feed(1500);
	is(rebuilt(), 2, "round $round: after a crash state is made again");
	is_right("round $round: made again");
}

# What was saved is good for no other place, and not without its mark.
$node->stop;
$node->append_conf('postgresql.conf', "stream_agg.state_memory = '256MB'\n");
$node->start;
$node->safe_psql('postgres', <<'SQL');
DO $$
DECLARE
	spill regclass;
BEGIN
	FOR spill IN SELECT c.spill FROM stream_agg.view_config c WHERE c.view = 'closed_unlogged'::regclass LOOP
		EXECUTE format('UPDATE %s SET data = data || ''1'' WHERE seq = 0', spill);
	END LOOP;
END $$;
SQL
rebuilt();
feed(1500);
is(rebuilt(), 1, 'of another place: made again');
is_right('of another place');
is(join("\n", unexpected_crashes($node)), '', 'no crash but ours');
$node->stop;
done_testing();
