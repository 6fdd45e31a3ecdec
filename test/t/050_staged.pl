# 050_staged.pl: what staged streams do in the long run: segments that are left, given up and reused while the
# stream goes on, old snapshots, crashes, dump and restore, staged_limit.
#
# Every row carries a number, and a transform view ("rows") holds the numbers in the order of the stream.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time usleep);

use StreamAggTest;

my $node = make_node('staged', conf => "stream_agg.segment_size = '1MB'\nautovacuum_naptime = 1\n");
$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION stream_agg');

# A stream s with a ledger l of what was committed into it.
sub create_stream
{
	my ($s, $options) = @_;
	$node->safe_psql('postgres', "CREATE FOREIGN TABLE $s (n bigint, pad text) SERVER stream_staged" . ($options // '')
		  . "; CREATE TABLE ${s}_l (n bigint)");
	return;
}

sub create_view
{
	my ($s, $view, $options) = @_;
	$node->safe_psql('postgres',
		"CREATE MATERIALIZED VIEW $view WITH (stream_agg.continuous" . ($options // '') . ") AS SELECT n FROM $s");
	return;
}

my $next = 0;

# Rows of about 100 bytes, in one transaction.
sub insert_rows
{
	my ($s, $count, $db) = @_;
	my $first = $next + 1;
	$next += $count;
	$node->safe_psql($db // 'postgres', <<"SQL");
WITH x AS (INSERT INTO $s SELECT g, repeat('x', 50) FROM generate_series($first, $next) g RETURNING n) INSERT INTO ${s}_l SELECT n FROM x
SQL
	return;
}

sub answer
{
	my ($query, $db) = @_;
	return $node->safe_psql($db // 'postgres', $query);
}

sub run_stream
{
	my ($s, $db) = @_;
	return answer("CALL stream_agg.run('$s', '120 s')", $db);
}

sub staged_bytes
{
	my ($s, $db) = @_;
	return answer("SELECT staged_bytes FROM stream_agg.streams WHERE stream = '$s'::regclass", $db);
}

sub first_position { return answer("SELECT first_position FROM stream_agg.staged_stream WHERE stream = '$_[0]'::regclass"); }

# The stream goes on until its first position is beyond this one, and then moves twice more: each time
# the worker has just looked what of that which was given up before it may give back.
sub go_on_beyond
{
	my ($s, $position) = @_;
	for (0 .. 2)
	{
		wait_until("positions up to $position are given up", sub {
			insert_rows($s, 8000);
			run_stream($s);
			return first_position($s) > $position;
		});
		$position = first_position($s);
	}
	return;
}

# Empty when the view holds every committed row once.
sub differences
{
	my ($s, $view, $db) = @_;
	return answer("(SELECT n FROM ${s}_l EXCEPT ALL SELECT n FROM $view) UNION ALL (SELECT n FROM $view EXCEPT ALL SELECT n FROM ${s}_l) LIMIT 5", $db);
}

# ---- segments are left, given up and reused while the stream goes on
{
	create_stream('s');
	create_view('s', 's_rows');
	my $bound = 16 * 1024 * 1024;
	my %files;
	for (1 .. 60)    # about four times as much
	{
		insert_rows('s', 8000);
		run_stream('s');
		$files{$_} = 1 for split /\n/, answer("SELECT pg_relation_filenode(segment) FROM stream_agg.staged_segment WHERE stream = 's'::regclass");
		wait_until('rows are given back', sub { return staged_bytes('s') <= $bound; });
	}
	cmp_ok(scalar(keys %files), '>=', 4, 'several segments have come and gone');
	cmp_ok(answer("SELECT count(*) FROM stream_agg.staged_segment WHERE stream = 's'::regclass"), '<=', 12, 'segments are reused');
	cmp_ok(answer("SELECT count(*) FROM stream_agg.staged_order WHERE stream = 's'::regclass"), '<', 20, 'the order forgets what is gone');
	is(answer("SELECT coalesce(sum(n_dead_tup), 0) FROM pg_stat_all_tables JOIN stream_agg.staged_segment ON segment = relid"), '0',
		'no row dies in a segment');
	cmp_ok(answer("SELECT max(pg_relation_size(c)) FROM unnest('{stream_agg.staged_order,stream_agg.staged_stream,stream_agg.staged_segment,stream_agg.view_position}'::regclass[]) c"),
		'<', 200_000, 'the catalog stays small');
	is(differences('s', 's_rows'), '', 'every row once');
	is(answer("SELECT sum(n) FROM (SELECT \"read\" - accepted AS n FROM stream_agg.views) x"), '0', 'all accepted');
}

# ---- a writer that holds a segment: only that one stays
{
	my $writer = $node->background_psql('postgres');
	$writer->query_safe("BEGIN; INSERT INTO s VALUES (-1, 'held'); INSERT INTO s_l VALUES (-1)");
	my $held = first_position('s');
	my $writing = "SELECT writing FROM stream_agg.staged_stream WHERE stream = 's'::regclass";
	my $held_segment = answer($writing);
	wait_until('the stream goes on beside an open writer', sub {
		insert_rows('s', 8000);
		run_stream('s');
		return 0 if answer($writing) eq $held_segment;    # what it held must be left, or it is not given back
		return answer("SELECT count(*) FROM stream_agg.staged_segment WHERE stream = 's'::regclass AND pg_relation_size(segment) > 0") >= 4;
	});
	is(differences('s', 's_rows'), '', 'the others are read meanwhile');
	$writer->query_safe('COMMIT');
	$writer->quit;
	run_stream('s');
	is(differences('s', 's_rows'), '', 'and he himself once he commits');
	wait_until('what he held is given back', sub { return first_position('s') > $held && staged_bytes('s') < 4_000_000; });
	pass('what he held is given back');
}

# ---- an old snapshot: it finds what is unread as it sees positions, however far the views are by now
{
	answer("SELECT stream_agg.pause('s_rows')");
	insert_rows('s', 8000) for 1 .. 3;
	my $query = <<'SQL';
SELECT (SELECT count(*) FROM s_l) AS committed, (SELECT count(*) FROM s_rows) AS read,
	(SELECT count(*) FROM (SELECT n FROM s_l EXCEPT ALL (SELECT n FROM s_rows UNION ALL SELECT n FROM s)) x) AS missing,
	(SELECT position - (SELECT count(*) FROM s_rows) FROM stream_agg.partitions WHERE view = 's_rows'::regclass) AS apart
SQL
	my $before = answer($query);
	my $old = $node->background_psql('postgres');
	$old->query_safe("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1");    # a snapshot, and no lock
	my $was = first_position('s');
	answer("SELECT stream_agg.resume('s_rows')");
	go_on_beyond('s', $was + 40_000);
	like($before, qr/^\d+\|\d+\|0\|0$/, 'rows and position agree');
	is($old->query_safe($query), $before, 'and go on to agree in an old snapshot');
	cmp_ok(staged_bytes('s'), '>', 24_000 * 80, 'for which the rows are kept');
	$old->query_safe('COMMIT');
	$old->quit;
	wait_until('they are given back', sub { return staged_bytes('s') < 2_500_000; });
	pass('until it ends');
}

# ---- an old snapshot that sees what every view has read, but not that it was given up: all is there from the
# first position on, as a new view in a dump of that snapshot will read it
{
	my ($old, $snapshot, $kept);
	wait_until('a snapshot sees rows that are read, and not given up', sub {
		insert_rows('s', 8000) for 1 .. 3;
		run_stream('s');
		$old = $node->background_psql('postgres');
		$snapshot = $old->query_safe('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT pg_export_snapshot()');
		$kept = $old->query_safe("SELECT next_position - first_position FROM stream_agg.staged_stream WHERE stream = 's'::regclass");
		return 1 if $kept > 0;
		$old->quit;
		return 0;
	});
	go_on_beyond('s', answer("SELECT next_position FROM stream_agg.staged_stream WHERE stream = 's'::regclass"));
	cmp_ok($old->query_safe('SELECT count(*) FROM s'), '>=', $kept, 'and finds it');
	my $file = "$PostgreSQL::Test::Utils::tmp_check/snapshot.dump";
	$node->command_ok([ 'pg_dump', '-Fc', '-f', $file, "--snapshot=$snapshot", '-d', $node->connstr('postgres') ], 'dump of the snapshot');
	$old->query_safe('COMMIT');
	$old->quit;
	$node->safe_psql('postgres', 'CREATE DATABASE snapshot');
	$node->command_ok([ 'pg_restore', '--exit-on-error', '-d', $node->connstr('snapshot'), $file ], 'its restore');
	answer('CREATE MATERIALIZED VIEW s_new WITH (stream_agg.continuous) AS SELECT n FROM s; SELECT stream_agg.resume(\'s_rows\')', 'snapshot');
	run_stream('s', 'snapshot');
	is(answer('SELECT count(*), count(DISTINCT n) FROM s_new', 'snapshot'), "$kept|$kept", 'a new view reads it all there');
	is(differences('s', 's_rows', 'snapshot'), '', 'and the old one goes on');
	answer('DROP DATABASE snapshot');
}

# ---- crashes between any two steps
{
	my @scripts = map {
		my $w = $_;
		start_script($node, "load_$w", join('', map {
					my $n = 10_000_000 * $w + 10_000 * $_;
					"WITH x AS (INSERT INTO s SELECT g, repeat('x', 50) FROM generate_series($n, $n + 1000) g RETURNING n) INSERT INTO s_l SELECT n FROM x;\n"
				  } 1 .. 3000), go_on => 1);
	} 1 .. 2;
	for my $round (1 .. 4)
	{
		my $from = first_position('s');
		wait_until('segments are given back', sub { my $p = try_query($node, "SELECT max(first_position) FROM stream_agg.staged_stream"); return defined $p && $p > $from; });
		if ($round % 2)
		{
			$node->stop('immediate');
			$node->start;
		}
		else
		{
			crash_child($node, "SELECT pid FROM pg_stat_activity WHERE backend_type = 'stream_agg worker' LIMIT 1");
		}
		next unless defined script_exit($scripts[0]) && $round < 4;
		my $n = 100_000_000 * $round;
		$scripts[0] = start_script($node, "load_1", join('', map {
					$n += 10_000;
					"WITH x AS (INSERT INTO s SELECT g, 'x' FROM generate_series($n, $n + 1000) g RETURNING n) INSERT INTO s_l SELECT n FROM x;\n"
				  } 1 .. 3000), go_on => 1);
	}
	stop_script($_) for @scripts;
	$node->poll_query_until('postgres', "SELECT count(*) = 0 FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()");
	run_stream('s');
	is(differences('s', 's_rows'), '', 'every row once after crashes');
	is(answer("SELECT \"read\" - accepted FROM stream_agg.views WHERE view = 's_rows'::regclass"), '0', 'counted once');
}

# ---- dump and restore: positions mean the same, and nobody takes from a view that waits to be resumed
{
	create_stream('d');
	create_view('d', 'd_rows');
	create_view('d', 'd_late', ", stream_agg.trigger = 'manual'");
	insert_rows('d', 500);
	run_stream('d');
	answer("SELECT stream_agg.pause('d_late')");
	insert_rows('d', 700);
	wait_until('one view is ahead', sub { return answer('SELECT count(*) FROM d_rows') == 1200; });
	answer("SELECT stream_agg.pause('d_rows')");
	insert_rows('d', 300);
	answer("BEGIN; INSERT INTO d VALUES (-5); ROLLBACK");

	# A dump in the middle of what another stream does.
	my $load = start_script($node, 'load_dump', join('', map {
				my $n = 1_000_000_000 + 10_000 * $_;
				"WITH x AS (INSERT INTO s SELECT g, 'x' FROM generate_series($n, $n + 500) g RETURNING n) INSERT INTO s_l SELECT n FROM x;\n"
			  } 1 .. 5000), go_on => 1);
	wait_until('it is under way', sub { return answer('SELECT max(n) > 1000000000 FROM s_l') eq 't'; });
	my $file = "$PostgreSQL::Test::Utils::tmp_check/all.dump";
	$node->command_ok([ 'pg_dump', '-Fc', '-f', $file, '-d', $node->connstr('postgres') ], 'dump');
	stop_script($load);
	$node->safe_psql('postgres', 'CREATE DATABASE restored');
	$node->command_ok([ 'pg_restore', '--exit-on-error', '-d', $node->connstr('restored'), $file ], 'restore');

	is(answer("SELECT string_agg(DISTINCT status, ',') FROM stream_agg.views", 'restored'), 'restored', 'restored views wait');
	is(answer("SELECT count(*) FROM pg_stat_activity WHERE datname = 'restored' AND backend_type = 'stream_agg worker'"), '0', 'without a worker');
	my ($rc, $out, $err) = $node->psql('restored', "CALL stream_agg.run('d')");
	like($err, qr/has not been resumed after a restore/, 'run says so');
	my $order = "SELECT view, position, \"read\" FROM stream_agg.partitions JOIN stream_agg.views v USING (view) WHERE v.stream = 'd'::regclass ORDER BY view::text";
	is(answer($order, 'restored'), answer($order), 'positions are the same');
	is(answer('SELECT n FROM d', 'restored'), answer('SELECT n FROM d'), 'and so is the order of the rows');

	# One view goes on and reads a lot; what the other has not read stays.
	answer("SELECT stream_agg.resume('d_rows')", 'restored');
	insert_rows('d', 8000, 'restored') for 1 .. 3;
	wait_until('the resumed one has read', sub { return answer('SELECT count(*) FROM d_rows', 'restored') == 25_500; });
	wait_until('segments are left', sub {
		insert_rows('d', 8000, 'restored');
		return answer("SELECT count(*) FROM stream_agg.staged_segment WHERE stream = 'd'::regclass", 'restored') >= 3;
	});
	answer("SELECT stream_agg.resume('d_late')", 'restored');
	run_stream('d', 'restored');
	is(differences('d', 'd_rows', 'restored'), '', 'the first view goes on exactly');
	is(differences('d', 'd_late', 'restored'), '', 'so does the other one');
	is(answer("SELECT count(*) FROM (SELECT n, row_number() OVER (ORDER BY ctid) FROM d_rows EXCEPT SELECT n, row_number() OVER (ORDER BY ctid) FROM d_late) x", 'restored'),
		'0', 'in the same order');
	is(answer("SELECT count(*) FROM stream_agg.views WHERE NOT (" . balanced_counters() . ")", 'restored'), '0', 'counters are balanced');

	# The stream that was dumped in motion.
	answer("SELECT stream_agg.resume('s_rows')", 'restored');
	run_stream('s', 'restored');
	is(differences('s', 's_rows', 'restored'), '', 'a stream dumped in motion goes on exactly');

	# What a restore brought belongs to its stream.
	answer('CREATE DATABASE again');
	$node->command_ok([ 'pg_restore', '--exit-on-error', '-d', $node->connstr('again'), $file ], 'restore again');
	answer('DROP FOREIGN TABLE d CASCADE; DROP FOREIGN TABLE s CASCADE', 'again');
	is(answer("SELECT relname FROM pg_class WHERE relname ~ '^staged_[0-9]'", 'again'), '', 'dropping a restored stream leaves nothing behind');
	is(answer("SELECT count(*) FROM stream_agg.staged_segment", 'again'), '0', 'nor does it in the catalog');

	answer("SELECT stream_agg.resume('d_rows'); SELECT stream_agg.resume('d_late')");
	run_stream('d');
	is(differences('d', 'd_late'), '', 'the original goes on as well');
}

# ---- staged_limit: the slowest view loses, its neighbours do not
{
	create_stream('m', " OPTIONS (staged_limit '4MB')");
	create_view('m', 'm_fast');
	create_view('m', 'm_slow');
	insert_rows('m', 100);
	run_stream('m');
	answer("SELECT stream_agg.pause('m_slow')");
	wait_until('more than the limit has been staged and given back', sub {
		insert_rows('m', 8000);
		run_stream_view('m_fast');
		return first_position('m') > 60_000;
	});
	wait_until('the limit is kept', sub { return staged_bytes('m') <= 4_500_000; });
	is(differences('m', 'm_fast'), '', 'the fast view misses nothing');
	answer("SELECT stream_agg.resume('m_slow')");
	wait_until('the slow view has failed', sub { return answer("SELECT status FROM stream_agg.views WHERE view = 'm_slow'::regclass") eq 'failed'; });
	like(answer("SELECT message FROM stream_agg.views WHERE view = 'm_slow'::regclass"),
		qr/^records from position 100 to \d+ of its stream are no longer kept: it holds positions \d+ to before \d+$/, 'it names what is lost');
	insert_rows('m', 50);
	run_stream_view('m_fast');
	is(differences('m', 'm_fast'), '', 'its neighbour goes on');
	is(answer("SELECT \"read\" FROM stream_agg.views WHERE view = 'm_slow'::regclass"), '100', 'the failed one does not');

	answer("ALTER FOREIGN TABLE m OPTIONS (ADD on_data_loss 'skip')");
	answer("SELECT stream_agg.resume('m_slow')");
	run_stream('m');
	my $total = answer('SELECT count(*) FROM m_l');
	is(answer("SELECT \"read\" = $total AND skipped > 0 AND \"read\" = skipped + accepted AND accepted = (SELECT count(*) FROM m_slow) FROM stream_agg.views WHERE view = 'm_slow'::regclass"),
		't', 'with on_data_loss = skip it goes on behind, and what is lost is counted');
	is(answer('SELECT count(*) FROM (SELECT n FROM m_slow EXCEPT SELECT n FROM m_l) x'), '0', 'with rows of the stream');

	# Nobody reads at all.
	answer("SELECT stream_agg.pause('m_fast'); SELECT stream_agg.pause('m_slow')");
	wait_until('what nobody reads is given up too', sub {
		insert_rows('m', 8000);
		return first_position('m') > $total + 20_000;
	});
	wait_until('and given back', sub { return staged_bytes('m') <= 4_500_000; });
	answer("SELECT stream_agg.resume('m_fast'); SELECT stream_agg.resume('m_slow')");
	run_stream('m');
	is(answer("SELECT DISTINCT \"read\" = (SELECT count(*) FROM m_l) AND \"read\" = skipped + accepted FROM stream_agg.views WHERE stream = 'm'::regclass"),
		't', 'and counted as skipped');
}

# A run of one view, whatever state its neighbours are in.
sub run_stream_view { return answer("CALL stream_agg.run('$_[0]', '120 s')"); }

my @crashes = unexpected_crashes($node);
is(scalar(@crashes), 0, 'no crash but those we made') or diag join("\n", @crashes);
my @logged = grep { /not read yet/ } split /\n/, slurp_file($node->logfile);
is(scalar(@logged), 0, 'no segment was taken for read too early') or diag $logged[0];
$node->stop;
done_testing();
