# 130_roles.pl: roles and privileges.  What owners, readers, administrators and strangers may do; whose rights
# the worker uses when rights, owners and roles change; and an attacker, who tries every way that we know of
# to run code with other rights than his own or to see what is not his.  SA_ONLY=pattern picks subtests.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

use StreamAggTest;

my $node = make_node('roles');
$node->start;

# ---- helpers

# Runs SQL as a role ('super': the superuser that the node has); (exit status, output, messages).
sub as
{
	my ($role, $sql, $db) = @_;
	my ($out, $err) = ('', '');
	my $rc = $node->psql($db || 'postgres', $sql, stdout => \$out, stderr => \$err,
		$role eq 'super' ? () : (extra_params => [ '-U', $role ]));
	return ($rc, $out, $err);
}

# It must work; its output.
sub may
{
	my ($role, $sql, $name) = @_;
	my ($rc, $out, $err) = as($role, $sql);
	$name ||= "$role may: " . substr($sql =~ s/\s+/ /gr, 0, 90);
	is($rc, 0, $name) or diag $err;
	return $out;
}

# It must fail, with this message.
sub may_not
{
	my ($role, $sql, $message, $name) = @_;
	my ($rc, $out, $err) = as($role, $sql);
	$message ||= qr/permission denied|must be owner/;
	$name ||= "$role may not: " . substr($sql =~ s/\s+/ /gr, 0, 90);
	ok($rc != 0 && $err =~ $message, $name) or diag "exit $rc, out: $out, messages: $err";
	return $err;
}

sub answer
{
	my ($role, $sql, $expected, $name) = @_;
	my ($rc, $out, $err) = as($role, $sql);
	is($out, $expected, $name || "$role: " . substr($sql =~ s/\s+/ /gr, 0, 90)) or diag $err;
	return;
}

# It has to work, as part of the scene.
sub login
{
	my ($role, $sql) = @_;
	my ($rc, $out, $err) = as($role, $sql);
	die "$role: $err" if $rc;
	return $out;
}

sub super { my ($sql) = @_; return $node->safe_psql('postgres', $sql); }

