# 080_kafka_faults.pl: a topic is read exactly once, whatever happens to workers, server, brokers and topic.
#
# What a topic holds is read back from it by another reader into the table l; the views' own SELECTs over l
# are the right answer. Views are compared at their end, and at moments in between with the answer over the
# records before the positions that they had then.
#
#   SA_ONLY=name      just this test
#   SA_SEED=n         of what is random; printed
#   SA_STATE=s        heap or unlogged: of the views
#   SA_ROUNDS=n       how many times something is hurt under load (default 7)
#   KAFKA_RIG=mock    without the real broker: what the mock cannot do is skipped
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl", "$FindBin::RealBin/../kafka";
use List::Util qw(shuffle sum);
use POSIX ();
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time usleep);

use Kafka;
use StreamAggTest;

my $rounds = $ENV{SA_ROUNDS} || 7;
my $seed = $ENV{SA_SEED} || int(time) % 1_000_000;
my $start_ms = 1_704_067_200_000;    # 2024-01-01, from where event times count

my $state = $ENV{SA_STATE} || ($seed % 2 ? 'heap' : 'unlogged');
note "SA_SEED=$seed, state $state";
our $kafka = Kafka->new("$PostgreSQL::Test::Utils::tmp_check/kafka");
note $kafka->is_real ? 'a real broker' : 'the mock: ' . Kafka::why_not_real();
$kafka->start;
our $node = make_node('kafka_faults');
$node->start;

# ---- streams, views, records

# A database of its own, with a server k and a stream s.
sub make_database
{
	my ($db, $topic, %options) = @_;
	$node->safe_psql('postgres', "CREATE DATABASE $db");
	$node->safe_psql($db, <<"SQL");
CREATE EXTENSION stream_agg;
CREATE SERVER k FOREIGN DATA WRAPPER stream_agg OPTIONS (type 'kafka', bootstrap_servers '@{[ $kafka->bootstrap ]}');
CREATE TABLE l (topic text, partition int, position bigint, id bigint, ts timestamptz, k int, v int);
CREATE INDEX ON l (topic, partition, position);
SQL
	make_stream($db, 's', topic => $topic, %options);
	return;
}

sub make_stream
{
	my ($db, $name, %options) = @_;
	%options = (server => 'k', event_time => 'ts', watermark => '10 s', partition_discovery => '500 ms', %options);
	my $server = delete $options{server};
	my $options = join(', ', map { "$_ '$options{$_}'" } grep { defined $options{$_} } sort keys %options);
	$node->safe_psql($db, "CREATE FOREIGN TABLE $name (id bigint, ts timestamptz OPTIONS (timestamp_format 'epoch_ms'), k int, v int,"
		  . " topic text OPTIONS (metadata 'topic'), partition int OPTIONS (metadata 'partition')) SERVER $server OPTIONS ($options)");
	return;
}

# The queries, by output mode; in the oracle, {FROM} is what the view has accepted.
my %queries = (
	update => "SELECT window_start, k, count(*) AS n, sum(v) AS v, sum(id) AS ids FROM {FROM} WHERE id % 7 <> 0 GROUP BY k, window_start",
	append => 'SELECT window_start, topic, partition, count(*) AS n, avg(v) AS v, sum(id) AS ids FROM {FROM} GROUP BY window_start, topic, partition');
my %columns = (update => 'window_start, k, n, v, ids', append => 'window_start, topic, partition, n, v, ids');
my %filters = (update => 'id % 7 <> 0', append => 'true');

sub create_view
{
	my ($db, $name, $mode, %options) = @_;
	my $stream = delete $options{stream} || 's';
	$options{state} //= $state;
	my $with = join(', ', 'stream_agg.continuous', map { "stream_agg.$_ = '$options{$_}'" } sort keys %options);
	my $query = $queries{$mode} =~ s/\{FROM\}/$stream, tumble(ts, '10 s')/r;
	$node->safe_psql($db, "CREATE MATERIALIZED VIEW $name WITH ($with, stream_agg.output_mode = '$mode') AS $query");
	return;
}

my $next_id = 0;

