# 140_dump.pl: pg_dump and pg_restore. A dump of a whole database is a savepoint, taken while everything runs:
# restored, in whatever way, every view holds the answer over the records before its position, and goes on exactly
# once it is resumed. The original is not disturbed.
#
# Streams, views and events come from seeds (test/perl/StreamAggOracle.pm), a few at a time for each way to dump.
#
#   SA_SEED=n     the first seed (default: from the clock)
#   SA_ROUNDS=n   how often every way is taken (default 1)
#   SA_ONLY=name  one test
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(usleep);

use StreamAggOracle;
use StreamAggTest;

my $next_seed = $ENV{SA_SEED} || time % 1_000_000 + 1000;
my $rounds = $ENV{SA_ROUNDS} || 1;
my $seeds_at_once = 3;
note "SA_SEED=$next_seed";
srand($next_seed);

my $conf = <<'CONF';
max_worker_processes = 40
stream_agg.max_streams = 60
max_locks_per_transaction = 256
stream_agg.segment_size = '1MB'
CONF
my $node = make_node('dump', conf => $conf);
my $other = make_node('other', conf => $conf);
$node->start;
$other->start;
my $tmp = $PostgreSQL::Test::Utils::tmp_check;

sub is_query
{
	my ($on, $db, $query, $wanted, $name) = @_;
	return is($on->safe_psql($db, $query), $wanted, $name);
}

# A fresh database to restore into.
sub create_target
{
	my ($on, $db) = @_;
	$on->safe_psql('postgres', "DROP DATABASE IF EXISTS $db");
	$on->safe_psql('postgres', "CREATE DATABASE $db TEMPLATE template0");
	return;
}

sub resume_all
{
	my ($on, $db) = @_;
	$on->safe_psql($db, 'SELECT count(stream_agg.resume(view)) FROM stream_agg.view_config');
	return;
}

# ---- dumps under load

# Seeds whose order of events is that of their ids, without the steps that need the tables for themselves: pg_dump -j
# does not wait for those who do.
sub make_seeds
{
	my @seeds;
	while (@seeds < $seeds_at_once)
	{
		my $seed = StreamAggOracle::generate($next_seed++, 'r');
		next unless $seed->{ordered} && $seed->{events} > 200;
		$seed->{views} = [ grep { !$_->{created_after} } @{ $seed->{views} } ];
		$seed->{steps} = [ grep { $_->{sql} !~ /VACUUM|REINDEX|INDEX|CREATE |ALTER |_late\b|_doomed/ } @{ $seed->{steps} } ];
		push @seeds, $seed;
	}
	return @seeds;
}

# Empty, or what is wrong with the views of these seeds in one database.
sub complaints
{
	my ($on, $db, $final, @seeds) = @_;
	my @wrong;
	for my $seed (@seeds)
	{
		for my $view (@{ $seed->{views} })
		{
			my $check = StreamAggOracle::check($seed, $view, $final);
			$check =~ s/status NOT IN \('running', 'retrying', 'paused'\)/status <> 'restored'/;
			my $found = $on->safe_psql($db, "SET timezone = 'UTC'; BEGIN ISOLATION LEVEL REPEATABLE READ; $check; COMMIT");
			push @wrong, $found if $found ne '';
		}
	}
	return join("\n", @wrong);
}

sub feed
{
	my ($on, $db, $name, @seeds) = @_;
	my $sql = "SET statement_timeout = '60s';\nSET client_min_messages = error;\n";
	my $done = 0;
	my @queues = map { [ @{ $_->{steps} } ] } @seeds;
	while (@queues = grep { @$_ } @queues)
	{
		$sql .= (shift @{ $queues[ rand @queues ] })->{sql} . "\\echo \@" . ++$done . "\n";
	}
	return (start_script($on, $name, $sql, db => $db), $done);
}

sub feed_to_end
{
	my ($script) = @_;
	my $exit = wait_until('all is fed', sub { my $e = script_exit($script); return defined $e ? "e$e" : undef }, 180);
	return $exit eq 'e0' ? '' : slurp_file($script->{err});
}