# Until the view has this status; its message.
sub wait_for_status
{
	my ($view, $status) = @_;
	wait_until("$view is $status", sub {
		return (try_query($node, "SELECT status FROM stream_agg.views WHERE view = '$view'::regclass") // '') eq $status;
	});
	return super("SELECT message FROM stream_agg.views WHERE view = '$view'::regclass");
}

# A role with a schema of its own.
sub make_role
{
	my ($role, $options) = @_;
	super("CREATE ROLE $role LOGIN " . ($options || '') . "; CREATE SCHEMA AUTHORIZATION $role; GRANT USAGE ON SCHEMA $role TO PUBLIC;");
	return;
}

sub part
{
	my ($name, $code) = @_;
	return if $ENV{SA_ONLY} && $name !~ /$ENV{SA_ONLY}/;
	subtest $name => $code;
	return;
}

# Whatever the extension's owner grants by default is not meant for the tables of its users.
super(<<'SQL');
ALTER DEFAULT PRIVILEGES GRANT ALL ON TABLES TO PUBLIC;
ALTER DEFAULT PRIVILEGES GRANT ALL ON SEQUENCES TO PUBLIC;
CREATE EXTENSION stream_agg;
ALTER DEFAULT PRIVILEGES REVOKE ALL ON TABLES FROM PUBLIC;
ALTER DEFAULT PRIVILEGES REVOKE ALL ON SEQUENCES FROM PUBLIC;
CREATE SERVER k FOREIGN DATA WRAPPER stream_agg OPTIONS (type 'kafka', bootstrap_servers '127.0.0.1:1');
SQL
make_role($_) for qw(alice bob mallory);
super('CREATE ROLE boss LOGIN; GRANT stream_agg_admin TO boss; CREATE ROLE part_time LOGIN NOINHERIT; GRANT stream_agg_admin TO part_time;');

# What a view of alice looks like, over which stream.
sub view_of
{
	my ($name, $select, $options) = @_;
	return "CREATE MATERIALIZED VIEW $name WITH (stream_agg.continuous, stream_agg.trigger = 'manual'" .
	  ($options ? ", $options" : '') . ") AS $select;";
}

# ---- owners and readers

part plain_user => sub {
	may('alice', 'CREATE FOREIGN TABLE alice.s (k int, v int, at timestamptz) SERVER stream_staged; INSERT INTO alice.s VALUES (1, 10, now())');
	may('alice', view_of('alice.v', 'SELECT k, count(*) AS n, avg(v) AS mean FROM alice.s GROUP BY k'));
	may('alice', "CALL stream_agg.run('alice.v')");
	answer('alice', 'SELECT k, n, mean::int FROM alice.v', '1|1|10');
	may_not('mallory', 'SELECT * FROM alice.s');
	may_not('mallory', 'SELECT count(*) FROM alice.s');
	may_not('mallory', 'SELECT * FROM alice.v');
	may_not('mallory', 'INSERT INTO alice.s VALUES (1, 1, now())');
	may_not('mallory', 'TRUNCATE alice.s');
	may_not('mallory', 'COPY alice.s TO STDOUT');
	may_not('mallory', view_of('mallory.v', 'SELECT k, count(*) FROM alice.s GROUP BY k'));
	may_not('mallory', view_of('alice.w', 'SELECT k, count(*) FROM mallory.s GROUP BY k'), qr/permission denied for schema|does not exist/);
	may_not('mallory', "CREATE FOREIGN TABLE mallory.kafka (a int) SERVER k OPTIONS (topic 't')");
	may_not('mallory', 'CREATE FOREIGN TABLE alice.t (a int) SERVER stream_staged');
	for my $call ("SELECT stream_agg.pause('alice.v')", "SELECT stream_agg.resume('alice.v')", "SELECT stream_agg.drop_view('alice.v')",
		"CALL stream_agg.run('alice.v')", "CALL stream_agg.run('alice.s')", "SELECT * FROM stream_agg.explain('alice.v')",
		"SELECT * FROM stream_agg.estimate_state('alice.v')", 'DROP MATERIALIZED VIEW alice.v', 'DROP TABLE alice.v', 'DROP FOREIGN TABLE alice.s', 'ALTER FOREIGN TABLE alice.s OPTIONS (ADD watermark \'1 s\')',
		"SELECT stream_agg.reset('alice.v')", "SELECT stream_agg.seek('alice.v', '0')", "SELECT stream_agg.swap('alice.v', 'alice.v')")
	{
		may_not('mallory', $call);
	}
	# Statements, typed or run by a function: they have the rights of who gives them.
	for my $statement ('DROP STREAM alice.s CASCADE', 'DROP CONTINUOUS VIEW alice.v', 'ALTER STREAM alice.s RENAME TO x', "ALTER STREAM alice.s SET (watermark = '1 s')",
		"ALTER CONTINUOUS VIEW alice.v SET (trigger = '1 s')", 'ALTER CONTINUOUS VIEW alice.v AS SELECT k, count(*) AS n FROM alice.s GROUP BY k',
		'ALTER CONTINUOUS VIEW alice.v RENAME COLUMN n TO m', 'ALTER CONTINUOUS VIEW alice.v OWNER TO mallory', "COMMENT ON CONTINUOUS VIEW alice.v IS 'x'",
		'CREATE CONTINUOUS VIEW mallory.w AS SELECT k, count(*) AS n FROM alice.s GROUP BY k', 'CREATE STREAM alice.t (a int)')
	{
		may_not('mallory', "SELECT stream_agg.execute(\$x\$$statement\$x\$)");
		may_not('mallory', "DO LANGUAGE stream_sql \$x\$$statement\$x\$");
		may_not('mallory', "SET search_path = mallory, public; SELECT set_config('role', 'alice', false); $statement", qr/permission denied/);
	}
	answer('mallory', "SELECT (SELECT count(*) FROM stream_agg.worker_status('alice.s')), stream_agg.partition_end('alice.s', '', 0), stream_agg.may_see('alice.s')", '0||f');

	# Columns: what is granted, and no more, dead letters included.
	super('GRANT SELECT (k, at) ON alice.s TO bob');
	may('bob', view_of('bob.c', 'SELECT k, count(*) AS n, sum(10 / (k - 7)) AS x FROM alice.s GROUP BY k'));
	may_not('bob', view_of('bob.d', 'SELECT k, sum(v) FROM alice.s GROUP BY k'));
	may('alice', 'INSERT INTO alice.s VALUES (7, 4711, now())');
	may('bob', "CALL stream_agg.run('bob.c')");
	answer('bob', "SELECT view, reason, event ->> 'k', event ->> 'v' FROM stream_agg.dead_letters", 'c|failed|7|');
	may_not('bob', "CALL stream_agg.run('alice.s')");
	super('DROP TABLE bob.c');
	may('alice', 'DROP FOREIGN TABLE alice.s CASCADE');
};

# The worker reads with the view owner's rights, as they are.
part revoke => sub {
	super(<<'SQL');
SET ROLE alice;
CREATE FOREIGN TABLE alice.s (k int, v int, at timestamptz) SERVER stream_staged;
CREATE TABLE alice.dim (k int, label text); INSERT INTO alice.dim VALUES (1, 'one'), (2, 'two');
CREATE FUNCTION alice.twice(numeric) RETURNS numeric IMMUTABLE LANGUAGE sql AS 'SELECT $1 * 2';
CREATE FUNCTION alice.label(int) RETURNS text STABLE LANGUAGE plpgsql AS $$BEGIN RETURN (SELECT label FROM alice.dim WHERE k = $1); END$$;
CREATE AGGREGATE alice.total(numeric) (sfunc = numeric_add, stype = numeric, initcond = '0');
REVOKE ALL ON FUNCTION alice.twice, alice.label, alice.total FROM PUBLIC;
SQL
	my @views = (
		[ 'joined', 'SELECT label, count(*) AS n FROM alice.s JOIN alice.dim USING (k) GROUP BY label', 'SELECT ON alice.dim', 'table dim' ],
		[ 'streamed', 'SELECT k, count(*) AS n FROM alice.s GROUP BY k', 'SELECT ON alice.s', 'foreign table s' ],
		[ 'below', 'SELECT k, count(*) AS n FROM alice.s WHERE alice.twice(v) > 0 GROUP BY k', 'EXECUTE ON FUNCTION alice.twice', 'function twice' ],
		[ 'above', 'SELECT k, count(*) AS n, alice.twice(sum(v)) AS x FROM alice.s GROUP BY k', 'EXECUTE ON FUNCTION alice.twice', 'function twice' ],
		[ 'folded', 'SELECT k, count(*) AS n, alice.total(v) AS x FROM alice.s GROUP BY k', 'EXECUTE ON FUNCTION alice.total', 'aggregate total' ],
		[ 'inside', 'SELECT alice.label(k) AS l, count(*) AS n FROM alice.s GROUP BY 1', 'SELECT ON alice.dim', 'table dim' ],
		[ 'plain', 'SELECT k, v, alice.twice(v) AS x FROM alice.s', 'EXECUTE ON FUNCTION alice.twice', 'function twice' ],
	);
	my $all = 'GRANT SELECT ON alice.s, alice.dim TO bob; GRANT EXECUTE ON FUNCTION alice.twice, alice.label, alice.total TO bob;';
	super($all);
	my $mean = 'avg(v) AS mean';    # a state in the log
	for my $view (@views)
	{
		my ($name, $select) = @$view;
		$select =~ s/count\(\*\) AS n/count(*) AS n, $mean/;
		may('bob', view_of("bob.$name", $select));
	}
	my $count = sub { my ($name) = @_; return $name eq 'plain' ? 'count(*)' : 'sum(n)'; };
	my $rows = 1;
	super("INSERT INTO alice.s VALUES (1, 1, now()); CALL stream_agg.run('alice.s')");
	for my $view (@views)
	{
		my ($name, undef, $right, $object) = @$view;
		my $view = "bob.$name";
		super("REVOKE $right FROM bob; INSERT INTO alice.s VALUES (1, 10, now()), (2, 20, now())");
		$rows += 2;
		may_not('bob', "CALL stream_agg.run('$view')", qr/"$name" is failed.*permission denied for $object/s, "$name fails without the right");
		like(wait_for_status($view, 'failed'), qr/^permission denied for $object/, "$name says why");
		answer('bob', "SELECT count(*) FROM stream_agg.dead_letters WHERE view = '$view'::regclass", '0', "$name loses no event by it");
		super("GRANT $right TO bob");
		may('bob', "SELECT stream_agg.resume('$view')");
		may('bob', "CALL stream_agg.run('$view')");
		answer('bob', 'SELECT ' . $count->($name) . " FROM $view", $rows, "$name goes on exactly");
		super("SELECT stream_agg.resume(view) FROM stream_agg.views WHERE status = 'failed'; CALL stream_agg.run('alice.s')");
	}
	answer('super', 'SELECT count(*) FROM stream_agg.views WHERE ' . balanced_counters() . " AND read = $rows", scalar(@views), 'all counted');
	answer('bob', 'SELECT k, n, mean::numeric(9, 3), x FROM bob.above ORDER BY k', "1|8|8.875|142\n2|7|20.000|280", 'states have survived') if $rows == 15;

	# By membership: a right that a group has given, and takes back.
	super('CREATE ROLE readers; GRANT SELECT ON alice.dim TO readers; REVOKE SELECT ON alice.dim FROM bob; GRANT readers TO bob; INSERT INTO alice.s VALUES (1, 1, now())');
	may('bob', "CALL stream_agg.run('bob.joined')", 'a right by membership');
	super('REVOKE readers FROM bob; INSERT INTO alice.s VALUES (1, 1, now())');
	may_not('bob', "CALL stream_agg.run('bob.joined')", qr/permission denied for table dim/, 'which ends with it');
	super('DROP FOREIGN TABLE alice.s CASCADE; DROP OWNED BY readers; DROP ROLE readers; DROP TABLE alice.dim; DROP AGGREGATE alice.total(numeric); DROP FUNCTION alice.twice, alice.label');
};

# A right that goes while a batch is under way: the batch has it, the next one has not.
part revoke_in_batch => sub {
	super(<<'SQL');
SET ROLE alice;
CREATE FOREIGN TABLE alice.s (k int) SERVER stream_staged;
CREATE TABLE alice.dim (k int); INSERT INTO alice.dim VALUES (1);
GRANT SELECT ON alice.s, alice.dim TO bob;
SET ROLE bob;
CREATE MATERIALIZED VIEW bob.v WITH (stream_agg.continuous) AS SELECT k, count(*) AS n FROM alice.s JOIN alice.dim USING (k) GROUP BY k;
CREATE FUNCTION bob.wait() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN PERFORM pg_advisory_xact_lock_shared(130); RETURN NULL; END$$;
CREATE TRIGGER wait AFTER INSERT OR UPDATE ON bob.v FOR EACH ROW EXECUTE FUNCTION bob.wait();
SQL
	my $held = $node->background_psql('postgres');
	$held->query_safe('SELECT pg_advisory_lock(130)');
	super('INSERT INTO alice.s VALUES (1), (1)');
	wait_until('the batch waits', sub { return (try_query($node, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted") // 0) > 0 });
	super('REVOKE SELECT ON alice.dim FROM bob');
	super('INSERT INTO alice.s VALUES (1)');
	$held->query_safe('SELECT pg_advisory_unlock(130)');
	$held->quit;
	like(wait_for_status('bob.v', 'failed'), qr/permission denied for table dim/, 'the next batch fails');
	answer('bob', 'SELECT n FROM bob.v', '2', 'the batch at hand has gone through');
	super('GRANT SELECT ON alice.dim TO bob');
	may('bob', "SELECT stream_agg.resume('bob.v')");
	may('bob', "CALL stream_agg.run('bob.v')");
	answer('bob', 'SELECT n FROM bob.v', '3', 'and it goes on exactly');
	super('DROP FOREIGN TABLE alice.s CASCADE; DROP TABLE alice.dim; DROP FUNCTION bob.wait');
};

part row_security => sub {
	super(<<'SQL');
CREATE ROLE club;
SET ROLE alice;
CREATE FOREIGN TABLE alice.s (k int) SERVER stream_staged;
CREATE TABLE alice.dim (k int, who text);
INSERT INTO alice.dim VALUES (1, 'bob'), (1, 'alice'), (1, 'club'), (1, 'bob');
ALTER TABLE alice.dim ENABLE ROW LEVEL SECURITY;
CREATE POLICY own ON alice.dim USING (who = current_user);
CREATE POLICY club ON alice.dim TO club USING (who = 'club');
GRANT SELECT ON alice.s, alice.dim TO PUBLIC;
SQL
	my $select = 'SELECT k, who, count(*) AS n FROM alice.s JOIN alice.dim USING (k) GROUP BY k, who';
	may($_, view_of("$_.r", $select)) for qw(alice bob);
	super("CREATE MATERIALIZED VIEW public.r WITH (stream_agg.continuous, stream_agg.trigger = 'manual') AS $select");
	my $shows = sub {
		my ($bob, $name) = @_;
		super("INSERT INTO alice.s VALUES (1); CALL stream_agg.run('alice.s')");
		answer('bob', "SELECT string_agg(who || n, ' ' ORDER BY who) FROM bob.r", $bob, $name);
	};
	$shows->('bob2', 'the view sees what its owner sees');
	answer('alice', "SELECT string_agg(who || n, ' ' ORDER BY who) FROM alice.r", 'alice1 bob2 club1', "the table's owner all");
	answer('super', "SELECT string_agg(who || n, ' ' ORDER BY who) FROM public.r", 'alice1 bob2 club1', 'a superuser all');
	super('GRANT club TO bob');
	$shows->('bob4 club1', 'a new member at once');
	super('REVOKE club FROM bob');
	$shows->('bob6 club1', 'one who has left no more');
	super('ALTER ROLE bob BYPASSRLS');
	$shows->('alice1 bob8 club2', 'who may pass by');
	super('ALTER ROLE bob NOBYPASSRLS');
	$shows->('alice1 bob10 club2', 'and may not any more');
	super('ALTER POLICY own ON alice.dim USING (false)');
	$shows->('alice1 bob10 club2', 'a policy that changes');
	super('ALTER TABLE alice.dim FORCE ROW LEVEL SECURITY; INSERT INTO alice.s VALUES (1); CALL stream_agg.run(\'alice.s\')');
	answer('alice', "SELECT string_agg(who || n, ' ' ORDER BY who) FROM alice.r", 'alice6 bob12 club6', 'forced on the owner, who then sees nothing');
	super('DROP FOREIGN TABLE alice.s CASCADE; DROP TABLE alice.dim; DROP ROLE club');
};

# Event triggers see what users make, with their rights, and can forbid it.
part event_triggers => sub {
	super(<<'SQL');
CREATE TABLE public.seen (who text, tag text);
GRANT INSERT ON public.seen TO PUBLIC;
CREATE FUNCTION public.see() RETURNS event_trigger LANGUAGE plpgsql AS $$BEGIN INSERT INTO public.seen VALUES (current_user, TG_TAG); END$$;
CREATE EVENT TRIGGER see ON ddl_command_end EXECUTE FUNCTION public.see();
SQL
	may('alice', 'CREATE FOREIGN TABLE alice.s (k int, v int) SERVER stream_staged;' . view_of('alice.v', 'SELECT k, count(*) AS n, avg(v) AS mean FROM alice.s GROUP BY k'));
	answer('super', "SELECT string_agg(DISTINCT tag, ', ' ORDER BY tag) FROM public.seen WHERE who = 'alice' AND tag IN ('CREATE FOREIGN TABLE', 'CREATE TABLE')", 'CREATE FOREIGN TABLE, CREATE TABLE', "with the user's rights");
	super(q{DROP EVENT TRIGGER see; CREATE OR REPLACE FUNCTION public.see() RETURNS event_trigger LANGUAGE plpgsql AS $$BEGIN RAISE EXCEPTION 'no tables'; END$$;
		CREATE EVENT TRIGGER see ON ddl_command_end WHEN TAG IN ('CREATE TABLE') EXECUTE FUNCTION public.see()});
	may_not('alice', view_of('alice.w', 'SELECT k, count(*) AS n, avg(v) AS mean FROM alice.s GROUP BY k'), qr/no tables/);
	super('DROP EVENT TRIGGER see; DROP FUNCTION public.see; DROP TABLE public.seen; DROP FOREIGN TABLE alice.s CASCADE');
	is(left_overs(), '0|0|0|0|0|0|0|0', 'nothing is left of what was forbidden');
};

# ---- owners that change

part owner_to => sub {
	super(<<'SQL');
SET ROLE alice;
CREATE FOREIGN TABLE alice.s (k int, v int) SERVER stream_staged;
CREATE TABLE alice.dim (k int, label text); INSERT INTO alice.dim VALUES (1, 'one');
CREATE MATERIALIZED VIEW alice.v WITH (stream_agg.continuous, stream_agg.trigger = 'manual') AS
	SELECT label, count(*) AS n, avg(v) AS mean, current_user::text AS who FROM alice.s JOIN alice.dim USING (k) GROUP BY label;
INSERT INTO alice.s VALUES (1, 10);
SQL
	super('GRANT ALL ON SCHEMA alice TO bob');
	super("CALL stream_agg.run('alice.s')");
	may_not('alice', 'ALTER TABLE alice.v OWNER TO bob', qr/must be member of role|must be able to SET ROLE/);
	may_not('mallory', 'ALTER TABLE alice.v OWNER TO mallory');
	super("ALTER TABLE alice.v OWNER TO bob; INSERT INTO alice.s VALUES (1, 20)");
	may_not('bob', "CALL stream_agg.run('alice.v')", qr/permission denied for/, 'a new owner without rights fails');
	like(wait_for_status('alice.v', 'failed'), qr/^permission denied for/, 'and the view says so');
	may_not('alice', "SELECT stream_agg.resume('alice.v')", qr/must be owner/, 'it is no longer the old owner\'s');
	answer('alice', "SELECT count(*) FROM stream_agg.views", '0', 'nor to be seen by him');
	super('GRANT SELECT ON alice.s, alice.dim TO bob');
	may('bob', "SELECT stream_agg.resume('alice.v')");
	may('bob', "CALL stream_agg.run('alice.v')");
	answer('bob', 'SELECT label, n, mean::int, who FROM alice.v', 'one|2|15|bob', 'with rights it goes on exactly, as the new owner');
	answer('super', <<'SQL', '0', 'what belongs to it is still nobody else\'s');
SELECT count(*) FROM stream_agg.view_config c, pg_class r WHERE r.oid IN (c.definition, c.state) AND (r.relowner <> 10 OR r.relacl IS NOT NULL)
SQL
	super('ALTER FOREIGN TABLE alice.s OWNER TO bob');
	may_not('alice', 'INSERT INTO alice.s VALUES (1, 30)');
	may('bob', 'INSERT INTO alice.s VALUES (1, 30)');
	may('bob', "CALL stream_agg.run('alice.s')");
	answer('bob', 'SELECT label, n, mean::int FROM alice.v', 'one|3|20', 'a stream goes on under a new owner');
	answer('bob', 'SELECT stream, owner, views FROM stream_agg.streams', 'alice.s|bob|1');
	may('bob', 'DROP FOREIGN TABLE alice.s CASCADE');
	super('DROP TABLE alice.dim; REVOKE ALL ON SCHEMA alice FROM bob');
};

# While the worker runs: within a batch it is the new owner's.
part owner_to_running => sub {
	super(<<'SQL');
SET ROLE alice;
CREATE FOREIGN TABLE alice.s (k int) SERVER stream_staged;
CREATE MATERIALIZED VIEW alice.v WITH (stream_agg.continuous) AS SELECT k, count(*) AS n, avg(k) AS mean FROM alice.s GROUP BY k;
CREATE TABLE alice.log (who text, n bigint);
CREATE FUNCTION alice.note() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN INSERT INTO alice.log VALUES (current_user, NEW.n); RETURN NULL; END$$;
CREATE TRIGGER note AFTER INSERT OR UPDATE ON alice.v FOR EACH ROW EXECUTE FUNCTION alice.note();
GRANT SELECT ON alice.s TO bob; GRANT INSERT ON alice.log TO bob; GRANT CREATE, USAGE ON SCHEMA alice TO bob;
SQL
	my $expected = '';
	for my $n (1 .. 6)
	{
		my $owner = $n % 2 ? 'bob' : 'alice';
		super("ALTER TABLE alice.v OWNER TO $owner");
		super('INSERT INTO alice.s VALUES (5)');
		wait_until("row $n is counted", sub { return (try_query($node, 'SELECT n FROM alice.v') // 0) == $n });
		$expected .= ($expected ? ' ' : '') . "$owner:$n";
	}
	answer('super', "SELECT string_agg(who || ':' || n, ' ' ORDER BY n) FROM alice.log", $expected, 'each batch ran as the owner of its time');
	super('DROP FOREIGN TABLE alice.s CASCADE; DROP TABLE alice.log; DROP FUNCTION alice.note; REVOKE ALL ON SCHEMA alice FROM bob');
};

# What is left of a user in the tables of the extension, and in its schema.
sub left_overs
{
	return super(<<'SQL');
SELECT (SELECT count(*) FROM stream_agg.view_config) AS views, (SELECT count(*) FROM stream_agg.view_position) AS positions,
	(SELECT count(*) FROM stream_agg.staged_stream) AS streams, (SELECT count(*) FROM stream_agg.staged_segment) AS segments,
	(SELECT count(*) FROM stream_agg.staged_order) AS orders, (SELECT count(*) FROM stream_agg.dead_letter) AS letters,
	(SELECT count(*) FROM pg_class WHERE relnamespace = 'stream_agg'::regnamespace AND relname ~ '^(staged_\d|state_\d|definition_)') AS relations,
	(SELECT count(*) FROM pg_depend d WHERE classid = 'pg_class'::regclass AND NOT EXISTS (SELECT FROM pg_class WHERE oid = d.objid)) AS depends
SQL
}
my $nothing = '0|0|0|0|0|0|0|0';

part owned => sub {
	super('CREATE ROLE temp_one LOGIN; CREATE ROLE temp_two LOGIN; CREATE SCHEMA temps; GRANT ALL ON SCHEMA temps TO temp_one, temp_two, bob;');
	is(left_overs(), $nothing, 'nothing there yet');
	super(<<'SQL');
SET ROLE temp_one;
CREATE FOREIGN TABLE temps.s (k int, v int) SERVER stream_staged;
CREATE MATERIALIZED VIEW temps.v WITH (stream_agg.continuous) AS SELECT k, count(*) AS n, avg(10 / v) AS mean FROM temps.s GROUP BY k;
INSERT INTO temps.s VALUES (1, 5), (2, 0);
GRANT SELECT ON temps.s TO bob;
SET ROLE bob;
CREATE MATERIALIZED VIEW bob.w WITH (stream_agg.continuous) AS SELECT k, count(*) AS n, avg(v) AS mean FROM temps.s GROUP BY k;
SQL
	wait_until('rows are there', sub { return (try_query($node, 'SELECT (SELECT count(*) FROM temps.v) + (SELECT sum(n) FROM bob.w)') // 0) == 3 });
	super('REASSIGN OWNED BY temp_one TO temp_two');
	super('INSERT INTO temps.s VALUES (1, 10)');
	wait_until('the view goes on', sub { return (try_query($node, 'SELECT n FROM temps.v WHERE k = 1') // 0) == 2 });
	answer('temp_two', 'SELECT view, owner, status FROM stream_agg.views', 'temps.v|temp_two|running', 'REASSIGN OWNED gives stream and view away');
	answer('temp_two', "SELECT count(*) FROM stream_agg.dead_letters", '1', 'with the dead letters');
	super('DROP OWNED BY temp_one; DROP ROLE temp_one');
	pass('the old owner can be dropped');
	wait_until("bob's view goes on", sub { return (try_query($node, 'SELECT sum(n) FROM bob.w') // 0) == 3 });

	may_not('super', 'DROP ROLE temp_two', qr/cannot be dropped because some objects depend on it/);
	may_not('super', 'DROP OWNED BY temp_two', qr/bob\.w|other objects depend/, "another user's view holds it up");
	wait_until('one worker is there', sub { my @pids = worker_pids($node); return @pids == 1 });
	super('DROP OWNED BY temp_two CASCADE; DROP ROLE temp_two; DROP SCHEMA temps');
	is(left_overs(), $nothing, 'DROP OWNED CASCADE leaves nothing behind');
	wait_until('the worker is gone', sub { return !worker_pids($node) });

	# A view goes, the stream stays: no dead letter speaks of what is gone.
	super(<<'SQL');
CREATE ROLE temp_one LOGIN;
CREATE SCHEMA AUTHORIZATION temp_one;
GRANT USAGE ON SCHEMA temp_one TO bob;
SET ROLE temp_one;
CREATE FOREIGN TABLE temp_one.s (k int, v int) SERVER stream_staged;
GRANT SELECT ON temp_one.s TO bob;
SET ROLE bob;
CREATE MATERIALIZED VIEW bob.w WITH (stream_agg.continuous, stream_agg.trigger = 'manual') AS SELECT k, count(*) AS n, avg(1 / v) AS mean FROM temp_one.s GROUP BY k;
SQL
	super("INSERT INTO temp_one.s VALUES (1, 0)");
	super("CALL stream_agg.run('bob.w')");
	super('DROP OWNED BY bob');
	answer('super', 'SELECT count(*) FROM stream_agg.dead_letter WHERE view IS NOT NULL', '0', 'letters of a dropped view are gone');
	super('DROP OWNED BY temp_one; DROP ROLE temp_one;');
	is(left_overs(), $nothing, 'and with the stream all the rest');
	super('CREATE SCHEMA IF NOT EXISTS bob AUTHORIZATION bob; GRANT USAGE ON SCHEMA bob TO PUBLIC');
};

# ---- administrators

part admin => sub {
	super(<<'SQL');
SET ROLE alice;
CREATE FOREIGN TABLE alice.s (k int, v int, event_time timestamptz) SERVER stream_staged;
CREATE MATERIALIZED VIEW alice.v WITH (stream_agg.continuous, stream_agg.trigger = 'manual') AS SELECT k, count(*) AS n, avg(v) AS mean FROM alice.s GROUP BY k;
INSERT INTO alice.s VALUES (1, 1, now()), (2, 2, NULL);
SQL
	my @calls = ("SELECT stream_agg.pause('alice.v')", "SELECT stream_agg.resume('alice.v')", "CALL stream_agg.run('alice.v')", "CALL stream_agg.run('alice.s')",
		"SELECT stream_agg.explain('alice.v')", "SELECT stream_agg.estimate_state('alice.v')");
	my $seen = 'SELECT (SELECT count(*) FROM stream_agg.streams), (SELECT count(*) FROM stream_agg.views), (SELECT count(*) FROM stream_agg.partitions), '
	  . "(SELECT count(*) > 0 FROM stream_agg.progress), (SELECT count(*) FROM stream_agg.dead_letters), (SELECT count(*) FROM stream_agg.worker_status('alice.s'))";
	may('boss', $_) for @calls;
	answer('boss', $seen, '1|1|1|t|1|1', 'an administrator sees all');
	may_not('part_time', $_) for @calls;
	answer('part_time', $seen, '0|0|0|f|0|0', 'a member that does not inherit sees nothing');
	may('part_time', "SET ROLE stream_agg_admin; $_") for grep { !/CALL/ } @calls;
	answer('part_time', "SET ROLE stream_agg_admin; $seen", '1|1|1|t|1|1', 'as the role itself it does');
	for my $role ('boss', 'part_time')
	{
		my $set = $role eq 'boss' ? '' : 'SET ROLE stream_agg_admin; ';
		may_not($role, "$set$_") for 'SELECT * FROM alice.s', 'SELECT * FROM alice.v', 'INSERT INTO alice.s VALUES (1)',
		  "SELECT stream_agg.drop_view('alice.v')", 'DROP MATERIALIZED VIEW alice.v', 'ALTER TABLE alice.v OWNER TO boss',
		  'SELECT * FROM stream_agg.view_config', 'DELETE FROM stream_agg.dead_letters', 'UPDATE stream_agg.view_config SET status = NULL';
	}
	# The role may be gone.
	super('ALTER ROLE stream_agg_admin RENAME TO other_admin');
	answer('alice', $seen, '1|1|1|t|1|1', 'without the role owners see their own');
	answer('boss', $seen, '0|0|0|f|0|0', 'and nobody more');
	answer('super', $seen, '1|1|1|t|1|1', 'but superusers');
	may_not('boss', "SELECT stream_agg.pause('alice.v')");
	super('ALTER ROLE other_admin RENAME TO stream_agg_admin');
	super('DROP FOREIGN TABLE alice.s CASCADE');
};

# ---- the attacker
#
# evil() is called wherever mallory can have something called.  It notes whose rights it has, and tries what it
# must not be able to do; what works is a gain.  evil_quietly() is the same for where the server wants immutable
# functions.

sub plant
{
	super(<<'SQL');
CREATE TABLE alice.secrets (k int, secret text);
ALTER TABLE alice.secrets OWNER TO alice;
INSERT INTO alice.secrets VALUES (1, 'topsecret'), (2, 'hush hush');
CREATE TABLE public.crown (jewel text);
INSERT INTO public.crown VALUES ('topsecret jewel');
SQL
	login('mallory', <<'SQL');
CREATE TABLE mallory.seen (place text, who text);
CREATE TABLE mallory.gains (place text, what text);
CREATE FUNCTION mallory.try(place text, what text, statement text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE statement;
	INSERT INTO mallory.gains SELECT place, what WHERE what IS NOT NULL;
EXCEPTION WHEN OTHERS THEN NULL;
END$$;
CREATE FUNCTION mallory.try_all(place text) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog AS $$
BEGIN
	INSERT INTO mallory.seen VALUES (place, current_user);
	PERFORM mallory.try(place, 'read a secret', 'SELECT secret FROM alice.secrets');
	PERFORM mallory.try(place, 'read a jewel', 'SELECT jewel FROM public.crown');
	PERFORM mallory.try(place, 'become superuser', 'ALTER ROLE mallory SUPERUSER');
	PERFORM mallory.try(place, 'set role', 'SET ROLE ' || quote_ident(session_user));
	PERFORM mallory.try(place, 'set local role', 'SET LOCAL ROLE ' || quote_ident(session_user));
	PERFORM mallory.try(place, 'set role by function', 'SELECT set_config(''role'', session_user, false)');
	PERFORM mallory.try(place, 'set session', 'SET SESSION AUTHORIZATION DEFAULT');
	PERFORM mallory.try(place, 'reset role', 'RESET ROLE');
	PERFORM mallory.try(place, 'replica', 'SET session_replication_role = replica');
	PERFORM mallory.try(place, 'temporary table', 'CREATE TEMP TABLE t (a int)');
	PERFORM mallory.try(place, 'temporary view', 'CREATE TEMP VIEW t AS SELECT 1');
	PERFORM mallory.try(place, 'listen', 'LISTEN mallory');
	PERFORM mallory.try(place, 'prepare', 'PREPARE evil AS SELECT 1');
	PERFORM mallory.try(place, 'cursor', 'DECLARE evil CURSOR WITH HOLD FOR SELECT 1');
	PERFORM mallory.try(place, NULL, 'INSERT INTO mallory.deferring VALUES (1)');
	PERFORM mallory.try(place, 'deferred by command', 'SET CONSTRAINTS ALL DEFERRED; INSERT INTO mallory.deferring VALUES (1)');
	PERFORM mallory.try(place, 'write a file', 'COPY mallory.seen TO ''/tmp/stream_agg_mallory''');
	PERFORM mallory.try(place, 'run a program', 'COPY mallory.seen TO PROGRAM ''true''');
	PERFORM mallory.try(place, 'change a configuration', 'UPDATE stream_agg.view_config SET status = ''running''');
	PERFORM mallory.try(place, 'end the backend', 'DO $x$BEGIN IF pg_terminate_backend(pg_backend_pid()) THEN NULL; END IF; END$x$')
		WHERE session_user <> current_user;
END$$;
CREATE FUNCTION mallory.evil(place text) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
	PERFORM mallory.try_all(place);
	PERFORM pg_catalog.set_config('search_path', 'mallory, pg_catalog', false);
	PERFORM pg_catalog.set_config('timezone', 'Asia/Tokyo', false);
	PERFORM pg_catalog.set_config('row_security', 'off', false);
	PERFORM pg_catalog.set_config('lock_timeout', '0', false);
	PERFORM pg_catalog.set_config('application_name', 'mallory was here', false);
	RETURN true;
END$$;
CREATE FUNCTION mallory.evil_quietly(place text) RETURNS boolean IMMUTABLE LANGUAGE plpgsql AS $$BEGIN RETURN mallory.evil(place); END$$;
CREATE FUNCTION mallory.evil_trigger() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN PERFORM mallory.evil(TG_ARGV[0]); RETURN NULL; END$$;
CREATE FUNCTION mallory.deferred() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO mallory.seen VALUES ('deferred trigger', current_user);
	PERFORM mallory.try('deferred trigger', 'read a jewel', 'SELECT jewel FROM public.crown');
	RETURN NULL;
END$$;
CREATE TABLE mallory.deferring (a int);
CREATE CONSTRAINT TRIGGER late AFTER INSERT ON mallory.deferring DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION mallory.deferred();
SQL
	return;
}

# Which places were reached, always with mallory's own rights and nothing gained.
sub nothing_gained
{
	my ($name, @places) = @_;
	answer('super', "SELECT string_agg(DISTINCT place || ' as ' || who, E'\n') FROM mallory.seen WHERE who <> 'mallory'", '', "$name: mallory's code runs with mallory's rights alone");
	answer('super', "SELECT string_agg(DISTINCT place || ': ' || what, E'\n') FROM mallory.gains", '', "$name: nothing is gained");
	answer('super', "SELECT string_agg(place, ' ' ORDER BY place) FROM (SELECT DISTINCT place FROM mallory.seen) s", join(' ', sort @places),
		"$name: these places are reached") if @places;
	super('TRUNCATE mallory.seen, mallory.gains');
	return;
}

sub uproot { super('DROP OWNED BY mallory CASCADE; CREATE SCHEMA IF NOT EXISTS mallory AUTHORIZATION mallory; GRANT USAGE ON SCHEMA mallory TO PUBLIC; DROP TABLE alice.secrets, public.crown'); return; }

# Code in and around the views, run by the worker, beside a view of alice's over the same stream.
part code_in_the_worker => sub {
	plant();
	login('mallory', <<'SQL');
CREATE TYPE mallory.mood AS ENUM ('good', 'bad');
CREATE FUNCTION mallory.mood_json(mallory.mood) RETURNS json LANGUAGE plpgsql AS $$BEGIN PERFORM mallory.evil('cast'); RETURN '"x"'; END$$;
CREATE CAST (mallory.mood AS json) WITH FUNCTION mallory.mood_json(mallory.mood);
CREATE FUNCTION mallory.step(bigint, int) RETURNS bigint IMMUTABLE LANGUAGE plpgsql AS $$BEGIN PERFORM mallory.evil_quietly('transition function'); RETURN $1 + $2; END$$;
CREATE FUNCTION mallory.last(bigint) RETURNS bigint IMMUTABLE LANGUAGE plpgsql AS $$BEGIN PERFORM mallory.evil_quietly('final function'); RETURN $1; END$$;
CREATE AGGREGATE mallory.agg(int) (sfunc = mallory.step, stype = bigint, finalfunc = mallory.last, initcond = '0');
CREATE FOREIGN TABLE mallory.s (k int, v int, event_time timestamptz, mood mallory.mood) SERVER stream_staged;
GRANT SELECT ON mallory.s TO alice;
CREATE MATERIALIZED VIEW mallory.v WITH (stream_agg.continuous, stream_agg.trigger = 'manual') AS
	SELECT k, count(*) AS n, mallory.agg(v) AS x, mallory.evil_quietly('above' || left(max(k)::text, 0)) AS y,
		mallory.evil_quietly('loading') AS z
	FROM mallory.s WHERE mallory.evil_quietly('below' || left(v::text, 0)) AND mallory.evil_quietly('constant')
	GROUP BY k HAVING mallory.evil_quietly('having' || left(count(*)::text, 0));
ALTER TABLE mallory.v ADD CHECK (mallory.evil('check'));
ALTER TABLE mallory.v ADD a boolean DEFAULT mallory.evil('default');
ALTER TABLE mallory.v ADD b boolean GENERATED ALWAYS AS (mallory.evil_quietly('generated')) STORED;
CREATE DOMAIN mallory.d AS text DEFAULT 'x' CHECK (mallory.evil('domain'));
ALTER TABLE mallory.v ADD c mallory.d DEFAULT 'x';
CREATE INDEX ON mallory.v (mallory.evil_quietly('index' || left(n::text, 0)));
CREATE INDEX ON mallory.v (k) WHERE mallory.evil_quietly('index predicate' || left(n::text, 0));
CREATE TRIGGER row AFTER INSERT OR UPDATE ON mallory.v FOR EACH ROW WHEN (mallory.evil('trigger condition')) EXECUTE FUNCTION mallory.evil_trigger('row trigger');
CREATE TRIGGER statement AFTER INSERT OR UPDATE ON mallory.v FOR EACH STATEMENT EXECUTE FUNCTION mallory.evil_trigger('statement trigger');
CREATE POLICY p ON mallory.v USING (mallory.evil('policy')) WITH CHECK (mallory.evil('policy'));
ALTER TABLE mallory.v ENABLE ROW LEVEL SECURITY;
TRUNCATE mallory.seen, mallory.gains;
SQL
	login('alice', <<'SQL');
CREATE MATERIALIZED VIEW alice.after WITH (stream_agg.continuous, stream_agg.trigger = 'manual') AS
	SELECT k, current_setting('search_path') AS path, current_setting('timezone') AS zone, current_setting('row_security') AS rls,
		current_setting('lock_timeout') AS lock, current_user::text AS who FROM mallory.s;
SQL
	terminate_workers($node);
	may('mallory', "INSERT INTO mallory.s VALUES (1, 1, now(), 'good'), (2, 2, NULL, 'bad')");
	super("CALL stream_agg.run('mallory.s')");
	may('mallory', "INSERT INTO mallory.s VALUES (1, 1, now(), 'good')");
	super("CALL stream_agg.run('mallory.s')");
	answer('super', 'SELECT k, n, x FROM mallory.v', "1|2|2", "the attacker's view works");
	nothing_gained('the worker', 'above', 'below', 'cast', 'check', 'constant', 'default', 'deferred trigger', 'domain', 'final function', 'generated', 'having', 'index',
		'index predicate', 'loading', 'row trigger', 'statement trigger', 'transition function', 'trigger condition');
	answer('alice', 'SELECT DISTINCT path, zone, rls, lock, who FROM alice.after', 'pg_catalog, pg_temp|UTC|on|1s|alice', 'a neighbour finds its own settings');
	# The same code, failing for each event by itself, and looked at by a superuser.
	login('mallory', "ALTER TABLE mallory.v ADD CHECK (n < 3); INSERT INTO mallory.s VALUES (1, 1, now(), 'good')");
	may_not('super', "CALL stream_agg.run('mallory.v')", qr/"v" is failed/);
	may('super', "SELECT count(*) FROM stream_agg.explain('mallory.v')");
	may('super', "SELECT count(*) FROM stream_agg.estimate_state('mallory.v')");
	may('super', 'SELECT * FROM mallory.s');
	may('super', 'SELECT * FROM stream_agg.dead_letters');
	may('super', 'SELECT * FROM stream_agg.views');
	may('super', "SELECT stream_agg.pause('mallory.v'); SELECT stream_agg.resume('mallory.v')");
	nothing_gained('what superusers do');
	login('mallory', "CREATE FUNCTION mallory.leave() RETURNS int LANGUAGE plpgsql AS 'BEGIN COMMIT; RETURN 1; END';" . view_of('mallory.leaves', 'SELECT k, mallory.leave() AS l FROM mallory.s'));
	super("CALL stream_agg.run('mallory.leaves')");
	answer('mallory', "SELECT DISTINCT message FROM stream_agg.dead_letters WHERE view = 'mallory.leaves'::regclass", 'invalid transaction termination', 'no code ends the transaction of the worker');
	login('mallory', 'DROP TABLE mallory.leaves');
	nothing_gained('to leave');
	may('super', $_) for "ALTER MATERIALIZED VIEW mallory.v SET (stream_agg.max_batch_rows = '1000')", 'ALTER MATERIALIZED VIEW mallory.v RESET (stream_agg.max_batch_rows)';
	nothing_gained('a superuser changes options', 'loading');
	may('super', "SELECT stream_agg.reset('mallory.v')");
	login('mallory', 'CREATE TRIGGER truncating AFTER TRUNCATE ON mallory.v EXECUTE FUNCTION mallory.evil_trigger(\'truncate trigger\')');
	may('super', "SELECT stream_agg.reset('mallory.v')");
	may('super', 'ALTER MATERIALIZED VIEW mallory.v RENAME COLUMN n TO m; ALTER MATERIALIZED VIEW mallory.v RENAME COLUMN m TO n');
	nothing_gained('a superuser has it begin anew');
	login('mallory', view_of('mallory.w', 'SELECT k, count(*) AS n, mallory.agg(v) AS x FROM mallory.s GROUP BY k'));
	super("CALL stream_agg.run('mallory.w')");
	login('mallory', "CREATE TRIGGER row AFTER INSERT OR UPDATE ON mallory.w FOR EACH ROW EXECUTE FUNCTION mallory.evil_trigger('row trigger'); TRUNCATE mallory.seen, mallory.gains");
	may('super', 'CREATE MATERIALIZED VIEW mallory.w WITH (stream_agg.continuous, stream_agg.replace) AS SELECT k, count(*) AS n, sum(v) AS total FROM mallory.s GROUP BY k');
	nothing_gained('a superuser gives it another query', 'row trigger');
	may('super', "BEGIN; SELECT count(*) FROM stream_agg.$_('mallory.v'); SELECT 1 / (current_setting('search_path') = '\"\$user\", public' AND current_user = session_user)::int; COMMIT;")
	  for 'explain', 'estimate_state';
	nothing_gained('explain and estimate_state', 'constant', 'loading');
	login('mallory', <<'SQL');
CREATE FUNCTION mallory.size() RETURNS interval IMMUTABLE LANGUAGE plpgsql AS $$BEGIN PERFORM mallory.evil_quietly('window'); RETURN '1 hour'; END$$;
ALTER FOREIGN TABLE mallory.s OPTIONS (ADD watermark '1 s');
CREATE MATERIALIZED VIEW mallory.timed WITH (stream_agg.continuous, stream_agg.trigger = 'manual', stream_agg.output_mode = 'append') AS
	SELECT window_start, window_end, count(*) AS n FROM mallory.s, tumble(event_time, mallory.size()) GROUP BY 1, 2;
TRUNCATE mallory.seen, mallory.gains;
SQL
	may('super', "ALTER FOREIGN TABLE mallory.s $_") for "OPTIONS (SET watermark '2 s')", 'ADD COLUMN more int', "OPTIONS (ADD event_time 'event_time')", 'RENAME COLUMN event_time TO at';
	answer('super', "SELECT count(*) > 2 FROM mallory.seen WHERE place = 'window'", 't', 'a superuser changes the stream: windows are looked at');
	nothing_gained('a superuser changes the stream');
	uproot();
};

# Kafka streams: input functions, domains and casts of the columns.
part decoding => sub {
	plant();
	super('GRANT USAGE ON FOREIGN SERVER k TO mallory');
	login('mallory', <<'SQL');
CREATE TYPE mallory.mood AS ENUM ('good', 'bad');
CREATE FUNCTION mallory.mood_json(mallory.mood) RETURNS json LANGUAGE plpgsql AS $$BEGIN PERFORM mallory.evil('cast'); RETURN '"x"'; END$$;
CREATE CAST (mallory.mood AS json) WITH FUNCTION mallory.mood_json(mallory.mood);
CREATE DOMAIN mallory.d AS text CHECK (mallory.evil('domain'));
CREATE TYPE mallory.pair AS (a mallory.d, b int);
CREATE FOREIGN TABLE mallory.k (a mallory.d, m mallory.mood, l mallory.mood[], p mallory.pair, z boolean DEFAULT mallory.evil('default') CHECK (mallory.evil('check'))) SERVER k OPTIONS (topic 't');
GRANT SELECT ON mallory.k TO bob;
SQL
	my $record = q['{"a": "x", "m": "bad", "l": ["good"], "p": "(x,1)"}'::bytea];
	my $json = q[{"a":"x","m":"x","l":["x"],"p":{"a":"x","b":1},"z":null}];
	for my $role ('super', 'boss', 'bob', 'mallory')
	{
		if ($role eq 'boss')
		{
			may_not($role, "SELECT * FROM stream_agg.try_decode('mallory.k', $record)");
			next;
		}
		answer($role, "SELECT event, error FROM stream_agg.try_decode('mallory.k', $record)", "$json|", "$role tries a record");
		answer($role, "SELECT event, error FROM stream_agg.try_decode_all('mallory.k', ARRAY[$record])", "$json|", "$role tries records");
		nothing_gained("$role decodes", 'cast', 'domain');
	}
	answer('super', "SELECT current_setting('search_path') FROM stream_agg.try_decode('mallory.k', $record)", '"$user", public', 'settings are as before');
	super('TRUNCATE mallory.seen, mallory.gains');
	may_not('mallory', "SELECT * FROM stream_agg.try_decode('alice.secrets', $record)", qr/is not a stream/);
	super('REVOKE USAGE ON FOREIGN SERVER k FROM mallory');
	uproot();
};

# Shadows: operators, functions, types and tables of mallory's first in the path, of the attacker and of his victims.
part shadows => sub {
	plant();
	login('alice', "CREATE FOREIGN TABLE alice.s (k int, v int, event_time timestamptz) SERVER stream_staged;"
		. view_of('alice.v', 'SELECT k, window_start, count(*) AS n, avg(v) AS mean FROM alice.s, public.tumble(event_time, \'1 minute\') GROUP BY k, window_start')
		. "INSERT INTO alice.s VALUES (1, 1, '2024-01-01'), (1, 3, '2024-01-01'), (2, 2, NULL)");
	super("CALL stream_agg.run('alice.s')");
	my $shadows = '';
	my $shadow = 0;
	my @types = ([ 'oid', 'regclass' ], [ 'regclass', 'oid' ], [ 'regclass', 'regclass' ], [ 'oid', 'oid' ], [ 'bigint', 'numeric' ], [ 'numeric', 'integer' ],
		[ 'integer', 'integer' ], [ 'text', 'text' ], [ 'name', 'text' ], [ 'name', 'name' ], [ 'bigint', 'bigint' ], [ 'timestamptz', 'timestamptz' ],
		[ 'bigint', 'integer' ], [ 'timestamptz', 'interval' ], [ 'bigint', 'interval' ], [ 'double precision', 'interval' ]);
	for my $operator ('=', '<>', '+', '-', '*', '/', '%', '<', '>', '>=', '~~', '||')
	{
		for my $pair (@types)
		{
			my ($left, $right) = @$pair;
			my $result = $operator =~ /^(=|<>|<|>|>=|~~)$/ ? 'boolean' : $left;
			my $n = ++$shadow;
			$shadows .= "CREATE FUNCTION mallory.shadow_$n($left, $right) RETURNS $result LANGUAGE plpgsql AS \$\$BEGIN PERFORM mallory.evil('operator $operator'); RETURN "
			  . ($result eq 'boolean' ? 'true' : '$1') . "; END\$\$; CREATE OPERATOR mallory.$operator (leftarg = $left, rightarg = $right, function = mallory.shadow_$n);\n";
		}
	}
	for my $function ('pg_has_role(oid, text) RETURNS boolean', 'pg_has_role(name, oid, text) RETURNS boolean', 'pg_has_role(text, text) RETURNS boolean',
		'may_see(regclass) RETURNS boolean', 'pg_get_userbyid(oid) RETURNS name', 'pg_relation_size(regclass) RETURNS bigint', 'to_time(bigint) RETURNS timestamptz',
		'usecs(timestamptz) RETURNS bigint', 'window_start(timestamptz, interval, timestamptz) RETURNS timestamptz', 'generate_series(integer, integer) RETURNS SETOF integer',
		'hop_count(interval, interval) RETURNS integer', 'guard() RETURNS trigger', 'progress_list() RETURNS SETOF record', 'count(anyelement) RETURNS bigint',
		'split_part(text, text, integer) RETURNS text', 'coalesce(bigint, bigint) RETURNS bigint')
	{
		my ($result) = $function =~ /RETURNS (?:SETOF )?(.*)$/;
		$shadows .= "CREATE FUNCTION mallory.$function LANGUAGE plpgsql AS \$\$BEGIN PERFORM mallory.evil('function $function'); RETURN"
		  . ($function =~ /SETOF/ ? '' : $result eq 'trigger' ? ' NULL' : ' NULL') . "; END\$\$;\n";
	}
	for my $type (qw(text regclass timestamptz interval bigint int8 int4 oid bytea name bool timestamp))
	{
		$shadows .= "CREATE DOMAIN mallory.\"$type\" AS pg_catalog." . ($type eq 'bigint' ? 'int8' : $type) . " CHECK (mallory.evil('type $type'));\n";
	}
	for my $table ('pg_class', 'pg_roles', 'pg_authid', 'pg_namespace', 'pg_foreign_table', 'view_config', 'dead_letter', 'staged_stream', 'views', 'streams')
	{
		$shadows .= "CREATE VIEW mallory.$table AS SELECT *, mallory.evil('table $table') AS gotcha FROM "
		  . ($table =~ /^pg_/ ? "pg_catalog." . ($table eq 'pg_authid' ? 'pg_roles' : $table) : '(SELECT 1) s') . ";\n";
	}
	$shadows .= "GRANT SELECT ON ALL TABLES IN SCHEMA mallory TO PUBLIC;\n";
	login('mallory', "SET client_min_messages = error; SET search_path = pg_catalog; $shadows");
	super('TRUNCATE mallory.seen, mallory.gains');
	my $path = 'SET search_path = mallory, pg_catalog, public;';
	my $count = 'SELECT (SELECT pg_catalog.count(*) FROM stream_agg.streams), (SELECT pg_catalog.count(*) FROM stream_agg.views), (SELECT pg_catalog.count(*) FROM stream_agg.partitions), '
	  . '(SELECT pg_catalog.count(*) FROM stream_agg.progress), (SELECT pg_catalog.count(*) FROM stream_agg.dead_letters), (SELECT pg_catalog.count(*) FROM stream_agg.data_losses), (SELECT pg_catalog.count(*) FROM stream_agg.watermark_advances)';
	answer('mallory', "$path $count", '0|0|0|0|0|0|0', 'the attacker sees nothing through his shadows');
	answer('bob', "$path $count", '0|0|0|0|0|0|0', 'nor does another one');
	my $all = 'SELECT * FROM stream_agg.streams; SELECT * FROM stream_agg.views; SELECT * FROM stream_agg.partitions; SELECT * FROM stream_agg.progress; '
	  . 'SELECT * FROM stream_agg.dead_letters; SELECT * FROM stream_agg.data_losses; SELECT * FROM stream_agg.watermark_advances;';
	super('TRUNCATE mallory.seen, mallory.gains');
	for my $victim ('super', 'alice', 'boss')
	{
		my ($plain) = (as($victim, $all))[1];
		my ($shadowed) = (as($victim, "$path $all"))[1];
		like($plain, qr/\n.*\n/, "$victim sees something");
		is($shadowed =~ s/\balice\.//gr, $plain =~ s/\balice\.//gr, "$victim sees the same through the attacker's path");
		may($victim, "$path $_")
		  for "SELECT stream_agg.pause('alice.v'::pg_catalog.regclass)", "SELECT stream_agg.resume('alice.v'::pg_catalog.regclass)",
		  "SELECT stream_agg.explain('alice.v'::pg_catalog.regclass)", "SELECT stream_agg.estimate_state('alice.v'::pg_catalog.regclass)", "SELECT * FROM stream_agg.worker_status('alice.s'::pg_catalog.regclass)",
		  "SELECT stream_agg.to_time(1), stream_agg.may_see('alice.v'::pg_catalog.regclass)",
		  "SELECT * FROM public.tumble(pg_catalog.now(), '1 minute'), public.hop(pg_catalog.now(), '2 minutes', '1 minute')";
	}
	may($_, "$path SELECT stream_agg.estimate_state('SELECT k, pg_catalog.count(*) FROM alice.s GROUP BY k')") for 'super', 'alice';
	nothing_gained('what administrators call');

	# A superuser with this path makes, changes and drops things of his own; a worker starts anew and reads back.
	super(<<'SQL');
SET search_path = mallory, pg_catalog, public;
CREATE FOREIGN TABLE public.su (k pg_catalog.int4, v pg_catalog.int4, event_time pg_catalog.timestamptz) SERVER stream_staged OPTIONS (watermark '1 minute');
CREATE MATERIALIZED VIEW public.suv WITH (stream_agg.continuous, stream_agg.trigger = 'manual') AS
	SELECT k, window_start, pg_catalog.count(*) AS n, pg_catalog.avg(v) AS mean FROM public.su, public.tumble(event_time, '1 minute') GROUP BY k, window_start;
INSERT INTO public.su VALUES (1, 1, '2024-01-01'), (1, 2, NULL);
CALL stream_agg.run('public.su'::pg_catalog.regclass);
SQL
	terminate_workers($node);
	super("SET search_path = mallory, pg_catalog, public; INSERT INTO public.su VALUES (1, 3, '2024-01-01'); INSERT INTO alice.s VALUES (1, 3, '2024-01-01')");
	super("CALL stream_agg.run('$_')") for 'public.su', 'alice.s';
	answer('super', 'SELECT k, n, mean::int FROM public.suv', '1|2|2', 'his view is right');
	answer('alice', 'SELECT k, n, mean::numeric(4, 2) FROM alice.v', '1|3|2.33', "alice's too");
	super('SET search_path = mallory, pg_catalog, public; ALTER FOREIGN TABLE public.su ADD x pg_catalog.int4; ALTER TABLE public.suv RENAME TO suv2; DROP FOREIGN TABLE public.su CASCADE');
	super('DROP FOREIGN TABLE alice.s CASCADE');
	nothing_gained('a superuser with a bad path');
	uproot();
};

# What one may see of another: through relations, messages, functions of low cost, activity and catalogs.
part leaks => sub {
	plant();
	login('mallory', 'CREATE FOREIGN TABLE mallory.s (k int, v int, event_time timestamptz) SERVER stream_staged; GRANT SELECT ON mallory.s TO alice');
	login('alice', 'CREATE FOREIGN TABLE alice.s (k int, v text, event_time timestamptz) SERVER stream_staged;'
		. view_of('alice.own', 'SELECT k, count(*) AS n FROM alice.s GROUP BY k')
		. view_of('alice.kept', 'SELECT k, sum(secret::int) AS n FROM mallory.s JOIN alice.secrets USING (k) GROUP BY k')
		. view_of('alice.fails', 'SELECT k, sum(secret::int) AS n FROM mallory.s JOIN alice.secrets USING (k) GROUP BY k', "stream_agg.on_error = 'fail'"));
	login('alice', "INSERT INTO alice.s VALUES (1, 'topsecret', NULL)");
	login('alice', "CALL stream_agg.run('alice.s')");
	login('mallory', 'INSERT INTO mallory.s VALUES (1, 4711, now())');
	my $message = may_not('mallory', "CALL stream_agg.run('mallory.s')", qr/"fails" is failed/);
	unlike($message, qr/topsecret/, "why another's view has failed is not told");
	may_not('alice', "CALL stream_agg.run('alice.fails')", qr/invalid input syntax for type integer: "topsecret"/, 'its owner is told');
	may_not('boss', "CALL stream_agg.run('alice.fails')", qr/topsecret/, 'and an administrator');
	wait_until('the letter is there', sub { return (try_query($node, "SELECT count(*) FROM stream_agg.dead_letters WHERE view = 'alice.kept'::regclass") // 0) == 1 });
	answer('mallory', "SELECT stream, reason, event ->> 'v', message FROM stream_agg.dead_letters", 's|failed|4711|', "the stream's owner sees his event, but not what the view says");
	answer('alice', "SELECT count(*) FILTER (WHERE message ~ 'topsecret') || ' ' || count(*) FILTER (WHERE event ->> 'v' = 'topsecret') FROM stream_agg.dead_letters", '1 1', "the view's owner sees both");
	answer('boss', "SELECT count(*) FILTER (WHERE message ~ 'topsecret') || ' ' || count(*) FILTER (WHERE event ->> 'v' = 'topsecret') FROM stream_agg.dead_letters", '1 1', 'administrators see dead letters with what they hold');
	answer('mallory', "SELECT stream, message FROM stream_agg.streams", 's|', 'nor does the stream say it');

	# A cheap function that tells what it is given must not be given it.
	login('mallory', <<'SQL');
CREATE FUNCTION mallory.tell(anyelement) RETURNS boolean LANGUAGE plpgsql COST 0.0000001 AS $$BEGIN RAISE NOTICE 'told: %', $1; RETURN true; END$$;
SQL
	for my $relation ('streams', 'views', 'progress', 'partitions', 'dead_letters', 'data_losses', 'watermark_advances')
	{
		for my $query ("SELECT * FROM stream_agg.$relation r WHERE mallory.tell(r::text)", "SELECT * FROM stream_agg.$relation r JOIN (SELECT 1) s ON mallory.tell(r::text)",
			"SELECT mallory.tell(r::text) FROM stream_agg.$relation r", "SELECT max(r::text) FROM stream_agg.$relation r GROUP BY mallory.tell(r::text) HAVING mallory.tell(max(r::text))")
		{
			my ($rc, $out, $err) = as('mallory', $query);
			ok($rc == 0 && "$out$err" !~ /topsecret|alice\.(s|own|fails)/, "told nothing: $query") or diag "$out$err";
		}
	}
	may_not('mallory', $_) for "SELECT * FROM stream_agg.try_decode('alice.s', 'x')", 'EXPLAIN ANALYZE SELECT * FROM alice.own', 'EXPLAIN SELECT * FROM alice.own';
	answer('mallory', "SELECT DISTINCT query FROM pg_stat_activity WHERE application_name ~ 'stream_agg'", '<insufficient privilege>', 'what workers do');
	answer('mallory', "SELECT string_agg(application_name, ' ' ORDER BY application_name) FROM pg_stat_activity WHERE application_name ~ 'stream_agg'", 'stream_agg launcher stream_agg s stream_agg s', 'only the names of streams show');

	# Through functions that somebody else has made: they have their maker's rights.
	login('mallory', "CREATE FUNCTION mallory.pause(regclass) RETURNS void SECURITY DEFINER LANGUAGE sql AS 'SELECT stream_agg.pause(\$1)'; GRANT EXECUTE ON FUNCTION mallory.pause TO PUBLIC");
	may_not($_, "SELECT mallory.pause('alice.own')", qr/must be owner/, "$_ through a function of mallory's") for 'alice', 'boss', 'super';

	# Secrets of user mappings.
	super("GRANT USAGE ON FOREIGN SERVER k TO mallory; CREATE USER MAPPING FOR alice SERVER k OPTIONS (sasl_username 'a', sasl_password 'hush'); CREATE USER MAPPING FOR PUBLIC SERVER k OPTIONS (sasl_username 'p', sasl_password 'hush')");
	answer('mallory', "SELECT count(*) FROM pg_user_mappings WHERE umoptions IS NOT NULL", '0', 'user mappings keep their secrets');
	may_not('mallory', "CREATE FOREIGN TABLE mallory.k (a int) SERVER k OPTIONS (topic 't', bootstrap_servers 'mallory:9092')", qr/may not use the user mapping for PUBLIC/);
	login('mallory', "CREATE FOREIGN TABLE mallory.k (a int) SERVER k OPTIONS (topic 't')");
	may_not('mallory', $_, qr/may not use the user mapping for PUBLIC/)
	  for "ALTER FOREIGN TABLE mallory.k OPTIONS (ADD bootstrap_servers 'mallory:9092')", "ALTER TABLE mallory.k OPTIONS (ADD security_protocol 'plaintext')";
	may_not('mallory', "ALTER SERVER k OPTIONS (SET bootstrap_servers 'mallory:9092')");
	super('DROP USER MAPPING FOR alice SERVER k; DROP USER MAPPING FOR PUBLIC SERVER k; DROP FOREIGN TABLE mallory.k; REVOKE USAGE ON FOREIGN SERVER k FROM mallory');
	login('alice', 'DROP FOREIGN TABLE alice.s CASCADE; DROP TABLE alice.kept, alice.fails');
	uproot();
};

# The tables of the extension and those that it makes for users are nobody's, whatever is granted by default.
part tables => sub {
	super('ALTER DEFAULT PRIVILEGES GRANT ALL ON TABLES TO PUBLIC; ALTER DEFAULT PRIVILEGES GRANT ALL ON SEQUENCES TO PUBLIC; ALTER DEFAULT PRIVILEGES GRANT ALL ON TABLES TO mallory WITH GRANT OPTION');
	login('alice', 'CREATE FOREIGN TABLE alice.s (k int, v int, event_time timestamptz) SERVER stream_staged;'
		. view_of('alice.v', 'SELECT k, count(*) AS n, avg(v) AS mean FROM alice.s GROUP BY k') . 'INSERT INTO alice.s VALUES (1, 1, now()), (1, 2, NULL)');
	super("CALL stream_agg.run('alice.s')");
	super('ALTER DEFAULT PRIVILEGES REVOKE ALL ON TABLES FROM PUBLIC, mallory; ALTER DEFAULT PRIVILEGES REVOKE ALL ON SEQUENCES FROM PUBLIC');
	answer('super', "SELECT count(*) FROM pg_shdepend WHERE refobjid = 'mallory'::regrole AND objid IN (SELECT oid FROM pg_class WHERE relnamespace = 'stream_agg'::regnamespace)", '0', 'no grant is left in the books');
	# A restore makes the tables under the default privileges of another database.
	super(<<'SQL');
DO $$
DECLARE
	relation regclass;
BEGIN
	FOR relation IN SELECT unnest(ARRAY[definition, state]) FROM stream_agg.view_config LOOP
		EXECUTE format('GRANT ALL ON %s TO PUBLIC, mallory', relation);
	END LOOP;
	EXECUTE (SELECT format('GRANT ALL ON %s TO PUBLIC', segment) FROM stream_agg.staged_segment WHERE stream = 'alice.s'::regclass);
END$$;
SELECT stream_agg.resume('alice.v');
CREATE TEMP TABLE gone AS SELECT * FROM stream_agg.staged_segment WHERE stream = 'alice.s'::regclass;
DELETE FROM stream_agg.staged_segment WHERE stream = 'alice.s'::regclass;
DELETE FROM pg_depend USING gone WHERE objid = gone.segment AND refobjid = gone.stream;
INSERT INTO stream_agg.staged_segment SELECT * FROM gone;
SQL
	answer('super', "SELECT string_agg(relname, ' ') FROM pg_class WHERE relnamespace = 'stream_agg'::regnamespace AND relname ~ '^(staged_\\d|state_\\d|definition_)' AND relacl IS NOT NULL", '', 'what was granted meanwhile is taken back');
	for my $role ('alice', 'mallory', 'boss')
	{
		my ($rc, $out, $err) = as($role, <<'SQL');
DO $$
DECLARE
	relation text;
	kind "char";
	statement text;
	statements text[];
BEGIN
	FOR relation, kind IN SELECT oid::regclass, relkind FROM pg_class WHERE relnamespace = 'stream_agg'::regnamespace AND relkind IN ('r', 'v', 'S') LOOP
		statements := CASE WHEN kind = 'S' THEN ARRAY['SELECT * FROM %1$s', 'SELECT nextval(%1$L)', 'SELECT setval(%1$L, 1)']
			ELSE ARRAY['INSERT INTO %1$s DEFAULT VALUES', 'DELETE FROM %1$s', 'LOCK TABLE %1$s IN EXCLUSIVE MODE', 'ALTER TABLE %1$s RENAME TO x', 'DROP TABLE %1$s', 'DROP VIEW %1$s'] END;
		IF kind <> 'S' AND relation NOT IN ('stream_agg.streams', 'stream_agg.views', 'stream_agg.progress', 'stream_agg.partitions', 'stream_agg.dead_letters', 'stream_agg.data_losses', 'stream_agg.watermark_advances') THEN
			statements := statements || ARRAY['SELECT * FROM %1$s', 'SELECT count(*) FROM %1$s', 'COPY %1$s TO STDOUT', 'TRUNCATE %1$s', 'ALTER TABLE %1$s ENABLE ROW LEVEL SECURITY', 'CREATE TRIGGER x AFTER INSERT ON %1$s EXECUTE FUNCTION stream_agg.guard()'];
		END IF;
		FOREACH statement IN ARRAY statements LOOP
			BEGIN
				EXECUTE format(statement, relation);
				RAISE WARNING 'gained: %', format(statement, relation);
			EXCEPTION WHEN insufficient_privilege OR wrong_object_type OR object_not_in_prerequisite_state OR feature_not_supported THEN NULL;
			WHEN OTHERS THEN RAISE WARNING 'something else: % %', format(statement, relation), SQLERRM;
			END;
		END LOOP;
	END LOOP;
END$$;
SQL
		is("$rc $err", '0 ', "$role gets at none of the tables");
		may_not($role, 'CREATE TABLE stream_agg.x (a int)', qr/permission denied for schema/);
		may_not($role, 'CREATE FUNCTION stream_agg.x() RETURNS int LANGUAGE sql AS $$SELECT 1$$', qr/permission denied for schema/);
	}
	for my $statement ('UPDATE alice.v SET n = 5', 'DELETE FROM alice.v', 'TRUNCATE alice.v', 'INSERT INTO alice.v VALUES (9)', 'DROP TRIGGER stream_agg_guard ON alice.v',
		'ALTER TABLE alice.v DISABLE TRIGGER ALL', 'ALTER TABLE alice.v ALTER n TYPE text', 'ALTER TABLE alice.v DROP n', 'ALTER TABLE alice.v FORCE ROW LEVEL SECURITY')
	{
		may_not('alice', $statement, qr/cannot|not exist|must be/, "the view's own owner may not: $statement");
	}
	# A segment and a state log go where the extension's owner has things, not where a user may not put any.
	super("SET allow_in_place_tablespaces = on; CREATE TABLESPACE hidden LOCATION ''");
	super('CREATE ACCESS METHOD other TYPE TABLE HANDLER heap_tableam_handler');
	login('alice', 'CREATE FOREIGN TABLE alice.t (k int, v int) SERVER stream_staged');
	may('alice', "SET default_tablespace = hidden; SET default_table_access_method = other; ALTER FOREIGN TABLE alice.t ADD x text; INSERT INTO alice.t VALUES (1, 1);"
		. "CREATE MATERIALIZED VIEW alice.w USING heap WITH (stream_agg.continuous, stream_agg.trigger = 'manual') TABLESPACE pg_default AS SELECT avg(v) AS mean FROM alice.t;");
	may_not('alice', 'SET default_tablespace = hidden; ' . view_of('alice.x', 'SELECT avg(v) AS mean FROM alice.t'), qr/permission denied for tablespace hidden/);
	answer('super', "SELECT (SELECT count(*) FROM pg_class WHERE reltablespace = (SELECT oid FROM pg_tablespace WHERE spcname = 'hidden')), (SELECT count(*) FROM pg_class c JOIN pg_am a ON a.oid = relam WHERE amname = 'other')", '0|0',
		'where and how does not depend on the session');
	login('alice', 'DROP FOREIGN TABLE alice.s, alice.t CASCADE');
	super('DROP TABLESPACE hidden; DROP ACCESS METHOD other');
};

# Trigger functions and other insides called by anybody.
part insides => sub {
	login('mallory', 'CREATE TABLE mallory.t (id int, view regclass, definition regclass, state regclass, stream regclass, segment regclass, chunks regclass, database oid)');
	for my $function ('forget_database', 'attach_restored')
	{
		for my $time ('BEFORE INSERT', 'AFTER INSERT')
		{
			login('mallory', "CREATE TRIGGER x $time ON mallory.t FOR EACH ROW EXECUTE FUNCTION stream_agg.$function()");
			may_not('mallory', "INSERT INTO mallory.t (stream, segment, chunks) VALUES ('pg_class', 'mallory.t', 'mallory.t')", qr/must be called as a trigger of/);
			login('mallory', 'DROP TRIGGER x ON mallory.t');
		}
	}
	login('mallory', 'CREATE TRIGGER x BEFORE INSERT ON mallory.t FOR EACH STATEMENT EXECUTE FUNCTION stream_agg.guard(); INSERT INTO mallory.t DEFAULT VALUES');
	may_not('mallory', "SELECT stream_agg.$_", qr/trigger|cannot display|cannot accept|permission|required|internal/, "mallory may not call $_")
	  for 'guard()', 'forget_database()', 'attach_restored()', "fdw_validator(ARRAY['ssl_ca_location=/etc/passwd'], 1417)", "fdw_validator(ARRAY['type=kafka', 'ssl_ca_location=/etc/passwd'], 1417)";
	may_not('mallory', "SELECT * FROM stream_agg.$_", qr/not a|does not exist|neither/, "mallory may not call $_")
	  for "pause('pg_class')", 'resume(0)', "drop_view('mallory.t')", "explain('pg_authid')", "try_decode(0, 'x')", "try_decode_all('pg_authid', ARRAY['x'::bytea])";
	answer('mallory', "SELECT stream_agg.may_see('pg_authid'), stream_agg.may_see(0), stream_agg.partition_end('pg_authid', '', 0)", 'f||');
	super('DROP TABLE mallory.t');
};

# Files of the server's: by every way that leads to an option.
part files => sub {
	super('GRANT USAGE ON FOREIGN DATA WRAPPER stream_agg TO mallory; GRANT USAGE ON FOREIGN SERVER k TO mallory; CREATE ROLE reader LOGIN; GRANT USAGE ON FOREIGN DATA WRAPPER stream_agg TO reader; GRANT pg_read_server_files TO reader');
	login('mallory', "CREATE SERVER mine FOREIGN DATA WRAPPER stream_agg OPTIONS (type 'kafka', bootstrap_servers 'x:1'); CREATE FOREIGN TABLE mallory.k (a int) SERVER mine OPTIONS (topic 't'); CREATE USER MAPPING FOR mallory SERVER mine");
	for my $option ('ssl_ca_location', 'ssl_crl_location', 'ssl_certificate_location', 'ssl_key_location', 'ssl_keystore_location')
	{
		may_not('mallory', $_, qr/permission denied to set option|must be owner/)
		  for "CREATE SERVER other FOREIGN DATA WRAPPER stream_agg OPTIONS (type 'kafka', $option '/etc/passwd')", "ALTER SERVER mine OPTIONS (ADD $option '/etc/passwd')",
		  "CREATE FOREIGN TABLE mallory.l (a int) SERVER mine OPTIONS (topic 't', $option '/etc/passwd')", "ALTER FOREIGN TABLE mallory.k OPTIONS (ADD $option '/etc/passwd')",
		  "ALTER TABLE mallory.k OPTIONS (ADD $option '/etc/passwd')", "ALTER SERVER k OPTIONS (ADD $option '/etc/passwd')";
		next if $option =~ /ca|crl/;
		may_not('mallory', "ALTER USER MAPPING FOR mallory SERVER mine OPTIONS (ADD $option '/etc/passwd')", qr/permission denied to set option/);
	}
	for my $refused ('ssl_engine_location', 'plugin_library_paths', 'sasl_kerberos_kinit_cmd', 'ssl_providers', 'debug', 'log_cb')
	{
		may_not('mallory', "ALTER SERVER mine OPTIONS (ADD $refused 'x')", qr/invalid option/);
	}
	may('reader', "CREATE SERVER read FOREIGN DATA WRAPPER stream_agg OPTIONS (type 'kafka', bootstrap_servers 'x:1', ssl_ca_location '/etc/passwd')", 'who may read files of the server may name them');
	super('DROP SERVER mine CASCADE; DROP OWNED BY reader; DROP ROLE reader; REVOKE USAGE ON FOREIGN SERVER k FROM mallory; REVOKE USAGE ON FOREIGN DATA WRAPPER stream_agg FROM mallory');
};

# States outlive statements: what they are made of must stay what it is.
part states => sub {
	plant();
	login('mallory', <<'SQL');
CREATE FUNCTION mallory.step(bigint, int) RETURNS bigint IMMUTABLE LANGUAGE sql AS 'SELECT $1 + $2';
CREATE FUNCTION mallory.show(bigint) RETURNS text IMMUTABLE LANGUAGE sql AS 'SELECT $1::text';
CREATE FUNCTION mallory.step(text, int) RETURNS text IMMUTABLE LANGUAGE sql AS 'SELECT $1 || $2';
CREATE FUNCTION mallory.show(text) RETURNS text IMMUTABLE LANGUAGE sql AS 'SELECT $1';
CREATE AGGREGATE mallory.agg(int) (sfunc = mallory.step, stype = bigint, finalfunc = mallory.show, initcond = '0');
CREATE AGGREGATE mallory.unused(int) (sfunc = mallory.step, stype = bigint, finalfunc = mallory.show, initcond = '0');
CREATE FOREIGN TABLE mallory.s (k int, v int) SERVER stream_staged;
CREATE MATERIALIZED VIEW mallory.v WITH (stream_agg.continuous, stream_agg.trigger = 'manual') AS SELECT k, mallory.agg(v) AS x, min(v) AS least FROM mallory.s GROUP BY k;
INSERT INTO mallory.s VALUES (1, 1000000);
SQL
	super("CALL stream_agg.run('mallory.s')");
	my $other = "(int) (sfunc = mallory.step, stype = text, finalfunc = mallory.show, initcond = '')";
	may_not('mallory', "CREATE OR REPLACE AGGREGATE mallory.agg $other", qr/cannot replace aggregate agg: continuous views keep states/);
	may_not('super', "CREATE OR REPLACE AGGREGATE mallory.agg $other", qr/cannot replace aggregate agg: continuous views keep states/);
	may('mallory', "CREATE OR REPLACE AGGREGATE mallory.unused $other");
	may('mallory', q{CREATE OR REPLACE FUNCTION mallory.step(bigint, int) RETURNS bigint IMMUTABLE LANGUAGE plpgsql AS 'BEGIN RETURN $1 + 10 * $2; END'; INSERT INTO mallory.s VALUES (1, 1)});
	super("CALL stream_agg.run('mallory.s')");
	answer('super', 'SELECT k, x, least FROM mallory.v', '1|1000010|1', 'a function that is replaced, in another language, holds from the next batch on');

	# Names that change between the guard's look and the lock.
	login('mallory', 'CREATE TABLE mallory.t (k int, x text, least int)');
	my $mover = $node->background_psql('postgres');
	$mover->query_safe('BEGIN; ALTER TABLE mallory.t RENAME TO t_old; ALTER TABLE mallory.v RENAME TO t;');
	my $changer = start_script($node, 'changer', 'SET SESSION AUTHORIZATION mallory; ALTER TABLE mallory.t ALTER x TYPE bigint USING 4711, ALTER least TYPE text USING 4712;');
	wait_until('the change waits', sub { return (try_query($node, "SELECT count(*) FROM pg_locks WHERE relation = 'mallory.t'::regclass AND NOT granted") // 0) > 0 });
	$mover->query_safe('COMMIT');
	$mover->quit;
	wait_until('the change is done', sub { return defined script_exit($changer) });
	is(script_exit($changer), 0, 'the guard can be passed');
	answer('super', "SELECT format_type(atttypid, -1) FROM pg_attribute WHERE attrelid = 'mallory.t'::regclass AND attname = 'x'", 'bigint', 'and the column is another');
	for my $restart (0, 1)
	{
		terminate_workers($node) if $restart;
		super("INSERT INTO mallory.s VALUES (1, 1), (2, 2); SELECT stream_agg.resume('mallory.t')");
		may_not('super', "CALL stream_agg.run('mallory.t')", qr/column 2 of result table "t" is not of type text any more/, 'but the worker does not take it for what it was' . ($restart ? ', started anew' : ''));
	}
	login('mallory', 'DROP TABLE mallory.t');

	# The same with a type that is changed.
	login('mallory', <<'SQL');
CREATE TYPE mallory.pair AS (a bigint, b bigint);
CREATE FUNCTION mallory.step(mallory.pair, int) RETURNS mallory.pair IMMUTABLE LANGUAGE plpgsql AS $$
BEGIN
	IF $2 = 1 THEN	-- taken for a text, a value that is elsewhere in memory
		RETURN ROW(4702111234474967297, 16705::bigint)::mallory.pair;
	END IF;
	RAISE LOG 'a is % long', length($1.a::text);
	RETURN $1;
END$$;
CREATE FUNCTION mallory.show(mallory.pair) RETURNS text IMMUTABLE LANGUAGE plpgsql AS $$BEGIN RETURN $1::text; END$$;
CREATE AGGREGATE mallory.pairs(int) (sfunc = mallory.step, stype = mallory.pair, finalfunc = mallory.show, initcond = '(0,0)');
CREATE MATERIALIZED VIEW mallory.v WITH (stream_agg.continuous, stream_agg.trigger = 'manual') AS SELECT k, mallory.pairs(v) AS x, count(*) AS n FROM mallory.s GROUP BY k;
INSERT INTO mallory.s VALUES (1, 1);
SQL
	super("CALL stream_agg.run('mallory.v')");
	my ($worker) = worker_pids($node);
	login('mallory', 'ALTER TYPE mallory.pair ALTER ATTRIBUTE a TYPE text; INSERT INTO mallory.s VALUES (1, 0)');
	may_not('super', "CALL stream_agg.run('mallory.v', '1 minute')", qr/"v" is failed.*binary data has type 20 \(bigint\) instead of expected 25 \(text\)/s, 'states of another type are not taken for what they are not');
	is(join(' ', worker_pids($node)), $worker, 'the worker has survived it');
	login('mallory', "ALTER TYPE mallory.pair ALTER ATTRIBUTE a TYPE bigint; SELECT stream_agg.resume('mallory.v')");
	super("CALL stream_agg.run('mallory.v')");
	answer('super', 'SELECT k, x, n FROM mallory.v WHERE k = 1', '1|(4702111234474967297,16705)|' . super('SELECT count(*) FROM mallory.s WHERE k = 1'), 'with the type as it was it goes on exactly');
	uproot();
};

part names => sub {
	my @names = ('quote"d', "quote'd", 'dot.ted', 'back\\slash', "new\nline", "\x{c3}\x{9c}n\x{c3}\x{af}", 'x' x 63, '%s%n', '$1; DROP TABLE x; --', 'select', ' ');
	my $ident = sub { my ($name) = @_; $name =~ s/"/""/g; return qq("$name"); };
	my $literal = sub { my ($name) = @_; $name =~ s/\\/\\\\/g; $name =~ s/'/''/g; return "E'$name'"; };
	for my $name (@names)
	{
		my $n = $ident->($name);
		my $v = $ident->(substr("v$name", 0, 63));
		my $reg = $literal->("$n.$v");
		my $stream = $literal->("$n.$n");
		my $shown = $name =~ s/\n/\\n/r;
		# role, schema, stream, view and columns of that name
		super("CREATE ROLE $n; CREATE SCHEMA $n AUTHORIZATION $n");
		may('super', <<"SQL", "made: $shown");
SET SESSION AUTHORIZATION $n;
CREATE FOREIGN TABLE $n.$n ($n int, b int, event_time timestamptz) SERVER stream_staged OPTIONS (watermark '1 minute');
CREATE MATERIALIZED VIEW $n.$v WITH (stream_agg.continuous, stream_agg.trigger = 'manual') AS
	SELECT $n, window_start AS $v, count(*) AS n, avg(b) AS mean, sum(10 / b) AS x FROM $n.$n, public.tumble(event_time, '1 minute') GROUP BY 1, 2;
INSERT INTO $n.$n VALUES (1, 1, '2024-01-01'), (1, 0, '2024-01-01'), (2, 5, NULL);
CALL stream_agg.run($stream);
SQL
		terminate_workers($node);
		super("INSERT INTO $n.$n VALUES (1, 3, '2024-01-01')");
		may('super', "CALL stream_agg.run($reg)", "run: $shown");
		answer('super', "SELECT $n, $v AT TIME ZONE 'UTC', n, mean::int, x FROM $n.$v", '1|2024-01-01 00:00:00|2|2|13', "right: $shown");
		answer('super', "SELECT (SELECT count(*) FROM stream_agg.dead_letters WHERE stream = $stream\::regclass AND event ? " . $literal->($name) . "), (SELECT count(*) FROM stream_agg.explain($reg)) > 3", '2|t', "shown: $shown");
		may('super', "SET SESSION AUTHORIZATION $n; SELECT stream_agg.pause($reg); SELECT stream_agg.resume($reg); ALTER TABLE $n.$v RENAME TO other; ALTER TABLE $n.other RENAME TO $v; DROP FOREIGN TABLE $n.$n CASCADE", "changed and dropped: $shown");
		super("DROP SCHEMA $n; DROP ROLE $n");
	}
	# Values of options, and SQL in what is kept and shown.
	super('GRANT USAGE ON FOREIGN SERVER k TO alice');
	for my $value ("it''s", 'a "b"', "new\nline", 'a=b,c', '\\')
	{
		may('alice', "CREATE FOREIGN TABLE alice.k (a int OPTIONS (path '" . ($value =~ /["\\]|\./ ? 'x' : $value) . "')) SERVER k OPTIONS (topic 't', client_id '$value'); ALTER FOREIGN TABLE alice.k OPTIONS (SET client_id '$value$value'); DROP FOREIGN TABLE alice.k", 'option: ' . $value =~ s/\n/\\n/r);
	}
	super('REVOKE USAGE ON FOREIGN SERVER k FROM alice');
	may_not('alice', "CREATE FOREIGN TABLE alice.k (a int) SERVER stream_staged OPTIONS (event_time 'x''; DROP TABLE y; --')", qr/column "x'; DROP TABLE y; --" does not exist/);
	login('alice', "CREATE FOREIGN TABLE alice.s (k text) SERVER stream_staged;" . view_of('alice.v', 'SELECT k::int AS i, count(*) AS n FROM alice.s GROUP BY 1')
		. view_of('alice.w', 'SELECT k::int AS i, count(*) AS n FROM alice.s GROUP BY 1', "stream_agg.on_error = 'fail'") . "INSERT INTO alice.s VALUES ('\$\$; DROP TABLE alice.v; --'), (E'%s\\n''\"')");
	may('super', "CALL stream_agg.run('alice.v')");
	answer('alice', "SELECT event ->> 'k' FROM stream_agg.dead_letters ORDER BY id", "\$\$; DROP TABLE alice.v; --\n%s\n'\"", 'dead letters hold what was sent');
	may_not('super', "CALL stream_agg.run('alice.s')", qr/"w" is failed/);
	like(wait_for_status('alice.w', 'failed'), qr/invalid input syntax for type integer: "\$\$; DROP TABLE alice.v; --"/, 'and so do messages');
	super('DROP FOREIGN TABLE alice.s CASCADE');
};

is(join("\n", unexpected_crashes($node)), '', 'no server process has crashed');
done_testing();
