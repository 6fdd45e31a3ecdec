# 160_change.pl: views change while they run: options, columns, conditions, names, positions; workers and
# servers are killed in between, and every answer is compared with the one in plain SQL.
#
#   SA_STEPS=n      how many random steps (default 60)
#   SA_SEED=n       of the steps
#   SA_ONLY=name    random, load, open
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);

use StreamAggTest;

my $steps = $ENV{SA_STEPS} || 60;
my $seed = $ENV{SA_SEED} || time;
srand($seed);
note "SA_SEED=$seed";

my $node = make_node('change');
$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION stream_agg');

sub sql { return $node->safe_psql('postgres', $_[0]); }
sub pick { return $_[ rand @_ ]; }
sub chance { return rand() < $_[0]; }

sub part
{
	my ($name, $code) = @_;
	return if $ENV{SA_ONLY} && $ENV{SA_ONLY} ne $name;
	subtest $name => $code;
	return;
}

# ---- random changes, each at a known position
#
# An epoch begins when any view's query changes. Table l keeps every event with its epoch and, for each view,
# whether the condition of its time let it through. A column covers the epochs from its birth on; groups that
# were closed at its birth have NULL.

my %pool = (
	n => 'count(*)', total => 'sum(v)', mean => 'avg(v)', top => 'max(v)', low => 'min(w)', spread => 'stddev(v)',
	weight => 'sum(w)', odd => 'count(*) FILTER (WHERE v % 2 = 1)', texts => 'max(v::text)');
my @conditions = ('true', 'v > 10', 'v <> 7 AND w > 1', "k <> 'a'", 'v % 3 < 2');

my $epoch = 0;
my $clock = 0;     # seconds of event time
my @views = (
	{ name => 'u', mode => 'update', windowed => 1 },
	{ name => 'a', mode => 'append', windowed => 1 },
	{ name => 'r', mode => 'update', windowed => 0 });

sub column_list { my ($view) = @_; return sort keys %{ $view->{columns} }; }

# The view's SELECT as it is now, in random order.
sub query_of
{
	my ($view) = @_;
	my @targets = map { "$pool{ $view->{columns}{$_}{what} } AS $_" } column_list($view);
	my @keys = $view->{windowed} ? ('k', 'window_start', 'window_end') : ('k');
	my $from = 's' . ($view->{windowed} ? ", tumble(at, '1 minute')" : '');
	my @all = sort { rand() <=> 0.5 } (@targets, @keys);
	return 'SELECT ' . join(', ', @all) . " FROM $from WHERE $view->{where} GROUP BY "
	  . join(', ', sort { rand() <=> 0.5 } @keys);
}

# What the view must hold. A window is open at a column's birth if its end is beyond the watermark of then.
sub answer_of
{
	my ($view) = @_;
	my $n = $view->{name};
	my @keys = $view->{windowed} ? ('k', 'window_start', 'window_end') : ('k');
	my @targets;
	for my $name (column_list($view))
	{
		my $column = $view->{columns}{$name};
		my $what = $pool{ $column->{what} };
		my $since = "epoch >= $column->{birth}";
		my ($call, $condition) = $what =~ /^(.*?)(?: FILTER \(WHERE (.*)\))?$/;
		$what = "$call FILTER (WHERE $since" . ($condition ? " AND $condition)" : ')');
		$what = "CASE WHEN window_end > '$column->{watermark}'::timestamptz THEN $what END" if $view->{windowed} && defined $column->{watermark};
		push @targets, "$what AS $name";
	}
	my $having = $view->{mode} eq 'append' ? "HAVING window_end <= (SELECT max(at) - interval '10 seconds' FROM l)" : '';
	return 'SELECT ' . join(', ', @keys, @targets) . ' FROM l' . ($view->{windowed} ? ", tumble(at, '1 minute')" : '')
	  . " WHERE ok_$n GROUP BY " . join(', ', @keys) . " $having";
}

