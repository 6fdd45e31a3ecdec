# 030_failures.pl: what goes wrong stays where it belongs, and nothing is lost by it: errors in a view's
# expressions and in users' triggers, locks, no worker slots, standbys and promotion, DROP DATABASE and
# DROP EXTENSION, dump and restore, little memory for state.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(usleep);

use StreamAggTest;

our $node = make_node('failures');
$node->start;

my $worker = "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'stream_agg worker' AND datname = current_database()";

# A database of its own for each test, with a stream s and the table l for the same events.
sub make_database
{
	my ($db, $on) = @_;
	$on ||= $node;
	$on->safe_psql('postgres', "CREATE DATABASE $db");
	$on->safe_psql($db, <<'SQL');
CREATE EXTENSION stream_agg;
CREATE TABLE l (id int, ts timestamptz, k int, v int);
CREATE FOREIGN TABLE s (id int, ts timestamptz, k int, v int) SERVER stream_staged OPTIONS (event_time 'ts', watermark '10 minutes');
SQL
	return;
}

sub create_view
{
	my ($db, $name, $query, %options) = @_;
	my $with = join(', ', 'stream_agg.continuous', map { "stream_agg.$_ = '$options{$_}'" } sort keys %options);
	$node->safe_psql($db, "CREATE MATERIALIZED VIEW $name WITH ($with) AS $query");
	return;
}

# Events first .. last, one a minute, into the stream and the table.
sub insert_sql
{
	my ($first, $last) = @_;
	return "WITH x AS (INSERT INTO l SELECT g, '2024-01-01Z'::timestamptz + (g - g * 7 % 13) * interval '1 minute', g % 5, g % 10"
	  . " FROM generate_series($first, $last) g RETURNING *) INSERT INTO s SELECT * FROM x";
}

sub insert
{
	my ($db, $first, $last) = @_;
	$node->safe_psql($db, insert_sql($first, $last));
	return;
}

sub run_all
{
	my ($db, $what) = @_;
	my ($rc, $out, $err) = $node->psql($db, "CALL stream_agg.run('" . ($what || 's') . "', '60 s')");
	return $rc == 0 ? '' : $err;
}

# A statement that must come to its end by itself.
sub in_time
{
	my ($db, $sql, $name) = @_;
	my ($rc, $out, $err) = $node->psql($db, "SET statement_timeout = '60s'; SET client_min_messages = error; $sql");
	is($rc, 0, $name) or diag $err;
	return;
}

sub is_query
{
	my ($db, $query, $wanted, $name) = @_;
	return is($node->safe_psql($db, $query), $wanted, $name);
}

# Failing expressions: the events that fail, and no other, are this view's dead letters.
sub test_expressions
{
	my $db = 'expressions';
	make_database($db);
	create_view($db, 'in_where', 'SELECT k, count(*) AS n FROM s WHERE 10 / v < 100 GROUP BY k');
	create_view($db, 'in_argument', "SELECT window_start, k, sum(10 / v) AS n, count(*) FILTER (WHERE 1 / (v - 1) > -5) AS m"
		. " FROM s, tumble(ts, '1 hour') GROUP BY window_start, k");
	create_view($db, 'neighbour', 'SELECT k, count(*) AS n, sum(v) AS v FROM s GROUP BY k');
	create_view($db, 'strict', 'SELECT count(*) AS n FROM s WHERE 10 / v < 100', on_error => 'fail');
	insert($db, 1, 2);
	insert($db, 3, 1000);
	like(run_all($db), qr/strict/, 'on_error = fail: run() names the view');
	$node->poll_query_until($db, "SELECT count(*) = 3 FROM stream_agg.views WHERE read = 1000") or die;
	is_query($db, "SELECT status, message LIKE '%division by zero%', read < 1000 FROM stream_agg.views WHERE view = 'strict'::regclass",
		'failed|t|t', 'and it has failed, with the message');
	is_query($db, "SELECT read, failed, accepted FROM stream_agg.views WHERE view = 'in_where'::regclass", '1000|100|900',
		'events that fail in WHERE are counted');
	is_query($db, "SELECT read, failed, accepted + late FROM stream_agg.views WHERE view = 'in_argument'::regclass", '1000|200|800',
		'and those that fail in an argument');
	is_query($db, 'SELECT k, n FROM in_where EXCEPT ALL SELECT k, count(*) FROM l WHERE v <> 0 GROUP BY k', '', 'the others are in the results');
	is_query($db, 'SELECT * FROM neighbour EXCEPT ALL SELECT k, count(*), sum(v) FROM l GROUP BY k', '', 'the neighbour has all events');
	is_query($db, "SELECT count(DISTINCT position), count(*), bool_and(message LIKE '%division by zero%'), bool_and((event->>'v')::int = 0),"
		  . " bool_and(position = (event->>'id')::int - 1) FROM stream_agg.dead_letters WHERE view = 'in_where'::regclass AND reason = 'failed'",
		'100|100|t|t|t', 'each one is a dead letter with its reason, place and the event');
	is_query($db, "SELECT count(*) FROM stream_agg.dead_letters WHERE view = 'neighbour'::regclass", '0', 'and the neighbour has none');
	return;
}

