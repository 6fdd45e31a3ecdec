# 010_oracle.pl: every view holds the batch answer, whatever the events, batch cuts and crashes.
#
# Each seed is a stream with a few random views, random events in random transactions, and calls of run()
# in between (test/perl/StreamAggOracle.pm). Many seeds share a server and its crashes: workers and other
# children killed with SIGKILL, workers terminated, the server stopped at once. After every crash views
# are compared with the answer over what their position says that they have read; in the end, with the
# answer over everything.
#
#   SA_SEED=n     the first seed (default 1)
#   SA_SEEDS=n    how many (default 240; 1 when SA_SEED is given)
#   SA_ROUND=n    how many share a server's life (default 40)
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time usleep);

use StreamAggOracle;
use StreamAggTest;

my $first = $ENV{SA_SEED} || 1;
my $count = $ENV{SA_SEEDS} || ($ENV{SA_SEED} ? 1 : 240);
my $round_size = $ENV{SA_ROUND} || 40;
my $monitored = 0;
my $checks = 0;
my %failed;    # by seed: what went wrong

my $node = make_node('oracle', conf => <<'CONF');
autovacuum = off
max_worker_processes = 80
stream_agg.max_streams = 60
max_locks_per_transaction = 256
CONF
$node->start;
$node->safe_psql('postgres', "CREATE EXTENSION stream_agg;\n" . StreamAggOracle::prelude());

sub note_failure
{
	my ($seed, $what) = @_;
	push @{ $failed{ $seed->{number} } }, $what;
	return;
}

# Runs SQL in one session to its end; false, and a diagnostic, when it failed.
sub run_script
{
	my ($name, $sql) = @_;
	my $script = start_script($node, $name, $sql);
	my $exit = wait_until("$name has ended", sub { my $e = script_exit($script); defined $e ? "e$e" : undef }, 300);
	return slurp_file($script->{out}) if $exit eq 'e0';
	my $error = slurp_file($script->{err});
	diag "$name: exit $exit: $error";
	return undef;
}

# Compares views, each in a snapshot of its own; complaints go to their seeds.
sub compare
{
	my ($final, @seeds) = @_;
	my %by_name;
	my $sql = "SET timezone = 'UTC';\n";
	for my $seed (@seeds)
	{
		for my $view (@{ $seed->{views} })
		{
			next if $view->{created_after} && !$final;    # may not be there yet
			$by_name{ $view->{name} } = [ $seed, $view ];
			$sql .= "BEGIN ISOLATION LEVEL REPEATABLE READ;\n" . StreamAggOracle::check($seed, $view, $final) . "COMMIT;\n";
			$checks++;
		}
		$by_name{ $seed->{stream} } = [$seed];
		$sql .= StreamAggOracle::check_letters($seed) if $final;
	}
	my $out = run_script($final ? 'final' : 'compare', $sql);
	if (!defined $out)
	{
		note_failure($_, 'the comparison failed') for @seeds;
		return;
	}
	for my $line (split /\n/, $out)
	{
		my ($name) = split /\|/, $line;
		my ($seed, $view) = @{ $by_name{$name} || [ $seeds[0] ] };
		my $when = $final ? 'at the end' : 'after a crash';
		note_failure($seed, "$when, view|first|position|total|missing|extra|got|wanted|letters|wanted|watermark|wanted|status|message:\n$line");
		next unless $final && $view;
		my $difference = try_query($node, StreamAggOracle::difference($seed, $view));
		note_failure($seed, $difference) if $difference;
	}
	return;
}

# Every record is counted once at every commit, whoever looks. Ten times a second.
my $next_look = 0;

sub monitor
{
	return if time < $next_look;
	$next_look = time + 0.1;
	my $unbalanced = try_query($node,
		'SELECT view, read FROM stream_agg.views WHERE NOT (' . balanced_counters() . ') OR status <> ' . "'running'"
		  . " AND status <> 'paused'");
	return unless defined $unbalanced;
	$monitored++;
	return if $unbalanced eq '';
	note_failure({ number => $1 }, "counters or status are wrong: $unbalanced") if $unbalanced =~ /v(\d+)/;
	return;
}

# ---- feeding, with crashes at random points

# The steps that are left, of all seeds, in random order (but in order within each seed).
sub feed_script
{
	my (@seeds) = @_;
	my @queues = map { [ @{ $_->{steps} } ] } @seeds;
	my $sql = "SET statement_timeout = '60s';\nSET client_min_messages = error;\n";
	my $done = 0;
	while (@queues = grep { @$_ } @queues)
	{
		my $queue = $queues[ rand @queues ];
		my $step = shift @$queue;
		$sql .= $step->{prepared} ? "COMMIT PREPARED '$step->{prepared}';\n" : $step->{sql};
		$done++;
		$sql .= "\\echo \@$done\n";
	}
	return ($sql, $done);
}