# What a restored database has not seen yet of the same events.
sub steps_left
{
	my ($on, $db, $seed) = @_;
	my %there = map { $_ => 1 } split /\n/, $on->safe_psql($db, "SELECT id FROM $seed->{log}");
	my @steps = @{ $seed->{steps} };
	my ($last) = grep { $steps[$_]{txn} && $there{ $steps[$_]{txn} } } reverse 0 .. $#steps;
	splice(@steps, 0, $last + 1) if defined $last;
	return { %$seed, steps => \@steps };
}

sub finish
{
	my ($on, $db, $name, @seeds) = @_;
	my ($script) = feed($on, $db, $name, @seeds);
	my $error = feed_to_end($script);
	return $error if $error;
	resume_all($on, $db);
	$on->safe_psql($db, join('', map { "CALL stream_agg.run('$_->{stream}', '120 s');\n" } @seeds));
	return complaints($on, $db, 1, @seeds);
}

# Definitions, state logs, segments and sequences that have come loose from their views and streams.
my $loose = <<'SQL';
SELECT count(*), count(*) FILTER (WHERE d.deptype IS NULL) FROM (
	SELECT view AS whole, definition AS part FROM stream_agg.view_config
	UNION ALL SELECT view, state FROM stream_agg.view_config WHERE state IS NOT NULL
	UNION ALL SELECT stream, segment FROM stream_agg.staged_segment
	UNION ALL SELECT stream, chunks FROM stream_agg.staged_stream) x
LEFT JOIN pg_depend d ON d.classid = 'pg_class'::regclass AND d.objid = part AND d.refclassid = 'pg_class'::regclass
	AND d.refobjid = whole AND d.deptype <> 'n'
SQL

# How to dump and how to restore.
my %ways = (
	plain => sub {
		my ($from, $to, $file) = @_;
		return ([ 'pg_dump', '-f', $file, '-d', $from ], [ 'psql', '-Xq', '-v', 'ON_ERROR_STOP=1', '-f', $file, '-d', $to ]);
	},
	custom => sub {
		my ($from, $to, $file) = @_;
		return ([ 'pg_dump', '-Fc', '-f', $file, '-d', $from ], [ 'pg_restore', '-j', '4', '--exit-on-error', '-d', $to, $file ]);
	},
	directory => sub {
		my ($from, $to, $file) = @_;
		return ([ 'pg_dump', '-Fd', '-j', '4', '-f', $file, '-d', $from ],
			[ 'pg_restore', '-j', '4', '--exit-on-error', '-d', $to, $file ]);
	},
	sections => sub {
		my ($from, $to, $file) = @_;
		return ([ 'pg_dump', '-Fc', '-f', $file, '-d', $from ],
			map { [ 'pg_restore', '--exit-on-error', "--section=$_", '-d', $to, $file ] } qw(pre-data data post-data));
	});

sub test_way
{
	my ($way, @on) = @_;
	my @seeds = make_seeds();
	my ($db, $file) = ("o_$way", "$tmp/dump_$way");
	my @targets = map { [ $_, "c_$way" ] } @on;

	note "$way: seeds " . join(' ', map { $_->{number} } @seeds);
	create_target($node, $db);
	create_target(@$_) for @targets;
	$node->safe_psql($db, "CREATE EXTENSION stream_agg;\n" . StreamAggOracle::prelude());
	$node->safe_psql($db, "SET client_min_messages = error;\nCREATE SCHEMA r;\n" . join('', map { $_->{setup} } @seeds));

	# Counters are there from when a view has met its stream.
	ok($node->poll_query_until($db, 'SELECT count(*) = 0 FROM stream_agg.view_config v WHERE NOT EXISTS (SELECT FROM stream_agg.view_position WHERE view_id = v.id)'),
		'all views are at work');
	my ($script, $total) = feed($node, $db, "feed_$way", @seeds);
	my $at = int((0.1 + rand(0.6)) * $total);
	wait_until("$at steps are done", sub { return (() = slurp_file($script->{out}) =~ /^\@/mg) >= $at || defined script_exit($script) });
	my ($dump) = $ways{$way}->($node->connstr($db), '', $file);
	system('rm', '-rf', $file);
	$node->command_ok($dump, 'dump');
	my $after = () = slurp_file($script->{out}) =~ /^\@/mg;
	note "$way: dumped between step $at and $after of $total";

	for my $target (@targets)
	{
		my ($on, $copy) = @$target;
		my $where = $on->name;
		my (undef, @restore) = $ways{$way}->('', $on->connstr($copy), $file);
		$on->command_ok($_, "restore on $where") for @restore;
		is(complaints($on, $copy, 0, @seeds), '', "every view on $where holds the answer over the records before its position");
		is_query($on, $copy, "SELECT count(*) FROM pg_stat_activity WHERE datname = '$copy' AND backend_type LIKE 'stream%'", '0',
			"nothing runs on $where");
		like($on->safe_psql($copy, $loose), qr/^[1-9]\d*\|0$/, "every part has its whole on $where");
	}
	is(feed_to_end($script), '', 'the original is fed to its end');
	is(finish($node, $db, "end_$way", map { { %$_, steps => [] } } @seeds), '', 'and is not disturbed');
	for my $target (@targets)
	{
		my ($on, $copy) = @$target;
		resume_all($on, $copy);
		is(finish($on, $copy, "rest_${way}_" . $on->name, map { steps_left($on, $copy, $_) } @seeds),
			'', 'resumed and fed the rest, ' . $on->name . ' is exact');
		$on->safe_psql('postgres', "DROP DATABASE $copy");
	}
	$node->safe_psql('postgres', "DROP DATABASE $db");
	return;
}