# A stream keeps so many dead letters; the oldest of its own go first, and are counted.
sub test_letters
{
	my $db = 'letters';
	make_database($db);
	$node->safe_psql('postgres', "ALTER SYSTEM SET stream_agg.dead_letter_limit = 7");
	$node->reload;
	$node->safe_psql($db, 'CREATE FOREIGN TABLE other (v int) SERVER stream_staged');
	create_view($db, 'quotients', 'SELECT count(*) AS n FROM s WHERE 10 / v < 100');
	create_view($db, 'others', 'SELECT count(*) AS n FROM other WHERE 10 / v < 100');
	for my $part (0 .. 3)
	{
		$node->safe_psql($db, 'INSERT INTO other VALUES (0)');
		insert($db, 50 * $part + 1, 50 * $part + 50);
		run_all($db, $_) for ('other', 's');
	}
	is_query($db, "SELECT stream, count(*), max(position) - min(position) FROM stream_agg.dead_letters GROUP BY 1 ORDER BY 1", "s|7|60\nother|4|3",
		'each stream keeps its newest');
	is_query($db, 'SELECT stream, dead_letters_dropped FROM stream_agg.streams ORDER BY 1', "s|13\nother|0", 'and counts the others');
	$node->safe_psql('postgres', 'ALTER SYSTEM RESET stream_agg.dead_letter_limit');
	$node->reload;
	return;
}

# A user's trigger that raises: the view fails visibly and goes on without loss when it is mended.
sub test_trigger
{
	my $db = 'triggers';
	make_database($db);
	create_view($db, 'v', 'SELECT k, count(*) AS n, avg(v) AS a FROM s GROUP BY k');
	create_view($db, 'neighbour', 'SELECT k, count(*) AS n FROM s GROUP BY k');
	insert($db, 1, 5);
	is(run_all($db), '', 'five groups of one');
	$node->safe_psql($db, <<'SQL');
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN
	IF NEW.n > 3 THEN RAISE EXCEPTION 'no more than three of %', NEW.k; END IF; RETURN NULL; END$$;
CREATE TRIGGER refuse AFTER INSERT OR UPDATE ON v FOR EACH ROW EXECUTE FUNCTION refuse();
SQL
	insert($db, 6, 15);
	is(run_all($db), '', 'three of each pass the trigger');
	insert($db, 16, 40);
	ok($node->poll_query_until($db, "SELECT status = 'failed' AND message LIKE '%no more than three%' FROM stream_agg.views WHERE view = 'v'::regclass"),
		'a trigger that raises fails the view, with its message');
	is_query($db, "SELECT bool_and(n = 3) FROM v", 't', 'whose results stay as they were');
	ok($node->poll_query_until($db, 'SELECT sum(n) = 40 FROM neighbour'), 'the neighbour goes on');
	like(run_all($db), qr/\bv\b.*no more than three|no more than three.*\bv\b|"v"/s, 'run() names the view');
	insert($db, 41, 50);
	terminate_workers($node, "datname = '$db'");
	ok($node->poll_query_until($db, 'SELECT sum(n) = 50 FROM neighbour'), 'the neighbour goes on in a new worker too');
	is_query($db, "SELECT status FROM stream_agg.views WHERE view = 'v'::regclass", 'failed', 'where the view is failed still');
	$node->safe_psql($db, 'CREATE OR REPLACE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN RETURN NULL; END$$');
	$node->safe_psql($db, "SELECT stream_agg.resume('v')");
	is(run_all($db), '', 'resumed');
	is_query($db, '(SELECT * FROM v EXCEPT ALL SELECT k, count(*), avg(v) FROM l GROUP BY k) UNION ALL (SELECT k, count(*), avg(v) FROM l GROUP BY k EXCEPT ALL TABLE v)',
		'', 'and nothing is lost or doubled');
	is_query($db, 'SELECT count(*) FROM stream_agg.views WHERE read = 50 AND ' . balanced_counters(), '2', 'both have read everything');
	return;
}

