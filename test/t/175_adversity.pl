# 175_adversity.pl: under hostile circumstances a stream goes on, or says why it does not, and then goes on; and what its
# views hold is exact: locks, deadlocks, timeouts and odd settings of the cluster, databases that go, clocks that are
# set, full disks, transaction ids that run out, no worker slots.
#
#   SA_ONLY=name         one test
#   SA_SMALL_DISK=dir    a directory on a small file system of its own, which is filled to the brim. Without it, full
#                        disks are played only. test/run_tests.sh makes one when it may mount: by hand,
#                        mount -t tmpfs -o size=200m,mode=1777 tmpfs /mnt/small
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

use Hostile;
use StreamAggLedger;
use StreamAggTest;

my $machine = Hostile->new($PostgreSQL::Test::Utils::tmp_check);
my $no_machine = 'there is no C compiler to make a hostile machine with';

# Small files: what grows meets the end of the disk soon. A view gives way to locks soon.
our $node = make_node('adversity', initdb => ['--wal-segsize=1'], conf => <<'CONF');
stream_agg.lock_timeout = '200ms'
stream_agg.segment_size = '1MB'
min_wal_size = '2MB'
max_wal_size = '16MB'
autovacuum_naptime = '1s'
autovacuum_freeze_max_age = 100000
CONF

sub start_node
{
	return $machine ? $machine->run(sub { $node->start }) : $node->start;
}

start_node();

# ---- words

# A database of its own with s, l and views.
sub make_database
{
	my ($db, %params) = @_;
	my $ledger = StreamAggLedger->new(%params);
	$node->safe_psql('postgres', "CREATE DATABASE $db");
	$node->safe_psql($db, $ledger->create_sql);
	return $ledger;
}

sub drop_database
{
	my ($db) = @_;
	$node->safe_psql('postgres', "DROP DATABASE $db");
	return;
}

sub insert
{
	my ($db, $ledger, $count) = @_;
	$node->safe_psql($db, $ledger->insert_sql($count));
	return;
}

sub is_query
{
	my ($db, $query, $wanted, $name) = @_;
	return is($node->safe_psql($db, $query), $wanted, $name);
}