sub test_load
{
	my @on = ($node, $other);
	for my $round (1 .. $rounds)
	{
		for my $way (sort keys %ways)
		{
			@on = reverse @on;    # another database of the same server, another server, in turn
			subtest $way => sub { test_way($way, $way eq 'plain' || $rounds > 1 ? @on : $on[0]) };
		}
	}
	return;
}

# ---- a small database of every kind of view and status

sub create_small
{
	my ($db) = @_;
	create_target($node, $db);
	$node->safe_psql($db, <<'SQL');
CREATE EXTENSION stream_agg;
CREATE SCHEMA app;
CREATE TABLE app.other (a int PRIMARY KEY);
CREATE FOREIGN TABLE app.s (id int, ts timestamptz, k int) SERVER stream_staged OPTIONS (event_time 'ts', watermark '10 minutes');
CREATE MATERIALIZED VIEW app.running WITH (stream_agg.continuous) AS SELECT k, count(*) AS n, avg(id) AS a FROM app.s WHERE k > 0 GROUP BY k;
CREATE MATERIALIZED VIEW app.hours WITH (stream_agg.continuous, stream_agg.output_mode = 'append', stream_agg.dedup_key = 'id', stream_agg.state = 'unlogged') AS
	SELECT window_start, k, count(*) AS n FROM app.s, tumble(ts, '1 hour') GROUP BY window_start, k;
CREATE MATERIALIZED VIEW app.rows WITH (stream_agg.continuous) AS SELECT id, k FROM app.s;
CREATE MATERIALIZED VIEW app.paused WITH (stream_agg.continuous) AS SELECT count(*) AS n FROM app.s;
CREATE MATERIALIZED VIEW app.failed WITH (stream_agg.continuous, stream_agg.on_error = 'fail') AS SELECT count(*) AS n FROM app.s WHERE 1 / (id - 50) < 5;
ALTER TABLE app.running ADD note text DEFAULT 'mine';
CREATE INDEX ON app.running (n);
INSERT INTO app.s SELECT g, timestamptz '2024-01-01Z' + g * interval '5 minutes', g % 4 FROM generate_series(1, 40) g;
CALL stream_agg.run('app.s');
CREATE MATERIALIZED VIEW app.finished WITH (stream_agg.continuous, stream_agg."end" = 'latest') AS SELECT sum(id) AS n FROM app.s;
CALL stream_agg.run('app.finished');
SELECT stream_agg.pause('app.paused');
INSERT INTO app.s SELECT g, timestamptz '2024-01-01Z' + g * interval '5 minutes', g % 4 FROM generate_series(41, 100) g;
SQL
	ok($node->poll_query_until($db, <<'SQL'), 'a view of every status');
SELECT string_agg(status, ' ' ORDER BY view::text) = 'failed finished running paused running running'
	AND count(*) FILTER (WHERE status = 'running' AND read = 100) = 3 FROM stream_agg.views
SQL
	return;
}

my $statuses = "SELECT view, status, message FROM stream_agg.view_config ORDER BY view::text";