# The value of a record whose event time is so many seconds after the start.
sub event
{
	my ($seconds, $k, $v) = @_;
	my $id = ++$next_id;
	return sprintf('{"id":%d,"ts":%d,"k":%d,"v":%d}', $id, $start_ms + int(1000 * $seconds), $k // $id % 5, $v // $id % 100);
}

sub produce { my ($topic, $partition, @seconds) = @_; return $kafka->produce_lines($topic, $partition, [ map { event($_) } @seconds ]) }

sub run_all
{
	my ($db, $what) = @_;
	my ($rc, $out, $err) = $node->psql($db, "CALL stream_agg.run('" . ($what || 's') . "', '60 s')");
	return $rc == 0 ? '' : $err;
}

sub is_query
{
	my ($db, $query, $wanted, $name) = @_;
	return is($node->safe_psql($db, $query), $wanted, $name);
}

# With a deadline. Says what it last saw.
sub ok_until
{
	my ($db, $query, $name, $timeout) = @_;
	my $ok = eval { wait_until($name, sub { ($node->psql($db, $query))[1] eq 't' }, $timeout || 60) };
	ok($ok, $name) or diag "not true: $query\n" . whats_up($db);
	return $ok;
}

sub whats_up
{
	my ($db) = @_;
	return 'streams: ' . (try_query($node, 'SELECT * FROM stream_agg.streams', $db) // 'no answer')
	  . "\nviews: " . (try_query($node, 'SELECT view, status, message, watermark, read, skipped, late, accepted FROM stream_agg.views', $db) // '')
	  . "\npartitions: " . (try_query($node, 'SELECT view, topic, partition, position, end_position, watermark FROM stream_agg.partitions LIMIT 20', $db) // '');
}

# A statement that must not wait for a broker.
sub prompt
{
	my ($db, $sql, $name) = @_;
	my ($rc, $out, $err) = $node->psql($db, "SET statement_timeout = '10s'; SET client_min_messages = error; $sql");
	return is($rc, 0, "$name: promptly") || diag $err;
}

sub stop_promptly
{
	my ($name) = @_;
	return ok($node->stop('fast', timeout => 10), "$name: the server stops promptly");
}

# ---- the right answer

# Reads the topics as they are now into l.
sub load_topics
{
	my ($db, @topics) = @_;
	my $sql = "TRUNCATE l;\nCOPY l FROM STDIN;\n";
	for my $topic (@topics)
	{
		for my $partition (0 .. $kafka->partitions($topic) - 1)
		{
			for my $record ($kafka->read_records($topic, $partition, from => ($kafka->watermarks($topic, $partition))[0], isolation => 'committed'))
			{
				my ($id, $ms, $k, $v) = $record->{value} =~ /^\{"id":(\d+),"ts":(-?\d+),"k":(\d+),"v":(-?\d+)/ or die "strange record: $record->{value}";
				$sql .= join("\t", $topic, $partition, $record->{offset}, $id, sprintf('%s.%03dZ', POSIX::strftime('%F %T', gmtime(int($ms / 1000))), $ms % 1000), $k, $v) . "\n";
			}
		}
	}
	my $script = start_script($node, "load_$db", "$sql\\.\nANALYZE l;\n", db => $db);
	wait_until('the topic is loaded', sub { defined script_exit($script) });
	is(script_exit($script), 0, 'the topic is read') or diag slurp_file($script->{err});
	return;
}

# Positions, counters and rows of a view at one moment, kept as number n; undef when the server is not there.
sub snapshot_sql
{
	my ($n, $view) = @_;
	return <<"SQL";
BEGIN ISOLATION LEVEL REPEATABLE READ;
CREATE TABLE IF NOT EXISTS snapped AS SELECT 0 AS number, v.view::text AS name, p.* FROM stream_agg.view_position p JOIN stream_agg.view_config v ON v.id = p.view_id LIMIT 0;
CREATE TABLE IF NOT EXISTS snapped_$view AS SELECT 0 AS number, * FROM $view LIMIT 0;
INSERT INTO snapped SELECT $n, v.view::text, p.* FROM stream_agg.view_position p JOIN stream_agg.view_config v ON v.id = p.view_id WHERE v.view = '$view'::regclass;
INSERT INTO snapped_$view SELECT $n, * FROM $view;
COMMIT;
SQL
}

# What is wrong with it, in text; nothing if all is right.
sub difference_sql
{
	my ($n, $view, $mode) = @_;
	my $closed = $mode eq 'append' ? 'WHERE w.window_end <= (SELECT watermark FROM p_all)' : '';
	my $answer = $queries{$mode} =~ s/\{FROM\} WHERE [^G]*|\{FROM\} /(SELECT * FROM kept w $closed) w /r;
	return <<"SQL";
WITH p AS MATERIALIZED (SELECT * FROM snapped WHERE number = $n AND name = '$view'),
e AS MATERIALIZED (SELECT l.*, max(ts) OVER (PARTITION BY topic, partition ORDER BY l.position ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) - interval '10 s' AS wm,
	date_bin('10 s', ts, '1970-01-01Z') AS window_start, date_bin('10 s', ts, '1970-01-01Z') + interval '10 s' AS window_end
	FROM l JOIN p USING (topic, partition) WHERE l.position < p.position),
p_all AS MATERIALIZED (SELECT CASE WHEN count(*) = count(m) THEN min(m) END AS watermark
	FROM p LEFT JOIN LATERAL (SELECT max(ts) - interval '10 s' AS m FROM e WHERE e.topic = p.topic AND e.partition = p.partition) x ON true),
below AS MATERIALIZED (SELECT * FROM e WHERE $filters{$mode}),
kept AS MATERIALIZED (SELECT * FROM below WHERE wm IS NULL OR window_end > wm),
answer AS MATERIALIZED ($answer),
got AS MATERIALIZED (SELECT $columns{$mode} FROM snapped_$view WHERE number = $n),
counts AS (SELECT sum(p.read - p.skipped) = (SELECT count(*) FROM e) AND sum(p.filtered) = (SELECT count(*) FROM e) - (SELECT count(*) FROM below)
	AND sum(p.accepted) = (SELECT count(*) FROM kept) AND sum(p.late) = (SELECT count(*) FROM below) - (SELECT count(*) FROM kept)
	AND sum(p.read) = sum(p.skipped + p.filtered + p.accepted + p.late) AS good, format('%s read, %s filtered, %s late, %s accepted, wanted %s, %s, %s, %s',
	sum(p.read), sum(p.filtered), sum(p.late), sum(p.accepted), (SELECT count(*) FROM e), (SELECT count(*) FROM e) - (SELECT count(*) FROM below),
	(SELECT count(*) FROM below) - (SELECT count(*) FROM kept), (SELECT count(*) FROM kept)) AS text FROM p)
(SELECT 'missing: ' || x::text FROM (TABLE answer EXCEPT ALL TABLE got) x LIMIT 5)
UNION ALL (SELECT 'extra: ' || x::text FROM (TABLE got EXCEPT ALL TABLE answer) x LIMIT 5)
UNION ALL SELECT 'counters: ' || text FROM counts WHERE NOT good
UNION ALL SELECT format('watermark: %s, wanted %s', w, watermark) FROM p_all, (SELECT CASE WHEN bool_and(watermark IS NOT NULL) THEN stream_agg.to_time(min(watermark)) END AS w FROM p) x
	WHERE w IS DISTINCT FROM watermark
SQL
}

# Both views u and a against the topic's content, whose end they must have reached.
sub is_exact
{
	my ($db, $name, %views) = @_;
	%views = (u => 'update', a => 'append') unless %views;
	for my $view (sort keys %views)
	{
		$node->safe_psql($db, snapshot_sql(0, $view));
		is_query($db, difference_sql(0, $view, $views{$view}), '', "$name: $view is exact");
		$node->safe_psql($db, "DELETE FROM snapped WHERE number = 0; DELETE FROM snapped_$view WHERE number = 0");
	}
	return;
}

sub is_at_end
{
	my ($db, $name, @topics) = @_;
	my @ends = sort map { my $topic = $_; map { "$topic|$_|" . ($kafka->watermarks($topic, $_))[1] } 0 .. $kafka->partitions($topic) - 1 } @topics;
	my $views = $node->safe_psql($db, "SELECT string_agg(DISTINCT view::text, ' ') FROM stream_agg.views");
	for my $view (split / /, $views)
	{
		my @positions = sort split /\n/, $node->safe_psql($db, "SELECT topic, partition, position FROM stream_agg.partitions WHERE view = '$view'::regclass");
		is_deeply(\@positions, \@ends, "$name: $view has come to the end");
	}
	return;
}

# ---- 1. under load, hurt everything

# What a producer does until it is told to stop: batches, transactions that commit, abort, or are left open and
# ended by the next one of their name.
sub produce_under_load
{
	my ($topic, $partitions, $stop, $parent) = @_;
	my $client = Kafka->new("$PostgreSQL::Test::Utils::tmp_check/producer");
	my $at = 0;
	my $tx_number = 0;
	my @left;
	srand($seed + 1);
	$client->{env} = $kafka->{env};
	until (-e $stop)
	{
		die "the test has ended\n" if getppid() != $parent;
		my $way = $client->is_real ? rand() : 0;
		my $id = $way < 0.4 ? undef : @left && rand() < 0.5 ? shift @left : 'load' . $tx_number++;
		my $tx = $id && eval { $client->begin($id) };
		if ($id && !$tx)
		{
			push @left, $id;    # what it may have left open is still to be ended
			next;
		}
		for my $partition ($tx ? (grep { rand() < 0.5 } 0 .. $partitions - 1) : int(rand($partitions)))
		{
			$at += rand(0.5);
			my @lines = map { event($at + 3 * $partition + $_ / 50 - rand(16), int(rand(20))) } 1 .. 1 + rand(150);
			eval { ($tx || $client)->produce_lines($topic, $partition, \@lines) };
		}
		eval { $way < 0.75 ? $tx->commit : $way < 0.95 ? $tx->abort : $tx->leave } if $tx;
		push @left, $id if $tx && ($@ || $way >= 0.95);
		usleep(5_000);
	}
	$client->begin($_)->abort for @left;
	$client->finish;
	return;
}

sub start_producer
{
	my ($topic, $partitions) = @_;
	my $stop = "$PostgreSQL::Test::Utils::tmp_check/stop_producing";
	unlink($stop);
	my $parent = $$;
	my $pid = fork() // die "fork: $!";
	return { pid => $pid, stop => $stop } if $pid;
	eval { produce_under_load($topic, $partitions, $stop, $parent) };
	print STDERR "producer: $@" if $@;
	POSIX::_exit($@ ? 1 : 0);
}

sub stop_producer
{
	my ($producer) = @_;
	append_to_file($producer->{stop}, 'stop');
	waitpid($producer->{pid}, 0);
	return is($?, 0, 'the producer ends');
}

my $load_db = 'load';
my $stream_worker = "SELECT pid FROM stream_agg.streams WHERE pid > 0";

sub kill_worker
{
	my $pid = wait_until('there is a worker', sub { try_query($node, $stream_worker, $load_db) });
	my $before = checkpointer_pid();
	kill('KILL', $pid) or return;
	$StreamAggTest::kills++;
	wait_until_up($node, $before);
	return;
}

sub checkpointer_pid { return try_query($node, "SELECT pid FROM pg_stat_activity WHERE backend_type = 'checkpointer'") }

sub until_retrying
{
	return wait_until('the stream says that it cannot read', sub { (try_query($node, "SELECT status FROM stream_agg.streams", $load_db) // '') eq 'retrying' });
}

my %hurts = (
	kill_worker => \&kill_worker,
	stop_server => sub { $node->stop('immediate'); $node->start; },
	terminate => sub { terminate_workers($node) },
	kill_broker => sub { $kafka->kill; until_retrying() if rand() < 0.5; $kafka->start; },
	stop_broker => sub { $kafka->stop; kill_worker() if rand() < 0.5; $kafka->start; },
	freeze_broker => sub { $kafka->freeze; terminate_workers($node); wait_until('there is a worker', sub { try_query($node, $stream_worker, $load_db) }); $kafka->thaw; });

sub test_load
{
	my $topic = 'load';
	my @plan;
	srand($seed);
	while (@plan < $rounds) { push @plan, shuffle(sort keys %hurts) }
	splice(@plan, $rounds);
	$kafka->create_topic($topic, 4);
	make_database($load_db, $topic);
	create_view($load_db, 'u', 'update', max_batch_rows => 2000);
	create_view($load_db, 'a', 'append', max_batch_rows => 2000);
	my $producer = start_producer($topic, 4);
	my $number = 0;
	my $read = sub { return try_query($node, 'SELECT coalesce(min(read), 0) FROM stream_agg.views', $load_db) // 0 };
	my $snap = sub { $number++; try_query($node, snapshot_sql($number, $_), $load_db) for qw(u a) };
	for my $kind (@plan)
	{
		my $goal = $read->() + 1 + int(rand(3000));
		wait_until("both views have read $goal records, before $kind", sub { $snap->() if rand() < 0.03; $read->() >= $goal }, 120);
		$snap->();
		note "$kind at $goal records";
		$hurts{$kind}->();
		$snap->();
	}
	my $goal = $read->() + 1000;
	wait_until('both views go on', sub { $read->() >= $goal }, 120);
	stop_producer($producer);
	wait_until('no transaction is open', sub { !grep { my (undef, $high, $stable) = $kafka->watermarks($topic, $_); $high != $stable } 0 .. 3 });
	is(run_all($load_db), '', 'run() to the end');
	load_topics($load_db, $topic);
	is_at_end($load_db, 'the end', $topic);
	is_exact($load_db, 'the end');
	my $compared = 0;
	for my $view (qw(u a))
	{
		my $mode = $view eq 'u' ? 'update' : 'append';
		for my $n (split /\n/, $node->safe_psql($load_db, "SELECT DISTINCT number FROM snapped WHERE name = '$view'"))
		{
			my $wrong = $node->safe_psql($load_db, difference_sql($n, $view, $mode));
			is($wrong, '', "$view at moment $n is exact") if $wrong;
			$compared++;
		}
	}
	cmp_ok($compared, '>=', $rounds, "$compared moments in between were exact");
	note $node->safe_psql($load_db, 'SELECT view, read, late, accepted FROM stream_agg.views') . "\n" . $node->safe_psql($load_db, 'SELECT count(*), count(DISTINCT id) FROM l');
	is_query($load_db, 'SELECT count(*) FROM stream_agg.data_losses', '0', 'no loss is recorded');
	$node->safe_psql('postgres', "DROP DATABASE $load_db");
	return;
}

# ---- 2. the brokers are away

# What a process has used of the processor, in seconds.
sub cpu_of
{
	my ($pid) = @_;
	my @fields = split ' ', slurp_file("/proc/$pid/stat") =~ s/^.*\) //sr;
	return ($fields[11] + $fields[12]) / POSIX::sysconf(POSIX::_SC_CLK_TCK());
}

sub worker_of
{
	my ($db, $stream) = @_;
	return $node->safe_psql($db, "SELECT pid FROM stream_agg.streams WHERE stream = '" . ($stream || 's') . "'::regclass");
}

# Far from a whole processor.
sub does_not_spin
{
	my ($db, $name, $stream) = @_;
	my $pid = worker_of($db, $stream);
	my ($cpu, $start) = (cpu_of($pid), time);
	usleep(1_000_000);
	my $share = (cpu_of($pid) - $cpu) / (time - $start);
	return cmp_ok($share, '<', 0.3, sprintf('%s: the worker does not spin (%.3f)', $name, $share));
}

my $retrying = "SELECT status = 'retrying' AND message <> '' AND trouble_since BETWEEN now() - interval '10 minutes' AND now() AND pid > 0"
  . " FROM stream_agg.streams WHERE stream = 's'::regclass";
my $running = "SELECT status = 'running' AND coalesce(message, '') = '' AND trouble_since IS NULL FROM stream_agg.streams WHERE stream = 's'::regclass";

sub note_trouble
{
	my ($db) = @_;
	note $node->safe_psql($db, 'SELECT stream, status, message, now() - trouble_since FROM stream_agg.streams');
	return;
}

sub test_away
{
	my $db = 'away';
	my $topic = 'away';
	$kafka->create_topic($topic, 2);
	make_database($db, $topic);
	create_view($db, 'u', 'update');
	create_view($db, 'a', 'append');
	create_view($db, 'dropped', 'update');
	create_view($db, 'moved', 'append');
	create_view($db, 'moved_later', 'append', trigger => '1 hour');
	produce($topic, $_, 1 .. 50) for 0, 1;
	is(run_all($db), '', 'it is there');
	ok_until($db, $running, 'which the stream says');

	$kafka->kill;
	ok_until($db, $retrying, 'killed: the stream says since when it cannot read, and why');
	note_trouble($db);
	does_not_spin($db, 'killed');
	prompt($db, "SELECT stream_agg.pause('u')", 'pause');
	prompt($db, "SELECT stream_agg.resume('u')", 'resume');
	prompt($db, "SELECT stream_agg.advance_watermark('$_', '2024-01-02Z')", 'advance_watermark') for 'moved', 'moved_later';
	ok_until($db, "SELECT count(*) = 2 FROM stream_agg.views WHERE watermark = '2024-01-02Z'", 'which is done without brokers');
	is_query($db, "SELECT sum(n) FROM $_", 100, "$_: its windows are closed") for 'moved', 'moved_later';
	prompt($db, "DROP MATERIALIZED VIEW $_", 'DROP of a view whose watermark was moved') for 'moved', 'moved_later';
	prompt($db, 'DROP MATERIALIZED VIEW dropped', 'DROP of a view');
	prompt($db, 'DROP FOREIGN TABLE other CASCADE', 'DROP of a stream') if eval { make_stream($db, 'other', topic => $topic); create_view($db, 'new', 'update', stream => 'other'); 1 };
	create_view($db, 'unmet', 'append');
	prompt($db, 'DROP MATERIALIZED VIEW unmet', 'DROP of a view that has never met the brokers');
	create_view($db, 'unmet', 'append');
	my ($rc, $out, $err) = $node->psql($db, "SET statement_timeout = '30s'; CALL stream_agg.run('s', '1 s')");
	isnt($rc, 0, 'run() is an error');
	like($err, qr/was not read to its end in time.*DETAIL:.*\w/s, 'at its timeout, with the reason');
	note $err;
	($rc, $out, $err) = $node->psql($db, "SET statement_timeout = '1s'; SELECT count(*) FROM s");
	isnt($rc, 0, 'a query of the stream too, or it can be cancelled');
	note $err;
	stop_promptly('killed');

	$node->start;
	ok_until($db, $retrying, 'away at the start: the stream says so');
	note_trouble($db);
	make_database('away_dropped', $topic);
	create_view('away_dropped', 'u', 'update');
	ok_until('away_dropped', $retrying, 'and another one, that has never met the brokers');
	prompt('postgres', 'DROP DATABASE away_dropped', 'DROP DATABASE');
	stop_promptly('away at the start');
	$node->start;

	$kafka->start;
	ok_until($db, $running, 'back: the stream goes on');
	produce($topic, $_, 40 .. 120) for 0, 1;
	ok_until($db, 'SELECT bool_and(read = 262) AND count(*) = 3 FROM stream_agg.views', 'and all views');
	load_topics($db, $topic);
	is_at_end($db, 'back', $topic);
	is_exact($db, 'back', u => 'update', a => 'append', unmet => 'append');

	$kafka->stop;
	ok_until($db, $retrying, 'stopped in order: the stream says so');
	note_trouble($db);
	terminate_workers($node);
	ok_until($db, $retrying, 'a new worker too');
	$kafka->start;
	produce($topic, $_, 100 .. 130) for 0, 1;
	ok_until($db, 'SELECT bool_and(read = 324) FROM stream_agg.views', 'and goes on');
	load_topics($db, $topic);
	is_exact($db, 'back again');
	ok_until($db, $running, 'without trouble');
	$node->safe_psql('postgres', "DROP DATABASE $db");
	return;
}

sub test_unresolved
{
	my $db = 'unresolved';
	my $topic = 'unresolved';
	$kafka->create_topic($topic, 1);
	produce($topic, 0, 1 .. 50);
	make_database($db, $topic);
	$node->safe_psql($db, "ALTER SERVER k OPTIONS (SET bootstrap_servers 'no-such-host.invalid:9092')");
	create_view($db, 'u', 'update');
	ok_until($db, $retrying, 'a name that does not resolve: the stream says so');
	note_trouble($db);
	ok_until($db, "SELECT message ~* 'resolve' FROM stream_agg.streams", 'and that it does not resolve');
	does_not_spin($db, 'unresolved');
	prompt($db, "SELECT stream_agg.pause('u'); SELECT stream_agg.resume('u')", 'pause and resume');
	prompt($db, 'DROP MATERIALIZED VIEW u', 'DROP');
	create_view($db, 'u', 'update');
	create_view($db, 'a', 'append');
	ok_until($db, $retrying, 'it is still so');
	stop_promptly('unresolved');
	$node->start;
	ok_until($db, $retrying, 'and when the server starts');
	$node->safe_psql($db, "ALTER SERVER k OPTIONS (SET bootstrap_servers '@{[ $kafka->bootstrap ]}')");
	ok_until($db, 'SELECT bool_and(read = 50) AND count(*) = 2 FROM stream_agg.views', 'with a name that does, it goes on');
	ok_until($db, $running, 'without trouble');
	load_topics($db, $topic);
	is_exact($db, 'resolved');
	$node->safe_psql('postgres', "DROP DATABASE $db");
	return;
}

# ---- 4. what was to be read next is gone

# Removes the records before about this one. (The mock keeps the last 5 MiB of a partition, so readers must keep up.)
sub remove_records
{
	my ($topic, $partition, $before, $keep_up) = @_;
	return $kafka->delete_records($topic, $partition, $before) if $kafka->is_real;
	my $pad = 'x' x 100_000;
	until (($kafka->watermarks($topic, $partition))[0] >= $before)
	{
		$kafka->produce($topic, $partition, map { event(100) =~ s/\}$/,"pad":"$pad"}/r } 1 .. 10);
		$keep_up->();
	}
	return;
}

sub test_loss
{
	my $db = 'loss';
	my $topic = 'loss';
	$kafka->create_topic($topic, 2);
	make_database($db, $topic);
	create_view($db, 'u', 'update', state => 'heap');
	create_view($db, 'a', 'append', state => 'heap');
	create_view($db, 'neighbour', 'update', state => 'heap');
	produce($topic, 0, 1 .. 30);
	produce($topic, 1, 1 .. 20);
	is(run_all($db), '', 'the first records');
	$node->safe_psql($db, "SELECT stream_agg.pause('u'), stream_agg.pause('a')");
	produce($topic, 0, 31 .. 100);
	is(run_all($db, 'neighbour'), '', 'the neighbour reads on');
	load_topics($db, $topic);
	terminate_workers($node, "datname = '$db'");    # who may have read ahead what is about to go
	remove_records($topic, 0, 50, sub { run_all($db, 'neighbour') });
	is(run_all($db, 'neighbour'), '', 'and on');
	my ($low, $high) = $kafka->watermarks($topic, 0);
	cmp_ok($low, '>=', 50, 'records that two views have not read are gone');

	$node->safe_psql($db, "SELECT stream_agg.resume('u')");
	ok_until($db, "SELECT status = 'failed' FROM stream_agg.views WHERE view = 'u'::regclass", 'resumed, the view fails');
	my $wanted = qr/from position 30 to @{[ $low - 1 ]} of topic "loss", partition 0,.*it holds positions $low to before $high/;
	like($node->safe_psql($db, "SELECT message FROM stream_agg.views WHERE view = 'u'::regclass"), $wanted, 'and says what is gone and what is there');
	my ($rc, $out, $err) = $node->psql($db, "CALL stream_agg.run('s', '60 s')");
	like($err, qr/"u"/, 'run() names it');
	is_query($db, "SELECT status, read = accepted + filtered + late, skipped FROM stream_agg.views WHERE view = 'neighbour'::regclass", 'running|t|0', 'the neighbour is not harmed');
	produce($topic, 1, 21 .. 25);
	is(run_all($db, 'neighbour'), '', 'and goes on');
	does_not_spin($db, 'failed');
	$node->safe_psql($db, "SELECT stream_agg.resume('u')");
	ok_until($db, "SELECT status = 'failed' FROM stream_agg.views WHERE view = 'u'::regclass", 'resumed once more, it fails again');
	terminate_workers($node, "datname = '$db'");
	is(run_all($db, 'neighbour'), '', 'a new worker');
	is_query($db, "SELECT status FROM stream_agg.views WHERE view = 'u'::regclass", 'failed', 'leaves it failed');
	is_query($db, 'SELECT count(*) FROM stream_agg.data_losses', '0', 'nothing was passed over');

	$node->safe_psql($db, "ALTER FOREIGN TABLE s OPTIONS (ADD on_data_loss 'skip')");
	$node->safe_psql($db, "SELECT stream_agg.resume('u'), stream_agg.resume('a')");
	is(run_all($db), '', "with on_data_loss = 'skip' they go on");
	($low, $high) = $kafka->watermarks($topic, 0) unless $kafka->is_real;
	is_query($db, 'SELECT topic, partition, first_position, next_position, recorded_at <= now() FROM stream_agg.data_losses',
		"loss|0|30|$low|t", 'the range is recorded, once');
	is_query($db, "SELECT DISTINCT skipped, read = $high + 25, " . balanced_counters() . " FROM stream_agg.views WHERE view <> 'neighbour'::regclass",
		$low - 30 . '|t|t', 'and counted');
	is_at_end($db, 'skipped', $topic);
	# l holds what is gone by now; what came since is read again.
	$node->safe_psql($db, "CREATE TABLE kept AS SELECT * FROM l WHERE partition = 0 AND position < 30");
	load_topics($db, $topic);
	$node->safe_psql($db, 'INSERT INTO l SELECT * FROM kept');
	is_exact($db, 'skipped');
	produce($topic, 0, 101 .. 110);
	is(run_all($db), '', 'more records');
	is_query($db, "SELECT DISTINCT read = $high + 35, skipped FROM stream_agg.views WHERE view <> 'neighbour'::regclass", 't|' . ($low - 30), 'are no loss');
	$node->safe_psql('postgres', "DROP DATABASE $db");
	return;
}

# What is gone reaches beyond the place of another view, which one that is further behind would have met there:
# every record is counted all the same, and every range is recorded.
sub test_loss_apart
{
	plan skip_all => 'the mock removes records only by adding more: ' . Kafka::why_not_real() unless $kafka->is_real;
	my $db = 'loss_apart';
	my $topic = 'loss_apart';
	$kafka->create_topic($topic, 1);
	make_database($db, $topic, on_data_loss => 'skip');
	create_view($db, $_, 'update', state => 'heap', trigger => 'manual') for qw(near far);
	produce($topic, 0, 1 .. 20);
	is(run_all($db), '', 'the first records');
	produce($topic, 0, 21 .. 50);
	is(run_all($db, 'far'), '', 'one view reads on');
	produce($topic, 0, 51 .. 150);
	terminate_workers($node, "datname = '$db'");
	remove_records($topic, 0, 120);
	is(run_all($db, 'near'), '', 'the other one goes on');
	is_query($db, 'SELECT view, skipped, read, ' . balanced_counters() . ' FROM stream_agg.views ORDER BY view::text', "far|0|50|t\nnear|100|150|t",
		'and counts all that is gone');
	is_query($db, "SELECT position FROM stream_agg.partitions WHERE view = 'near'::regclass", '150', 'at the end');
	is(run_all($db, 'far'), '', 'the first one too');
	is_query($db, 'SELECT view, skipped, read, ' . balanced_counters() . ' FROM stream_agg.views ORDER BY view::text', "far|70|150|t\nnear|100|150|t",
		'counts what was gone for it');
	is_query($db, 'SELECT first_position, next_position FROM stream_agg.data_losses ORDER BY 1', "20|50\n50|120", 'and each range is recorded once');
	$node->safe_psql('postgres', "DROP DATABASE $db");
	return;
}

# A worker that stops in order saves unlogged state; one that is killed does not.  (What it has committed is to stay.)
sub lose_states
{
	my ($db) = @_;
	$node->safe_psql($db, 'CHECKPOINT');
	ok(crash_child($node, "SELECT pid FROM pg_stat_activity WHERE backend_type = 'stream_agg worker' AND datname = '$db'"), 'the worker is killed');
	return;
}

# Records are gone that lost state was made of.
sub test_loss_of_state
{
	my $db = 'loss_of_state';
	my $topic = 'loss_of_state';
	$kafka->create_topic($topic, 1);
	make_database($db, $topic);
	create_view($db, 'u', 'update', state => 'unlogged');
	create_view($db, 'neighbour', 'update', state => 'heap');
	$node->safe_psql($db, "CREATE MATERIALIZED VIEW session WITH (stream_agg.continuous, stream_agg.state = 'unlogged') AS"
		  . " SELECT window_start, window_end, count(*) AS n, avg(v) AS mean FROM s, session(ts, '10 s') GROUP BY window_start, window_end");
	produce($topic, 0, 1 .. 58);
	is(run_all($db), '', 'the first records');
	remove_records($topic, 0, 55, sub { run_all($db) });
	is(run_all($db), '', 'while they are in memory, nobody needs them again');
	my ($low, $high) = $kafka->watermarks($topic, 0);
	lose_states($db);
	produce($topic, 0, 60, 200);
	ok_until($db, "SELECT bool_and(status = 'failed') FROM stream_agg.views WHERE view IN ('u'::regclass, 'session'::regclass)", 'then the views fail');
	like($node->safe_psql($db, "SELECT message FROM stream_agg.views WHERE view = 'u'::regclass"),
		qr/its state cannot be rebuilt: records from position \d+ to @{[ $low - 1 ]} of topic "$topic", partition 0,/, 'and says why');
	is(run_all($db, 'neighbour'), '', 'the neighbour goes on');
	my $before = $node->safe_psql($db, 'SELECT sum(n) FROM u');
	$node->safe_psql($db, "ALTER FOREIGN TABLE s OPTIONS (ADD on_data_loss 'skip')");
	$node->safe_psql($db, "SELECT stream_agg.resume('u'), stream_agg.resume('session')");
	is(run_all($db), '', "with on_data_loss = 'skip' it goes on");
	is_query($db, "SELECT skipped, read = $high + 2, " . balanced_counters() . " FROM stream_agg.views WHERE view = 'u'::regclass", '0|t|t',
		'with every record counted once');
	is_query($db, 'SELECT DISTINCT next_position FROM stream_agg.data_losses', $low, 'and the loss is recorded, up to what is left');
	is_query($db, "SELECT sum(n) > $before FROM u", 't', 'what was in the results stays');
  SKIP:
	{
		skip 'the mock deletes records by adding others, which close the session', 1 unless $kafka->is_real;
		is_query($db, 'SELECT window_end - window_start, n FROM session ORDER BY window_start', "00:01:09|59\n00:00:10|1", 'and sessions are one, of what is left');
	}
	$node->safe_psql('postgres', "DROP DATABASE $db");
	return;
}

# Groups of which all records are gone are what their rows say, however often state is lost.
sub test_rows_alone
{
	plan skip_all => 'the mock removes records only by adding more: ' . Kafka::why_not_real() unless $kafka->is_real;
	my $topic = my $db = 'rows_alone';
	$kafka->create_topic($topic, 1);
	make_database($db, $topic, watermark => '1 hour', on_data_loss => 'skip');
	create_view($db, 'u', 'update', state => 'unlogged', max_batch_rows => 2);
	$node->safe_psql($db, "CREATE MATERIALIZED VIEW session WITH (stream_agg.continuous, stream_agg.state = 'unlogged', stream_agg.max_batch_rows = 2) AS"
		  . " SELECT k, window_start, window_end, count(*) AS n FROM s, session(ts, '1 s') GROUP BY k, window_start, window_end HAVING count(*) > 0");
	produce($topic, 0, 90 .. 99, 1 .. 20);
	is(run_all($db), '', 'the first records');
	load_topics($db, $topic);
	$node->safe_psql($db, 'CREATE TABLE gone AS SELECT * FROM l WHERE position < 10');
	$kafka->delete_records($topic, 0, 10);
	lose_states($db);
	produce($topic, 0, 21);
	is(run_all($db), '', 'their state is lost, and some of them');
	produce($topic, 0, 3675);
	is(run_all($db), '', 'windows close, of which they were not the last');
	lose_states($db);
	produce($topic, 0, 90 .. 99, 94, 95);
	is(run_all($db), '', 'state is lost again, and those windows get more');
	load_topics($db, $topic);
	$node->safe_psql($db, 'INSERT INTO l TABLE gone');
	is_query($db, "SELECT sum(n) = (SELECT count(*) FROM l WHERE ts >= '2024-01-01 00:01:30Z' AND ts < '2024-01-01 00:01:40Z' AND id % 7 <> 0)"
		  . " FROM u WHERE window_start = '2024-01-01 00:01:30Z'", 't', 'which counts with what was there');
	produce($topic, 0, 3700, 9000);
	is(run_all($db), '', 'they close');
	is_query($db, "SELECT view, groups, rebuild_distance < 5 FROM stream_agg.views ORDER BY view::text", "session|1|t\nu|1|t", 'and are forgotten');
	$node->safe_psql('postgres', "DROP DATABASE $db");
	return;
}

# Records must be read again as they were: what would make others of them is refused meanwhile.
sub test_columns_of_state
{
	my $topic = my $db = 'columns_of_state';
	$kafka->create_topic($topic, 1);
	make_database($db, $topic);
	$node->safe_psql($db, 'ALTER FOREIGN TABLE s ADD spare text, ALTER k SET NOT NULL');
	create_view($db, 'u', 'update', state => 'unlogged');
	create_view($db, 'a', 'append', state => 'heap');
	produce($topic, 0, 1 .. 20);
	$kafka->produce_lines($topic, 0, [ map { event($_) =~ s/"k":\d+,//r } 15 .. 18 ]);
	produce($topic, 0, 16 .. 25);
	is(run_all($db), '', 'the records, some of them without a value that must be there');
	for my $change ('ALTER k DROP NOT NULL', 'ALTER spare SET NOT NULL', 'ADD other int', 'DROP spare', 'ALTER spare TYPE int', 'RENAME v TO value')
	{
		my ($rc, $out, $err) = $node->psql($db, "ALTER FOREIGN TABLE s $change");
		like($err, qr/cannot change how stream "s" is read while the state of continuous view "u" is unlogged/, "refused: $change");
	}
	my $before = $node->safe_psql($db, 'SELECT sum(n), sum(ids) FROM u');
	terminate_workers($node, "datname = '$db'");
	is(run_all($db), '', 'state is made again');
	is_query($db, 'SELECT sum(n), sum(ids) FROM u', $before, 'and is the same');
	$node->safe_psql($db, "ALTER MATERIALIZED VIEW u SET (stream_agg.state = 'heap')");
	produce($topic, 0, 26);
	is(run_all($db), '', 'state goes to disk');
	$node->safe_psql($db, 'ALTER FOREIGN TABLE s ALTER k DROP NOT NULL, DROP spare, ADD other int; ALTER FOREIGN TABLE s RENAME v TO value');
	$node->safe_psql('postgres', "DROP DATABASE $db");
	return;
}

# Lost state is read again beyond an end that was looked up once, and behind which the topic has grown.
sub test_older_end
{
	my $topic = my $db = 'older_end';
	$kafka->create_topic($topic, 1);
	make_database($db, $topic);
	create_view($db, 'u', 'update', state => 'unlogged', max_batch_rows => 1);
	produce($topic, 0, map { 1 + $_ / 10 } 1 .. 20);
	is(run_all($db), '', 'a view that was told where the topic ends');
	produce($topic, 0, map { 3 + $_ / 10 } 1 .. 15);
	ok_until($db, 'SELECT position = 35 FROM stream_agg.partitions', 'has read on by itself');
	$node->safe_psql($db, 'VACUUM FULL u');
	produce($topic, 0, 5);
	ok_until($db, "SELECT position = 36 OR status = 'failed' FROM stream_agg.partitions p JOIN stream_agg.views v USING (view)",
		'its state is lost, and made again');
	is_query($db, 'SELECT status, message FROM stream_agg.views', 'running|', 'all of it');
	load_topics($db, $topic);
	is_exact($db, 'made again', u => 'update');
	$node->safe_psql('postgres', "DROP DATABASE $db");
	return;
}

# A view that begins beyond the end, or a topic that is made anew with fewer records.
sub test_beyond_end
{
	my $db = 'beyond';
	my $topic = 'beyond';
	$kafka->create_topic($topic, 1);
	make_database($db, $topic);
	produce($topic, 0, 1 .. 20);
	create_view($db, 'u', 'update', start => '{"beyond": {"0": 1000}}');
	ok_until($db, "SELECT status = 'failed' AND message LIKE '%position 1000 of topic \"beyond\", partition 0, is beyond its end: it holds positions 0 to before 20%' FROM stream_agg.views",
		'a view that is to begin beyond the end fails');
	my ($rc, $out, $err) = $node->psql($db, "CALL stream_agg.run('s', '60 s')");
	like($err, qr/beyond its end/, 'and says so');
	$node->safe_psql($db, 'DROP MATERIALIZED VIEW u');
	create_view($db, 'u', 'update');
	create_view($db, 'a', 'append');
	is(run_all($db), '', 'others begin at the beginning');
  SKIP:
	{
		skip 'the mock deletes no topics', 1 unless $kafka->is_real;
		load_topics($db, $topic);
		$node->safe_psql($db, 'CREATE TABLE kept AS TABLE l');
		$kafka->delete_topic($topic);
		ok_until($db, $retrying, 'the topic is deleted: the stream says so');
		note_trouble($db);
		does_not_spin($db, 'deleted');
		prompt($db, "SELECT stream_agg.pause('u'); SELECT stream_agg.resume('u')", 'pause and resume');
		$kafka->create_topic($topic, 1);
		produce($topic, 0, 21 .. 30);
		ok_until($db, "SELECT bool_and(status = 'failed' AND message LIKE '%position 20 of topic \"beyond\", partition 0, is beyond its end: it holds positions 0 to before %') FROM stream_agg.views",
			'made anew with fewer records: the views fail');
		$node->safe_psql($db, "ALTER FOREIGN TABLE s OPTIONS (ADD on_data_loss 'skip')");
		$node->safe_psql($db, "SELECT stream_agg.resume('u'), stream_agg.resume('a')");
		is(run_all($db), '', "with on_data_loss = 'skip' they go on");
		is_query($db, 'SELECT topic, partition, first_position, next_position FROM stream_agg.data_losses', 'beyond|0|20|0', 'the place is recorded, once');
		is_query($db, "SELECT DISTINCT skipped, read, " . balanced_counters() . ' FROM stream_agg.views', '0|30|t', 'counters are right');
		is_query($db, 'SELECT DISTINCT position FROM stream_agg.partitions', '10', 'positions too');
		# The old records come before the new ones.
		load_topics($db, $topic);
		$node->safe_psql($db, 'UPDATE l SET position = position + 20; INSERT INTO l SELECT * FROM kept; UPDATE stream_agg.view_position SET position = position + 20');
		is_exact($db, 'made anew');

		$node->safe_psql($db, 'DROP MATERIALIZED VIEW u, a');
		create_view($db, 'lost', 'append', state => 'unlogged');
		is(run_all($db), '', 'a view with unlogged state');
		$node->safe_psql($db, "SELECT stream_agg.pause('lost')");
		lose_states($db);
		$kafka->delete_topic($topic);
		ok_until($db, $retrying, 'the topic is deleted once more');
		$kafka->create_topic($topic, 1);
		produce($topic, 0, 31 .. 33);
		$node->safe_psql($db, "SELECT stream_agg.resume('lost')");
		like(run_all($db), qr/its state cannot be rebuilt: topic "beyond", partition 0, ends before position 10/, 'made anew: its state cannot be rebuilt');
	}
	$node->safe_psql('postgres', "DROP DATABASE $db");
	return;
}

# What unlogged state holds of a topic that was made anew cannot be read again.
sub test_anew
{
	my $topic = my $db = 'anew';
	plan skip_all => 'the mock deletes no topics' unless $kafka->is_real;
	$kafka->create_topic($topic, 1);
	make_database($db, $topic, on_data_loss => 'skip');
	for my $state (qw(heap unlogged))
	{
		$node->safe_psql($db, "CREATE MATERIALIZED VIEW $state WITH (stream_agg.continuous, stream_agg.output_mode = 'append', stream_agg.dedup_key = 'v', stream_agg.state = '$state') AS"
			  . " SELECT window_start, count(*) AS n, avg(v) AS mean FROM s, tumble(ts, '100 s') GROUP BY window_start");
	}
	$kafka->produce_lines($topic, 0, [ map { event($_, 0, $_) } 1 .. 20 ]);
	is(run_all($db), '', 'the first records');
	$kafka->delete_topic($topic);
	ok_until($db, $retrying, 'the topic is deleted');
	$kafka->create_topic($topic, 1);
	$kafka->produce_lines($topic, 0, [ map { event($_, 0, $_) } 15 .. 24 ]);
	is(run_all($db), '', 'it is made anew');
	$kafka->produce_lines($topic, 0, [ map { event($_, 0, $_) } 23 .. 26 ]);
	is(run_all($db), '', 'and goes on');
	lose_states($db);
	$kafka->produce_lines($topic, 0, [ map { event($_, 0, $_) } 20 .. 30, 300 ]);
	is(run_all($db), '', 'state is lost');
	is_query($db, 'SELECT n FROM heap', '30', 'heap');
	is_query($db, 'SELECT n FROM unlogged', '30', 'unlogged');
	$node->safe_psql('postgres', "DROP DATABASE $db");
	return;
}

# ---- 5. partitions come, and some are empty

# Watches the watermark of a view: it never goes back.
sub watch_watermark
{
	my ($db, $seen) = @_;
	my $now = $node->safe_psql($db, "SELECT extract(epoch FROM watermark) FROM stream_agg.views WHERE view = 'u'::regclass");
	push @$seen, $now if $now ne '' && (!@$seen || $seen->[-1] != $now);
	return;
}

# Partitions (or topics, of a pattern) are added while views read: these are read from their beginning, and what
# is late goes by the watermark that the views had when they were found.
sub add_while_running
{
	my ($db, $topics, $add, %options) = @_;
	make_database($db, 'grow_0', %options);
	create_view($db, 'u', 'update');
	create_view($db, 'a', 'append');
	my @first = map { [ split / / ] } $topics->();
	my @seen;
	for my $place (@first) { produce(@$place, 1 .. 100) }
	is(run_all($db), '', "$db: the first records");
	ok_until($db, "SELECT bool_and(watermark = '2024-01-01 00:01:30Z') FROM stream_agg.views", "$db: a watermark");
	watch_watermark($db, \@seen);
	my @new = $add->();
	for my $place (@new) { produce(@$place, 85 .. 95, 20 .. 40, 96 .. 200) }
	my $count = @first * 100 + @new * 137;
	ok_until($db, "SELECT bool_and(read = $count) FROM (SELECT 1) x, stream_agg.views", "$db: what is new is read, from its beginning");
	watch_watermark($db, \@seen);
	is_query($db, "SELECT DISTINCT watermark = '2024-01-01 00:01:30Z' FROM stream_agg.views", 't', "$db: the watermark has not gone back");
	for my $place (@first) { produce(@$place, 101 .. 150) }
	is(run_all($db), '', "$db: and on");
	watch_watermark($db, \@seen);
	is_query($db, "SELECT DISTINCT watermark = '2024-01-01 00:02:20Z' FROM stream_agg.views", 't', "$db: the watermark goes on");
	ok(!(grep { $seen[$_] < $seen[ $_ - 1 ] } 1 .. $#seen), "$db: never back");
	load_topics($db, map { $_->[0] } grep { $_->[1] == 0 } @first, @new);
	# 20 .. 40 s, and 85 .. 89 s, come behind the watermark at which the partition was found: windows before 90 s are closed.
	is_query($db, 'SELECT DISTINCT late, read, ' . balanced_counters() . " FROM stream_agg.views WHERE view = 'a'::regclass",
		26 * @new . '|' . ($count + 50 * @first) . '|t', "$db: what is late goes by the watermark then");
	is_query($db, <<"SQL", '', "$db: the results are exact");
WITH answer AS (SELECT window_start, topic, partition, count(*), avg(v), sum(id) FROM l, LATERAL (SELECT date_bin('10 s', ts, '1970-01-01Z') AS window_start) w
	WHERE ((topic || ' ' || partition) IN (@{[ join(', ', map { "'$_->[0] $_->[1]'" } @first) ]}) OR ts >= '2024-01-01 00:01:30Z') AND window_start < '2024-01-01 00:02:20Z' GROUP BY 1, 2, 3)
(TABLE answer EXCEPT ALL TABLE a) UNION ALL (TABLE a EXCEPT ALL TABLE answer) LIMIT 5
SQL
	is_query($db, 'SELECT count(*) FROM stream_agg.data_losses', '0', "$db: nothing is lost");
	$node->safe_psql('postgres', "DROP DATABASE $db");
	return;
}

sub test_partitions
{
	$kafka->create_topic('grow_0', 2);
	add_while_running('pattern', sub { ('grow_0 0', 'grow_0 1') }, sub { $kafka->create_topic('grow_1', 2); (['grow_1', 0], ['grow_1', 1]) },
		topic => undef, topic_pattern => '^grow_');
  SKIP:
	{
		skip 'the mock adds no partitions', 1 unless $kafka->is_real;
		$kafka->create_topic('more', 2);
		add_while_running('partitions', sub { ('more 0', 'more 1') }, sub { $kafka->add_partitions('more', 4); (['more', 2], ['more', 3]) }, topic => 'more');
	}
	return;
}

# A view was paused when a partition was found: it reads that from the beginning, though a cursor stands where it
# does in all that it knows, and further on in what it does not.
sub test_found_while_paused
{
	my $db = 'found';
	$kafka->create_topic('found_0', 1);
	make_database($db, 'found_0', topic => undef, topic_pattern => '^found_');
	create_view($db, 'u', 'update');
	create_view($db, 'late', 'update');
	produce('found_0', 0, 1 .. 50);
	is(run_all($db), '', 'the first records');
	$node->safe_psql($db, "SELECT stream_agg.pause('late')");
	$kafka->create_topic('found_1', 1);
	produce('found_1', 0, 1 .. 30);
	ok_until($db, "SELECT read = 80 FROM stream_agg.views WHERE view = 'u'::regclass", 'the other one reads what is new');
	# one more, so that the other one's cursor begins where it is now
	$kafka->create_topic('found_2', 1);
	ok_until($db, "SELECT count(*) = 3 FROM stream_agg.partitions WHERE view = 'u'::regclass", 'and finds one more');
	$node->safe_psql($db, "SELECT stream_agg.resume('late')");
	is(run_all($db), '', 'the paused one is resumed');
	is_query($db, 'SELECT DISTINCT read FROM stream_agg.views', '80', 'and misses nothing');
	is_query($db, '(TABLE u EXCEPT ALL TABLE late) UNION ALL (TABLE late EXCEPT ALL TABLE u) LIMIT 5', '', 'with the same results');
	$node->safe_psql('postgres', "DROP DATABASE $db");
	return;
}

# Nothing is left to read: no reason to look again and again.
sub test_nothing_to_read
{
	my $db = 'nothing';
	$kafka->create_topic('nothing_0', 2);
	make_database($db, 'nothing_0');
	create_view($db, 'u', 'update');
	create_view($db, 'bounded', 'update', end => 'latest');
	produce('nothing_0', 0, 1 .. 20);
	is(run_all($db), '', 'the first records');
	ok_until($db, "SELECT status = 'finished' FROM stream_agg.views WHERE view = 'bounded'::regclass", 'a view has finished');
	$node->safe_psql($db, "SELECT stream_agg.resume('bounded')");
	ok_until($db, "SELECT status = 'finished' FROM stream_agg.views WHERE view = 'bounded'::regclass", 'and does so again when it is resumed');
	does_not_spin($db, 'finished');
	$node->safe_psql($db, "ALTER FOREIGN TABLE s OPTIONS (SET topic 'nothing_yet')");
	ok_until($db, $retrying, 'a topic that is not there yet') if $kafka->is_real;
	does_not_spin($db, 'no topic');
	$kafka->create_topic('nothing_yet', 1);
	produce('nothing_yet', 0, 1 .. 5);
	ok_until($db, "SELECT read = 25 FROM stream_agg.views WHERE view = 'u'::regclass", 'is read once it is there');
	$node->safe_psql('postgres', "DROP DATABASE $db");
	return;
}

# Empty partitions do not hold windows open for ever.
sub test_idle
{
	my $db = 'idle';
	my $topic = 'idle';
	$kafka->create_topic($topic, 50);
	make_database($db, $topic, idle_timeout => '1 s');
	create_view($db, 'a', 'append');
	create_view($db, 'u', 'update');
	create_view($db, 'patient', 'append', idle_timeout => '0');
	produce($topic, $_, 1 .. 100 + $_) for 3, 17, 42;
	ok_until($db, 'SELECT bool_and(read = 362) FROM stream_agg.views', '50 partitions, three of them with records');
	ok_until($db, "SELECT watermark = '2024-01-01 00:02:12Z' FROM stream_agg.views WHERE view = 'a'::regclass", 'all idle: the greatest watermark counts');
	is_query($db, 'SELECT sum(n), count(DISTINCT partition), max(window_start) FROM a', '349|3|2024-01-01 00:02:00+00', 'windows close');
	is_query($db, "SELECT count(*) FROM patient", '0', 'not in a view that says otherwise');
	does_not_spin($db, 'idle');
	# One is active: it holds the others, which are read to their end, no more.
	produce($topic, 0, 200 .. 260);
	ok_until($db, "SELECT watermark = '2024-01-01 00:04:10Z' FROM stream_agg.views WHERE view = 'a'::regclass", 'a partition that was empty goes on');
	is_query($db, 'SELECT DISTINCT read, late FROM stream_agg.views', '423|0', 'nothing is late');
	load_topics($db, $topic);
	is_query($db, <<'SQL', '', 'the results are exact');
WITH answer AS (SELECT date_bin('10 s', ts, '1970-01-01Z') AS w, topic, partition, count(*), avg(v), sum(id) FROM l GROUP BY 1, 2, 3
	HAVING date_bin('10 s', min(ts), '1970-01-01Z') + interval '10 s' <= '2024-01-01 00:04:10Z')
(TABLE answer EXCEPT ALL TABLE a) UNION ALL (TABLE a EXCEPT ALL TABLE answer) LIMIT 5
SQL
	# Nothing more comes from anywhere: time goes on by itself, in the view that says so, and no further than it must.
	create_view($db, 'onwards', 'append', on_idle => 'advance');
	ok_until($db, "SELECT sum(n) = 423 FROM onwards", 'with on_idle = advance the last windows close');
	is_query($db, "SELECT read, late FROM stream_agg.views WHERE view = 'onwards'::regclass", '423|0', 'nothing is late');
	is_query($db, "SELECT max(window_start) FROM a", '2024-01-01 00:04:00+00', 'the others hold theirs');
	does_not_spin($db, 'all closed');
	$node->safe_psql('postgres', "DROP DATABASE $db");
	return;
}

# Two partitions that fell silent at 5 and at 4, whichever is which: it is 5.
sub test_two_idle
{
	for my $turned (0, 1)
	{
		my $topic = my $db = "two_idle$turned";
		$kafka->create_topic($topic, 3);
		produce($topic, $turned, 400, 500);
		produce($topic, 1 - $turned, 300, 400);
		make_database($db, $topic, idle_timeout => '500 ms', watermark => '0');
		create_view($db, 'a', 'append');
		ok_until($db, "SELECT watermark = '2024-01-01 00:08:20Z' FROM stream_agg.views", 'both idle, and a third one empty: the greatest counts');
		is_query($db, 'SELECT read, late FROM stream_agg.views', '4|0', 'nothing is late');
		# The other one goes on: it is not put back, and where it is behind it is late.
		produce($topic, 1 - $turned, 499, 510);
		ok_until($db, "SELECT watermark = '2024-01-01 00:08:30Z' FROM stream_agg.views", 'one goes on');
		is_query($db, 'SELECT read, late FROM stream_agg.views', '6|1', 'what was closed stays closed');
		$node->safe_psql('postgres', "DROP DATABASE $db");
	}
	return;
}

# A partition that is busy, and read slowly, is not idle, however short the timeout: nothing of it is late.
sub test_busy
{
	my $topic = my $db = 'busy';
	$kafka->create_topic($topic, 2);
	produce($topic, 0, 1 .. 300);
	produce($topic, 1, 5_000);
	make_database($db, $topic, idle_timeout => '200 ms');
	create_view($db, 'a', 'append', max_batch_rows => 1);
	create_view($db, 'by_hand', 'append', max_batch_rows => 3, trigger => 'manual');
	ok_until($db, "SELECT watermark = '2024-01-01 01:23:10Z' FROM stream_agg.views WHERE view = 'a'::regclass", 'when it is read, all are idle');
	is(run_all($db), '', 'run');
	is_query($db, 'SELECT view, read, late, accepted FROM stream_agg.views ORDER BY 1', "a|301|0|301\nby_hand|301|0|301", 'nothing is late');
	$node->safe_psql('postgres', "DROP DATABASE $db");
	return;
}

# ---- brokers that answer with errors, move partitions and go, one by one

my @fetch_errors = qw(NOT_LEADER_FOR_PARTITION LEADER_NOT_AVAILABLE UNKNOWN_TOPIC_OR_PART OFFSET_OUT_OF_RANGE
  REQUEST_TIMED_OUT KAFKA_STORAGE_ERROR REPLICA_NOT_AVAILABLE FENCED_LEADER_EPOCH UNKNOWN);
my @look_errors = qw(NOT_LEADER_FOR_PARTITION LEADER_NOT_AVAILABLE REQUEST_TIMED_OUT UNKNOWN_TOPIC_OR_PART);
my %mischief = (
	fetch => sub { return "error fetch $fetch_errors[rand @fetch_errors] " . (1 + int(rand(8))) },
	look => sub { return "error list_offsets $look_errors[rand @look_errors] " . (1 + int(rand(4))) },
	coordinator => sub { return 'error find_coordinator COORDINATOR_NOT_AVAILABLE 3' },
	leader => sub { return "leader errors @{[ int(rand(4)) ]} @{[ 1 + int(rand(3)) ]}" },
	down => sub { return 'down ' . (1 + int(rand(3))) },
	up => sub { return 'up 0' },
	slow => sub { return 'rtt ' . (1 + int(rand(3))) . ' ' . int(rand(60)) });

sub test_errors
{
	my $db = 'errors';
	my $topic = 'errors';
	local $kafka = Kafka->new("$PostgreSQL::Test::Utils::tmp_check/mock", rig => 'mock', brokers => 3);
	$kafka->start;
	srand($seed + 7);
	$kafka->create_topic($topic, 4);
	make_database($db, $topic);
	create_view($db, 'u', 'update', max_batch_rows => 300);
	create_view($db, 'a', 'append', max_batch_rows => 300);
	my $all = 0;
	for my $at (1 .. 40)
	{
		my $what = (sort keys %mischief)[ rand keys %mischief ];
		my $command = $mischief{$what}->();
		my $partition = int(rand(4));
		# The producer is to reach all of them.
		$kafka->mock('up 0');
		$all += produce($topic, $partition, map { $at + $_ / 40 + 3 * $partition - rand(14) } 1 .. 1 + int(rand(60)));
		note $command;
		$kafka->mock($command);
		terminate_workers($node) if rand() < 0.05;
		# Half of them hit views that have read everything.
		ok_until($db, "SELECT bool_and(read = $all) FROM stream_agg.views", "$command: on it goes") or last if $what ne 'down' && rand() < 0.5;
	}
	$kafka->mock('up 0');
	$kafka->mock("rtt $_ 0") for 1 .. 3;
	$kafka->mock("clear $_") for qw(fetch list_offsets find_coordinator);
	is(run_all($db), '', 'run');
	is_query($db, 'SELECT DISTINCT status, read FROM stream_agg.views', "running|$all", 'nothing has failed');
	is_query($db, 'SELECT count(*) FROM stream_agg.data_losses', '0', 'nothing was lost');
	load_topics($db, $topic);
	is_at_end($db, 'errors', $topic);
	is_exact($db, 'errors');
	ok_until($db, $running, 'no trouble remains');
	$node->safe_psql('postgres', "DROP DATABASE $db");
	$kafka->finish;
	return;
}

# ---- 6. partitions at different times

sub test_skew
{
	my $db = 'skew';
	my $topic = 'skew';
	$kafka->create_topic($topic, 2);
	make_database($db, $topic);
	create_view($db, 'u', 'update', max_batch_rows => 100);
	create_view($db, 'a', 'append', max_batch_rows => 100);
	srand($seed + 6);
	my @times = ([ map { $_ / 10 } 0 .. 1000 ], [ map { $_ / 10 } 10_000 .. 20_000 ]);
	@$_ = map { $_->[0] } sort { $a->[1] <=> $b->[1] } map { [ $_, $_ + rand(5) ] } @$_ for @times;
	my $count = sum(map { scalar(@$_) } @times);
	while (@{ $times[0] } || @{ $times[1] })
	{
		my $partition = int(rand(2));
		my @some = splice(@{ $times[$partition] }, 0, 1 + int(rand(800)));
		produce($topic, $partition, @some) if @some;
		is(run_all($db), '', 'a run in between') if rand() < 0.2;
		terminate_workers($node, "datname = '$db'") if rand() < 0.1;
	}
	is(run_all($db), '', 'run');
	is_query($db, 'SELECT DISTINCT read, late, late_windows FROM stream_agg.views', "$count|0|0", 'nothing is late');
	load_topics($db, $topic);
	is_at_end($db, 'skew', $topic);
	is_exact($db, 'skew');
	$node->safe_psql('postgres', "DROP DATABASE $db");
	return;
}

# ---- positions apart, and a database that is slow

# Clients of the library that a process has: one for looks, one for each place at which views stand.
sub clients_of
{
	my ($pid) = @_;
	return scalar(grep { (eval { slurp_file($_) } // '') =~ /^rdk:main/ } glob("/proc/$pid/task/*/comm"));
}

sub test_apart
{
	my $db = 'apart';
	my $topic = 'apart';
	$kafka->create_topic($topic, 2);
	make_database($db, $topic);
	create_view($db, 'u', 'update');
	create_view($db, 'a', 'append');
	produce($topic, $_, 1 .. 50) for 0, 1;
	is(run_all($db), '', 'two views at one place');
	my $together = sub { my ($name) = @_; ok(eval { wait_until($name, sub { clients_of(worker_of($db)) == 2 }) }, "$name: one cursor") or diag 'clients: ' . clients_of(worker_of($db)) };
	does_not_spin($db, 'together');
	$node->safe_psql($db, "SELECT stream_agg.pause('u')");
	for my $at (2 .. 40) { produce($topic, $_, map { $at * 50 + $_ } 1 .. 50) for 0, 1 }
	is(run_all($db, 'a'), '', 'one is paused, the other reads on');
	is_query($db, 'SELECT view, status, read FROM stream_agg.views ORDER BY read', "u|paused|100\na|running|4000", 'by itself');
	$node->safe_psql($db, "SELECT stream_agg.resume('u')");
	produce($topic, $_, 2051 .. 2100) for 0, 1;
	is(run_all($db, 'a'), '', 'the other does not wait');
	is(run_all($db), '', 'it catches up');
	for my $at (42 .. 56)
	{
		$node->safe_psql($db, "SELECT stream_agg.pause('u')");
		produce($topic, $_, map { $at * 50 + $_ } 1 .. 50) for 0, 1;
		is(run_all($db, 'a'), '', 'the other goes on') if $at % 2;
		$node->safe_psql($db, "SELECT stream_agg.resume('u')");
		produce($topic, 0, $at * 50 + 50);
	}
	is(run_all($db), '', 'again and again');
	$together->('both at the end');
	create_view($db, 'late_comer', 'update');
	create_view($db, 'latest', 'update', start => 'latest');
	is(run_all($db), '', 'views come later');
	is_query($db, 'SELECT view, read FROM stream_agg.views ORDER BY 1', "u|5615\na|5615\nlate_comer|5615\nlatest|0", 'from where they are to begin');
	$together->('all at the end');
	produce($topic, $_, 2851 .. 2860) for 0, 1;
	ok_until($db, "SELECT count(*) = 4 FROM stream_agg.views WHERE read IN (5635, 20)", 'they read on');
	load_topics($db, $topic);
	is_at_end($db, 'apart', $topic);
	is_exact($db, 'apart', u => 'update', a => 'append', late_comer => 'update');
	$node->safe_psql('postgres', "DROP DATABASE $db");
	return;
}

sub memory_of
{
	my ($pid, $what) = @_;
	my ($kb) = slurp_file("/proc/$pid/status") =~ /^$what:\s+(\d+) kB/m;
	return $kb / 1024;
}

# Much waits, and a result table is locked: the neighbour is done with it meanwhile, and memory stays bounded.
sub test_slow
{
	my $db = 'slow';
	my $topic = 'slow';
	my $partitions = 50;    # of 4 MB, which the mock keeps
	my $each = 1000;
	my $megabytes = $partitions * $each * 4 / 1000;
	my $bound = $megabytes * 2 / 3;    # half would do, but for servers with assertions, which pad what they allocate
	$kafka->create_topic($topic, $partitions);
	make_database($db, $topic, queued_max_messages_kbytes => 16_384, fetch_max_bytes => 8_388_608);
	create_view($db, 'u', 'update', max_batch_bytes => '16MB');
	create_view($db, 'neighbour', 'update', max_batch_bytes => '16MB');
	produce($topic, $_, 1 .. 2) for 0 .. $partitions - 1;
	is(run_all($db), '', 'two views');
	my $pid = worker_of($db);
	my $before = memory_of($pid, 'VmRSS');
	my $log = -s $node->logfile;
	my $locker = start_script($node, 'locker', "BEGIN;\nLOCK TABLE u;\nSELECT 'locked';\nSELECT pg_sleep(600);\n", db => $db);
	wait_until('the lock is held', sub { slurp_file($locker->{out}) =~ /locked/ });
	my $pad = 'x' x 3900;
	for my $partition (0 .. $partitions - 1)
	{
		$kafka->produce_lines($topic, $partition, [ map { event($_) =~ s/\}$/,"pad":"$pad"}/r } 1 .. $each ]);
	}
	my $total = $partitions * ($each + 2);
	ok_until($db, "SELECT sum(read) = $total FROM stream_agg.view_position WHERE view_id = (SELECT id FROM stream_agg.view_config WHERE view::text = 'neighbour')",
		"$megabytes MB come: the neighbour reads them all while the other is locked", 120);
	my $tries = sub { return () = slurp_file($node->logfile, $log) =~ /"u" will try again/g };
	ok(eval { wait_until('it has tried', sub { $tries->() >= 3 }) }, 'which tries again and again');
	does_not_spin($db, 'locked');
	my $peak = memory_of($pid, 'VmHWM');
	cmp_ok($peak - $before, '<', $bound, sprintf('memory: %.0f MB before, at most %.0f MB', $before, $peak));
	is(worker_of($db), $pid, 'of the same worker');
	kill('TERM', $locker->{pid});
	$node->safe_psql($db, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE '%pg_sleep(600)%' AND pid <> pg_backend_pid()");
	stop_script($locker);
	ok_until($db, "SELECT read = $total FROM stream_agg.views WHERE view = 'u'::regclass", 'let go, it catches up', 120);
	is_query($db, '(TABLE u EXCEPT ALL TABLE neighbour) UNION ALL (TABLE neighbour EXCEPT ALL TABLE u) LIMIT 5', '', 'with the same results');
	is_query($db, 'SELECT sum(n) = (SELECT min(accepted) FROM stream_agg.views) FROM u', 't', 'of all records');
	$peak = memory_of($pid, 'VmHWM');
	cmp_ok($peak - $before, '<', $bound, sprintf('memory: at most %.0f MB in all', $peak));
	$node->safe_psql('postgres', "DROP DATABASE $db");
	return;
}

my @tests = (
	load => \&test_load,
	away => \&test_away,
	unresolved => \&test_unresolved,
	loss => \&test_loss,
	loss_apart => \&test_loss_apart,
	loss_of_state => \&test_loss_of_state,
	columns_of_state => \&test_columns_of_state,
	rows_alone => \&test_rows_alone,
	older_end => \&test_older_end,
	beyond_end => \&test_beyond_end,
	anew => \&test_anew,
	partitions => \&test_partitions,
	found_while_paused => \&test_found_while_paused,
	nothing_to_read => \&test_nothing_to_read,
	idle => \&test_idle,
	two_idle => \&test_two_idle,
	busy => \&test_busy,
	errors => \&test_errors,
	skew => \&test_skew,
	apart => \&test_apart,
	slow => \&test_slow);
while (my ($name, $code) = splice(@tests, 0, 2))
{
	next if $ENV{SA_ONLY} && $ENV{SA_ONLY} ne $name;
	my $start = time;
	subtest $name => $code;
	note sprintf('%s: %.1f s', $name, time - $start);
}

my @crashes = unexpected_crashes($node);
is(scalar(@crashes), 0, 'no crash but those we made') or diag join("\n", @crashes);
$node->stop;
done_testing();
