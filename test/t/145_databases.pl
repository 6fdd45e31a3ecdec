# 145_databases.pl: databases and extensions come, go, move and are copied while workers are busy in them. The workers
# leave first, nothing starts twice, and whatever goes on does so exactly.
#
#   SA_ROUNDS=n   rounds of the tests that repeat (default 2)
#   SA_ONLY=name  one test
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(usleep);

use StreamAggTest;

my $rounds = $ENV{SA_ROUNDS} || 2;
my $node = make_node('databases', conf => <<'CONF');
stream_agg.max_streams = 12
stream_agg.segment_size = '1MB'
allow_in_place_tablespaces = on
max_worker_processes = 24
CONF
$node->start;

my @streams = qw(s1 s2 s3);

sub is_query
{
	my ($db, $query, $wanted, $name) = @_;
	return is($node->safe_psql($db, $query), $wanted, $name);
}

# A command that must come to its end by itself, at the first try.
sub in_time
{
	my ($db, $sql, $name) = @_;
	my ($rc, $out, $err) = $node->psql($db, $sql, timeout => 180);
	is($rc, 0, $name // $sql) or diag $err;
	return;
}

# The first one is slow, so that its worker has something left to do.
my $streams_sql = <<'SQL' . join('', map { <<"SQL" } @streams);
CREATE OR REPLACE FUNCTION public.slow(int) RETURNS bool LANGUAGE plpgsql IMMUTABLE AS $$BEGIN PERFORM pg_sleep(0.0005); RETURN true; END$$;
SQL
CREATE TABLE ${_}_l (id int, k int);
CREATE FOREIGN TABLE $_ (id int, k int) SERVER stream_staged;
CREATE MATERIALIZED VIEW ${_}_sums WITH (stream_agg.continuous, stream_agg.max_batch_rows = 500) AS SELECT k, count(*) AS n, avg(id) AS a FROM $_ GROUP BY k;
CREATE MATERIALIZED VIEW ${_}_rows WITH (stream_agg.continuous, stream_agg.max_batch_rows = 700) AS SELECT id FROM $_@{[ $_ eq 's1' ? ' WHERE public.slow(id)' : '' ]};
SQL

sub create_app
{
	my ($db) = @_;
	$node->safe_psql('postgres', "CREATE DATABASE $db TEMPLATE template0");
	$node->safe_psql($db, "CREATE EXTENSION stream_agg;\n$streams_sql");
	return;
}

my $next = 1;

# So many rows into every stream, which then has a backlog.
sub insert_rows
{
	my ($db, $count) = @_;
	my ($first, $last) = ($next, $next + $count - 1);
	$next += $count;
	$node->safe_psql($db, 'BEGIN; ' . join('', map {
				"WITH x AS (INSERT INTO ${_}_l SELECT g, g % 7 FROM generate_series($first, $last) g RETURNING *) INSERT INTO $_ SELECT * FROM x;\n"
			  } @streams) . 'COMMIT');
	return;
}

my $workers = "SELECT count(*), count(DISTINCT application_name) FROM pg_stat_activity WHERE backend_type = 'stream_agg worker' AND datname = ";

sub is_exact
{
	my ($db, $name) = @_;
	$node->safe_psql($db, join('', map { "CALL stream_agg.run('$_', '120 s');\n" } @streams));
	for my $s (@streams)
	{
		is_query($db, <<"SQL", "0|0|2", "$name: $s");
SELECT (SELECT count(*) FROM ((SELECT k, count(*), avg(id) FROM ${s}_l GROUP BY k EXCEPT ALL TABLE ${s}_sums) UNION ALL
		(TABLE ${s}_sums EXCEPT ALL SELECT k, count(*), avg(id) FROM ${s}_l GROUP BY k)) x),
	(SELECT count(*) FROM ((SELECT id FROM ${s}_l EXCEPT ALL TABLE ${s}_rows) UNION ALL (TABLE ${s}_rows EXCEPT ALL SELECT id FROM ${s}_l)) x),
	(SELECT count(*) FROM stream_agg.views WHERE stream = '$s'::regclass AND "read" = (SELECT count(*) FROM ${s}_l) AND status = 'running')
SQL
	}
	is_query($db, "${workers}'$db'", '3|3', "$name: one worker per stream");
	return;
}

# The workers are at it; mostly they have much left to do.
sub are_busy
{
	my ($db) = @_;
	ok($node->poll_query_until($db, 'SELECT bool_and("read" > 0) FROM stream_agg.views'), 'the workers are at it');
	note 'left to read: ' . $node->safe_psql($db, 'SELECT (SELECT count(*) FROM s1_l) - min("read") FROM stream_agg.views');
	return;
}

# CREATE DATABASE ... TEMPLATE: the copy waits for resume, staged segments included; both go on.
sub test_copy
{
	create_app('app');
	for my $strategy (('wal_log', 'file_copy') x ($rounds / 2))
	{
		insert_rows('app', 3000);
		are_busy('app');
		in_time('postgres', "CREATE DATABASE copy TEMPLATE app STRATEGY $strategy");
		is_query('copy', 'SELECT DISTINCT status FROM stream_agg.views', 'restored', 'the copy waits');
		is_query('copy', "${workers}'copy'", '0|0', 'and has no worker');
		insert_rows('app', 300);
		is_exact('app', 'the original goes on');
		my ($rc, $out, $err) = $node->psql('copy', "CALL stream_agg.run('s1')");
		like($err, qr/has not been resumed after a restore/, 'the copy says what it waits for');
		in_time('copy', 'SELECT count(stream_agg.resume(view)) FROM stream_agg.views', 'resumed');
		insert_rows('copy', 300);
		is_exact('copy', 'so does the copy');
		# A copy of a copy, and away with the copy: all while they are busy.
		insert_rows('copy', 3000);
		in_time('postgres', 'CREATE DATABASE second TEMPLATE copy');
		in_time('postgres', 'DROP DATABASE copy', 'DROP DATABASE while its workers are busy');
		is_query('postgres', "${workers}'copy'", '0|0', 'no worker stays');
		in_time('second', 'SELECT count(stream_agg.resume(view)) FROM stream_agg.views', 'resumed');
		is_exact('second', 'the copy of the copy');
		my $session = $node->background_psql('second');
		$session->query_safe('BEGIN; INSERT INTO s1 VALUES (0, 0)');
		in_time('postgres', 'DROP DATABASE second WITH (FORCE)');
		eval { $session->quit };
	}
	return;
}

# RENAME and SET TABLESPACE, back and forth.
sub test_move
{
	create_app('app') if $node->safe_psql('postgres', "SELECT count(*) FROM pg_database WHERE datname = 'app'") eq '0';
	$node->safe_psql('postgres', "CREATE TABLESPACE place LOCATION ''");
	for my $round (1 .. $rounds)
	{
		insert_rows('app', 3000);
		are_busy('app');
		in_time('postgres', 'ALTER DATABASE app RENAME TO renamed');
		is_query('renamed', "SELECT DISTINCT status FROM stream_agg.views", 'running', 'it is the same database');
		in_time('postgres', 'ALTER DATABASE renamed SET TABLESPACE place');
		insert_rows('renamed', 1500);
		are_busy('renamed');
		in_time('postgres', 'ALTER DATABASE renamed SET TABLESPACE pg_default');
		in_time('postgres', 'ALTER DATABASE renamed RENAME TO app');
		is_exact('app', 'moved about');
	}
	# A command that fails lets the workers back in.
	insert_rows('app', 300);
	my ($rc, $out, $err) = $node->psql('postgres', 'ALTER DATABASE app RENAME TO postgres');
	like($err, qr/already exists/, 'a rename that fails');
	is_exact('app', 'changes nothing');
	return;
}

# Databases that are templates or allow no connections have no workers, and have them again when they are no more.
sub test_closed
{
	create_app('closing');
	for my $way ([ 'IS_TEMPLATE true', 'IS_TEMPLATE false' ], [ 'ALLOW_CONNECTIONS false', 'ALLOW_CONNECTIONS true' ])
	{
		for my $restart (0, 1)
		{
			insert_rows('closing', 2000);
			in_time('postgres', "ALTER DATABASE closing $way->[0]");
			is_query('postgres', "${workers}'closing'", '0|0', 'the workers have left');
			insert_rows('closing', 10) if $way->[0] =~ /TEMPLATE/;
			if ($way->[0] =~ /TEMPLATE/)
			{
				ok($node->poll_query_until('closing', "SELECT count(*) = 3 FROM stream_agg.streams WHERE message LIKE '%is a template%'"), 'streams say why')
				  if !$restart;
				$node->safe_psql('postgres', 'CREATE ROLE maker CREATEDB LOGIN') if !$restart;
				in_time('postgres', 'CREATE DATABASE made TEMPLATE closing; DROP DATABASE made', 'CREATE DATABASE from the template');
			}
			$node->restart if $restart;
			is_query('postgres', "${workers}'closing'", '0|0', 'and stay away' . ($restart ? ', after a restart too' : ''));
			in_time('postgres', "ALTER DATABASE closing $way->[1]");
			ok($node->poll_query_until('postgres', "SELECT count(*) = 3 FROM pg_stat_activity WHERE backend_type = 'stream_agg worker' AND datname = 'closing'"),
				'they come back by themselves');
			is_exact('closing', "$way->[1]");
		}
	}
	in_time('postgres', 'ALTER DATABASE closing CONNECTION LIMIT 0');
	insert_rows('closing', 100);
	$node->restart;
	ok($node->poll_query_until('postgres', "SELECT count(*) = 3 FROM pg_stat_activity WHERE backend_type = 'stream_agg worker' AND datname = 'closing'"),
		'a connection limit is for clients');
	is_exact('closing', 'CONNECTION LIMIT 0');

	# A DROP DATABASE that was interrupted half-way.
	$node->safe_psql('postgres', "UPDATE pg_database SET datconnlimit = -2 WHERE datname = 'closing'");
	terminate_workers($node, "datname = 'closing'");
	create_app('beat');
	$node->restart;
	insert_rows('beat', 100);
	is_exact('beat', 'other databases go on');
	is_query('postgres', "${workers}'closing'", '0|0', 'a half dropped one has no workers');
	my @refused = slurp_file($node->logfile) =~ /cannot connect to invalid database/g;
	is(scalar(@refused), 0, 'and nobody tries');
	in_time('postgres', 'DROP DATABASE closing');
	in_time('postgres', 'DROP DATABASE beat');
	return;
}

# The launcher's probes are in nobody's way.
sub test_probes
{
	create_app('app') if $node->safe_psql('postgres', "SELECT count(*) FROM pg_database WHERE datname = 'app'") eq '0';
	for my $round (1 .. $rounds)
	{
		$node->restart;
		in_time('postgres', 'CREATE DATABASE at_once TEMPLATE app', 'CREATE DATABASE right after the start');
		in_time('postgres', 'DROP DATABASE at_once');
		crash_child($node, "SELECT pid FROM pg_stat_activity WHERE backend_type = 'stream_agg launcher'");
		in_time('postgres', 'CREATE DATABASE at_once', 'and after a crash');
		in_time('postgres', 'DROP DATABASE at_once');
	}
	insert_rows('app', 100);
	is_exact('app', 'after all that');
	return;
}

# DROP EXTENSION, and DROP SCHEMA with streams and views in it, while workers are busy and sessions insert.
sub test_drop_extension
{
	$node->safe_psql('postgres', 'DROP DATABASE IF EXISTS app; CREATE DATABASE gone TEMPLATE template0');
	for my $round (1 .. 3 * $rounds)    # more streams than there are slots
	{
		my $schema = $round % 3 == 0;
		$node->safe_psql('gone', "CREATE EXTENSION IF NOT EXISTS stream_agg; CREATE SCHEMA app; SET search_path = app, public;\n$streams_sql");
		my @scripts = map {
			start_script($node, "insert_${round}_$_", "SET client_min_messages = error;\n" . "INSERT INTO app.$_ SELECT g, g % 5 FROM generate_series(1, 50) g;\n" x 20000,
				db => 'gone')
		} @streams;
		ok($node->poll_query_until('gone', 'SELECT count(*) = 3 FROM stream_agg.streams WHERE end_position > 500'), 'sessions insert, workers read');
		in_time('gone', 'SET client_min_messages = error; ' . ($schema ? 'DROP SCHEMA app CASCADE' : 'DROP EXTENSION stream_agg CASCADE'));
		for my $script (@scripts)
		{
			wait_until('the session has ended', sub { defined script_exit($script) });
			like(slurp_file($script->{err}), qr/^psql:\S+ ERROR:  (relation "app.s\d" does not exist|could not open relation|.*is not installed|deadlock detected)/,
				'inserting says what is the matter');
		}
		is_query('gone', <<'SQL', '0|0', 'nothing is left');
SELECT (SELECT count(*) FROM pg_class WHERE relname ~ '^(definition|state|staged)_\d'), (SELECT count(*) FROM pg_foreign_table)
SQL
		ok($node->poll_query_until('postgres', "SELECT count(*) = 0 FROM pg_stat_activity WHERE backend_type = 'stream_agg worker' AND datname = 'gone'"),
			'no worker stays');
		is_query('gone', "SELECT count(*) FROM pg_namespace WHERE nspname = 'stream_agg'", $schema ? 1 : 0, 'nor the schema');
		$node->safe_psql('gone', 'SET client_min_messages = error; DROP SCHEMA IF EXISTS app CASCADE');
	}
	# A DROP that is rolled back leaves everything at work.
	create_app('app');
	insert_rows('app', 2000);
	$node->safe_psql('app', 'SET client_min_messages = error; BEGIN; DROP EXTENSION stream_agg CASCADE; ROLLBACK; BEGIN; SAVEPOINT a; DROP EXTENSION stream_agg CASCADE; ROLLBACK TO a; COMMIT');
	insert_rows('app', 100);
	is_exact('app', 'DROP EXTENSION rolled back');
	# Away and back in one transaction.
	in_time('app', "SET client_min_messages = error; BEGIN; DROP EXTENSION stream_agg CASCADE; CREATE EXTENSION stream_agg; DROP TABLE s1_l, s2_l, s3_l;\n$streams_sql COMMIT", 'away and back');
	insert_rows('app', 100);
	is_exact('app', 'dropped and created in one transaction');
	my @leaks = slurp_file($node->logfile) =~ /no stream_agg slot is free/g;
	is(scalar(@leaks), 0, 'every slot was given back');
	return;
}

my @tests = (
	copy => \&test_copy,
	move => \&test_move,
	closed => \&test_closed,
	probes => \&test_probes,
	extension => \&test_drop_extension);
while (my ($name, $code) = splice(@tests, 0, 2))
{
	next if $ENV{SA_ONLY} && $ENV{SA_ONLY} ne $name;
	subtest $name => $code;
}

my @crashes = unexpected_crashes($node);
is(scalar(@crashes), 0, 'no crash but those we made') or diag join("\n", @crashes);
$node->stop;
done_testing();
