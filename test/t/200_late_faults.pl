# 200_late_faults.pl: closed windows that late events may still correct, and keys that have been seen, when batches fail
# and servers die.
#
# A batch that has emitted groups, or corrected rows, is undone at every point where it can fail, in memory that does
# not hold all groups: the rows that it gave to groups are forgotten, in memory and out of it, and so are the keys that it saw.  Unlogged
# groups and keys are made again, and that fails, too.  After each of them the results are the batch answer.
#
#   SA_SEED=n    repeats a run
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Utils;
use Test::More;

use Faults;
use StreamAggTest;

my $seed = $ENV{SA_SEED} // int(rand(2**31));
note "seed $seed";
srand($seed);

my $node = make_node('late_faults', conf => "stream_agg.state_memory = '64kB'\nautovacuum = off\n");
$node->start;
Faults::prepare($node);
$node->safe_psql('postgres', <<'SQL');
CREATE EXTENSION stream_agg;
CREATE FUNCTION see_key_step(timestamptz, timestamptz, timestamptz) RETURNS timestamptz LANGUAGE sql IMMUTABLE AS
	'SELECT CASE WHEN $1 > $3 OR $3 IS NULL AND $1 IS NOT NULL THEN $1 WHEN $2 > $3 OR $3 IS NULL THEN $2 ELSE $1 END';
CREATE AGGREGATE see_key(timestamptz, timestamptz) (sfunc = see_key_step, stype = timestamptz);
CREATE TABLE l (id int, key text, k text, at timestamptz, v int);
CREATE FOREIGN TABLE s (id int, key text, k text, at timestamptz, v int) SERVER stream_staged
	OPTIONS (event_time 'at', watermark '1 minute', max_future 'infinity');
CREATE PROCEDURE feed(first int, last int) LANGUAGE sql AS $$
	WITH x AS (INSERT INTO l SELECT i, repeat((hashint4(i + 2) % 40)::text, 99), rpad((hashint4(i) % 60)::text, 300), '2024-01-01Z'::timestamptz + i * interval '1 second'
			- (hashint4(i + 1) & 511) * interval '1 second', i % 50
		FROM generate_series(first, last) i RETURNING *)
	INSERT INTO s SELECT * FROM x;
$$;
SQL
my $query = "SELECT k, window_start, window_end, count(*) AS n, avg(v) AS mean, max(id) AS top FROM %s GROUP BY 1, 2, 3";
my %views = (appended => 'append', updated => 'update', unlogged => 'append', single => 'update', singly => 'append', single_unlogged => 'update');
for my $view (sort keys %views)
{
	$node->safe_psql('postgres', "CREATE MATERIALIZED VIEW $view WITH (stream_agg.continuous, stream_agg.trigger = 'manual',"
		  . ($view =~ /^singl/ ? " stream_agg.dedup_key = 'key, v'," : '')
		  . " stream_agg.output_mode = '$views{$view}', stream_agg.allowed_lateness = '5 minutes', stream_agg.max_batch_rows = "
		  . (50 + int(rand(400))) . ', stream_agg.state = ' . ($view =~ /unlogged|singly/ ? "'unlogged'" : "'heap'") . ') AS '
		  . sprintf($query, "s, tumble(at, '2 minutes')"));
}
my $fed = 0;

sub is_right
{
	my ($name) = @_;
	my $judged = "(SELECT *, max(at) OVER (ORDER BY id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) - interval '1 minute' AS wm,"
	  . " stream_agg.window_end(at, '2 minutes', NULL) + interval '5 minutes' AS until FROM l) l";
	my $seen = "(SELECT *, see_key(until, wm) OVER (PARTITION BY key, v ORDER BY id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS seen FROM $judged) l";
	my $single = "(SELECT * FROM $seen WHERE coalesce(seen <= wm, seen IS NULL)) l";
	my $sql = "SET TIME ZONE 'UTC';\n";
	for my $view (sort keys %views)
	{
		my $answer = sprintf($query, ($view =~ /^singl/ ? $single : $judged)
			  . ", tumble(at, '2 minutes') WHERE wm IS NULL OR until > wm");
		$answer .= " HAVING window_end <= (SELECT max(at) - interval '1 minute' FROM l)" if $views{$view} eq 'append';
		$sql .= "SELECT '$view', x FROM ((($answer) EXCEPT ALL TABLE $view) UNION ALL (TABLE $view EXCEPT ALL ($answer))) x LIMIT 3;\n";
	}
	is($node->safe_psql('postgres', $sql), '', $name);
	is($node->safe_psql('postgres', 'SELECT view, status, read, late, corrections FROM stream_agg.views WHERE NOT (' . balanced_counters()
			  . " AND status = 'running' AND late > 0 AND corrections > 0 AND (duplicate > 0) = (view::text LIKE 'singl%') AND read = $fed)"), '', "$name: everything is read once");
	return;
}

sub feed
{
	my ($count) = @_;
	$node->safe_psql('postgres', 'CALL feed(' . ($fed + 1) . ', ' . ($fed + $count) . ')');
	$fed += $count;
	return;
}

feed(1500);
$node->safe_psql('postgres', "CALL stream_agg.run('s', '180 s')");
is_right('at first');
my $old = $node->safe_psql('postgres', 'SELECT sum(corrections) FROM stream_agg.views');
for my $fault ([ 'close_window', 'shortage' ], [ 'result_write', 'shortage' ], [ 'state_write', 'shortage' ], [ 'result_write', 'kill' ],
	[ 'state_write', 'kill' ], [ 'close_window', 'exit' ], [ 'spill', 'shortage' ], [ 'fold', 'shortage' ], [ 'state_write', 'exit' ],
	[ 'rebuild', 'exit' ], [ 'rebuild', 'kill' ])
{
	my ($point, $action) = @$fault;
	my @concerned = grep { $point =~ /spill|rebuild/ ? /unlogged|singly/ : $point eq 'fold' ? $_ eq 'single' : 1 } sort keys %views;
	my $view = $concerned[ rand @concerned ];
	my $pass = $point eq 'result_write' ? 1 + int(rand(60)) : 1;
	my $name = "$action at pass $pass of $point in $view";
	feed(200 + int(rand(400)));
	my $before = StreamAggTest::checkpointer($node);
	Faults::arm($node, 'state_write', 'exit', relation => $view) if $point eq 'rebuild';    # it has to be lost first
	Faults::arm($node, $point, $action, pass => $pass, relation => $view);
	my $run = start_script($node, 'run', "CALL stream_agg.run('s', '180 s');\n");
	if ($action eq 'kill')
	{
		wait_until_up($node, $before);
		$StreamAggTest::kills++;
	}
	else
	{
		wait_until("$name has fired", sub { Faults::state($node, $point) eq 'fired' });
	}
	wait_until("run() after $name", sub { defined try_query($node, "CALL stream_agg.run('s', '180 s')") });
	stop_script($run);
	is_right("after $name");
}
$node->restart;
feed(300);
$node->safe_psql('postgres', "CALL stream_agg.run('s', '180 s')");
is_right('after a restart');
my @crashes = unexpected_crashes($node);
is(scalar(@crashes), 0, 'no crash but those we made') or diag join("\n", @crashes);
$node->stop;
done_testing();