# A lock on the result table: only this view waits.
sub test_lock
{
	my $db = 'locks';
	make_database($db);
	create_view($db, 'v', 'SELECT k, count(*) AS n FROM s GROUP BY k');
	create_view($db, 'neighbour', 'SELECT k, count(*) AS n FROM s GROUP BY k');
	insert($db, 1, 10);
	is(run_all($db), '', 'both are there');
	my $session = $node->background_psql($db);
	$session->query_safe('BEGIN; LOCK TABLE v');
	for my $ten (1 .. 3)
	{
		insert($db, $ten * 10 + 1, $ten * 10 + 10);
		ok($node->poll_query_until($db, 'SELECT sum(n) = ' . ($ten * 10 + 10) . ' FROM neighbour'), 'the neighbour goes on while v is locked');
	}
	# Long enough that the view has waited in vain.
	ok($node->poll_query_until($db, "SELECT clock_timestamp() > query_start + interval '2.5 s' FROM pg_stat_activity WHERE state = 'idle in transaction' AND datname = '$db'"),
		'for a while');
	is($session->query_safe('SELECT sum(n) FROM v'), '10', 'the locked view has not changed');
	$session->query_safe('COMMIT');
	$session->quit;
	ok($node->poll_query_until($db, 'SELECT sum(n) = 40 FROM v'), 'and it catches up by itself');
	is_query($db, "SELECT string_agg(DISTINCT status, ',') FROM stream_agg.views", 'running', 'it has not failed');
	return;
}

# Stop the worker between two transactions; its process id.
sub stop_worker
{
	my ($db) = @_;
	my $pid = $node->safe_psql($db, "SELECT pid FROM stream_agg.streams WHERE stream = 's'::regclass");
	for my $try (1 .. 100)
	{
		kill 'STOP', $pid;
		return $pid if $node->safe_psql($db, "SELECT count(*) FROM pg_locks WHERE pid = $pid AND locktype <> 'virtualxid'") eq '0';
		kill 'CONT', $pid;
		usleep(20_000);
	}
	die 'the worker is never between transactions';
}