sub compare
{
	my ($when) = @_;
	for my $view (@views)
	{
		my @columns = ($view->{windowed} ? ('k', 'window_start', 'window_end') : ('k'), column_list($view));
		my $is = 'SELECT ' . join(', ', @columns) . " FROM $view->{name}";
		my $should = answer_of($view);
		my $different = sql("SELECT (SELECT count(*) FROM ($is EXCEPT ALL ($should)) x) + (SELECT count(*) FROM (($should) EXCEPT ALL $is) x)");
		next if $different eq '0';
		is($different, '0', "$view->{name} is right after $when");
		diag(sql("SELECT 'is', * FROM ($is EXCEPT ALL ($should)) x LIMIT 5"), "\n", sql("SELECT 'should', * FROM (($should) EXCEPT ALL $is) x LIMIT 5"));
		return 0;
	}
	return 1;
}

sub watermark { return sql("SELECT coalesce(max(at) - interval '10 seconds', '-infinity') FROM l"); }

# Events in order of time, so that none is late.
sub feed
{
	my $rows = 1 + int(rand 40);
	my $first = $clock;
	$clock += int(rand 100);
	my $step = ($clock - $first) / $rows;
	my $ok = join(', ', map { "$_->{where} AS ok_$_->{name}" } @views);
	sql("WITH e AS (INSERT INTO s SELECT chr(97 + (random() * 3)::int), (random() * 30)::int, round((random() * 5)::numeric, 2),
			timestamptz '2024-01-01Z' + ($first + i * $step) * interval '1 second' FROM generate_series(1, $rows) i RETURNING *)
		INSERT INTO l SELECT e.*, $epoch, $ok FROM e");
	return;
}

sub replace
{
	my $view = pick(@views);
	my @have = column_list($view);
	my @known = values %{ $view->{columns} };    # with the one that goes
	sql("CALL stream_agg.run('s')");
	$epoch++;
	my $watermark = watermark();
	$view->{where} = pick(@conditions) if chance(0.4);
	if (@have > 1 && chance(0.5))
	{
		my $gone = pick(@have);
		delete $view->{columns}{$gone};
		@have = column_list($view);
	}
	for my $what (grep { chance(0.25) } sort keys %pool)
	{
		# an aggregate that was there under another name goes on from the start of that one
		my ($same) = sort { $a->{birth} <=> $b->{birth} } grep { $_->{what} eq $what } @known;
		my $name = "${what}_$epoch";
		$view->{columns}{$name} = $same ? { %$same } : { what => $what, birth => $epoch, watermark => $watermark };
		$view->{columns}{$name}{watermark} = $watermark;    # groups that are closed by now have none
	}
	sql("CREATE MATERIALIZED VIEW $view->{name} WITH (stream_agg.continuous, stream_agg.replace) AS " . query_of($view));
	return "replacing $view->{name}";
}

sub rename_column
{
	my $view = pick(@views);
	my $old = pick(column_list($view));
	my $new = "renamed_" . int(rand 1e6);
	sql("ALTER TABLE $view->{name} RENAME COLUMN $old TO $new");
	$view->{columns}{$new} = delete $view->{columns}{$old};
	return "renaming a column of $view->{name}";
}

sub options
{
	my $view = pick(@views);
	my @choices = (
		"SET (stream_agg.trigger = 'immediate')", "SET (stream_agg.trigger = '50 ms')", "SET (stream_agg.trigger = 'manual')",
		"SET (stream_agg.max_batch_rows = " . (1 + int(rand 20)) . ')', 'RESET (stream_agg.max_batch_rows)',
		"SET (stream_agg.late_events = 'drop', fillfactor = " . (20 + int(rand 80)) . ')');
	sql("ALTER MATERIALIZED VIEW $view->{name} " . pick(@choices));
	return "changing options of $view->{name}";
}

sub stand_still
{
	my $view = pick(@views);
	sql("CALL stream_agg.run('s')");    # it has a place
	sql("SELECT stream_agg.pause('$view->{name}')");
	my $position = sql("SELECT position FROM stream_agg.partitions WHERE view = '$view->{name}'::regclass");
	sql("SELECT stream_agg.seek('$view->{name}', '$position'); SELECT stream_agg.resume('$view->{name}')");
	return "seeking to the same place in $view->{name}";
}

sub hurt
{
	return 'terminating workers' if chance(0.3) && terminate_workers($node);
	return 'rewriting a result table' if chance(0.3) && defined sql("VACUUM FULL " . pick(map { $_->{name} } @views));
	if (chance(0.5))
	{
		crash_child($node, "SELECT pid FROM pg_stat_activity WHERE backend_type = 'stream_agg worker'");
		return 'killing a worker';
	}
	$node->stop('immediate');
	$node->start;
	return 'a crash';
}

