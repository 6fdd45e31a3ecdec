# 047_session.pl: sessions hold the answer by gaps and islands, batch by batch, when batches fail on the way and are
# tried again, in the same worker: what a failed one has merged, moved and closed in memory is as it was. And after
# kills and restarts, with the log compacted in between, and memory that now holds all sessions and now does not. So do
# those that late events may correct, and of which nothing is ever forgotten. States are on the heap or unlogged, as it comes.
#
#   SA_SEED=n    repeats a run
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Utils;
use Test::More;

use Faults;
use StreamAggFeed;
use StreamAggOracle;
use StreamAggTest;

my $seed = $ENV{SA_SEED} // int(rand(2**31));
note "seed $seed";
srand($seed);

my $rounds = 12;
my $delay = '15 seconds';
my $gap = "CASE k WHEN 0 THEN interval '1 second' ELSE interval '4 seconds' END";
my @points = qw(query fold result_write close_window state_write before_commit compact spill rebuild);
my $node = make_node('session', conf => "max_worker_processes = 12\nstream_agg.state_memory = '64kB'\n");
$node->start;
$node->safe_psql('postgres', <<"SQL");
CREATE EXTENSION stream_agg;
CREATE TABLE l (id int, k int, at timestamptz, v int, pad text);
CREATE FOREIGN TABLE s (id int, k int, at timestamptz, v int, pad text) SERVER stream_staged
	OPTIONS (event_time 'at', watermark '$delay', max_future 'infinity');
SQL
Faults::prepare($node);

my %targets = (
	counted => { keys => ['k'], aggs => 'count(*) AS n, sum(v) AS total' },    # all of it in the results
	logged => { keys => ['k'], aggs => 'avg(v) AS mean, max(pad) AS pad, count(*) AS n' },
	ended => { keys => ['k'], aggs => 'avg(v) AS mean, max(pad) AS pad, count(*) AS n', mode => 'append' },
	single => { keys => [], aggs => 'stddev(v) AS spread, count(*) AS n', mode => 'append', where => 'k IN (0, 7)' },
	corrected => { keys => ['k'], aggs => 'avg(v) AS mean, max(pad) AS pad, count(*) AS n', mode => 'append', lateness => '8 seconds' },
	refused => { keys => [], aggs => 'stddev(v) AS spread, count(*) AS n', mode => 'append', lateness => '1 second', having => 'count(*) % 2 = 0', where => 'k = 0' },
	changing => { keys => ['k'], aggs => 'count(*) AS n, sum(v) AS total', lateness => '8 seconds' },
	whole => { keys => ['k'], aggs => 'avg(v) AS mean, count(*) AS n', mode => 'complete' });

sub select_list
{
	my ($view) = @_;
	return join(', ', @{ $targets{$view}{keys} }, 'window_start', 'window_end');
}