# A new view that is locked or dropped before its worker has met it: it leaves nothing behind, nobody waits for
# it but who asks for it.
sub test_first_contact
{
	my $db = 'contact';
	make_database($db);
	create_view($db, 'neighbour', 'SELECT count(*) AS n FROM s');
	insert($db, 1, 10);
	is(run_all($db), '', 'the stream has a worker');

	my $pid = stop_worker($db);
	create_view($db, 'dropped', 'SELECT k, count(*) AS n FROM s GROUP BY k');
	my $session = $node->background_psql($db);
	$session->query_safe('BEGIN; DROP MATERIALIZED VIEW dropped');
	kill 'CONT', $pid;
	insert($db, 11, 20);
	ok($node->poll_query_until($db, 'SELECT n = 20 FROM neighbour'), 'the neighbour goes on beside a DROP');
	$session->query_safe('COMMIT');
	is(run_all($db), '', 'after it too');
	is_query($db, 'SELECT count(*) FROM stream_agg.view_position WHERE view_id NOT IN (SELECT id FROM stream_agg.view_config)',
		'0', 'nothing is left of the dropped view');

	$pid = stop_worker($db);
	create_view($db, 'locked', 'SELECT k, count(*) AS n FROM s GROUP BY k');
	$session->query_safe('BEGIN; LOCK TABLE locked');
	kill 'CONT', $pid;
	insert($db, 21, 30);
	ok($node->poll_query_until($db, 'SELECT n = 30 FROM neighbour'), 'the neighbour goes on beside a lock');
	my ($rc, $out, $err) = $node->psql($db, "CALL stream_agg.run('s', '500 ms')");
	like($err, qr/was not read to its end in time/, 'run() does not leave the locked view out');
	$session->query_safe('COMMIT');
	$session->quit;
	is(run_all($db), '', 'it waits for it');
	is_query($db, 'SELECT sum(n) FROM locked', '30', 'which has everything');
	is_query($db, 'SELECT pid FROM stream_agg.streams', $pid, 'all by the same worker');
	return;
}

# A view with a long way to go: its neighbours do not wait for it.
sub test_backlog
{
	my $db = 'backlog';
	make_database($db);
	create_view($db, 'behind', 'SELECT k, count(*) AS n FROM s GROUP BY k', max_batch_rows => '10');
	create_view($db, 'neighbour', 'SELECT count(*) AS n FROM s');
	$node->safe_psql($db, "SELECT stream_agg.pause('behind')");
	insert($db, 1, 100000);
	ok($node->poll_query_until($db, 'SELECT n = 100000 FROM neighbour'), 'one view has read everything');
	$node->safe_psql($db, "SELECT stream_agg.resume('behind')");
	ok($node->poll_query_until($db, 'SELECT sum(n) > 0 FROM behind'), 'the other begins');
	insert($db, 100001, 100001);
	ok($node->poll_query_until($db, 'SELECT n = 100001 FROM neighbour'), 'the neighbour sees new rows');
	is_query($db, 'SELECT sum(n) < 100000 FROM behind', 't', 'while the other is still on its way');
	is(run_all($db), '', 'which comes to its end');
	is_query($db, 'SELECT sum(n) FROM behind', '100001', 'too');
	return;
}

# Little memory: groups go out to the state log and come back.
sub test_memory
{
	my $db = 'memory';
	make_database($db);
	$node->safe_psql('postgres', "ALTER SYSTEM SET stream_agg.state_memory = '1MB'");
	$node->reload;
	$node->safe_psql($db, "CREATE FOREIGN TABLE big (k int NOT NULL, ts timestamptz, v int) SERVER stream_staged OPTIONS (event_time 'ts')");
	create_view($db, 'groups', 'SELECT k, count(*) AS n, avg(v) AS a, max(v) AS m FROM big GROUP BY k', trigger => 'manual', max_batch_rows => '20000');
	create_view($db, 'windows', "SELECT window_start, k % 1000 AS k, avg(v) AS a, count(*) AS n FROM big, tumble(ts, '1 hour') GROUP BY window_start, k % 1000",
		trigger => 'manual', max_batch_rows => '20000');
	$node->safe_psql($db, <<'SQL');
CREATE TABLE big_l AS SELECT (g * 7919::bigint % 100000)::int AS k, '2024-01-01Z'::timestamptz + g % 100 * interval '1 hour' AS ts, g % 1000 AS v
FROM generate_series(1, 250000) g;
SQL
	for my $part (0 .. 2)
	{
		$node->safe_psql($db, "INSERT INTO big SELECT * FROM big_l WHERE v % 3 = $part");
		is(run_all($db, 'big'), '', "100,000 groups in 1 MB, part $part");
		terminate_workers($node, "datname = '$db'") if $part == 1;
	}
	is_query($db, 'SELECT count(*) FROM (SELECT k, count(*), avg(v), max(v) FROM big_l GROUP BY k EXCEPT ALL TABLE groups) x', '0', 'the answer is right');
	is_query($db, 'SELECT count(*) FROM groups', '100000', 'with all groups');
	is_query($db, "SELECT count(*) FROM (SELECT date_trunc('hour', ts), k % 1000, avg(v), count(*) FROM big_l GROUP BY 1, 2 EXCEPT ALL TABLE windows) x",
		'0', 'in windows too');
	# Places of groups stay in memory, values do not; the bound is generous.
	is_query($db, "SELECT count(*) FROM stream_agg.views WHERE view = 'groups'::regclass AND state_bytes > 32 * 1024 * 1024", '0', 'memory is kept small');
	$node->safe_psql('postgres', 'ALTER SYSTEM RESET stream_agg.state_memory');
	$node->reload;
	return;
}