sub test_status
{
	my ($db, $copy) = ('small', 'small_copy');
	create_small($db);
	$node->command_ok([ 'pg_dump', '-Fc', '-f', "$tmp/small", '-d', $node->connstr($db) ], 'dump');
	create_target($node, $copy);
	$node->command_ok([ 'pg_restore', '--exit-on-error', '-d', $node->connstr($copy), "$tmp/small" ], 'restore');
	is_query($node, $copy, $statuses, $node->safe_psql($db, $statuses), 'every status survives, with its message');
	is_query($node, $copy, 'SELECT DISTINCT status FROM stream_agg.views', 'restored', 'and is shown once resumed');
	is_query($node, $copy, "SELECT count(*) FROM pg_trigger WHERE tgrelid = 'app.running'::regclass", '0', 'the result table is not yet guarded');

	# Nothing of the original is needed for a second life: dump what was restored and not yet resumed.
	$node->command_ok([ 'pg_dump', '-Fc', '-f', "$tmp/small2", '-d', $node->connstr($copy) ], 'dump of what waits to be resumed');
	create_target($other, $copy);
	$other->command_ok([ 'pg_restore', '--exit-on-error', '-d', $other->connstr($copy), "$tmp/small2" ], 'restored elsewhere');
	for my $on ($node, $other)
	{
		my ($rc, $out, $err) = $on->psql($copy, "SELECT count(stream_agg.resume(view)) FROM stream_agg.view_config WHERE status <> 'failed'");
		is($rc, 0, 'resumed') or diag $err;
		ok($on->poll_query_until($copy, <<'SQL'), 'every view goes on as what it was');
SELECT string_agg(status, ' ' ORDER BY view::text) = 'restored finished running running running running' FROM stream_agg.views
SQL
		$on->safe_psql($copy, "INSERT INTO app.s VALUES (100, '2024-01-01 08:20Z', 0), (101, '2024-01-02Z', 1)");
		$on->safe_psql($copy, "CALL stream_agg.run('app.$_')") for qw(running hours rows paused);
		is_query($on, $copy, "SELECT (SELECT n FROM app.paused), (SELECT sum(n) FROM app.running), (SELECT count(*) FROM app.rows), (SELECT DISTINCT note FROM app.running)",
			'102|76|102|mine', 'exactly');
		is_query($on, $copy, "SELECT read, duplicate, accepted FROM stream_agg.views WHERE view = 'app.hours'::regclass", '102|1|101', 'keys that are not on disk are known again');
		is_query($on, $copy, 'SELECT n FROM app.finished', 40 * 41 / 2, 'what had come to its end reads no more');
		$on->safe_psql($copy, "SELECT stream_agg.resume('app.failed')");
		ok($on->poll_query_until($copy, "SELECT status = 'failed' FROM stream_agg.views WHERE view = 'app.failed'::regclass"),
			'what had failed fails again, for its cause is there still');
		($rc, $out, $err) = $on->psql($copy, 'DELETE FROM app.running');
		like($err, qr/cannot change continuous view/, 'guarded again');
	}
	$node->safe_psql('postgres', "DROP DATABASE $copy");
	return;
}

# What is in schema stream_agg, the config tables and pg_depend besides the extension's own.
my $left_over = <<'SQL';
SELECT (SELECT count(*) FROM stream_agg.view_config), (SELECT count(*) FROM stream_agg.view_position),
	(SELECT count(*) FROM stream_agg.view_rebuild) + (SELECT count(*) FROM stream_agg.view_duplicate),
	(SELECT count(*) FROM stream_agg.staged_stream), (SELECT count(*) FROM stream_agg.staged_segment),
	(SELECT count(*) FROM stream_agg.staged_order), (SELECT count(*) FROM stream_agg.dead_letter),
	(SELECT count(*) FROM pg_class c WHERE relnamespace = 'stream_agg'::regnamespace AND relkind IN ('r', 'S', 'v')
		AND relname ~ '^(definition|state|spill|dedup|dedup_spill|staged)_[0-9]')
SQL

