# 170_torture.pl: streams are fed all the time while the server and its processes are killed at every point, or
# stopped in order, and every view holds the right answer whenever it is looked at. Memory for state is sometimes
# short. Here for a few minutes; `make torture` runs it for long.
#
# Two staged streams and a topic, with views of all kinds. After each crash some views are compared with the answer
# over what their positions say that they have read; now and then feeding stops, all is read, and all views are
# compared with the answer over everything. After some crashes everything is dropped, which must leave nothing
# behind, and begun anew with other views.
#
#   SA_TORTURE_SECONDS=n    for so long (default 180), and until there were a tenth as many crashes
#   SA_SEED=n               of what is random; printed
#   SA_TORTURE_POINTS=a,b   just these fault points, and no other crashes
#   SA_TORTURE_UNLOGGED=n   share of windowed views with state = 'unlogged', where the server takes it (default 0.6)
#   KAFKA_RIG=real          with the real broker; default: the mock
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl", "$FindBin::RealBin/../kafka";
use Fcntl qw(:flock);
use List::Util qw(min max shuffle sum0);
use POSIX ();
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time usleep);

use Faults;
use Kafka;
use StreamAggOracle;
use StreamAggTest;
use TortureViews;

my $seconds = $ENV{SA_TORTURE_SECONDS} || 180;
my $least_crashes = POSIX::ceil($seconds / 10);
my $seed = $ENV{SA_SEED} || int(time) % 1_000_000;
my @only = split /,/, $ENV{SA_TORTURE_POINTS} // '';
my $unlogged_share = $ENV{SA_TORTURE_UNLOGGED} // 0.6;
my $epoch_crashes = 40;
my $epoch_records = 10_000;      # of a stream
my $drain_crashes = 10;
my $patience = 20;               # seconds in which an armed point is passed, else the rig goes on
my $partitions = 3;
my $first_ms = 1_704_067_200_000;

my @points = qw(fetch query fold result_write state_write close_window before_commit after_commit release start_worker start_view spill compact);
my @actions = qw(kill kill exit error shortage panic wait);

srand($seed);
note "SA_SEED=$seed";

my $dir = $PostgreSQL::Test::Utils::tmp_check;
my $kafka = Kafka->new("$dir/kafka", rig => $ENV{KAFKA_RIG} || 'mock');
$kafka->start;
my $node = make_node('torture', conf => <<'CONF');
stream_agg.segment_size = '1MB'
log_checkpoints = off
CONF
$node->start;
$node->safe_psql('postgres', "CREATE EXTENSION stream_agg;\n" . StreamAggOracle::prelude());
Faults::prepare($node);
prepare_feeding();
my $unlogged = $unlogged_share > 0 && accepts_unlogged();
push @points, qw(rebuild save restore) if $unlogged;
@points = grep { my $point = $_; grep { $_ eq $point } @only } @points if @only;

my $start = time;
my (%crashes, %missed, @wrong);
my ($crashes, $servers, $compared, $events) = (0, 0, 0, 0);
my %sum = (lost => 0, doubled => 0, different => 0, miscounted => 0);
my $epoch;          # {number, schema, streams, views, crashes}
my @writers;

sub sql { return $node->safe_psql('postgres', $_[0]) }
sub try { return try_query($node, $_[0]) }
sub pick { return $_[ rand @_ ] }
sub chance { return rand() < $_[0] }

sub wrong
{
	my ($what) = @_;
	push @wrong, $what;
	diag "WRONG: $what";
	return;
}

# ---- feeding: psql runs a procedure for each staged stream, a process of ours writes the topic

sub prepare_feeding
{
	$node->safe_psql('postgres', <<'SQL');
CREATE TABLE control AS SELECT true AS feeding;
CREATE PROCEDURE feed(stream text, log text) LANGUAGE plpgsql AS $$
DECLARE
	stamp CONSTANT text := '''2024-01-01Z''::timestamptz + (id - random() ^ 4 * 80) * interval ''250 ms''';
	rest CONSTANT text := 'nullif(floor(random() * 7), 6), (ARRAY[''a'', ''b'', ''c'', NULL])[ceil(random() * 4)], floor(random() * 100),'
		' random() * 1e6, ''t'' || floor(random() * 50) || repeat(''-'', 200)';
	ids bigint[];
BEGIN
	WHILE (SELECT feeding FROM control) LOOP
		EXECUTE format('WITH x AS (INSERT INTO %1$s (id, ts, k, kt, v, f, t) SELECT id, CASE WHEN random() > nulls THEN %2$s END, %3$s'
			' FROM %1$s_ids($1) RETURNING id) SELECT array_agg(id) FROM x', log, stamp, rest)
			INTO ids USING ceil(random() * 10)::int;
		BEGIN
			IF random() < 0.1 THEN
				EXECUTE format('INSERT INTO %s (id, ts) VALUES (-1, ''2024-01-01Z'')', stream);
				RAISE EXCEPTION 'never';
			END IF;
		EXCEPTION WHEN raise_exception THEN NULL;
		END;
		EXECUTE format('INSERT INTO %s SELECT id, ts, k, kt, v, f, t FROM %s WHERE id = ANY ($1) ORDER BY id', stream, log) USING ids;
		IF random() < 0.05 THEN ROLLBACK; ELSE COMMIT; END IF;
		PERFORM pg_sleep(random() * 0.1);
		COMMIT;
	END LOOP;
END$$;
CREATE FUNCTION note_read() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE format('INSERT INTO %s_read (id) VALUES ($1)', TG_ARGV[0]) USING NEW.id;
	RETURN NULL;
END$$;
SQL
	return;
}