# The extension goes with everything, and comes back.
sub test_extension
{
	my $db = 'extensions';
	make_database($db);
	create_view($db, 'v', "SELECT window_start, count(*) AS n, avg(v) FROM s, tumble(ts, '1 hour') GROUP BY window_start");
	insert($db, 1, 100);
	is(run_all($db), '', 'a view');
	in_time($db, 'DROP EXTENSION stream_agg CASCADE', 'DROP EXTENSION CASCADE');
	ok($node->poll_query_until($db, "SELECT ($worker) = 0"), 'the worker leaves');
	is_query($db, "SELECT count(*) FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace WHERE nspname = 'stream_agg'", '0', 'nothing is left in its schema');
	is_query($db, "SELECT count(*) FROM pg_foreign_table", '0', 'nor streams');
	in_time($db, 'DROP TABLE IF EXISTS v, l', 'what is left of a view is an ordinary table');
	$node->safe_psql($db, <<'SQL');
CREATE EXTENSION stream_agg;
CREATE TABLE l (id int, ts timestamptz, k int, v int);
CREATE FOREIGN TABLE s (id int, ts timestamptz, k int, v int) SERVER stream_staged OPTIONS (event_time 'ts', watermark '10 minutes');
SQL
	create_view($db, 'v', 'SELECT k, count(*) AS n FROM s GROUP BY k');
	insert($db, 1, 100);
	is(run_all($db), '', 'created again');
	is_query($db, 'SELECT sum(n) FROM v', '100', 'and it works');

	# Everything in a transaction that is rolled back leaves nothing.
	$node->safe_psql($db, <<'SQL');
BEGIN;
CREATE FOREIGN TABLE s2 (ts timestamptz) SERVER stream_staged OPTIONS (event_time 'ts');
INSERT INTO s2 VALUES (now());
CREATE MATERIALIZED VIEW v2 WITH (stream_agg.continuous) AS SELECT count(*) FROM s2;
DROP MATERIALIZED VIEW v;
ROLLBACK;
SQL
	insert($db, 101, 120);
	is(run_all($db), '', 'a rolled back DROP changes nothing');
	is_query($db, "SELECT (SELECT sum(n) FROM v), (SELECT count(*) FROM stream_agg.views), to_regclass('v2') IS NULL", '120|1|t',
		'nor does a rolled back CREATE');
	return;
}

# Databases with workers can be dropped, renamed and copied.
sub test_databases
{
	my $db = 'databases';
	make_database($db);
	create_view($db, 'v', 'SELECT k, count(*) AS n FROM s GROUP BY k');
	insert($db, 1, 100);
	is(run_all($db), '', 'a worker is at work');
	in_time('postgres', "ALTER DATABASE $db RENAME TO renamed", 'ALTER DATABASE RENAME');
	insert('renamed', 101, 200);
	ok($node->poll_query_until('renamed', 'SELECT sum(n) = 200 FROM v'), 'it goes on in the renamed database');
	in_time('postgres', 'CREATE DATABASE copied TEMPLATE renamed', 'CREATE DATABASE TEMPLATE');
	insert('renamed', 201, 300);
	ok($node->poll_query_until('renamed', 'SELECT sum(n) = 300 FROM v'), 'it goes on after the copy');
	insert('copied', 201, 210);
	like(run_all('copied'), qr/v/, 'a view in a copy waits for resume');
	$node->safe_psql('copied', "SELECT stream_agg.resume('v')");
	is(run_all('copied'), '', 'resumed');
	is_query('copied', 'SELECT (SELECT sum(n) FROM v), (SELECT count(*) FROM l)', '210|210', 'and has its own answer');
	in_time('postgres', 'DROP DATABASE renamed', 'DROP DATABASE');
	in_time('postgres', 'DROP DATABASE copied', 'DROP DATABASE of the copy');
	is_query('postgres', "SELECT count(*) FROM pg_stat_activity WHERE datname IN ('renamed', 'copied')", '0', 'no worker stays behind');
	return;
}

