# 150_upgrade.pl: what versions do to each other. ALTER EXTENSION UPDATE from every version that has a script, while
# views are at work; a library and SQL objects of different versions; pg_upgrade; and what somebody could prepare for
# the superuser who runs the scripts.
#
#   SA_ONLY=name  one test
use strict;
use warnings;

use File::Basename;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

use StreamAggTest;

my $node = make_node('upgrade');
$node->start;
my $tmp = $PostgreSQL::Test::Utils::tmp_check;
my $folder = $node->config_data('--sharedir') . '/extension';
my ($newest) = slurp_file("$folder/stream_agg.control") =~ /default_version = '(.*)'/;
my @scripts = sort map { basename($_) } glob("$folder/stream_agg--*.sql");
my @versions = map { /^stream_agg--([\d.]+)\.sql$/ ? $1 : () } @scripts;

sub is_query
{
	my ($on, $db, $query, $wanted, $name) = @_;
	return is($on->safe_psql($db, $query), $wanted, $name);
}

sub create_database
{
	my ($db, $version) = @_;
	$node->safe_psql('postgres', "DROP DATABASE IF EXISTS $db");
	$node->safe_psql('postgres', "CREATE DATABASE $db TEMPLATE template0");
	$node->safe_psql($db, 'CREATE EXTENSION stream_agg' . ($version ? " VERSION '$version'" : ''));
	return;
}

# ---- what an extension consists of: everything that could differ, in words

my $members = <<'SQL';
SET search_path = pg_catalog;
WITH m AS (SELECT d.classid, d.objid, pg_describe_object(d.classid, d.objid, 0) AS name FROM pg_depend d
	WHERE d.refclassid = 'pg_extension'::regclass AND d.deptype = 'e'
	AND d.refobjid = (SELECT oid FROM pg_extension WHERE extname = 'stream_agg')),
r AS (SELECT c.oid, c.relname, c.relkind, c.reloptions, c.relacl, c.relowner, c.relpersistence, c.relrowsecurity, c.relreplident, c.reltype
	FROM m JOIN pg_class c ON m.classid = 'pg_class'::regclass AND c.oid = m.objid)
SELECT x FROM (
	SELECT format('member %s: %s', name, obj_description(objid, classid::regclass::name)) AS x FROM m
	UNION ALL SELECT format('function %s%s acl %s owner %s', p.oid::regprocedure, pg_get_functiondef(p.oid), proacl, proowner::regrole)
		FROM m JOIN pg_proc p ON classid = 'pg_proc'::regclass AND p.oid = objid
	UNION ALL SELECT format('relation %s kind %s options %s acl %s owner %s %s %s %s', relname, relkind, reloptions, relacl, relowner::regrole,
		relpersistence, relrowsecurity, relreplident) FROM r
	UNION ALL SELECT format('column %s.%s %s %s %s %s default %s identity %s storage %s: %s', relname, attname, attnum, format_type(atttypid, atttypmod),
		attnotnull, attcollation::regcollation, pg_get_expr(adbin, adrelid), attidentity, attstorage, col_description(attrelid, attnum))
		FROM r JOIN pg_attribute a ON a.attrelid = r.oid AND attnum > 0 LEFT JOIN pg_attrdef f ON adrelid = attrelid AND adnum = attnum
	UNION ALL SELECT format('view %s %s', relname, pg_get_viewdef(oid)) FROM r WHERE relkind = 'v'
	UNION ALL SELECT format('index %s', pg_get_indexdef(indexrelid)) FROM r JOIN pg_index ON indrelid = r.oid
	UNION ALL SELECT format('constraint %s %s', conname, pg_get_constraintdef(c.oid)) FROM r JOIN pg_constraint c ON conrelid = r.oid
	UNION ALL SELECT format('trigger %s %s', pg_get_triggerdef(t.oid), tgenabled) FROM r JOIN pg_trigger t ON tgrelid = r.oid
	UNION ALL SELECT format('sequence %s %s', relname, s) FROM r JOIN LATERAL (SELECT seqtypid::regtype, seqstart, seqincrement, seqmax, seqmin, seqcache, seqcycle
		FROM pg_sequence WHERE seqrelid = r.oid) s ON true
	UNION ALL SELECT format('wrapper %s %s %s %s', fdwhandler::regproc, fdwvalidator::regproc, fdwoptions, fdwacl)
		FROM m JOIN pg_foreign_data_wrapper f ON classid = 'pg_foreign_data_wrapper'::regclass AND f.oid = objid
	UNION ALL SELECT format('server %s %s %s', srvname, srvoptions, srvacl) FROM m JOIN pg_foreign_server s
		ON classid = 'pg_foreign_server'::regclass AND s.oid = objid
	UNION ALL SELECT format('schema %s %s', nspname, nspacl) FROM m JOIN pg_namespace n ON classid = 'pg_namespace'::regclass AND n.oid = objid
	UNION ALL SELECT format('dumped %s %s', c::regclass, extcondition[o]) FROM pg_extension, unnest(extconfig) WITH ORDINALITY u(c, o) WHERE extname = 'stream_agg'
	UNION ALL SELECT format('version %s', extversion) FROM pg_extension WHERE extname = 'stream_agg'
	UNION ALL SELECT format('initial privileges %s %s', pg_describe_object(i.classoid, i.objoid, i.objsubid), initprivs)
		FROM pg_init_privs i JOIN m ON m.classid = i.classoid AND m.objid = i.objoid
	UNION ALL SELECT format('in schema: %s', relname) FROM pg_class WHERE relnamespace = 'stream_agg'::regnamespace AND relkind <> 't'
		AND relname !~ '^(definition|state|staged)_\d'
) q ORDER BY x
SQL