sub progress
{
	my ($script) = @_;
	my @marks = slurp_file($script->{out}) =~ /^\@(\d+)$/mg;
	return @marks ? $marks[-1] : 0;
}

# After a crash: prepared transactions are brought to their end, and steps whose events are there are over.
sub finish_prepared
{
	my $prepared = $node->safe_psql('postgres', 'SELECT gid FROM pg_prepared_xacts');
	run_script('prepared', join('', map { "COMMIT PREPARED '$_';\n" } split /\n/, $prepared)) if $prepared;
	return;
}

sub drop_finished_steps
{
	my (@seeds) = @_;
	finish_prepared();
	my $sql = join(' UNION ALL ', map { "SELECT $_->{number}, string_agg(id::text, ',') FROM $_->{log}" } @seeds);
	my %ids = map { my ($number, $list) = split /\|/; $number => { map { $_ => 1 } split /,/, $list // '' } }
	  split /\n/, $node->safe_psql('postgres', $sql);
	for my $seed (@seeds)
	{
		my $there = $ids{ $seed->{number} };
		my @steps = @{ $seed->{steps} };
		my ($last) = grep { $steps[$_]{txn} && $there->{ $steps[$_]{txn} } } reverse 0 .. $#steps;
		my @over = defined $last ? splice(@steps, 0, $last + 1) : ();
		# A resume may still be due, and a column may have its other name.
		unshift @steps, grep { $_->{sql} && $_->{sql} =~ /resume/ } @over;
		unshift @steps, $seed->{back} if $seed->{back};
		$seed->{steps} = [ grep { !$_->{prepared} || !$there->{ ($_->{prepared} =~ /-(\d+)$/)[0] } } @steps ];
	}
	return;
}

my $some_worker = "SELECT pid FROM pg_stat_activity WHERE backend_type = 'stream_agg worker' ORDER BY state = 'active' DESC, random() LIMIT 1";
my $some_child = "SELECT pid FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND backend_type IN ('checkpointer', 'background writer', 'walwriter', 'client backend', 'stream_agg launcher') ORDER BY random() LIMIT 1";

my %hurts = (
	kill_worker => sub { return crash_child($node, $some_worker); },
	kill_child => sub { return crash_child($node, $some_child); },
	stop => sub { $node->stop('immediate'); $node->start; return 1; },
	terminate => sub { terminate_workers($node, 'random() < 0.5'); return 0; },
	terminate_all => sub { terminate_workers($node); return 0; });

# Kinds with the share of the work after which they happen.
sub plan_hurts
{
	my @kinds = ('kill_worker', 'kill_worker', 'kill_child', 'stop', ('terminate') x 4, 'terminate_all');
	return sort { $a->[0] <=> $b->[0] } map { [ 0.03 + rand(0.94), $_ ] } @kinds;
}

sub feed
{
	my ($round, @seeds) = @_;
	my @plan = plan_hurts();
	my $total = 0;
	my $crashes = 0;
	$total += @{ $_->{steps} } for @seeds;
	for (;;)
	{
		my ($sql, $left) = feed_script(@seeds);
		my $script = start_script($node, "feed_$round", $sql);
		my $crashed = 0;
		my $exit;
		while (!defined($exit = script_exit($script)))
		{
			my $share = ($total - $left + progress($script)) / ($total || 1);
			if (@plan && $share >= $plan[0][0])
			{
				my $kind = (shift @plan)->[1];
				$crashed = $hurts{$kind}->();
				note sprintf('%s after %.0f %%', $kind, 100 * $share);
				last if $crashed;
			}
			monitor();
			usleep(5_000);
		}
		stop_script($script) if $crashed;
		return $crashes if !$crashed && $exit == 0;
		if (!$crashed)
		{
			my $error = slurp_file($script->{err});
			my ($number) = $error =~ /[sv](\d+)/;
			note_failure({ number => $number // $seeds[0]{number} }, "feeding failed (exit $exit): $error" . whats_up());
			return undef;
		}
		$crashes++;
		my @ordered = grep { $_->{ordered} && rand() < 12 / @seeds } @seeds;
		compare(0, @ordered) if @ordered;
		drop_finished_steps(@seeds);
	}
}

# ---- a round: many seeds, from CREATE to DROP

sub run_round
{
	my ($round, @numbers) = @_;
	my @seeds = map { StreamAggOracle::generate($_, "r$round") } @numbers;
	srand($numbers[0] * 7919);
	# Little memory for state in some rounds, so that groups go out and come back.
	my $memory = $round % 2 ? '64kB' : '64MB';
	$node->safe_psql('postgres', "ALTER SYSTEM SET stream_agg.state_memory = '$memory'");
	$node->reload;

	if (!defined run_script("setup_$round",
			"SET client_min_messages = error;\nCREATE SCHEMA r$round;\n" . join('', map { $_->{setup} } @seeds)))
	{
		note_failure($_, 'its round was not set up') for @seeds;
		$node->psql('postgres', "DROP SCHEMA IF EXISTS r$round CASCADE");
		return;
	}
	my $crashes = feed($round, @seeds);
	finish_prepared();    # none, unless feeding has failed
	if (defined $crashes)
	{
		cmp_ok($crashes, '>=', 2, "round $round: $crashes crashes") if @numbers > 5;
		run_script("run_$round", join('', map { "CALL stream_agg.run('$_->{stream}', '60 s');\n" } @seeds));
		compare(1, @seeds);
	}
	else
	{
		note_failure($_, 'its round was not fed to the end') for @seeds;
	}
	for my $seed (@seeds)
	{
		my $wrong = $failed{ $seed->{number} } || [];
		ok(!@$wrong, "seed $seed->{number}: $seed->{events} events, " . scalar(@{ $seed->{views} }) . ' views')
		  or diag "SA_SEED=$seed->{number}\n$seed->{setup}" . join("\n", @$wrong);
	}
	drop_round($round);
	return;
}

# For reports: who does what, and who waits for whom.
sub whats_up
{
	return try_query($node, <<'SQL');
SELECT pid, backend_type, state, wait_event_type, wait_event, left(query, 100), now() - query_start, pg_blocking_pids(pid)
FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND state = 'active' OR cardinality(pg_blocking_pids(pid)) > 0;
SELECT pid, locktype, relation::regclass, mode, granted FROM pg_locks WHERE pid IN (
	SELECT pid FROM pg_stat_activity WHERE cardinality(pg_blocking_pids(pid)) > 0
	UNION SELECT unnest(pg_blocking_pids(pid)) FROM pg_stat_activity) ORDER BY granted, pid LIMIT 40;
SQL
}

# What DROP leaves behind: nothing.
sub drop_round
{
	my ($round) = @_;
	my $script = start_script($node, "drop_$round", "SET client_min_messages = error;\nDROP SCHEMA r$round CASCADE;\n");
	my $exit = eval { wait_until('dropped', sub { my $e = script_exit($script); return defined $e && "e$e" }, 60) } // $@;
	is($exit, 'e0', "round $round: dropped") or diag slurp_file($script->{err}), whats_up();
	stop_script($script);
	return if $exit ne 'e0';
	is($node->safe_psql('postgres', <<'SQL'), '0|0|0|0', "round $round: nothing left in the catalog");
SELECT (SELECT count(*) FROM stream_agg.view_config), (SELECT count(*) FROM stream_agg.view_position),
	(SELECT count(*) FROM stream_agg.dead_letter),
	(SELECT count(*) FROM pg_class c WHERE relnamespace = 'stream_agg'::regnamespace AND relkind IN ('r', 'S', 'f', 'm')
		AND NOT EXISTS (SELECT FROM pg_depend d WHERE d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.deptype IN ('e', 'i'))
		AND relname <> 'dead_letter_id_seq')
SQL
	ok($node->poll_query_until('postgres', "SELECT count(*) = 0 FROM pg_stat_activity WHERE backend_type = 'stream_agg worker'"),
		"round $round: the workers have left");
	return;
}

my @numbers = ($first .. $first + $count - 1);
for (my $round = 1; @numbers; $round++)
{
	run_round($round, splice(@numbers, 0, $round_size));
}
cmp_ok($monitored, '>', 0, "counters were balanced, looked at $monitored times");
cmp_ok($checks, '>', $count, "$checks comparisons");
my $rebuilds = () = slurp_file($node->logfile) =~ /to rebuild its state/g;
cmp_ok($rebuilds, '>', 0, "state was rebuilt $rebuilds times") if $count >= 40;
my @crashes = unexpected_crashes($node);
is(scalar(@crashes), 0, 'no crash but those we made') or diag join("\n", @crashes);
$node->stop;
done_testing();