# A dump is a savepoint: results, state and position in one snapshot, unread rows included.
sub test_dump
{
	my ($db, $copy) = ('dumped', 'restored');
	my %views = (
		running => 'SELECT k, count(*) AS n, avg(v) AS a FROM s GROUP BY k',
		hours => "SELECT window_start, window_end, k, sum(v) AS v, stddev(v) AS d FROM s, tumble(ts, '1 hour') GROUP BY window_start, window_end, k",
		closed => "SELECT window_start, window_end, count(*) AS n, avg(v) AS a FROM s, hop(ts, '30 minutes', '10 minutes') GROUP BY window_start, window_end",
		rows => 'SELECT id, v FROM s WHERE v > 2');
	make_database($db);
	create_view($db, $_, $views{$_}, trigger => 'manual', output_mode => $_ eq 'closed' ? 'append' : 'update') for sort keys %views;
	insert($db, 1, 500);
	is(run_all($db), '', 'half is read');
	insert($db, 501, 700);
	$node->safe_psql($db, "CALL stream_agg.run('running')");
	insert($db, 701, 900);

	my $dump = "$PostgreSQL::Test::Utils::tmp_check/dump.sql";
	$node->command_ok([ 'pg_dump', '-f', $dump, '-d', $node->connstr($db) ], 'pg_dump');
	$node->safe_psql('postgres', "CREATE DATABASE $copy");
	$node->command_ok([ 'psql', '-Xq', '-v', 'ON_ERROR_STOP=1', '-f', $dump, '-d', $node->connstr($copy) ], 'restored');

	my $state = 'SELECT view::text, read, accepted, late, filtered, watermark FROM stream_agg.views ORDER BY 1';
	is_query($copy, $state, $node->safe_psql($db, $state), 'counters and watermarks are those of the dump');
	is_query($copy, "TABLE $_ ORDER BY $_", $node->safe_psql($db, "TABLE $_ ORDER BY $_"), "results of $_ too") for sort keys %views;
	is_query($copy, 'SELECT id FROM s WHERE id > 500 ORDER BY id', join("\n", 501 .. 900), 'and the rows not yet read');

	# It does not start by itself, after a restart of the server neither.
	create_view($db, 'beat', 'SELECT count(*) AS n FROM s');
	$node->restart;
	insert($copy, 901, 950);
	insert($db, 901, 950);
	ok($node->poll_query_until($db, 'SELECT n > 0 FROM beat'), 'the first database goes on');
	is_query($copy, $worker, '0', 'a restored database has no worker');
	is_query($copy, 'SELECT sum(n) FROM running', '700', 'and its views wait');
	like(run_all($copy), qr/closed|hours|rows|running/, 'run() says so, and names a view');
	in_time($copy, join('; ', map { "SELECT stream_agg.resume('$_')" } sort keys %views), 'resume');
	for my $where ($db, $copy)
	{
		is(run_all($where), '', "$where reads on");
		insert($where, 951, 1400);
		is(run_all($where), '', 'and on');
	}
	is_query($copy, "TABLE $_ ORDER BY $_", $node->safe_psql($db, "TABLE $_ ORDER BY $_"), "$_ is the same in both") for sort keys %views;
	is_query($copy, 'SELECT * FROM running EXCEPT ALL SELECT k, count(*), avg(v) FROM l GROUP BY k', '', 'and right');
	is_query($copy, 'SELECT id, v FROM l WHERE v > 2 EXCEPT ALL TABLE rows', '', 'nothing is lost');
	is_query($copy, 'SELECT count(*) - count(DISTINCT id) FROM rows', '0', 'nothing is doubled');
	is_query($copy, 'SELECT DISTINCT read FROM stream_agg.views WHERE ' . balanced_counters(), '1400', 'everything is read');
	# A second dump, from the copy, and a third.
	$node->command_ok([ 'pg_dump', '-Fc', '-f', "$dump.custom", '-d', $node->connstr($copy) ], 'dumped again');
	$node->safe_psql('postgres', 'CREATE DATABASE again');
	$node->command_ok([ 'pg_restore', '--exit-on-error', '-d', $node->connstr('again'), "$dump.custom" ], 'restored again');
	in_time('again', join('; ', map { "SELECT stream_agg.resume('$_')" } sort keys %views), 'resume');
	insert('again', 1401, 1500);
	is(run_all('again'), '', 'the second copy reads on');
	is_query('again', 'SELECT * FROM running EXCEPT ALL SELECT k, count(*), avg(v) FROM l GROUP BY k', '', 'and is right');
	return;
}