# One writer, or the topic: a record's position is known when it is written. Several writers: it is known when view
# {name}_order has read it; records without a time, which such a view does not show, are not written there.
sub log_table
{
	my ($stream) = @_;
	my ($name, $log) = @$stream{qw(name log)};
	my $columns = join(', ', @TortureViews::COLUMNS);
	return "CREATE TABLE $log ($columns, part int, pos bigint, verdict text);\nCREATE INDEX ON $log (part, pos);\n" if $stream->{topic};
	return <<"SQL" if !$stream->{order};
CREATE TABLE $log ($columns, part int DEFAULT 0, pos bigint GENERATED ALWAYS AS (id - 1) STORED,
	verdict text GENERATED ALWAYS AS (CASE WHEN ts IS NULL THEN 'null_time' ELSE 'good' END) STORED);
CREATE UNIQUE INDEX ON $log (id);
CREATE FUNCTION ${log}_ids(n int) RETURNS TABLE (id bigint, nulls float8) LANGUAGE sql AS
	\$\$SELECT last + g, 0.005 FROM generate_series(1, n) g, (SELECT coalesce(max(id), 0) AS last FROM $log) x\$\$;
SQL
	return <<"SQL";
CREATE TABLE ${log}_fed ($columns);
CREATE UNIQUE INDEX ON ${log}_fed (id);
CREATE SEQUENCE ${log}_seq;
CREATE FUNCTION ${log}_fed_ids(n int) RETURNS TABLE (id bigint, nulls float8) LANGUAGE sql AS
	\$\$SELECT nextval('${log}_seq'), -1.0 FROM generate_series(1, n)\$\$;
CREATE TABLE ${log}_read (id bigint PRIMARY KEY, serial bigserial);
CREATE VIEW $log AS SELECT f.*, 0 AS part, row_number() OVER (ORDER BY serial) - 1 AS pos, 'good' AS verdict FROM ${log}_fed f JOIN ${log}_read r USING (id);
SQL
}

# A producer holds the mock's pipe; the mock ends when nobody does.
END { kill('TERM', grep { defined } map { $_->{pid} } @writers) }

# Whoever holds this lock has the topic to himself.
sub lock_topic
{
	open(my $lock, '>', "$dir/topic.lock") or die "topic.lock: $!";
	flock($lock, LOCK_EX) or die "flock: $!";
	return $lock;
}

sub record
{
	my ($id, $ms) = @_;
	return '{broken' if chance(0.002);
	my @fields = (qq("id":$id));
	push @fields, sprintf('"ts":%d', $ms) if !chance(0.003);
	push @fields, sprintf('"k":%d', rand(6)) if chance(0.9);
	push @fields, sprintf('"kt":"%s"', pick(qw(a b c))) if chance(0.8);
	push @fields, sprintf('"v":%d', rand(100)), sprintf('"f":%.17g', rand(1e6)), sprintf('"t":"t%d"', rand(50));
	return '{' . join(',', @fields) . '}';
}

sub write_topic
{
	my ($topic, $from, $stop, $parent) = @_;
	my $client = Kafka->new("$dir/producer", rig => $kafka->is_real ? 'real' : 'mock');
	my @at = ($from) x $partitions;
	$client->{env} = $kafka->{env};
	srand($seed + $from);
	until (-e $stop)
	{
		die "the test has ended\n" if getppid() != $parent;
		my $lock = lock_topic();
		my $partition = int(rand($partitions));
		my @records = map { $at[$partition]++; record($at[$partition] * 10 + $partition, $first_ms + 250 * ($at[$partition] - rand()**4 * 80)) } 1 .. 1 + rand(10);
		$client->produce_lines($topic, $partition, \@records);
		close($lock);
		usleep(rand(100_000));
	}
	$client->finish;
	return;
}