part random => sub {
	sql(<<'SQL');
CREATE FOREIGN TABLE s (k text, v int, w numeric, at timestamptz NOT NULL) SERVER stream_staged OPTIONS (event_time 'at', watermark '10 seconds', max_future 'infinity');
CREATE TABLE l (k text, v int, w numeric, at timestamptz, epoch int, ok_u boolean, ok_a boolean, ok_r boolean);
SQL
	for my $view (@views)
	{
		$view->{where} = 'true';
		$view->{columns}{$_} = { what => $_, birth => 0 } for 'n', 'total', 'mean';
		sql("CREATE MATERIALIZED VIEW $view->{name} WITH (stream_agg.continuous, stream_agg.output_mode = '$view->{mode}') AS " . query_of($view));
	}
	my %weights = (feed => 6, replace => 4, rename => 1, options => 3, stand => 1, hurt => 1);
	my @bag = map { ($_) x $weights{$_} } sort keys %weights;
	my $failed = 0;
	for my $step (1 .. $steps)
	{
		my $kind = pick(@bag);
		my $what = $kind eq 'feed' ? (feed(), 'events')[-1] : $kind eq 'replace' ? replace() : $kind eq 'rename' ? rename_column()
		  : $kind eq 'options' ? options() : $kind eq 'stand' ? stand_still() : hurt();
		feed() if chance(0.3);
		next if chance(0.5);    # several steps without looking
		sql("CALL stream_agg.run('s')");
		$failed = !compare("step $step, $what");
		last if $failed;
	}
	sql("CALL stream_agg.run('s')");
	ok(!$failed && compare('everything'), "right after $epoch changes of queries");
	is(sql('SELECT count(*) FROM stream_agg.views WHERE NOT (' . balanced_counters() . ')'), '0', 'counters add up');
	is(sql("SELECT count(*) FROM pg_class WHERE relnamespace = 'stream_agg'::regnamespace AND relname ~ '^(definition|state)_'"),
		sql('SELECT count(*) + count(state) FROM stream_agg.view_config'), 'no part is left over');
	sql('DROP FOREIGN TABLE s CASCADE; DROP TABLE l');
};

# ---- changes under load: whatever happens, the columns that stay are exact

part load => sub {
	sql(<<'SQL');
CREATE FOREIGN TABLE s (k int, v int, at timestamptz NOT NULL) SERVER stream_staged OPTIONS (event_time 'at', max_future 'infinity');
CREATE TABLE l (k int, v int, at timestamptz);
CREATE MATERIALIZED VIEW v WITH (stream_agg.continuous) AS
	SELECT k, window_start, count(*) AS n, sum(v) AS total, avg(v) AS mean FROM s, tumble(at, '1 minute') GROUP BY k, window_start;
SQL
	my $insert = "WITH e AS (INSERT INTO s SELECT (random() * 50)::int, (random() * 100)::int, timestamptz '2024-01-01Z' + random() * interval '1 hour'"
	  . " FROM generate_series(1, 20) RETURNING *) INSERT INTO l SELECT * FROM e;\n";
	my @writers = map { start_script($node, "load_$_", $insert x 1500) } 1 .. 3;
	my $changes = 0;
	my $next = 0;
	while (grep { !defined script_exit($_) } @writers)
	{
		my $extra = $changes % 3 == 0 ? ', stddev(v) AS spread' : $changes % 3 == 1 ? ', max(v) AS top, min(v) AS low' : '';
		sql("CREATE MATERIALIZED VIEW v WITH (stream_agg.continuous, stream_agg.replace) AS "
			  . "SELECT window_start, avg(v) AS mean, k, sum(v) AS total, count(*) AS n$extra FROM s, tumble(at, '1 minute') GROUP BY k, window_start");
		sql('ALTER MATERIALIZED VIEW v SET (stream_agg.max_batch_rows = ' . pick(7, 100, 5000) . ", stream_agg.trigger = '" . pick('immediate', '20 ms') . "')");
		sql("SELECT stream_agg.reset('v')") if chance(0.1);
		terminate_workers($node) if chance(0.1);
		# another one from where this stands, and swapped: from here on it is the other's turn to be compared
		if (chance(0.2))
		{
			$next++;
			sql("CREATE MATERIALIZED VIEW w$next WITH (stream_agg.continuous, stream_agg.start = 'earliest') AS "
				  . "SELECT k, window_start, count(*) AS n, sum(v) AS total, avg(v) AS mean FROM s, tumble(at, '1 minute') GROUP BY k, window_start")
			  if $next == 1;
			sql("SELECT stream_agg.swap('v', 'w1')");
		}
		$changes++;
	}
	is(join(' ', map { script_exit($_) } @writers), '0 0 0', 'the writers wrote');
	sql("CALL stream_agg.run('s')");
	cmp_ok($changes, '>', 2, "$changes changes under load");
	my $should = "SELECT k, window_start, count(*), sum(v), avg(v) FROM l, tumble(at, '1 minute') GROUP BY k, window_start";
	# a view made in between began with what was still kept: compare the one that was there from the start
	my $name = sql("SELECT CASE WHEN (SELECT sum(n) FROM v) = (SELECT count(*) FROM l) THEN 'v' ELSE 'w1' END");
	my $is = "SELECT k, window_start, n, total, mean FROM $name";
	is(sql("SELECT (SELECT count(*) FROM ($is EXCEPT ALL ($should)) x) + (SELECT count(*) FROM (($should) EXCEPT ALL $is) x)"), '0', 'the columns that stay are exact');
	sql('DROP FOREIGN TABLE s CASCADE; DROP TABLE l');
};