# One background worker slot for streams: the second waits, visibly, and gets it when it is free.
sub test_slots
{
	my $few = make_node('few', conf => "max_worker_processes = 3\nstream_agg.max_streams = 3\n");
	$few->start;
	$few->safe_psql('postgres', <<'SQL');
CREATE EXTENSION stream_agg;
CREATE FOREIGN TABLE s1 (v int) SERVER stream_staged;
CREATE FOREIGN TABLE s2 (v int) SERVER stream_staged;
CREATE FOREIGN TABLE s3 (v int) SERVER stream_staged;
CREATE FOREIGN TABLE s4 (v int) SERVER stream_staged;
CREATE MATERIALIZED VIEW v1 WITH (stream_agg.continuous) AS SELECT count(*) AS n FROM s1;
INSERT INTO s1 VALUES (1);
SQL
	ok($few->poll_query_until('postgres', 'SELECT n = 1 FROM v1'), 'the first stream has a worker');
	$few->safe_psql('postgres', <<'SQL');
CREATE MATERIALIZED VIEW v2 WITH (stream_agg.continuous) AS SELECT count(*) AS n FROM s2;
CREATE MATERIALIZED VIEW v3 WITH (stream_agg.continuous) AS SELECT count(*) AS n FROM s3;
INSERT INTO s2 VALUES (1);
INSERT INTO s3 VALUES (1);
SQL
	ok($few->poll_query_until('postgres', "SELECT count(*) = 2 FROM stream_agg.streams WHERE message LIKE '%max_worker_processes%'"),
		'streams without a worker say why');
	ok($few->poll_query_until('postgres', 'SELECT count(pid) = 1 FROM stream_agg.streams'), 'and have no process');
	my @warnings = slurp_file($few->logfile) =~ /WARNING: .*(no free background worker slot)/g;
	is(scalar(@warnings), 1, 'there is one warning in the log');
	my ($rc, $out, $err) = $few->psql('postgres', 'CREATE MATERIALIZED VIEW v4 WITH (stream_agg.continuous) AS SELECT count(*) AS n FROM s4');
	like($err, qr/WARNING: .*slot.*max_streams/s, 'CREATE warns when max_streams are there');
	is($rc, 0, 'but creates the view');
	$few->safe_psql('postgres', 'DROP MATERIALIZED VIEW v1; DROP MATERIALIZED VIEW v4');
	ok($few->poll_query_until('postgres', 'SELECT (SELECT count(*) FROM v2 WHERE n = 1) + (SELECT count(*) FROM v3 WHERE n = 1) = 1'),
		'a slot that is free is taken');
	$few->append_conf('postgresql.conf', 'max_worker_processes = 8');
	$few->restart;
	ok($few->poll_query_until('postgres', 'SELECT (SELECT n FROM v2) = 1 AND (SELECT n FROM v3) = 1'), 'with enough of them, all go on');
	is($few->safe_psql('postgres', "SELECT count(*) FROM stream_agg.streams WHERE message <> ''"), '0', 'and complain no more');
	$few->stop;
	return;
}