# With a deadline, and with what there was when it was over.
sub ok_until
{
	my ($db, $query, $name) = @_;
	my $ok = eval { wait_until($name, sub { return (try_query($node, $query, $db) // '') eq 't' }) };
	ok($ok, $name) or diag "not true: $query\n"
	  . (try_query($node, 'SELECT stream, status, message FROM stream_agg.streams', $db) // 'no streams') . "\n"
	  . (try_query($node, 'SELECT view, status, message, "read" FROM stream_agg.views', $db) // 'no views');
	return $ok;
}

# All events so far are in all views (but these), by themselves.
sub all_read
{
	my ($ledger, @but) = @_;
	my $n = $ledger->count;
	my $but = join(', ', map { "'$_'" } @but, '');
	return "SELECT bool_and(position = $n) FROM stream_agg.partitions WHERE view::text NOT IN ($but)";
}

sub says
{
	my ($view, $pattern) = @_;
	return "SELECT status = 'retrying' AND message ~ '$pattern' FROM stream_agg.views WHERE view = '$view'::regclass";
}

# A view that tries again, or the stream without a worker.
sub somebody_says
{
	my ($like) = @_;
	return "SELECT EXISTS (SELECT FROM stream_agg.views WHERE status = 'retrying' AND message LIKE '$like')"
	  . " OR EXISTS (SELECT FROM stream_agg.streams WHERE status = 'waiting' AND message LIKE '$like')";
}

# What has been asked to end has ended, with this exit status.
sub has_ended
{
	my ($script, $wanted, $name) = @_;
	wait_until($name, sub { return defined script_exit($script) });
	return is(script_exit($script), $wanted, $name) || diag slurp_file($script->{err});
}

# New workers, which have the settings of now from their beginning.
sub new_workers
{
	my ($db) = @_;
	my @old = worker_pids($node, $db);
	terminate_workers($node, "datname = '$db'");
	ok_until($db, 'SELECT count(*) = ' . @old . ' FROM stream_agg.streams WHERE pid NOT IN (' . join(', ', @old) . ')', 'new workers come');
	return;
}

sub set_server
{
	my (%settings) = @_;
	$node->safe_psql('postgres', join(";\n", map { defined $settings{$_} ? "ALTER SYSTEM SET $_ = '$settings{$_}'" : "ALTER SYSTEM RESET $_" } sort keys %settings));
	$node->reload;
	return;
}

my $version = $node->pg_version->major;
my $restricts = defined try_query($node, 'SHOW restrict_nonsystem_relation_kind');    # since a minor version

# ---- locks

# A user holds a result table; the view says that it waits, and its neighbours go on.
sub test_lock
{
	my $ledger = make_database('locked');
	insert('locked', $ledger, 500);
	$ledger->is_exact($node, 'locked', 'before');
	for my $view ('closed', 'total')    # the first and the last one that comes into a batch
	{
		my $session = $node->background_psql('locked');
		$session->query_safe("BEGIN; LOCK TABLE $view IN ACCESS EXCLUSIVE MODE");
		for my $some (1 .. 2)
		{
			insert('locked', $ledger, 300);
			ok_until('locked', all_read($ledger, $view), "neighbours go on while $view is locked");
		}
		ok_until('locked', says($view, 'lock timeout|holds a lock'), "$view says that it waits");
		my ($rc, $out, $err) = $node->psql('locked', "CALL stream_agg.run('$view', '1 s')");
		like($err, qr/continuous view "$view": .*lock/, 'and run() says so');
		is_query('locked', "SELECT string_agg(DISTINCT status, ' ') FROM stream_agg.streams", 'running', 'the stream is running');
		is($ledger->differences($node, 'locked', grep { $_ ne $view } $ledger->views), '', 'neighbours are right');
		$session->query_safe('COMMIT');
		$session->quit;
		ok_until('locked', all_read($ledger), "$view catches up by itself");
		$ledger->is_exact($node, 'locked', "$view was locked");
	}
	drop_database('locked');
	return;
}

# The worker has a lock that a user waits for, and wants one that the user has: it gives way.
sub test_deadlock
{
	$node->safe_psql('postgres', 'CREATE DATABASE deadlock');
	$node->safe_psql('deadlock', <<'SQL');
CREATE EXTENSION stream_agg;
CREATE TABLE other (v int);
CREATE FOREIGN TABLE s (v int) SERVER stream_staged;
CREATE MATERIALIZED VIEW sums WITH (stream_agg.continuous) AS SELECT v % 3 AS k, count(*) AS n, avg(v) AS a FROM s GROUP BY v % 3;
CREATE FUNCTION look_elsewhere() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN
	PERFORM pg_advisory_xact_lock(175);
	PERFORM count(*) FROM public.other;
	RETURN NULL;
END$$;
CREATE TRIGGER look_elsewhere AFTER INSERT OR UPDATE ON sums FOR EACH ROW EXECUTE FUNCTION look_elsewhere();
SQL
	# Whoever waits, waits for as long as it takes: only deadlocks are decided, and by the worker.
	set_server('stream_agg.lock_timeout' => '10min');
	new_workers('deadlock');
	my $gate = $node->background_psql('deadlock');
	my $user = $node->background_psql('deadlock');
	$gate->query_safe('SELECT pg_advisory_lock(175)');
	$user->query_safe("SET deadlock_timeout = '10min'; BEGIN; LOCK TABLE other IN ACCESS EXCLUSIVE MODE");
	$node->safe_psql('deadlock', 'INSERT INTO s SELECT generate_series(1, 100)');
	my $here = 'database = (SELECT oid FROM pg_database WHERE datname = current_database()) AND NOT granted';
	ok_until('deadlock', "SELECT count(*) = 1 FROM pg_locks WHERE locktype = 'advisory' AND $here", 'the worker holds the result table');
	$user->query_until(qr/begun/, "\\echo begun\nLOCK TABLE sums IN ACCESS EXCLUSIVE MODE;\n");
	ok_until('deadlock', "SELECT count(*) = 1 FROM pg_locks WHERE relation = 'sums'::regclass AND $here", 'for which the user waits');
	$gate->query_safe('SELECT pg_advisory_unlock(175)');
	is($user->query_safe('SELECT count(*) FROM sums'), '0', 'the user is given the table');
	ok_until('deadlock', says('sums', '^deadlock detected'), 'and the view says why it tries again');
	$user->query_safe('COMMIT');
	$_->quit for $gate, $user;
	ok_until('deadlock', 'SELECT sum(n) = 100 FROM sums', 'it goes on');
	is_query('deadlock', 'TABLE sums EXCEPT ALL SELECT v % 3, count(*), avg(v) FROM generate_series(1, 100) v GROUP BY 1', '', 'exactly');
	is_query('deadlock', 'SELECT status, message FROM stream_agg.views', 'running|', 'and has nothing to say');
	set_server('stream_agg.lock_timeout' => undef);
	drop_database('deadlock');
	return;
}

# ---- settings

my %no_timeouts = map { $_ => 0 } qw(statement_timeout lock_timeout idle_in_transaction_session_timeout idle_session_timeout),
  $version >= 17 ? 'transaction_timeout' : ();

# For the sessions of this test: as options of psql's connections.
sub options_of
{
	my (%settings) = @_;
	return join(' ', map { "-c $_=" . ($settings{$_} =~ s/([ \\])/\\$1/gr) } sort keys %settings);
}

# Everything of the cluster ends within a millisecond; the database takes no connections.
sub test_timeouts
{
	my $ledger = make_database('timeouts');
	local $ENV{PGOPTIONS} = options_of(%no_timeouts);
	insert('timeouts', $ledger, 300);
	set_server(map { $_ => '1ms' } keys %no_timeouts);
	$node->safe_psql('timeouts', 'CREATE ROLE somebody LOGIN; ALTER DATABASE timeouts CONNECTION LIMIT 0');
	my ($rc, $out, $err) = $node->psql('timeouts', 'SELECT 1', extra_params => [ '-U', 'somebody' ]);
	like($err, qr/too many connections for database/, 'nobody can connect');
	my $from = -s $node->logfile;
	insert('timeouts', $ledger, 300);
	$ledger->is_exact($node, 'timeouts', 'the same worker');
	ok(crash_child($node, "SELECT pid FROM pg_stat_activity WHERE backend_type = 'stream_agg worker' AND datname = 'timeouts'"), 'the server crashes');
	insert('timeouts', $ledger, 300);
	$ledger->is_exact($node, 'timeouts', 'a new launcher, probe and worker');
	new_workers('timeouts');
	insert('timeouts', $ledger, 300);
	$ledger->is_exact($node, 'timeouts', 'a new worker');
	$node->safe_psql('timeouts', "CREATE MATERIALIZED VIEW later WITH (stream_agg.continuous) AS SELECT count(*) AS n FROM s");
	$node->safe_psql('timeouts', $ledger->insert_sql(10) . "CALL stream_agg.run('later');\n");
	is_query('timeouts', 'SELECT n >= 10 FROM later', 't', 'a new view');
	unlike(substr(slurp_file($node->logfile), $from), qr/stream_agg.*(?:timeout|canceling)|due to \w+.timeout/, 'nothing of ours has met a timeout');
	set_server(map { $_ => undef } keys %no_timeouts);
	drop_database('timeouts');
	$node->safe_psql('postgres', 'DROP ROLE somebody');
	return;
}

# What databases and roles may have set, however odd.
my %odd = (
	default_transaction_isolation => 'serializable',
	default_transaction_read_only => 'on',
	default_transaction_deferrable => 'on',
	standard_conforming_strings => 'off',
	search_path => 'stream_agg, nowhere',
	client_encoding => 'LATIN1',
	session_replication_role => 'replica',
	row_security => 'off',
	exit_on_error => 'on',
	transform_null_equals => 'on',
	gin_fuzzy_search_limit => 1,
	synchronous_commit => 'remote_apply',
	default_tablespace => 'nowhere',
	default_table_access_method => 'heap',
	temp_file_limit => 0,
	work_mem => '64kB',
	max_stack_depth => '100kB',
	vacuum_cost_delay => '100ms',
	plan_cache_mode => 'force_generic_plan',
	join_collapse_limit => 1,
	from_collapse_limit => 1,
	geqo_threshold => 2,
	constraint_exclusion => 'on',
	jit_above_cost => 0,
	parallel_setup_cost => 0,
	parallel_tuple_cost => 0,
	max_parallel_workers_per_gather => 8,
	min_parallel_table_scan_size => 0,
	$version >= 16 ? (debug_parallel_query => 'on') : (force_parallel_mode => 'on'),
	$restricts ? (restrict_nonsystem_relation_kind => 'view, foreign-table') : (),
	(map { $_ => '1ms' } grep { $_ ne 'idle_session_timeout' } keys %no_timeouts),
	(map { $_ => 'off' } qw(enable_hashagg enable_hashjoin enable_indexscan enable_indexonlyscan enable_bitmapscan enable_material
		enable_memoize enable_mergejoin enable_nestloop enable_seqscan enable_sort enable_tidscan enable_async_append)));

# Those that change an answer: as they are when the views are created, and as they are later.
my %at_creation = (
	TimeZone => 'Asia/Kolkata',
	timezone_abbreviations => 'India',
	DateStyle => 'German',
	IntervalStyle => 'iso_8601',
	extra_float_digits => -3,
	bytea_output => 'escape',
	array_nulls => 'off',
	quote_all_identifiers => 'on',
	xmloption => 'content',
	xmlbinary => 'hex',
	default_text_search_config => 'pg_catalog.german');
my %later = (
	TimeZone => 'America/New_York',
	timezone_abbreviations => 'Default',
	DateStyle => 'SQL, MDY',
	IntervalStyle => 'postgres_verbose',
	extra_float_digits => 1,
	bytea_output => 'hex',
	array_nulls => 'on',
	quote_all_identifiers => 'off',
	xmloption => 'document',
	xmlbinary => 'base64',
	default_text_search_config => 'pg_catalog.simple');

# What this test's own sessions have to have otherwise.
my %usual = (%no_timeouts, default_transaction_read_only => 'off', default_transaction_isolation => 'read committed',
	default_transaction_deferrable => 'off', client_encoding => 'UTF8', search_path => 'public', temp_file_limit => -1, session_replication_role => 'origin',
	enable_seqscan => 'on', enable_sort => 'on', enable_hashagg => 'on', enable_hashjoin => 'on', enable_indexscan => 'on', synchronous_commit => 'on',
	standard_conforming_strings => 'on', exit_on_error => 'off', work_mem => '4MB', max_stack_depth => '2MB', max_parallel_workers_per_gather => 0,
	$version >= 16 ? (debug_parallel_query => 'off') : (force_parallel_mode => 'off'), transform_null_equals => 'off', jit => 'off', default_tablespace => '',
	$restricts ? (restrict_nonsystem_relation_kind => '') : ());

sub test_settings
{
	my $ledger = make_database('settings');
	my $has_xml = defined try_query($node, "SELECT '<a/>'::xml");
	my $xml = $has_xml ? ", x::xml::text AS x, xmlelement(name a, decode('00ff', 'hex'))::text AS e" : '';
	my $query = "SELECT id, ts::text AS ts, (t || ' IST')::timestamptz AS abbreviated, iv::text AS iv, f::text AS f, b::text AS b, a::text[]::text AS a,"
	  . " quote_ident(a) AS q, to_tsvector(w)::text AS w, extract(hour FROM ts) AS hour$xml FROM %s";
	local $ENV{PGOPTIONS} = options_of(%usual, %at_creation);
	$node->safe_psql('settings', <<"SQL" . sprintf($query, 'odd') . ";\n" . $ledger->insert_sql(300) . "CALL stream_agg.run('s');\n");
CREATE FOREIGN TABLE odd (id int, ts timestamptz, iv interval, f float8, b bytea, a text, w text, x text, t text) SERVER stream_staged OPTIONS (event_time 'ts');
CREATE TABLE odd_l (LIKE odd);
CREATE MATERIALIZED VIEW texts WITH (stream_agg.continuous, stream_agg.trigger = 'manual') AS
SQL
	for my $whose ('DATABASE settings', 'ROLE CURRENT_USER')
	{
		my %settings = (%odd, %later);
		$node->safe_psql('settings', join(";\n", 'SET client_min_messages = error',
			map { "ALTER $whose SET $_ = " . (/search_path|DateStyle|restrict/ ? $settings{$_} =~ s/([\w-]+)/'$1'/gr : "'$settings{$_}'") } sort keys %settings));
		new_workers('settings');
		$node->safe_psql('settings', $ledger->insert_sql(300) . "CALL stream_agg.run('s');\n");
		$node->safe_psql('settings', <<'SQL');
WITH x AS (INSERT INTO odd_l SELECT g, timestamptz '2024-06-30 22:30Z' + g * interval '1 hour', g * interval '1 day 02:03:04', g / 7.0, decode('00ff41', 'hex'),
	'{x' || g || ',NULL}', 'die schoenen Katzen', 'just text', '2024-06-30 12:00' FROM generate_series(1, 5) g RETURNING *) INSERT INTO odd SELECT * FROM x;
CALL stream_agg.run('odd');
SQL
		is_query('settings', "((TABLE texts) EXCEPT ALL (@{[ sprintf($query, 'odd_l') ]})) UNION ALL ((@{[ sprintf($query, 'odd_l') ]}) EXCEPT ALL (TABLE texts))", '',
			"ALTER $whose: a view computes as when it was created");
		$ledger->is_exact($node, 'settings', "ALTER $whose");
	}
	# A new view, in a session that has it all but cannot do without a few.
	local $ENV{PGOPTIONS} = options_of(%no_timeouts, default_transaction_read_only => 'off', search_path => 'public', temp_file_limit => -1, jit => 'off',
		$restricts ? (restrict_nonsystem_relation_kind => '') : (),
		client_min_messages => 'error');
	$node->safe_psql('settings', "CREATE MATERIALIZED VIEW later WITH (stream_agg.continuous) AS SELECT ts::text AS ts, count(*) AS n FROM s GROUP BY ts::text;\nCALL stream_agg.run('later')");
	is_query('settings', "SELECT count(*), min(ts) FROM later", "@{[ $ledger->count ]}|01/01/2024 00:00:00 EST", 'a view created under them');
	local $ENV{PGOPTIONS} = options_of(%usual, %at_creation);
	$ledger->is_exact($node, 'settings', 'at the end');
	is_query('settings', "SELECT count(*) FROM stream_agg.dead_letters", '0', 'nothing is a dead letter');
	$node->safe_psql('postgres', 'ALTER ROLE CURRENT_USER RESET ALL');
	drop_database('settings');
	return;
}

# ---- databases that go

sub test_drop_database
{
	my $neighbour = make_database('neighbour');
	for my $round (1 .. 2)
	{
		my $ledger = make_database('doomed', options => { max_batch_rows => 50 });
		my $script = start_script($node, "doomed_$round", $ledger->insert_sql(1000) . join('', map { $ledger->insert_sql(20) } 1 .. 20000), db => 'doomed');
		ok_until('doomed', 'SELECT n > 200 FROM total', 'the worker is at work');
		insert('neighbour', $neighbour, 100);
		$node->safe_psql('postgres', "SET statement_timeout = '100s'; DROP DATABASE doomed WITH (FORCE)");
		has_ended($script, 2, 'who fed it is sent away');
		is_query('postgres', "SELECT count(*) FROM pg_stat_activity WHERE datname = 'doomed'", '0', 'nobody is left behind');
		$neighbour->is_exact($node, 'neighbour', 'the neighbour');
	}
	my $ledger = make_database('doomed');
	insert('doomed', $ledger, 100);
	$ledger->is_exact($node, 'doomed', 'of the same name, made anew');
	drop_database($_) for qw(doomed neighbour);
	return;
}

# ---- the clock

# Wherever the clock is set, everything happens as soon as ever.
sub test_clock
{
	plan skip_all => $no_machine unless $machine;
	my $ledger = make_database('clock', options => { trigger => '1 second' });
	$node->safe_psql('clock', 'CREATE MATERIALIZED VIEW immediate WITH (stream_agg.continuous) AS SELECT count(*) AS n FROM s');
	my $goes_on = sub {
		my ($name) = @_;
		insert('clock', $ledger, 100);
		ok_until('clock', all_read($ledger), "$name: triggers fire");
		return;
	};
	$goes_on->('the right time');
	$machine->set_clock(-3600);
	cmp_ok($node->safe_psql('clock', 'SELECT extract(epoch FROM now())::int'), '<', time - 3000, 'it is an hour ago');
	$goes_on->('an hour ago');

	my $session = $node->background_psql('clock');
	$session->query_safe('BEGIN; LOCK TABLE hours IN ACCESS EXCLUSIVE MODE');
	insert('clock', $ledger, 100);
	ok_until('clock', says('hours', 'lock'), 'a view is to try again');
	$machine->set_clock(-7200);
	$session->query_safe('COMMIT');
	$session->quit;
	ok_until('clock', all_read($ledger), 'and does so, though it is before the time that it had set itself');

	$machine->set_clock(-86400);
	new_workers('clock');
	$goes_on->('a new worker');
	$machine->set_clock(-90000);
	insert('clock', $ledger, 60000);
	ok_until('clock', all_read($ledger), 'much is read');
	ok_until('clock', 'SELECT staged_bytes < 2200000 FROM stream_agg.streams', 'and given back');
	$machine->set_clock(86400);
	$goes_on->('a day ahead');
	$machine->set_clock(0);
	$goes_on->('and back');
	$ledger->is_exact($node, 'clock', 'at the end');
	drop_database('clock');
	return;
}

# ---- the disk

# Relations cannot grow: whoever stages rows is told so, views say so, and all go on when there is room.
sub test_disk
{
	plan skip_all => $no_machine unless $machine;
	my $ledger = make_database('disk', options => { trigger => 'manual' });
	insert('disk', $ledger, 500);
	$ledger->is_exact($node, 'disk', 'before');
	$machine->fill_disk('/base/');
	my ($rc, $out, $err) = $node->psql('disk', $ledger->insert_sql(20000));
	like($err, qr/No space left on device/, 'rows cannot be staged');
	$machine->make_room;
	$ledger->go_on($node, 'disk');
	$ledger->is_exact($node, 'disk', 'nothing of them is there');

	insert('disk', $ledger, 20000);
	$machine->fill_disk('/base/');
	my $script = start_script($node, 'run_disk', "CALL stream_agg.run('s');\n", db => 'disk');
	ok_until('disk', somebody_says('%No space left on device%'), 'the disk is full, and they say so');
	is(script_exit($script), undef, 'who waits for the results goes on waiting');
	$machine->make_room;
	has_ended($script, 0, 'until there is room');
	$ledger->is_exact($node, 'disk', 'afterwards');
	drop_database('disk');
	return;
}

# There is no room for WAL: the server panics, and comes back or has to be started, and goes on.
sub test_wal
{
	plan skip_all => $no_machine unless $machine;
	my $ledger = make_database('wal');
	set_server(max_wal_size => '10GB');    # no checkpoint gives back what there is
	my $script = start_script($node, 'feed_wal', join('', map { $ledger->insert_sql(1 + $_ % 300) } 1 .. 20000), db => 'wal', go_on => 1);
	ok_until('wal', 'SELECT n > 2000 FROM total', 'the server is at work');
	my $from = -s $node->logfile;
	$machine->fill_disk('/pg_wal/');
	wait_until('the disk is full', sub { return substr(slurp_file($node->logfile), $from) =~ /PANIC: .*No space left on device/ });
	$machine->make_room;
	stop_script($script);
	$node->stop('immediate', fail_ok => 1);    # it is on its way up, or has given up
	start_node();
	$ledger->go_on($node, 'wal');
	cmp_ok($ledger->count, '>', 2000, 'what was committed is there');
	$ledger->is_exact($node, 'wal', 'after the panic');
	insert('wal', $ledger, 500);
	$ledger->is_exact($node, 'wal', 'and on');
	set_server(max_wal_size => undef);
	drop_database('wal');
	return;
}

# The real thing: relations and WAL on a small file system, which somebody fills.
sub test_small_disk
{
	my $dir = $ENV{SA_SMALL_DISK} or plan skip_all => 'SA_SMALL_DISK names no directory on a small file system';
	my $place = "$dir/adversity_$$";
	mkdir($place, 0700) or plan skip_all => "$place: $!";
	mkdir("$place/space", 0700) or die "$place/space: $!";
	local $node = make_node('small', initdb => [ '--wal-segsize=1', "--waldir=$place/wal" ], conf => "min_wal_size = '2MB'\nmax_wal_size = '4MB'\n");
	$node->start;
	$node->safe_psql('postgres', "CREATE TABLESPACE space LOCATION '$place/space'");
	my $ledger = StreamAggLedger->new;
	$node->safe_psql('postgres', 'CREATE DATABASE small TABLESPACE space');
	$node->safe_psql('small', $ledger->create_sql);
	my $script = start_script($node, 'feed_small', join('', map { $ledger->insert_sql(1 + $_ % 300) } 1 .. 5000), db => 'small', go_on => 1);
	ok_until('small', 'SELECT n > 2000 FROM total', 'the server is at work');
	open(my $filler, '>', "$place/filler") or die "$place/filler: $!";
	my $told = '';
	wait_until('the disk is full', sub {
		1 while defined syswrite($filler, "\0" x 65536) || defined syswrite($filler, "\0" x 512);
		$told = slurp_file($script->{err}) . slurp_file($node->logfile);
		return $told =~ /No space left on device/ && ($told =~ /PANIC/ || defined try_query($node, 'SELECT 1'));
	});
	ok(1, 'the disk is full');
	close($filler);
	unlink("$place/filler");
	stop_script($script);
	if ($told =~ /PANIC/ || !defined try_query($node, 'SELECT 1'))
	{
		$node->stop('immediate', fail_ok => 1);
		$node->start;
	}
	ok_until('small', "SELECT count(*) = 0 FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()", 'there is room again');
	# What did not get in has left gaps in the numbers.
	my ($rc, $out, $err) = $node->psql('small', "CALL stream_agg.run('s', '150 s')");
	is($err, '', 'everything is read');
	is_query('small', "(SELECT k, count(*), avg(v) FROM l GROUP BY k EXCEPT ALL TABLE running) UNION ALL (TABLE running EXCEPT ALL SELECT k, count(*), avg(v) FROM l GROUP BY k)",
		'', 'the answer is exact');
	is_query('small', 'SELECT (SELECT count(*) FROM l) = n FROM total', 't', 'nothing is lost or doubled');
	is_query('small', "(SELECT window_start, k, sum(v) AS v, stddev(v) AS d FROM l, tumble(ts, '1 hour') GROUP BY window_start, k EXCEPT ALL TABLE hours)", '', 'in windows too');
	$node->stop;
	PostgreSQL::Test::Utils::system_log('rm', '-rf', $place);
	return;
}

# ---- transaction ids

# Stops the server and starts it with this next transaction id: one so far from the last that it would hand out.
sub jump_to
{
	my ($from_last, $xid) = @_;
	$node->stop;
	my ($state) = run_command([ $node->installed_command('pg_controldata'), $node->data_dir ]);
	my ($next) = $state =~ /NextXID: +\d+:(\d+)/;
	my ($oldest) = $state =~ /oldestXID: +(\d+)/;
	$xid //= $oldest + 2**31 - 3_000_000 + $from_last;
	die "back from $next to $xid" if $xid < $next;
	command_ok([ $node->installed_command('pg_resetwal'), '-x', $xid, '-D', $node->data_dir ], "from transaction id $next to $xid");
	my $segment = sprintf('%s/pg_xact/%04X', $node->data_dir, int($xid / 1048576));
	if (!-e $segment)
	{
		open(my $file, '>', $segment) or die "$segment: $!";
		print $file "\0" x 262144;
		close($file);
	}
	start_node();
	return;
}

# Ids run out, and come round: what is kept gets frozen, read and unread rows, states, results.
sub test_xids
{
	my $ledger = make_database('xids', options => { trigger => 'manual' });
	insert('xids', $ledger, 1000);
	$ledger->is_exact($node, 'xids', 'before');
	ok_until('xids', "SELECT bool_and(backend_xmin IS NULL AND backend_xid IS NULL) FROM pg_stat_activity WHERE backend_type LIKE 'stream_agg%'", 'nothing of ours holds back what is old');
	insert('xids', $ledger, 1000);
	$node->safe_psql('xids', 'CREATE TABLE kept_old (v int)');
	my $young = 'SELECT max(age(datfrozenxid)) < 10000000 FROM pg_database';

	$node->append_conf('postgresql.conf', 'autovacuum = off');    # but for emergencies
	jump_to(100_000);
	my $session = $node->background_psql('xids');
	$session->query_safe('BEGIN; LOCK TABLE kept_old IN SHARE UPDATE EXCLUSIVE MODE');
	my $script = start_script($node, 'run_xids', "CALL stream_agg.run('s');\n", db => 'xids');
	ok_until('xids', somebody_says('%not accepting commands%'), 'there are no more ids, and they say so');
	my ($rc, $out, $err) = $node->psql('xids', $ledger->insert_sql(10));
	like($err, qr/not accepting commands/, 'as users are told');
	is(script_exit($script), undef, 'who waits for results goes on waiting');
	$session->quit;
	set_server(autovacuum => 'on');
	has_ended($script, 0, 'until old ones have been frozen');
	ok_until('xids', $young, 'everywhere');
	$ledger->go_on($node, 'xids');
	$ledger->is_exact($node, 'xids', 'afterwards');

	insert('xids', $ledger, 500);
	jump_to(-1_000_000);
	insert('xids', $ledger, 500);
	$ledger->is_exact($node, 'xids', 'near the end again');
	ok_until('xids', $young, 'autovacuum is not held back');
	insert('xids', $ledger, 500);
	jump_to(undef, 2**32 - 200);
	$script = start_script($node, 'feed_xids', join('', map { $ledger->insert_sql(3) . ($_ % 50 ? '' : "CALL stream_agg.run('s');\n") } 1 .. 300), db => 'xids');
	has_ended($script, 0, 'ids come round');
	is_query('xids', "SELECT pg_current_xact_id()::text::numeric > 4294967296", 't', 'they have');
	$ledger->is_exact($node, 'xids', 'over that');
	is_query('xids', "SELECT count(*) FROM pg_class WHERE relkind IN ('r', 't', 'm') AND age(relfrozenxid) > 300000000", '0', 'nothing is kept old');
	set_server(autovacuum => undef);
	$node->append_conf('postgresql.conf', 'autovacuum = on');
	drop_database('xids');
	return;
}

# ---- worker slots

# Others have taken all of them: a stream says that it waits, and goes on when one is free.
sub test_slots
{
	local $node = make_node('slots', conf => "max_worker_processes = 3\nmax_parallel_workers = 8\n");
	$node->start;
	my $ledger = StreamAggLedger->new;
	my $force = $version >= 16 ? 'debug_parallel_query' : 'force_parallel_mode';
	my $session = $node->background_psql('postgres');
	$session->query_until(qr/begun/, "SET $force = on;\n\\echo begun\nSELECT pg_sleep(1000);\n");
	ok($node->poll_query_until('postgres', "SELECT count(*) = 1 FROM pg_stat_activity WHERE backend_type = 'parallel worker'"), 'the last slot is taken');
	$node->safe_psql('postgres', $ledger->create_sql . $ledger->insert_sql(300));
	ok_until('postgres', "SELECT status = 'waiting' AND message LIKE '%max_worker_processes%' FROM stream_agg.streams", 'the stream says that it waits, and for what');
	my ($rc, $out, $err) = $node->psql('postgres', "CALL stream_agg.run('s', '1 s')");
	like($err, qr/max_worker_processes/, 'so does run()');
	$node->safe_psql('postgres', "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE query LIKE '%pg_sleep(1000)%' AND backend_type = 'client backend' AND pid <> pg_backend_pid()");
	ok_until('postgres', all_read($ledger), 'a slot that is free again is taken');
	$ledger->is_exact($node, 'postgres', 'afterwards');
	is_query('postgres', 'SELECT status, message FROM stream_agg.streams', 'running|', 'there is nothing to say');
	eval { $session->quit };
	$node->stop;
	return;
}

my @tests = (
	lock => \&test_lock,
	deadlock => \&test_deadlock,
	timeouts => \&test_timeouts,
	settings => \&test_settings,
	drop_database => \&test_drop_database,
	clock => \&test_clock,
	disk => \&test_disk,
	wal => \&test_wal,
	xids => \&test_xids,
	slots => \&test_slots,
	small_disk => \&test_small_disk);
while (my ($name, $code) = splice(@tests, 0, 2))
{
	next if $ENV{SA_ONLY} && $ENV{SA_ONLY} ne $name;
	my $start = time;
	subtest $name => $code;
	note sprintf('%s: %d s', $name, time - $start);
}

# The panics of a full disk, and the aborts that they end in, were meant.
my @crashes = grep { !/PANIC: .*No space left on device|was terminated by signal 6/ } unexpected_crashes($node);
is(scalar(@crashes), 0, 'no crash but those that were meant') or diag join("\n", @crashes);
$node->stop;
done_testing();