# DROP before resume leaves nothing behind.
sub test_drop
{
	create_small('small');
	$node->safe_psql('small', "CREATE MATERIALIZED VIEW app.spilled WITH (stream_agg.continuous, stream_agg.dedup_key = 'id', stream_agg.state = 'unlogged', stream_agg.trigger = 'manual')"
		  . " AS SELECT window_start, avg(id) AS a FROM app.s, tumble(ts, '1 hour') GROUP BY 1");
	$node->command_ok([ 'pg_dump', '-Fc', '-f', "$tmp/drop", '-d', $node->connstr('small') ], 'dump');
	my %ways = (
		'DROP MATERIALIZED VIEW app.running, app.hours, app.rows, app.paused, app.failed, app.finished, app.spilled; DROP FOREIGN TABLE app.s' => 'views, then the stream',
		"SELECT count(stream_agg.drop_view(view)) FROM stream_agg.view_config; DROP FOREIGN TABLE app.s" => 'drop_view()',
		'DROP TABLE app.running, app.hours, app.rows, app.paused, app.failed, app.finished, app.spilled; DROP FOREIGN TABLE app.s' => 'as tables',
		'DROP FOREIGN TABLE app.s CASCADE' => 'the stream with its views',
		'DROP SCHEMA app CASCADE' => 'the schema');
	for my $sql (sort keys %ways)
	{
		create_target($node, 'dropped');
		$node->command_ok([ 'pg_restore', '--exit-on-error', '-d', $node->connstr('dropped'), "$tmp/drop" ], 'restore');
		$node->safe_psql('dropped', "SET client_min_messages = error; $sql");
		is_query($node, 'dropped', $left_over, '0|0|0|0|0|0|0|0', "dropped before resume: $ways{$sql}");
		is_query($node, 'dropped', "SELECT count(*) FROM pg_class WHERE relnamespace = to_regnamespace('app') AND relkind <> 'i' AND relname <> 'other'", '0',
			'and the tables are gone');
	}
	create_target($node, 'dropped');
	$node->command_ok([ 'pg_restore', '--exit-on-error', '-d', $node->connstr('dropped'), "$tmp/drop" ], 'restore');
	$node->safe_psql('dropped', "SET client_min_messages = error; DROP EXTENSION stream_agg CASCADE");
	is_query($node, 'dropped', "SELECT count(*) FROM pg_class WHERE relname ~ '^(definition|state|spill|dedup|staged)_'", '0', 'DROP EXTENSION too');
	is_query($node, 'dropped', "SELECT to_regclass('app.running') IS NULL AND to_regclass('app.s') IS NULL", 't', 'with streams and views');
	$node->safe_psql('dropped', 'CREATE EXTENSION stream_agg');
	return;
}

# Parts of a database: result tables come back as ordinary tables.
sub test_parts
{
	create_small('small');
	my $want = $node->safe_psql('small', 'SELECT * FROM app.running ORDER BY k');
	for my $what ([ '-n', 'app' ], [ '-t', 'app.running', '-t', 'app.rows' ], [ '-s', '-t', 'app.running', '-t', 'app.rows' ])
	{
		my $file = "$tmp/part";
		my $tables = $what->[0] ne '-n';
		$node->command_ok([ 'pg_dump', '-Fc', '-f', $file, @$what, '-d', $node->connstr('small') ], "dump @$what");
		for my $extension (0, 1)
		{
			create_target($node, 'part');
			$node->safe_psql('part', 'CREATE SCHEMA app') if $tables;
			$node->safe_psql('part', 'CREATE EXTENSION stream_agg') if $extension;
			my @restore = ('pg_restore', '-d', $node->connstr('part'), $file);
			my $name = "@$what: restore " . ($extension ? 'with' : 'without') . ' the extension';
			# A schema holds streams, for which the extension must be there.
			if ($tables || $extension) { $node->command_ok([ @restore, '--exit-on-error' ], $name); }
			else { $node->command_fails_like(\@restore, qr/server "stream_staged" does not exist/, "$name fails for the stream"); }
			is_query($node, 'part', 'SELECT * FROM app.running ORDER BY k', $what->[0] eq '-s' ? '' : $want, 'the results are there');
			$node->safe_psql('part', "UPDATE app.running SET n = 0; INSERT INTO app.rows VALUES (1, 1); DELETE FROM app.rows; TRUNCATE app.rows");
			is_query($node, 'part', 'SELECT count(*) FROM stream_agg.view_config', '0', 'and there is no view') if $extension;
			$node->safe_psql('part', 'ALTER TABLE app.running DROP COLUMN a; DROP TABLE app.running, app.rows');
			pass('they are ordinary tables');
			next if $tables || !$extension;
			$node->safe_psql('part', <<'SQL');
INSERT INTO app.s VALUES (1, '2024-01-01Z', 1);
CREATE MATERIALIZED VIEW v WITH (stream_agg.continuous) AS SELECT count(*) AS n FROM app.s;
CALL stream_agg.run('v');
SQL
			is_query($node, 'part', 'SELECT n FROM v', '1', 'the stream is a new one');
		}
	}
	return;
}