# ---- a change in a transaction that stays open: the view waits for it, its neighbour does not

part open => sub {
	sql(<<'SQL');
CREATE FOREIGN TABLE s (k int, v int) SERVER stream_staged;
CREATE TABLE go (way text);
CREATE MATERIALIZED VIEW v WITH (stream_agg.continuous) AS SELECT k, count(*) AS n FROM s GROUP BY k;
CREATE MATERIALIZED VIEW neighbour WITH (stream_agg.continuous) AS SELECT count(*) AS n FROM s;
SQL
	my $n = 0;
	for my $change (
		"CREATE MATERIALIZED VIEW v WITH (stream_agg.continuous, stream_agg.replace) AS SELECT k, count(*) AS n, sum(v) AS total FROM s GROUP BY k;",
		"ALTER MATERIALIZED VIEW v SET (stream_agg.max_batch_rows = 3);",
		"SELECT stream_agg.reset('v');")
	{
		for my $end ('COMMIT', 'ROLLBACK')
		{
			sql('TRUNCATE go');
			my $script = start_script($node, 'open_' . ++$n, "BEGIN;\n$change\nSELECT 'changed';\n"
				  . "DO \$\$ BEGIN WHILE NOT EXISTS (SELECT FROM go) LOOP PERFORM pg_sleep(0.02); END LOOP; END \$\$;\n$end;\n");
			wait_until('the change has been made', sub { return slurp_file($script->{out}) =~ /changed/ || defined script_exit($script) });
			sql('INSERT INTO s SELECT i % 3, i FROM generate_series(1, 30) i');
			my $run = start_script($node, "run_$n", "CALL stream_agg.run('v');\n");
			ok($node->poll_query_until('postgres', 'SELECT n FROM neighbour', 30 * $n), 'the neighbour has read');
			is(script_exit($run), undef, 'run() of the view waits');
			sql("INSERT INTO go VALUES ('on')");
			wait_until('the change has ended', sub { return defined script_exit($script) });
			wait_until('run() has ended', sub { return defined script_exit($run) });
			is(script_exit($script) . script_exit($run), '00', "$end: both well") or diag(slurp_file($script->{err}), slurp_file($run->{err}));
			is(sql('SELECT string_agg(n::text, $$ $$) FROM v'), join(' ', (10 * $n) x 3), 'and right');
		}
	}
	is(sql("SELECT column_name FROM information_schema.columns WHERE table_name = 'v' AND ordinal_position > 2"), 'total', 'what was committed is there');
	sql('DROP FOREIGN TABLE s CASCADE; DROP TABLE go');
};

is_deeply([ unexpected_crashes($node) ], [], 'no crash that was not asked for');
$node->stop;
done_testing();