my $fresh;

sub same_as_fresh
{
	my ($db, $name) = @_;
	if (!defined $fresh)
	{
		create_database('fresh');
		$fresh = $node->safe_psql('fresh', $members);
		cmp_ok(scalar(split /^/, $fresh), '>', 200, 'a fresh installation says a lot of itself');
	}
	my $found = $node->safe_psql($db, $members);
	return ok(1, $name) if $found eq $fresh;
	my %fresh = map { $_ => 1 } split /\n/, $fresh;
	my %found = map { $_ => 1 } split /\n/, $found;
	ok(0, $name);
	diag "only in a fresh one: $_" for grep { !$found{$_} } sort keys %fresh;
	diag "only in the updated one: $_" for grep { !$fresh{$_} } sort keys %found;
	return;
}

sub test_scripts
{
	cmp_ok(scalar(@versions), '>=', 1, "versions @versions have scripts of their own");
	for my $script (@scripts)
	{
		my $sql = slurp_file("$folder/$script");
		$sql =~ s/^\s*(--.*|\\echo.*|\/\*.*\*\/)?\n//mg;
		like($sql, qr/\ASET LOCAL search_path = pg_catalog, pg_temp;\n/, "$script trusts no search_path");
		unlike($sql, qr/IF NOT EXISTS(?! \(SELECT)/i, "$script takes nothing over that is there");
	}
	for my $version (@versions)
	{
		create_database('updated', $version);
		is_query($node, 'updated', "SELECT extversion FROM pg_extension WHERE extname = 'stream_agg'", $version, "version $version installs");
		$node->safe_psql('updated', 'ALTER EXTENSION stream_agg UPDATE');
		same_as_fresh('updated', "updated from $version it is what a fresh $newest is");
	}
	$node->safe_psql('postgres', 'CREATE DATABASE elsewhere');
	$node->safe_psql('elsewhere', <<'SQL');
CREATE SCHEMA "Other Place"; CREATE EXTENSION stream_agg SCHEMA "Other Place";
CREATE FOREIGN TABLE s (ts timestamptz) SERVER stream_staged OPTIONS (event_time 'ts');
SET search_path = "Other Place", public;
CREATE MATERIALIZED VIEW public.v WITH (stream_agg.continuous) AS SELECT window_end, count(*) AS n FROM s, hop(ts, '1 hour', '30 minutes') GROUP BY window_end;
INSERT INTO s VALUES ('2024-01-01 00:10Z');
CALL stream_agg.run('s');
SQL
	is_query($node, 'elsewhere', 'SELECT count(*) FROM v', '2', 'the window functions live in a schema of choice');
	return;
}

# ---- a database of every kind of view

my %queries = (
	running => 'SELECT k, count(*) AS n, avg(id) AS a FROM %s GROUP BY k',
	windows => "SELECT window_start, k, stddev(id) AS a, count(*) AS n FROM %s, tumble(ts, '1 hour') GROUP BY window_start, k",
	closed => "SELECT window_start, sum(id) AS v, avg(id) AS a FROM %s, tumble(ts, '1 hour') GROUP BY window_start",
	rows => 'SELECT id, k FROM %s WHERE k <> 1');

sub create_views
{
	my ($on, $db) = @_;
	my $sql = <<'SQL';
CREATE TABLE l (id int, ts timestamptz, k int);
CREATE FOREIGN TABLE s (id int, ts timestamptz, k int) SERVER stream_staged OPTIONS (event_time 'ts', watermark '10 minutes');
SQL
	for my $name (sort keys %queries)
	{
		my $mode = $name eq 'closed' ? 'append' : 'update';
		$sql .= "CREATE MATERIALIZED VIEW $name WITH (stream_agg.continuous, stream_agg.output_mode = '$mode') AS "
		  . sprintf($queries{$name}, 's') . ";\n";
	}
	return $on->psql($db, $sql);
}

my $next = 1;

sub insert_sql
{
	my ($count) = @_;
	my ($first, $last) = ($next, $next + $count - 1);
	$next += $count;
	return "WITH x AS (INSERT INTO l SELECT g, timestamptz '2024-01-01Z' + g * interval '1 minute', g % 5"
	  . " FROM generate_series($first, $last) g RETURNING *) INSERT INTO s SELECT * FROM x;\n";
}

# Every view against the batch answer; times only rise, so nothing is late.
sub is_exact
{
	my ($on, $db, $name) = @_;
	for my $view (sort keys %queries)
	{
		my $from = $view eq 'closed'
		  ? "(SELECT * FROM l WHERE date_trunc('hour', ts) + interval '1 hour' <= (SELECT max(ts) - interval '10 minutes' FROM l)) l" : 'l';
		my $answer = sprintf($queries{$view}, $from);
		is_query($on, $db, "SELECT count(*) FROM ((($answer) EXCEPT ALL TABLE $view) UNION ALL (TABLE $view EXCEPT ALL ($answer))) x", '0', "$name: $view");
	}
	is_query($on, $db, 'SELECT count(*) FROM stream_agg.views WHERE "read" = (SELECT count(*) FROM l) AND late = 0 AND ' . balanced_counters(),
		scalar(keys %queries), "$name: everything is read once");
	return;
}

# Views created by an older version, at work while the extension is updated.
sub test_running
{
	for my $version (grep { $_ ne $newest } @versions)
	{
		my $db = 'at_work';
		$next = 1;
		create_database($db, $version);
		my ($rc, $out, $err) = create_views($node, $db);
		if ($rc != 0)
		{
			# Only that library could have made views in such a database.
			like($err, qr/HINT: +Run ALTER EXTENSION stream_agg UPDATE/, "in version $version: says what to do");
			next;
		}
		$node->safe_psql($db, insert_sql(500) . "CALL stream_agg.run('s')");
		is_exact($node, $db, "version $version");
		my $script = start_script($node, 'feed', join('', map { insert_sql(20) } 1 .. 400), db => $db);
		ok($node->poll_query_until($db, 'SELECT sum(n) > 600 FROM running'), 'the worker is at work');
		$node->safe_psql($db, 'ALTER EXTENSION stream_agg UPDATE');
		my $pid = $node->safe_psql($db, "SELECT pid FROM stream_agg.streams WHERE stream = 's'::regclass");
		my $at = $node->safe_psql($db, 'SELECT count(*) FROM l');
		is(wait_until('all is fed', sub { my $e = script_exit($script); defined $e ? "e$e" : undef }), 'e0', "updated after $at of 8500 rows")
		  or diag slurp_file($script->{err});
		$node->safe_psql($db, "CALL stream_agg.run('s')");
		is_exact($node, $db, "updated from $version");
		same_as_fresh($db, 'with views at work too');
		terminate_workers($node, "datname = '$db'");
		$node->safe_psql($db, insert_sql(100) . "CALL stream_agg.run('s')");
		is_exact($node, $db, 'and on in another worker');
		# Restarted, everything is as if created by the newest. (Version 1.0 made an ordinary trigger.)
		$node->safe_psql($db, 'CREATE TRIGGER stream_agg_guard BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON running FOR EACH STATEMENT EXECUTE FUNCTION stream_agg.guard()');
		$node->restart;
		ok($node->poll_query_until($db, "SELECT bool_and(tgisinternal) AND count(*) = 4 FROM pg_trigger WHERE tgname ~ '^stream_agg_guard'"),
			'every view has the guard of today');
		$node->safe_psql($db, 'SET client_min_messages = error; DROP FOREIGN TABLE s CASCADE');
		is_query($node, $db, "SELECT count(*) FROM pg_class WHERE relname ~ '^(definition|state|staged)_\\d'", '0', 'and goes as a whole');
	}
	return;
}

# The library is older or newer than the SQL objects.
sub test_mismatch
{
	my $db = 'mismatch';
	$next = 1;
	create_database($db);
	create_views($node, $db);
	$node->safe_psql($db, insert_sql(100) . "CALL stream_agg.run('s')");
	my $create = 'CREATE MATERIALIZED VIEW new WITH (stream_agg.continuous) AS SELECT count(*) AS n FROM s';
	my $version = sub { $node->safe_psql($db, "UPDATE pg_extension SET extversion = '$_[0]' WHERE extname = 'stream_agg'"); };
	my $unrelated = 'CREATE TABLE t (a int PRIMARY KEY); ALTER TABLE t ADD b int; CREATE VIEW tv AS SELECT * FROM t; DROP TABLE t CASCADE';

	# Packages were downgraded, or the server was not restarted.
	$version->('99.1');
	my $newer = qr/extension "stream_agg" is of version 99\.1 here, and its library of version \Q$newest\E.*HINT: +Install the library of version 99\.1 and restart/s;
	for my $sql ($create, 'INSERT INTO s VALUES (1)', 'DROP TABLE running', "SELECT stream_agg.pause('running')", 'SELECT * FROM s')
	{
		my ($rc, $out, $err) = $node->psql($db, $sql);
		like($err, $newer, "$sql with an older library");
	}
	$node->safe_psql($db, $unrelated);
	pass('what is not ours goes on');
	$node->restart;
	ok($node->poll_query_until($db, "SELECT count(*) = 1 FROM stream_agg.streams WHERE message LIKE '%is of version 99.1 here%'"), 'the worker says so');
	$version->($newest);
	$node->safe_psql($db, insert_sql(100) . "CALL stream_agg.run('s', '60 s')");
	is_exact($node, $db, 'with the right one');

	# Packages were upgraded: objects that the library needs are not there yet.
	$version->('0.9');
	is_query($node, $db, 'SELECT count(*) FROM stream_agg.views', '4', 'older objects of the same shape serve');
	$node->safe_psql($db, insert_sql(100) . "CALL stream_agg.run('s', '60 s')");
	is_exact($node, $db, 'with older ones');
	my $older = qr/extension "stream_agg" is of version 0\.9 here, and its library of version \Q$newest\E.*HINT: +Run ALTER EXTENSION stream_agg UPDATE\./s;
	$node->safe_psql($db, <<'SQL');
SET allow_system_table_mods = on;
UPDATE pg_attribute SET attnum = 100 WHERE attrelid = 'stream_agg.view_config'::regclass AND attnum = 10;
UPDATE pg_class SET relnatts = 9 WHERE oid = 'stream_agg.view_config'::regclass;
SQL
	for my $sql ($create, "SELECT stream_agg.resume('running')")
	{
		my ($rc, $out, $err) = $node->psql($db, $sql);
		like($err, $older, "$sql with a table of fewer columns");
	}
	$node->safe_psql($db, $unrelated);
	$node->safe_psql($db, <<'SQL');
SET allow_system_table_mods = on;
UPDATE pg_attribute SET attnum = 10 WHERE attrelid = 'stream_agg.view_config'::regclass AND attnum = 100;
UPDATE pg_class SET relnatts = 10 WHERE oid = 'stream_agg.view_config'::regclass;
ALTER EXTENSION stream_agg DROP TABLE stream_agg.staged_order;
ALTER TABLE stream_agg.staged_order RENAME TO not_there_yet;
SQL
	my ($rc, $out, $err) = $node->psql($db, "INSERT INTO s VALUES (1); SELECT * FROM s");
	like($err, $older, 'a missing table');
	$node->safe_psql($db, 'ALTER TABLE stream_agg.not_there_yet RENAME TO staged_order; ALTER EXTENSION stream_agg ADD TABLE stream_agg.staged_order');
	$version->($newest);
	$node->safe_psql('postgres', "DROP DATABASE $db");
	return;
}

# Somebody waits for the superuser: objects that look like ours or like PostgreSQL's own, in the schema that holds the
# window functions and, where he can, in ours.
sub test_attack
{
	$node->safe_psql('postgres', 'CREATE ROLE mallory LOGIN; CREATE DATABASE attacked OWNER mallory');
	my @as_mallory = (extra_params => [ '-U', 'mallory' ]);
	$node->safe_psql('attacked', <<'SQL', @as_mallory);
CREATE TABLE loot (who text, what text);
GRANT ALL ON loot TO PUBLIC;
CREATE FUNCTION steal(anyelement, what text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN IF current_user <> 'mallory' THEN INSERT INTO public.loot VALUES (current_user, what); END IF; EXCEPTION WHEN OTHERS THEN NULL; END $$;
DO $do$
DECLARE
	op text; a text; b text; name text; n int := 0;
BEGIN
	-- every comparison and concatenation of types that appear in scripts without an operator of their own
	FOREACH op IN ARRAY '{=,<>,||,<,~~,-,*,/,+}'::text[] LOOP
		FOREACH a IN ARRAY '{oid,regclass,regrole,regnamespace,name,text,int4,int8,bool,numeric}'::text[] LOOP
			FOREACH b IN ARRAY '{oid,regclass,regrole,regnamespace,name,text,int4,int8,bool,numeric}'::text[] LOOP
				n := n + 1;
				BEGIN
					EXECUTE format('CREATE FUNCTION public.f%s(%s, %s) RETURNS bool LANGUAGE plpgsql AS $f$BEGIN PERFORM public.steal(1, %L); RETURN true; END$f$',
						n, a, b, a || op || b);
					EXECUTE format('CREATE OPERATOR public.%s (leftarg = %s, rightarg = %s, function = public.f%s)', op, a, b, n);
				EXCEPTION WHEN OTHERS THEN NULL;
				END;
			END LOOP;
		END LOOP;
	END LOOP;
	FOREACH name IN ARRAY '{to_regnamespace,to_time,may_see,worker_status,pg_has_role,format,pg_get_userbyid,split_part,pg_extension_config_dump,pg_relation_size}'::text[] LOOP
		FOREACH a IN ARRAY '{oid,regclass,regrole,name,text,int4,"text, text","name, text","int4, text","oid, text","regclass, regclass"}'::text[] LOOP
			n := n + 1;
			EXECUTE format('CREATE FUNCTION public.%s(%s) RETURNS text LANGUAGE plpgsql AS $f$BEGIN PERFORM public.steal(1, %L); RETURN NULL; END$f$', name, a, name);
		END LOOP;
	END LOOP;
END $do$;
CREATE DOMAIN public.regclass AS text;
CREATE DOMAIN public.regrole AS text;
CREATE TABLE public.pg_namespace (nspname name, nspowner oid);
CREATE TABLE public.pg_class (oid oid);
SQL
	my $oldest = $versions[0];
	$node->safe_psql('attacked', "CREATE EXTENSION stream_agg VERSION '$oldest'; ALTER EXTENSION stream_agg UPDATE");
	$node->safe_psql('attacked', <<'SQL');
CREATE FOREIGN TABLE s (ts timestamptz, k int) SERVER stream_staged OPTIONS (event_time 'ts', watermark '1 minute');
CREATE MATERIALIZED VIEW v WITH (stream_agg.continuous) AS SELECT k, window_start, avg(k) AS a FROM s, tumble(ts, '1 hour') GROUP BY k, window_start;
INSERT INTO s VALUES ('2024-01-01Z', 1), (NULL, 2);
CALL stream_agg.run('s');
TABLE stream_agg.streams; TABLE stream_agg.views; TABLE stream_agg.progress; TABLE stream_agg.partitions; TABLE stream_agg.dead_letters; TABLE stream_agg.data_losses; TABLE stream_agg.watermark_advances;
SELECT stream_agg.to_time(0), stream_agg.explain('v');
SELECT * FROM hop(timestamptz '2024-01-01', '1 hour', '30 minutes'), tumble(date '2024-01-01', '1 day');
SELECT stream_agg.pause('v'), stream_agg.resume('v');
SQL
	is_query($node, 'attacked', 'SELECT * FROM loot', '', 'nothing of his is called');
	my $mine = $node->safe_psql('attacked', $members);
	same_as_fresh('attacked', 'the extension is the same as elsewhere');
	$node->safe_psql('attacked', 'SET client_min_messages = error; DROP EXTENSION stream_agg CASCADE');

	# Functions of the very names and arguments.
	$node->safe_psql('attacked', "CREATE FUNCTION public.tumble(timestamptz, interval, timestamptz) RETURNS int LANGUAGE sql AS 'SELECT 1'", @as_mallory);
	my ($rc, $out, $err) = $node->psql('attacked', 'CREATE EXTENSION stream_agg');
	like($err, qr/function "tumble" already exists/, 'what is there is not taken over');
	$node->safe_psql('attacked', 'DROP FUNCTION public.tumble(timestamptz, interval, timestamptz)', @as_mallory);

	# The schema.
	my %schemas = (
		'CREATE SCHEMA stream_agg AUTHORIZATION mallory' => qr/belongs to another user/,
		'CREATE SCHEMA stream_agg; GRANT CREATE ON SCHEMA stream_agg TO mallory' => qr/others may create/,
		'CREATE SCHEMA stream_agg; GRANT CREATE ON SCHEMA stream_agg TO PUBLIC' => qr/others may create/,
		'CREATE SCHEMA stream_agg; CREATE TABLE stream_agg.view_position (a int)' => qr/not empty/,
		"CREATE SCHEMA stream_agg; CREATE FUNCTION stream_agg.may_see(oid) RETURNS bool LANGUAGE sql AS 'SELECT true'" => qr/not empty/,
		'CREATE SCHEMA stream_agg; CREATE DOMAIN stream_agg.d AS int' => qr/not empty/,
		"CREATE SCHEMA stream_agg; CREATE FUNCTION f(int, int) RETURNS bool LANGUAGE sql AS 'SELECT true'; CREATE OPERATOR stream_agg.= (leftarg = int, rightarg = int, function = f)" => qr/not empty/);
	for my $sql (sort keys %schemas)
	{
		$node->safe_psql('attacked', $sql);
		($rc, $out, $err) = $node->psql('attacked', 'CREATE EXTENSION stream_agg');
		like($err, $schemas{$sql}, "refused: $sql");
		$node->safe_psql('attacked', 'SET client_min_messages = error; DROP SCHEMA stream_agg CASCADE');
	}
	$node->safe_psql('attacked', 'CREATE SCHEMA stream_agg; CREATE EXTENSION stream_agg SCHEMA stream_agg');
	pass('an empty schema of the superuser serves');
	($rc, $out, $err) = $node->psql('attacked', 'CREATE TABLE stream_agg.x (a int)', @as_mallory);
	like($err, qr/permission denied for schema stream_agg/, 'the owner of the database may create nothing there');
	return;
}

# A live installation, stopped in order, goes on in another cluster where it was.
sub test_pg_upgrade
{
	my $old = make_node('old', conf => "stream_agg.segment_size = '1MB'\n");
	my $new = make_node('new', conf => "stream_agg.segment_size = '1MB'\n");
	$next = 1;
	$old->start;
	$old->safe_psql('postgres', 'CREATE DATABASE app');
	for my $db ('postgres', 'app')
	{
		$old->safe_psql($db, 'CREATE EXTENSION stream_agg');
		create_views($old, $db);
	}
	$old->safe_psql('app', insert_sql(20000) . "CALL stream_agg.run('s')");
	$old->safe_psql('app', insert_sql(20000) . "CALL stream_agg.run('s')");
	$old->safe_psql('app', "SELECT stream_agg.pause('rows')");
	$old->safe_psql('app', insert_sql(500) . "CALL stream_agg.run('running')");
	$old->safe_psql('app', "SELECT stream_agg.pause('running')");
	$old->safe_psql('app', insert_sql(777));
	my @compare = ('SELECT view, status, options, settings FROM stream_agg.view_config ORDER BY id',
		'SELECT stream, id, next_position FROM stream_agg.staged_stream', 'SELECT last_value FROM stream_agg.object_id',
		"SELECT view, position, watermark FROM stream_agg.partitions WHERE view IN ('rows'::regclass, 'running'::regclass) ORDER BY 1",
		'SELECT id FROM s EXCEPT SELECT id FROM l', 'SELECT count(*) FROM rows', 'SELECT * FROM running ORDER BY k');
	$old->safe_psql('app', "CALL stream_agg.run('windows')");
	my @before = map { $old->safe_psql('app', $_) } @compare;
	$old->stop;

	# As pg_upgrade starts the servers.
	$old->command_ok([ 'pg_ctl', '-D', $old->data_dir, '-l', "$tmp/binary.log", '-o', '-b', '-w', 'start' ], 'in binary upgrade mode');
	is_query($old, 'app', "SELECT count(*) FILTER (WHERE backend_type LIKE 'stream_agg%'), count(*) > 3 FROM pg_stat_activity", '0|t', 'nothing of ours runs');
	$old->command_ok([ 'pg_ctl', '-D', $old->data_dir, '-w', 'stop' ], 'stopped');

	chdir $tmp;
	my @upgrade = ('pg_upgrade', '--no-sync', '-d', $old->data_dir, '-D', $new->data_dir,
		'-b', $old->config_data('--bindir'), '-B', $new->config_data('--bindir'), '-s', $new->host, '-p', $old->port, '-P', $new->port);
	$new->command_ok(\@upgrade, 'pg_upgrade') or diag `cat @{[ $new->data_dir ]}/pg_upgrade_output.d/*/log/*.log | tail -n 50`;
	$new->start;
	is($new->safe_psql('app', $compare[$_]), $before[$_], $compare[$_]) for 0 .. $#compare;
	is_query($new, 'app', "SELECT string_agg(status, ' ' ORDER BY view::text) FROM stream_agg.views", 'running paused paused running', 'views go on as what they were');
	ok($new->poll_query_until('app', "SELECT count(*) = 4 FROM pg_trigger WHERE tgname ~ '^stream_agg_guard'"), 'results are guarded');
	my ($rc, $out, $err) = $new->psql('app', 'DELETE FROM windows');
	like($err, qr/cannot change continuous view/, 'as before');
	$new->safe_psql('app', "SELECT stream_agg.resume('rows'), stream_agg.resume('running')");
	$new->safe_psql('app', insert_sql(5000) . "CALL stream_agg.run('s')");
	is_exact($new, 'app', 'upgraded');
	# In the database that exists in every cluster, too.
	$new->safe_psql('postgres', 'INSERT INTO s SELECT 1, now(), 1; CALL stream_agg.run(\'s\')');
	is_query($new, 'postgres', 'SELECT n FROM running', '1', 'database postgres goes on');

	# Nothing that was lost shows when things are made and dropped.
	$new->safe_psql('app', <<'SQL');
CREATE FOREIGN TABLE s2 (k int) SERVER stream_staged;
CREATE MATERIALIZED VIEW v2 WITH (stream_agg.continuous) AS SELECT k, avg(k) AS a FROM s2 GROUP BY k;
INSERT INTO s2 VALUES (1);
CALL stream_agg.run('s2');
DROP MATERIALIZED VIEW windows;
SQL
	is_query($new, 'app', 'SELECT a FROM v2', '1.00000000000000000000', 'a new stream and view');
	$new->safe_psql('app', 'SET client_min_messages = error; DROP FOREIGN TABLE s CASCADE; DROP FOREIGN TABLE s2 CASCADE');
	is_query($new, 'app', <<'SQL', '0|0|0|0', 'dropping leaves nothing behind');
SELECT (SELECT count(*) FROM stream_agg.view_config), (SELECT count(*) FROM stream_agg.staged_stream),
	(SELECT count(*) FROM pg_class WHERE relname ~ '^(definition|state|staged)_\d'), (SELECT count(*) FROM pg_class WHERE relname IN ('running', 'rows', 'closed'))
SQL
	my @crashes = unexpected_crashes($new);
	is(scalar(@crashes), 0, 'no crash') or diag join("\n", @crashes);
	$new->stop;
	return;
}

# Under 1.0 definitions kept the names that columns of results had at first; they are found by them now.
sub test_columns
{
	create_database('columns', '1.0');
	$node->safe_psql('columns', <<'SQL');
CREATE FOREIGN TABLE s (a int, b int) SERVER stream_staged;
CREATE MATERIALIZED VIEW v WITH (stream_agg.continuous, stream_agg.trigger = 'manual') AS SELECT a, b, count(*) AS n FROM s GROUP BY a, b;
INSERT INTO s VALUES (1, 2);
CALL stream_agg.run('s');
SQL
	# What these objects have no place for is refused.
	for my $option ("dedup_key = 'a'", "state = 'unlogged'")
	{
		my ($rc, $out, $err) = $node->psql('columns', 'CREATE FOREIGN TABLE timed (a int, event_time timestamptz) SERVER stream_staged OPTIONS (watermark \'1 s\');'
			  . " CREATE MATERIALIZED VIEW w WITH (stream_agg.continuous, stream_agg.$option) AS SELECT window_start, avg(a) FROM timed, tumble(event_time, '1 s') GROUP BY 1");
		like($err, qr/ERROR:.*\nHINT:  .*ALTER EXTENSION stream_agg UPDATE/s, "$option: not with the objects of 1.0");
		$node->safe_psql('columns', 'DROP FOREIGN TABLE timed CASCADE');
	}
	my $definition = $node->safe_psql('columns', 'SELECT definition FROM stream_agg.view_config');
	# as if a and b had been exchanged in the result, and n renamed
	$node->safe_psql('columns', join('', map { "ALTER VIEW $definition RENAME COLUMN $_;" } 'a TO t', 'b TO a', 't TO b', 'n TO m'));
	$node->safe_psql('columns', 'ALTER EXTENSION stream_agg UPDATE');
	is_query($node, 'columns', "SELECT string_agg(attname, ' ' ORDER BY attnum) FROM pg_attribute WHERE attrelid = '$definition'::regclass AND attnum > 0",
		'a b n', 'definitions have the names of their results');
	$node->safe_psql('columns', 'INSERT INTO s VALUES (1, 2)');
	$node->safe_psql('columns', "CALL stream_agg.run('s')");
	is_query($node, 'columns', 'TABLE v', '1|2|2', 'and the view goes on');
	return;
}

my @tests = (
	scripts => \&test_scripts,
	columns => \&test_columns,
	running => \&test_running,
	mismatch => \&test_mismatch,
	attack => \&test_attack,
	pg_upgrade => \&test_pg_upgrade);
while (my ($name, $code) = splice(@tests, 0, 2))
{
	next if $ENV{SA_ONLY} && $ENV{SA_ONLY} ne $name;
	subtest $name => $code;
}

my @crashes = unexpected_crashes($node);
is(scalar(@crashes), 0, 'no crash') or diag join("\n", @crashes);
$node->stop;
done_testing();