# Who dumps, who restores, and into what.
sub test_roles
{
	create_small('small');
	for my $on ($node, $other)
	{
		$on->safe_psql('postgres', <<'SQL');
DROP ROLE IF EXISTS app_owner; DROP ROLE IF EXISTS dumper; DROP ROLE IF EXISTS boss;
CREATE ROLE app_owner LOGIN; CREATE ROLE dumper LOGIN IN ROLE pg_read_all_data; CREATE ROLE boss LOGIN SUPERUSER;
SQL
	}
	$node->safe_psql('small', <<'SQL');
GRANT CREATE ON SCHEMA app TO app_owner; GRANT USAGE ON SCHEMA app TO app_owner; GRANT SELECT ON app.s TO app_owner;
SET ROLE app_owner;
CREATE MATERIALIZED VIEW app.own WITH (stream_agg.continuous) AS SELECT k, avg(id) AS a FROM app.s GROUP BY k;
SQL
	$node->safe_psql('small', "CALL stream_agg.run('app.own')");
	my $answer = $node->safe_psql('small', 'SELECT * FROM app.own ORDER BY k');
	$node->command_fails_like([ 'pg_dump', '-U', 'app_owner', '-f', "$tmp/none", '-d', $node->connstr('small') ], qr/permission denied/,
		'who may not read everything cannot dump');
	$node->command_ok([ 'pg_dump', '-U', 'dumper', '-Fc', '-f', "$tmp/roles", '-d', $node->connstr('small') ], 'a dump by who may only read');

	# As they were: owners come back, and so do their views' rights.
	create_target($other, 'same');
	$other->command_ok([ 'pg_restore', '--exit-on-error', '-d', $other->connstr('same'), "$tmp/roles" ], 'restore');
	is_query($other, 'same', "SELECT owner FROM stream_agg.views WHERE view = 'app.own'::regclass", 'app_owner', 'owners are who they were');
	# Everything belongs to another superuser.
	create_target($other, 'moved');
	$other->command_ok([ 'pg_restore', '-U', 'boss', '--no-owner', '--no-acl', '--exit-on-error', '-d', $other->connstr('moved'), "$tmp/roles" ],
		'restore by another user, without owners');
	is_query($other, 'moved', 'SELECT DISTINCT owner FROM stream_agg.views', 'boss', 'all is his');
	is_query($other, 'moved', "SELECT DISTINCT pg_get_userbyid(relowner) FROM pg_class WHERE relnamespace IN ('stream_agg'::regnamespace, 'app'::regnamespace)", 'boss',
		'in schema stream_agg too');
	for my $db ('same', 'moved')
	{
		my $user = $db eq 'same' ? 'app_owner' : 'boss';
		is($other->safe_psql($db, "SELECT stream_agg.resume('app.own')", extra_params => [ '-U', $user ]), '', "$user resumes his view");
		$other->safe_psql($db, "INSERT INTO app.s VALUES (1000, '2024-01-02Z', 7); CALL stream_agg.run('app.own')");
		is_query($other, $db, 'SELECT * FROM app.own ORDER BY k', "$answer\n7|1000.0000000000000000", 'which goes on');
	}
	return;
}