# Workers run only where recovery has finished; a promoted standby goes on from the replicated position.
sub test_standby
{
	my $primary = make_node('primary', allows_streaming => 1, conf => "max_connections = 60\n");
	$primary->start;
	local $node = $primary;
	my $db = 'replicated';
	make_database($db, $primary);
	create_view($db, 'running', 'SELECT k, count(*) AS n, avg(v) AS a FROM s GROUP BY k');
	create_view($db, 'closed', "SELECT window_start, k, count(*) AS n, avg(v) AS a FROM s, tumble(ts, '1 hour') GROUP BY window_start, k",
		output_mode => 'append', trigger => 'manual');
	insert($db, 1, 300);
	is(run_all($db), '', 'on the primary');
	$primary->backup('backup');
	my $standby = PostgreSQL::Test::Cluster->new('standby');
	$standby->init_from_backup($primary, 'backup', has_streaming => 1);
	$standby->start;
	insert($db, 301, 500);
	ok($primary->poll_query_until($db, 'SELECT sum(n) = 500 FROM running'), 'and on');
	# The worker commits asynchronously: one more commit that waits for the disk.
	insert($db, 501, 510);
	$primary->wait_for_catchup($standby, 'replay', $primary->lsn('insert'));
	ok($standby->poll_query_until($db, 'SELECT sum(n) >= 500 FROM running'), 'the standby shows the results');
	is($standby->safe_psql($db, "SELECT count(*) FROM pg_stat_activity WHERE backend_type LIKE 'stream_agg%'"), '0', 'but runs nothing');
	my ($rc, $out, $err) = $standby->psql($db, "INSERT INTO s VALUES (1)");
	isnt($rc, 0, 'nor takes rows');
	is($standby->safe_psql($db, 'SELECT count(*) >= 0 FROM s'), 't', 'though they can be looked at');
	$primary->stop('immediate');
	$standby->promote;
	$node = $standby;
	ok($standby->poll_query_until($db, "SELECT ($worker) = 1"), 'after promotion the worker starts');
	insert($db, 511, 800);
	is(run_all($db), '', 'and goes on');
	is_query($db, 'SELECT * FROM running EXCEPT ALL SELECT k, count(*), avg(v) FROM l GROUP BY k', '', 'the answer is exact');
	is_query($db, 'SELECT DISTINCT read = (SELECT count(*) FROM l) FROM stream_agg.views', 't', 'everything is read once');
	is_query($db, <<'SQL', '', 'in append mode too');
WITH e AS (SELECT *, max(ts) OVER (ORDER BY id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) - interval '10 minutes' AS wm, date_trunc('hour', ts) AS w FROM l),
answer AS (SELECT w, k, count(*), avg(v) FROM e WHERE (wm IS NULL OR w + interval '1 hour' > wm)
	AND w + interval '1 hour' <= (SELECT max(ts) - interval '10 minutes' FROM l) GROUP BY w, k)
(TABLE answer EXCEPT ALL TABLE closed) UNION ALL (TABLE closed EXCEPT ALL TABLE answer) LIMIT 5
SQL
	$standby->stop;
	return;
}

my @tests = (
	expressions => \&test_expressions,
	letters => \&test_letters,
	trigger => \&test_trigger,
	lock => \&test_lock,
	contact => \&test_first_contact,
	backlog => \&test_backlog,
	memory => \&test_memory,
	extension => \&test_extension,
	databases => \&test_databases,
	dump => \&test_dump,
	slots => \&test_slots,
	standby => \&test_standby);
while (my ($name, $code) = splice(@tests, 0, 2))
{
	next if $ENV{SA_ONLY} && $ENV{SA_ONLY} ne $name;
	subtest $name => $code;
}

my @crashes = unexpected_crashes($node);
is(scalar(@crashes), 0, 'no crash') or diag join("\n", @crashes);
$node->stop;
done_testing();