# Sometimes so little memory for state that groups go out and come back.
sub choose_memory
{
	my $limit = $_[0] // pick('64kB', (64 + int(rand(960))) . 'kB', '256MB');
	sql("ALTER SYSTEM SET stream_agg.state_memory = '$limit'");
	$node->reload;
	return;
}

sub start_writers
{
	choose_memory();
	unlink("$dir/stop_writing");
	sql('UPDATE control SET feeding = true');
	push @writers, { name => 'maintenance' };
	for my $stream (@{ $epoch->{streams} })
	{
		push @writers, map { { stream => $stream, name => "feed_$stream->{short}_$_" } } 1 .. ($stream->{order} ? 2 : 1) if !$stream->{topic};
		next if !$stream->{topic};
		my $from = max(0, map { $kafka->watermarks($stream->{topic}, $_) ? ($kafka->watermarks($stream->{topic}, $_))[1] : 0 } 0 .. $partitions - 1);
		my $parent = $$;
		my $pid = fork() // die "fork: $!";
		push @writers, { stream => $stream, pid => $pid };
		next if $pid;
		eval { write_topic($stream->{topic}, $from, "$dir/stop_writing", $parent) };
		print STDERR "producer: $@" if $@;
		POSIX::_exit($@ ? 1 : 0);
	}
	keep_feeding();
	return;
}

# What users do with results meanwhile; none of it may change the answer.
sub maintenance
{
	my $sql = "SET application_name = 'maintenance';\nSET statement_timeout = '10 s';\n";
	for (1 .. 20)
	{
		my $view = pick(@{ $epoch->{views} })->{name};
		$sql .= 'SELECT pg_sleep(' . rand(1) . ");\n";
		$sql .= pick("VACUUM FULL $view;\n", "VACUUM $view;\n", "REINDEX TABLE $view;\n",
			"SELECT stream_agg.pause('$view');\nSELECT pg_sleep(" . rand(0.3) . ");\nSELECT stream_agg.resume('$view');\n");
	}
	return $sql;
}