for my $view (sort keys %targets)
{
	my ($columns, $mode, $lateness) = (select_list($view), $targets{$view}{mode} // 'update', $targets{$view}{lateness} // '0');
	my $having = $targets{$view}{having} ? " HAVING $targets{$view}{having}" : '';
	$node->safe_psql('postgres', "CREATE MATERIALIZED VIEW $view WITH (stream_agg.continuous, stream_agg.output_mode = '$mode',"
		  . " stream_agg.state = '" . ($mode ne 'complete' && rand() < 0.5 ? 'unlogged' : 'heap') . "',"
		  . " stream_agg.trigger = 'manual', stream_agg.allowed_lateness = '$lateness', stream_agg.max_batch_rows = "
		  . (50 + int(rand(300))) . ") AS SELECT $columns, $targets{$view}{aggs} FROM s, session(at, $gap)"
		  . ($targets{$view}{where} ? " WHERE $targets{$view}{where}" : '') . " GROUP BY $columns$having");
}

# What is wrong with any view.
sub differences
{
	my $sql = '';
	for my $view (sort keys %targets)
	{
		my ($columns, $aggs, $mode) = (select_list($view), $targets{$view}{aggs}, $targets{$view}{mode} // 'update');
		my $lateness = $targets{$view}{lateness} // '0';
		my $kept = $mode eq 'complete' ? 'true' : "wm IS NULL OR at + interval '$lateness' >= wm";
		my $closed = $mode eq 'append' ? "WHERE window_end < (SELECT max(at) FROM l) - interval '$delay'" : '';
		my $having = $targets{$view}{having} ? "HAVING $targets{$view}{having}" : '';
		my $sessions = StreamAggOracle::sessions('true', @{ $targets{$view}{keys} }) =~ s/,\s*\z//r;
		$sql .= "WITH kept AS MATERIALIZED (SELECT *, at AS own_start, at + $gap AS own_end FROM (SELECT *,"
		  . " max(at) OVER (ORDER BY id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) - interval '$delay' AS wm FROM l) x"
		  . " WHERE ($kept)" . ($targets{$view}{where} ? " AND $targets{$view}{where}" : '')
		  . "), $sessions, answer AS (SELECT $columns, $aggs FROM sessions $closed GROUP BY $columns $having)\n"
		  . "SELECT '$view', x FROM ((TABLE answer EXCEPT ALL TABLE $view) UNION ALL (TABLE $view EXCEPT ALL TABLE answer)) x LIMIT 3;\n";
	}
	return $node->safe_psql('postgres', $sql);
}

my $id = 0;
my $at = 1_704_067_200;

sub feed
{
	my @rows = map {
		$at += rand(0.05);
		$at += 40 if rand() < 0.002;
		sprintf("(%d, %d, '1970-01-01Z'::timestamptz + %d * interval '100 milliseconds', %d, repeat('%d', 200))",
			++$id, int(rand() < 0.5 ? rand(10) : rand(200)), int(($at - rand(rand() < 0.3 ? 18 : 2)) * 10), int(rand(100)), $id % 10)
	} 1 .. 100 + int(rand(400));
	my $rows = join(",\n", @rows);
	$node->safe_psql('postgres', "WITH x AS (INSERT INTO l VALUES $rows RETURNING *) INSERT INTO s SELECT * FROM x");
	return;
}

my $fired = 0;
my $wrong = 0;
for my $round (1 .. $rounds)
{
	my $point = $points[ rand @points ];
	my $action = rand() < 0.15 ? 'kill' : 'shortage';
	my $view = $point =~ /write|close/ && rand() < 0.6 ? 'corrected' : undef;    # which has most to undo
	my $pass = $point =~ /query|fold|result/ ? 1 + int(rand($view ? 40 : 100)) : 1;
	feed();
	$node->restart if rand() < 0.1;
	crash_child($node, "SELECT pid FROM pg_stat_activity WHERE backend_type = 'stream_agg worker'") if $point eq 'rebuild';
	choose_memory($node) if rand() < 0.2;
	Faults::arm($node, $point, $action, pass => $pass, $view ? (relation => $view) : ());
	wait_until('all has been read', sub { defined try_query($node, "CALL stream_agg.run('s', '60 s')") });
	$fired += Faults::state($node, $point) ne 'armed';
	Faults::disarm($node);
	my $bytes = $node->safe_psql('postgres', 'SELECT max(state_bytes), max(groups) FROM stream_agg.views');
	note "$bytes bytes, groups";
	my $differences = differences();
	$wrong += $differences ne '';
	is($differences, '', "round $round, $action at $point" . ($view ? " in $view" : '') . ", pass $pass") if $differences ne '' || $round == $rounds;
	last if $wrong;
}
cmp_ok($fired, '>', $rounds / 4, "$fired batches failed");
is($node->safe_psql('postgres', "SELECT sum(late) > 0, max(message) IS NULL FROM stream_agg.views"), 't|t', 'some events were late');
is($node->safe_psql('postgres', "SELECT string_agg(view::text, ' ' ORDER BY view::text) FROM stream_agg.views WHERE corrections > 0"),
	'changing corrected refused', 'some of them were corrections');
$node->safe_psql('postgres', "INSERT INTO l VALUES (" . ++$id . ", 0, '2030-01-01Z', 0, ''); INSERT INTO s SELECT * FROM l WHERE id = $id; CALL stream_agg.run('s', '60 s')");
is(differences(), '', 'in the end');
is($node->safe_psql('postgres', "SELECT DISTINCT groups FROM stream_agg.views WHERE output_mode <> 'complete'"), '1',
	'all sessions but the last have been forgotten');
is($node->safe_psql('postgres', 'SELECT groups - (SELECT count(*) FROM whole) FROM stream_agg.views WHERE view = ' . "'whole'::regclass"), '0',
	'but where none is');
$node->stop;
done_testing();