# Over what is there already.
sub test_again
{
	create_small('small');
	$node->command_ok([ 'pg_dump', '-Fc', '-f', "$tmp/again", '-d', $node->connstr('small') ], 'dump');
	my $state = 'SELECT view, "read", accepted, late, filtered FROM stream_agg.views ORDER BY view::text';
	my $wanted = $node->safe_psql('small', $state);

	# The schema first, the data later: in whatever order tables come.
	create_target($node, 'again');
	$node->command_ok([ 'pg_restore', '--exit-on-error', '--schema-only', '-d', $node->connstr('again'), "$tmp/again" ], 'only the schema');
	is_query($node, 'again', 'SELECT count(*) FROM stream_agg.view_config', '0', 'result tables without views');
	$node->command_ok([ 'pg_restore', '--exit-on-error', '--data-only', '-d', $node->connstr('again'), "$tmp/again" ], 'then the data');
	is_query($node, 'again', $state, $wanted, 'are all there');
	like($node->safe_psql('again', $loose), qr/^[1-9]\d*\|0$/, 'with their parts');
	# A second time is refused by the keys of the configuration, before anything of it could run.
	$node->command_fails_like([ 'pg_restore', '--single-transaction', '--data-only', '-d', $node->connstr('again'), "$tmp/again" ],
		qr/duplicate key/, 'data once more');
	is_query($node, 'again', $state, $wanted, 'changes nothing');
	resume_all($node, 'again');
	$node->safe_psql('again', "INSERT INTO app.s VALUES (1000, '2024-01-02Z', 7); CALL stream_agg.run('app.running')");
	is_query($node, 'again', 'SELECT n, a FROM app.running WHERE k = 7', '1|1000.0000000000000000', 'and they go on');
	# Into a database that is at work.
	$node->command_fails_like([ 'pg_restore', '--data-only', '-t', 'running', '-d', $node->connstr('again'), "$tmp/again" ],
		qr/cannot change continuous view/, 'a view that is at work is not written to');

	# --clean. What is at work does not let itself be taken apart: it is dropped as a whole, first.
	my @clean = ('pg_restore', '--clean', '--if-exists', '-d', $node->connstr('again'));
	$node->command_fails_like([ @clean, '--single-transaction', "$tmp/again" ], qr/cannot drop the key of continuous view/,
		'--clean, all or nothing, with views that are at work');
	is_query($node, 'again', 'SELECT DISTINCT status FROM stream_agg.views WHERE view = \'app.running\'::regclass', 'running', 'is nothing');
	for my $way ('after DROP EXTENSION CASCADE', '--create')
	{
		if ($way =~ /DROP/)
		{
			$node->safe_psql('again', 'SET client_min_messages = error; DROP EXTENSION stream_agg CASCADE');
			$node->command_ok([ @clean, '--single-transaction', "$tmp/again" ], "--clean $way");
		}
		else
		{
			$node->safe_psql('postgres', 'DROP DATABASE again; ALTER DATABASE small RENAME TO again');
			$node->command_ok([ 'pg_dump', '-Fc', '-f', "$tmp/create", '-d', $node->connstr('again') ], 'dump');
			$node->command_ok([ 'pg_restore', '--clean', '--if-exists', '--create', '--exit-on-error', '-d', $node->connstr('postgres'), "$tmp/create" ],
				"--clean $way");
		}
		is_query($node, 'again', $state, $wanted, 'replaces what was there');
		is_query($node, 'again', 'SELECT DISTINCT status FROM stream_agg.views', 'restored', 'and waits');
		resume_all($node, 'again');
		$node->safe_psql('again', "INSERT INTO app.s VALUES (1000, '2024-01-02Z', 7); CALL stream_agg.run('app.running', '20 s')");
		is_query($node, 'again', 'SELECT n, a FROM app.running WHERE k = 7', '1|1000.0000000000000000', 'goes on');
		is_query($node, 'again', 'SELECT count(*) FROM stream_agg.view_position WHERE view_id NOT IN (SELECT id FROM stream_agg.view_config)', '0',
			'nothing is left of what was there before');
	}
	return;
}

my @tests = (
	load => \&test_load,
	status => \&test_status,
	drop => \&test_drop,
	parts => \&test_parts,
	roles => \&test_roles,
	again => \&test_again);
while (my ($name, $code) = splice(@tests, 0, 2))
{
	next if $ENV{SA_ONLY} && $ENV{SA_ONLY} ne $name;
	subtest $name => $code;
}

for my $on ($node, $other)
{
	my @crashes = unexpected_crashes($on);
	is(scalar(@crashes), 0, 'no crash') or diag join("\n", @crashes);
	$on->stop;
}
done_testing();