# Starts psql again where a crash has ended it. Called all the time.
sub keep_feeding
{
	for my $writer (grep { $_->{name} } @writers)
	{
		next if $writer->{script} && !defined script_exit($writer->{script});
		next if time < ($writer->{next} // 0);
		if ($writer->{script} && script_exit($writer->{script}) == 3 && $writer->{stream})
		{
			my $error = slurp_file($writer->{script}{err});
			wrong("$writer->{name}: $error") if $error !~ /terminating connection|administrator command|in recovery|shutting down|starting up|crash of another/;
		}
		$writer->{next} = time + 0.1;
		my $sql = $writer->{stream} ? "CALL feed('$writer->{stream}{name}', '$writer->{stream}{fed}');\n" : maintenance();
		$writer->{script} = start_script($node, $writer->{name}, $sql, go_on => !$writer->{stream});
	}
	return;
}

# The server is up, and stays so.
sub stop_writers
{
	append_to_file("$dir/stop_writing", 'stop');
	sql('UPDATE control SET feeding = false');
	for my $writer (@writers)
	{
		if ($writer->{pid})
		{
			waitpid($writer->{pid}, 0);
			wrong("the producer ended with $?") if $?;
			next;
		}
		stop_script($writer->{script}) if $writer->{script} && !$writer->{stream};
		wait_until("$writer->{name} has ended", sub { !$writer->{script} || defined script_exit($writer->{script}) });
	}
	@writers = ();
	wait_until('maintenance has ended', sub { sql("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'maintenance'") eq '0' });
	return;
}

# What is new in the topic comes to its log.
sub load_topic
{
	my ($stream) = @_;
	my $copy = '';
	for my $partition (0 .. $partitions - 1)
	{
		for my $record ($kafka->read_records($stream->{topic}, $partition, from => $stream->{loaded}[$partition] // 0))
		{
			my $value = $record->{value};
			my %field = $value =~ /"(\w+)":"?([^",}]+)"?/g;
			my $verdict = $value eq '{broken' ? 'malformed' : defined $field{ts} ? 'good' : 'null_time';
			$field{ts} = sprintf('%s.%03dZ', POSIX::strftime('%F %T', gmtime(int($field{ts} / 1000))), $field{ts} % 1000) if defined $field{ts};
			$copy .= join("\t", (map { $field{$_} // '\\N' } qw(id ts k kt v f t)), $partition, $record->{offset}, $verdict) . "\n";
			$stream->{loaded}[$partition] = $record->{offset} + 1;
		}
	}
	return if $copy eq '';
	my $script = start_script($node, 'load', "COPY $stream->{log} FROM STDIN;\n$copy\\.\n");
	wait_until('the topic is loaded', sub { defined script_exit($script) });
	die 'the topic was not loaded: ' . slurp_file($script->{err}) if script_exit($script) != 0;
	return;
}

# ---- epochs: from CREATE to DROP

sub accepts_unlogged
{
	$node->safe_psql('postgres', "CREATE FOREIGN TABLE try_s (ts timestamptz) SERVER stream_staged OPTIONS (event_time 'ts', watermark '1 s')");
	my ($rc) = $node->psql('postgres', "CREATE MATERIALIZED VIEW try_v WITH (stream_agg.continuous, stream_agg.state = 'unlogged')"
		  . " AS SELECT window_start, count(*) AS n FROM try_s, tumble(ts, '1 s') GROUP BY window_start");
	$node->safe_psql('postgres', 'DROP FOREIGN TABLE try_s CASCADE');
	note 'views with state ' . ($rc == 0 ? 'heap and unlogged' : 'heap; the server does not accept unlogged');
	return $rc == 0;
}

sub create_stream
{
	my ($stream) = @_;
	my %options = (event_time => 'ts', watermark => $stream->{delay});
	my @columns = @TortureViews::COLUMNS;
	my $server = 'stream_staged';
	if ($stream->{topic})
	{
		$server = 'k';
		$options{topic} = $stream->{topic};
		$columns[1] .= " OPTIONS (timestamp_format 'epoch_ms')";
		$kafka->create_topic($stream->{topic}, $partitions);
	}
	my $options = join(', ', map { "$_ '$options{$_}'" } sort keys %options);
	return "CREATE FOREIGN TABLE $stream->{name} (" . join(', ', @columns) . ") SERVER $server OPTIONS ($options);\n" . log_table($stream);
}

sub new_view
{
	my ($stream, $kind, %options) = @_;
	my $view = TortureViews::make_view("$stream->{name}_" . ++$epoch->{names}, $stream, $kind, unlogged => $unlogged && chance($unlogged_share), %options);
	push @{ $epoch->{views} }, $view;
	return $view;
}

sub start_epoch
{
	my $number = $epoch ? $epoch->{number} + 1 : 1;
	$epoch = { number => $number, schema => "e$number", crashes => 0, events => 0, views => [], names => 0 };
	my $stream = sub {
		my ($short, $parts) = @_;
		return { short => $short, name => "e$number.$short", log => "e$number.log_$short", delay => pick('1 s', '5 s', '12 s'),
			partitions => $parts, topic => $parts > 1 ? "torture$number" : undef, order => $short eq 'b',
			fed => "e$number.log_$short" . ($short eq 'b' ? '_fed' : '') };
	};
	$epoch->{streams} = [ $stream->('a', 1), $stream->('b', 1), $stream->('c', $partitions) ];
	my $setup = "SET client_min_messages = error;\nCREATE SCHEMA e$number;\n";
	$setup .= "CREATE SERVER k FOREIGN DATA WRAPPER stream_agg OPTIONS (type 'kafka', bootstrap_servers '" . $kafka->bootstrap . "');\n" if $number == 1;
	for my $s (@{ $epoch->{streams} })
	{
		$setup .= create_stream($s);
		push @{ $epoch->{views} }, { name => "$s->{name}_order", stream => $s, kind => 'rows', mode => 'append', targets => [ 'id', 'ts' ] } if $s->{order};
		new_view($s, 'tumble', mode => 'update', many => 1);
		new_view($s, 'tumble', mode => 'append');
		new_view($s, 'hop', mode => pick('update', 'append'));
		new_view($s, 'session');
		new_view($s, $_) for TortureViews::some(1, 2, 'running', 'rows', 'hop');
	}
	$setup .= join('', map { TortureViews::create($_) } @{ $epoch->{views} });
	$setup .= "CREATE TRIGGER note_read AFTER INSERT ON $_->{name}_order FOR EACH ROW EXECUTE FUNCTION public.note_read('$_->{log}');\n"
	  for grep { $_->{order} } @{ $epoch->{streams} };
	sql($setup);
	$epoch->{first_views} = @{ $epoch->{views} };
	start_writers();
	wait_going();
	return;
}

sub end_epoch
{
	drain();
	$events += $epoch->{events};
	$epoch->{events} = 0;
	sql("SET client_min_messages = error; DROP SCHEMA $epoch->{schema} CASCADE");
	nothing_left(0);
	return;
}

# Catalogs hold what views there are, and nothing of others.
sub nothing_left
{
	my ($views) = @_;
	my $left = sql(<<'SQL');
SELECT (SELECT count(*) FROM stream_agg.view_config), (SELECT count(DISTINCT view_id) FROM stream_agg.view_position),
	(SELECT count(*) FROM pg_class WHERE relnamespace = 'stream_agg'::regnamespace AND relkind = 'v' AND relname LIKE 'definition%'),
	(SELECT count(*) FROM pg_class WHERE relnamespace = 'stream_agg'::regnamespace AND relkind = 'r' AND relname ~ '^[^0-9]*_\d+$'
		AND relname !~ '^staged' AND substring(relname FROM '\d+$')::int NOT IN (SELECT id FROM stream_agg.view_config)),
	(SELECT count(*) FROM stream_agg.dead_letter d WHERE view IS NOT NULL AND NOT EXISTS (SELECT FROM stream_agg.view_config v WHERE v.view = d.view))
SQL
	my ($configs, $positions, $definitions, $states, $letters) = split /\|/, $left;
	wrong("catalogs hold $left for $views views")
	  if $configs != $views || $positions > $views || $definitions != $views || $states != 0 || $letters != 0;
	return;
}

# ---- comparing

sub judge
{
	my ($view, $line, $final) = @_;
	my ($name, $missing, $extra, $n, $wanted_n, $got, $wanted, $letters, $wanted_letters, $mark, $wanted_mark, $position, $total, $status) = split /\|/, $line;
	my $before = @wrong;
	$compared++;
	if ($missing || $extra)
	{
		$sum{lost} += max(0, $wanted_n - $n);
		$sum{doubled} += max(0, $n - $wanted_n);
		$sum{different} += max($missing, $extra);
		wrong("$name: $missing rows missing, $extra too many");
	}
	if ($got ne $wanted || $letters ne $wanted_letters || $mark ne $wanted_mark || ($final && $position != $total))
	{
		$sum{miscounted}++;
		wrong("$name: counters $got, wanted $wanted; letters $letters, wanted $wanted_letters; watermark $mark, wanted $wanted_mark; at $position of $total");
	}
	wrong("$name: $status") if $status !~ /^(running|paused)$/ && $status !~ /at fault point/;
	return if @wrong == $before;
	diag TortureViews::create($view), try(TortureViews::difference($view)) // 'no answer';
	return;
}

sub compare
{
	my ($final, @views) = @_;
	return if !@views;
	my $lock = lock_topic();
	load_topic($_) for grep { $_->{topic} } @{ $epoch->{streams} };
	my $script = start_script($node, 'compare', "SET timezone = 'UTC';\n" . join('', map { TortureViews::check($_) } @views));
	my $exit = wait_until('views are compared', sub { my $e = script_exit($script); return defined $e && "e$e" }, 300);
	close($lock);
	my %by_name = map { $_->{name} => $_ } @views;
	if ($exit ne 'e0')
	{
		wrong('the comparison failed: ' . slurp_file($script->{err}));
		return;
	}
	judge($by_name{ (split /\|/)[0] }, $_, $final) for split /\n/, slurp_file($script->{out});
	return;
}

# Everything is read, and every view holds the answer over all of it.
sub drain
{
	stop_writers();
	mend(look());
	for my $stream (@{ $epoch->{streams} })
	{
		my ($rc, $out, $err) = $node->psql('postgres', "CALL stream_agg.run('$stream->{name}', '120 s')");
		wrong("run($stream->{name}): $err") if $rc != 0;
	}
	compare(1, @{ $epoch->{views} });
	$epoch->{events} = sum0(map { sql("SELECT count(*) FROM $_->{log}") } @{ $epoch->{streams} });
	wrong("counters are not balanced: $_") for split /\n/, sql('SELECT view FROM stream_agg.views WHERE NOT (' . balanced_counters() . ')');
	return;
}

# ---- waiting

sub log_since { return slurp_file($node->logfile, $_[0]) }

sub await
{
	my ($what, $code, $timeout) = @_;
	return wait_until($what, sub { keep_feeding(); return $code->() }, $timeout || 120);
}

# It was up until the log was so long.
sub await_restart
{
	my ($log, $after) = @_;
	$after //= '';
	await('the server is up again', sub { log_since($log) =~ /$after.*ready to accept connections/s });
	$servers++;
	return;
}

# By view: what it has read and how it is; undef while the server cannot be had.
sub look
{
	my $rows = try("SELECT view, read, status, message FROM stream_agg.views") // return undef;
	return { map { my ($view, @rest) = split /\|/, $_, 4; ($view => { read => $rest[0], status => $rest[1], message => $rest[2] }) } split /\n/, $rows };
}

# Views that an injected error has made fail, or that were paused when all crashed, go on when they are told to.
sub mend
{
	my ($views) = @_;
	for my $name (grep { $views->{$_}{status} ne 'running' } sort keys %$views)
	{
		wrong("$name has failed: $views->{$name}{message}") if $views->{$name}{status} eq 'failed' && $views->{$name}{message} !~ /at fault point/;
		try("SELECT stream_agg.resume('$name')");
	}
	return;
}

# Every view of every stream reads on. The server itself waits, for a while and then for a longer one, for psql costs
# more than all that it is to wait for.
sub wait_going
{
	my $wait = 1;
	my $ok = eval {
		await('all views read on', sub {
			mend(look() // return 0);
			$wait = min(30, $wait * 2);
			return (try(<<"SQL") // '') eq 't';
SET client_min_messages = error;
CREATE TEMP TABLE before AS SELECT view, read FROM stream_agg.views;
DO \$\$BEGIN
	WHILE clock_timestamp() < now() + interval '$wait s' AND EXISTS (SELECT FROM stream_agg.views v LEFT JOIN before b USING (view) WHERE v.read <= coalesce(b.read, 0)) LOOP
		PERFORM pg_sleep(0.02);
	END LOOP;
END\$\$;
SELECT bool_and(v.read > coalesce(b.read, 0)) FROM stream_agg.views v LEFT JOIN before b USING (view);
SQL
		}, 200);
	};
	return if $ok;
	wrong('views do not go on');
	diag try('SELECT stream, pid, status, message FROM stream_agg.streams') // '', "\n", try('SELECT view, status, message, read FROM stream_agg.views') // '', "\n",
	  try("SELECT pid, backend_type, state, wait_event, left(query, 60), pg_blocking_pids(pid) FROM pg_stat_activity WHERE backend_type ~ 'stream_agg|client'") // '';
	die "views do not go on\n";
}

# ---- crashes. Each returns what to count it as, or nothing when it did not come to pass.

my $a_worker = "SELECT pid FROM pg_stat_activity WHERE backend_type = 'stream_agg worker' ORDER BY random() LIMIT 1";
my $a_process = "SELECT pid, backend_type FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND backend_type IN ('checkpointer',"
  . " 'background writer', 'walwriter', 'client backend', 'stream_agg launcher', 'stream_agg probe', 'autovacuum launcher', 'autovacuum worker') ORDER BY random() LIMIT 1";

sub kill_one
{
	my ($query, $sig) = @_;
	my $log = -s $node->logfile;
	my ($pid, $type) = split /\|/, (try($query) || return);
	kill($sig || 'KILL', $pid) or return;
	return $type || 1 if $sig;
	# It may have ended by itself just before. Whoever lets us in has noticed before.
	my $noticed = sub { return log_since($log) =~ /terminated by signal 9/ };
	my $died = await('the server notices', sub {
		my $gone = !-d "/proc/$pid";
		return 'yes' if $noticed->();
		return $gone && defined try('SELECT 1') && !$noticed->() && 'no';
	});
	return if $died eq 'no';
	await_restart($log);
	return $type || 1;
}

sub kill_postmaster
{
	kill_server($node, alone => chance(0.5), @_);
	$node->start;
	$servers++;
	return 1;
}

# Killed once more in recovery, or when workers start.
sub kill_starting
{
	my $log = -s $node->logfile;
	stop_server('immediate', '-W');
	# Killed before, it might leave lock files that nobody dares to remove.
	wait_until('the server has its lock files', sub { log_since($log) =~ /listening on Unix socket/ });
	pause_a_moment(400_000);
	return kill_postmaster();
}

# Killed while it stops in order, unless it was faster.
sub kill_stopping
{
	my $pid = StreamAggTest::postmaster_pid($node);
	kill('INT', $pid);
	pause_a_moment(300_000);
	return kill_postmaster(pid => $pid);
}

sub stop_server
{
	my ($mode, $no_wait) = @_;
	$node->stop($mode);
	if ($no_wait) { system_or_bail('pg_ctl', '-W', '-D', $node->data_dir, '-l', $node->logfile, 'start') }
	else { $node->start }
	$servers++;
	return 1;
}

sub pause_a_moment { usleep(rand($_[0] || 200_000)); return }

# Arms a point, has it passed, and sees that what is to happen there happens. Options: of Faults::arm, and setting:
# armed before the server starts, and only once.
sub at_point
{
	my ($point, $action, $trigger, %options) = @_;
	my $passes = $point =~ /^(query|fold|result_write)$/ ? 60 : $point =~ /^start|^drop/ ? 1 : 3;
	my $pass = 1 + int(rand($passes));
	my $log = -s $node->logfile;
	my $setting = delete $options{setting};
	if ($setting)
	{
		sql("ALTER SYSTEM SET stream_agg.faults = '$point=$action\@$pass'");
		stop_server('immediate');
	}
	else
	{
		Faults::arm($node, $point, $action, pass => $pass, %options) or return;
	}
	$trigger->() if $trigger;
	my $give_up = time + $patience;
	my $is_passed = sub { return log_since($log) =~ /fault point "$point": $action/ };
	await("$point is passed", sub { return $is_passed->() || time > $give_up });
	Faults::disarm($node) if !$is_passed->();    # from here on it is passed, or never
	my $passed = $is_passed->();
	my $deadly = $action =~ /kill|panic/;
	await_restart($log, qq(fault point "$point")) if $deadly && $passed;
	await('the server answers', sub { defined try('ALTER SYSTEM RESET stream_agg.faults') }) if $setting;
	wrong("$action at $point has crashed the server") if !$deadly && log_since($log) =~ /terminated by signal/;
	if (!$passed)
	{
		$missed{$point}++;
		return;
	}
	return $action if $action ne 'wait';
	my %hurts = (worker => sub { kill_one($a_worker) }, postmaster => \&kill_postmaster, stop => sub { stop_server(pick('immediate', 'fast')) },
		terminate => sub { kill_one($a_worker, 'TERM') }, wake => sub { Faults::wake($node, $point) });
	my $hurt = pick(sort keys %hurts);
	$hurts{$hurt}->();
	Faults::disarm($node);
	return "wait, then $hurt";
}

# For points of a view's, sometimes just one view's.
sub any_relation
{
	my ($point) = @_;
	return () if $point =~ /fetch|commit|release|start|rebuild|compact/ || chance(0.6);
	my @views = grep { $point eq 'close_window' ? $_->{window} : $point =~ /fold|state/ ? $_->{group} : 1 } @{ $epoch->{views} };
	return (relation => pick(@views)->{name});
}

# A view of the moment, kept to the next comparison of all if it survives.
sub add_view
{
	my $view = new_view(pick(@{ $epoch->{streams} }), pick('tumble', 'hop', 'session', 'running', 'rows'));
	my $create = TortureViews::create($view);
	await('a view is created', sub {
		my $there = try("SELECT to_regclass('$view->{name}') IS NOT NULL") // return 0;
		return 1 if $there eq 't';
		try("SET client_min_messages = error; $create");
		return 0;
	});
	return $view;
}

sub drop_view
{
	my ($view) = @_;
	$epoch->{views} = [ grep { $_ != $view } @{ $epoch->{views} } ];
	my ($rc, $out, $err) = $node->psql('postgres', "SET client_min_messages = error; DROP MATERIALIZED VIEW IF EXISTS $view->{name}");
	wrong("$view->{name} is not dropped: $err") if $rc != 0;
	return;
}

# A view that is dropped while somebody crashes is there as a whole or not at all.
sub crash_drop
{
	my ($action) = @_;
	my $view = add_view();
	wait_going();
	my $script;
	my $drop = sub { $script = start_script($node, 'drop', "SET client_min_messages = error;\nDROP MATERIALIZED VIEW $view->{name};\n") };
	my $done;
	if ($action eq 'any time')
	{
		$drop->();
		pause_a_moment(20_000);
		$done = kill_one(chance(0.5) ? $a_worker : $a_process);
	}
	else
	{
		$done = at_point('drop', $action, $drop, relation => $view->{name});
	}
	stop_script($script) if $script;
	my $there = await('the server answers', sub { try("SELECT to_regclass('$view->{name}') IS NOT NULL") });
	if ($there eq 't')
	{
		wait_going();
		compare(0, $view);
	}
	drop_view($view);
	nothing_left(scalar @{ $epoch->{views} });
	return $done;
}

sub crash_checkpoint
{
	my $script = start_script($node, 'checkpoint', "CHECKPOINT;\n");
	pause_a_moment(15_000);
	my $how = pick('checkpointer', 'postmaster', 'worker', 'stop');
	my $done = $how eq 'checkpointer' ? kill_one("SELECT pid FROM pg_stat_activity WHERE backend_type = 'checkpointer'")
	  : $how eq 'postmaster' ? kill_postmaster() : $how eq 'stop' ? stop_server('immediate') : kill_one($a_worker);
	stop_script($script);
	return $done && $how;
}

sub start_point
{
	my ($point, $action) = @_;
	return at_point($point, $action, sub { terminate_workers($node) }) if $point eq 'start_worker';
	return at_point($point, $action, \&add_view);
}

# Groups leave memory when it is short, and unlogged ones also when a worker stops in order.
sub spill_point
{
	my ($action) = @_;
	choose_memory('64kB');
	return at_point('spill', $action, chance(0.3) && sub { terminate_workers($node) });
}

# Unlogged groups are saved by a worker that stops in order, and taken by the next one.
sub stop_point
{
	my ($point, $action) = @_;
	return at_point($point, $action, sub { terminate_workers($node) });
}

my %kinds = (
	'kill worker' => sub { pause_a_moment(); kill_one($a_worker) },
	'kill postmaster' => sub { pause_a_moment(); kill_postmaster() },
	'kill at start' => sub { pause_a_moment(); kill_starting() },
	'kill another' => sub { pause_a_moment(); kill_one($a_process) },
	'kill at stop' => sub { pause_a_moment(); kill_stopping() },
	'stop immediate' => sub { pause_a_moment(); stop_server('immediate') },
	'stop fast' => sub { pause_a_moment(); stop_server('fast') },
	'terminate worker' => sub { pause_a_moment(); kill_one($a_worker, 'TERM') },
	'at start' => sub { my $point = pick(qw(start_worker fetch fold before_commit)); at_point($point, 'kill', undef, setting => 1) && $point },
	'checkpoint' => \&crash_checkpoint,
	'drop, any time' => sub { crash_drop('any time') });

# First every point and kind once, then everything in random order, again and again.
sub make_deck
{
	my ($first) = @_;
	my @deck = map { [ $_, 'kill' ] } @points;
	push @deck, map { [$_] } sort keys %kinds if !@only;
	push @deck, [ 'drop', 'kill' ] if !@only;
	return shuffle(@deck) if $first;
	for my $point (@points) { push @deck, map { [ $point, $_ ] } @actions }
	push @deck, map { ([$_]) x 4 } sort keys %kinds if !@only;
	push @deck, map { [ 'drop', $_ ] } qw(kill exit error panic wait) if !@only;
	return shuffle(@deck);
}

sub crash
{
	my ($kind, $action) = @_;
	my $done = !$action ? $kinds{$kind}->()
	  : $kind eq 'drop' ? crash_drop($action)
	  : $kind =~ /^start/ ? start_point($kind, $action)
	  : $kind eq 'spill' ? spill_point($action)
	  : $kind =~ /^(save|restore)$/ ? stop_point($kind, $action)
	  : $kind eq 'rebuild' ? at_point($kind, $action, undef, setting => 1)
	  : at_point($kind, $action, undef, any_relation($kind));
	return if !$done;
	my $what = $action ? "$kind: $done" : $done =~ /\D/ ? "$kind ($done)" : $kind;
	$crashes{$what}++;
	$crashes++;
	$epoch->{crashes}++;
	return $what;
}

sub epoch_is_over
{
	return 0 if $epoch->{crashes} % $drain_crashes;
	return 1 if $epoch->{crashes} >= $epoch_crashes;
	return sql('SELECT max(read) FROM stream_agg.views') > $epoch_records;
}

# Extra views go at each comparison of all, so that there are never many.
sub compare_all
{
	my $first = $epoch->{first_views};
	drain();
	my @extra = @{ $epoch->{views} }[ $first .. $#{ $epoch->{views} } ];
	drop_view($_) for @extra;
	return;
}

sub report
{
	note sprintf('%d crashes (%d of the server) in %.0f s, %d comparisons, %d records; lost %d, doubled %d, different %d',
		$crashes, $servers, time - $start, $compared, $events + $epoch->{events}, @sum{qw(lost doubled different)});
	return;
}

sub torture
{
	my @deck = make_deck(1);
	start_epoch();
	while ((time < $start + $seconds || $crashes < $least_crashes && time < $start + 10 * $seconds) && @wrong < 20)
	{
		my ($kind, $action) = @{ shift @deck };
		@deck = make_deck() if !@deck;
		crash($kind, $action) or next;
		my $at_rest = $epoch->{crashes} % $drain_crashes == 0;
		next if !$at_rest && chance(0.25);    # the next crash comes at once
		wait_going();
		compare(0, pick(@{ $epoch->{views} }));
		next if !$at_rest;
		compare_all();
		report();
		if (epoch_is_over())
		{
			end_epoch();
			start_epoch();
		}
		else
		{
			start_writers();
		}
	}
	end_epoch();
	return;
}

eval { torture(); 1 } or wrong("the rig has ended: $@");
report();
note 'crashes:';
note sprintf('%6d  %s', $crashes{$_}, $_) for sort keys %crashes;
note "not passed in time: $_ ($missed{$_})" for sort keys %missed;

is($sum{lost}, 0, 'nothing is lost');
is($sum{doubled}, 0, 'nothing is doubled');
is($sum{different}, 0, 'nothing is different');
is($sum{miscounted}, 0, 'every record is counted once');
is(scalar(@wrong), 0, 'nothing else is wrong') or diag "SA_SEED=$seed";
cmp_ok($crashes, '>=', $least_crashes, "$crashes crashes");
cmp_ok($compared, '>', 0, "$compared comparisons");
my @unexpected = grep { /TRAP:|PANIC:|terminated by signal (?!9|6)|invalid memory alloc|stuck spinlock/ && !/at fault point/ } split /\n/, slurp_file($node->logfile);
is(scalar(@unexpected), 0, 'no crash that was not asked for') or diag join("\n", @unexpected);
$node->stop;
done_testing();
