# StreamAggFeed.pm: feeds the steps of many seeds (StreamAggOracle.pm) to one server, in one session and in
# random order, and hurts it meanwhile.
package StreamAggFeed;

use strict;
use warnings;

use Exporter 'import';
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(usleep);

use StreamAggTest;

our @EXPORT = qw(run_script feed finish_prepared drop_round whats_up choose_memory note_failure failures_of);

my %failed;    # by seed: what went wrong

sub note_failure
{
	my ($seed, $what) = @_;
	push @{ $failed{ $seed->{number} } }, $what;
	return;
}

sub failures_of
{
	my ($seed) = @_;
	return @{ $failed{ $seed->{number} } || [] };
}

# Runs SQL in one session to its end; undef, and a diagnostic, when it failed.
sub run_script
{
	my ($node, $name, $sql) = @_;
	my $script = start_script($node, $name, $sql);
	my $exit = wait_until("$name has ended", sub { my $e = script_exit($script); defined $e ? "e$e" : undef }, 300);
	return slurp_file($script->{out}) if $exit eq 'e0';
	my $error = slurp_file($script->{err});
	diag "$name: exit $exit: $error";
	return undef;
}

# For reports: who does what, and who waits for whom.
sub whats_up
{
	my ($node) = @_;
	return try_query($node, <<'SQL');
SELECT pid, backend_type, state, wait_event_type, wait_event, left(query, 100), now() - query_start, pg_blocking_pids(pid)
FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND state = 'active' OR cardinality(pg_blocking_pids(pid)) > 0;
SELECT pid, locktype, relation::regclass, mode, granted FROM pg_locks WHERE pid IN (
	SELECT pid FROM pg_stat_activity WHERE cardinality(pg_blocking_pids(pid)) > 0
	UNION SELECT unnest(pg_blocking_pids(pid)) FROM pg_stat_activity) ORDER BY granted, pid LIMIT 40;
SQL
}

# ---- hurting

my $some_worker = "SELECT pid FROM pg_stat_activity WHERE backend_type = 'stream_agg worker' ORDER BY state = 'active' DESC, random() LIMIT 1";
my $some_child = "SELECT pid FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND backend_type IN ('checkpointer', 'background writer', 'walwriter', 'client backend', 'stream_agg launcher') ORDER BY random() LIMIT 1";

# Memory for the state of each view: seldom enough for all groups, so that they go out and come back.
sub choose_memory
{
	my ($node) = @_;
	my @limits = (('64kB') x 3, (64 + int(rand(100))) . 'kB', '64MB');
	my $limit = $limits[ rand @limits ];
	note "state_memory = $limit";
	$node->safe_psql('postgres', "ALTER SYSTEM SET stream_agg.state_memory = '$limit'");
	$node->reload;
	return $limit;
}

# True when the server has been away.
my %hurts = (
	memory => sub { choose_memory($_[0]); return 0; },
	restart => sub { $_[0]->stop('fast'); $_[0]->start; return 1; },
	kill_worker => sub { return crash_child($_[0], $some_worker); },
	kill_child => sub { return crash_child($_[0], $some_child); },
	stop => sub { $_[0]->stop('immediate'); $_[0]->start; return 1; },
	terminate => sub { terminate_workers($_[0], 'random() < 0.5'); return 0; },
	terminate_all => sub { terminate_workers($_[0]); return 0; });

# Kinds with the share of the work after which they happen.
sub plan_hurts
{
	my (@kinds) = @_;
	return sort { $a->[0] <=> $b->[0] } map { [ 0.03 + rand(0.94), $_ ] } @kinds;
}

# ---- feeding

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
	my ($node) = @_;
	my $prepared = $node->safe_psql('postgres', 'SELECT gid FROM pg_prepared_xacts');
	run_script($node, 'prepared', join('', map { "COMMIT PREPARED '$_';\n" } split /\n/, $prepared)) if $prepared;
	return;
}

sub drop_finished_steps
{
	my ($node, @seeds) = @_;
	finish_prepared($node);
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

# Feeds all steps.  Parameters: hurts, kinds of them; watch, called all the while; crashed, called after every
# crash or restart.  The number of these, or undef when a step has failed.
sub feed
{
	my ($node, $name, $seeds, %params) = @_;
	my @plan = plan_hurts(@{ $params{hurts} });
	my $total = 0;
	my $crashes = 0;
	$total += @{ $_->{steps} } for @$seeds;
	for (;;)
	{
		my ($sql, $left) = feed_script(@$seeds);
		my $script = start_script($node, $name, $sql);
		my $crashed = 0;
		my $exit;
		while (!defined($exit = script_exit($script)))
		{
			my $share = ($total - $left + progress($script)) / ($total || 1);
			if (@plan && $share >= $plan[0][0])
			{
				my $kind = (shift @plan)->[1];
				$crashed = $hurts{$kind}->($node);
				note sprintf('%s after %.0f %%', $kind, 100 * $share);
				last if $crashed;
			}
			$params{watch}->() if $params{watch};
			usleep(5_000);
		}
		stop_script($script) if $crashed;
		if (!$crashed && $exit == 0)
		{
			# Feeding may have been faster than hurting.
			$crashes += grep { $hurts{ $_->[1] }->($node) } @plan;
			return $crashes;
		}
		if (!$crashed)
		{
			my $error = slurp_file($script->{err});
			my ($number) = $error =~ /[sv](\d+)/;
			note_failure({ number => $number // $seeds->[0]{number} },
				"feeding failed (exit $exit): $error" . whats_up($node));
			return undef;
		}
		$crashes++;
		$params{crashed}->() if $params{crashed};
		drop_finished_steps($node, @$seeds);
	}
}

# ---- the end

# Drops a round's schema, and sees what DROP leaves behind: nothing.
sub drop_round
{
	my ($node, $round) = @_;
	my $script = start_script($node, "drop_$round", "SET client_min_messages = error;\nDROP SCHEMA r$round CASCADE;\n");
	my $exit = eval { wait_until('dropped', sub { my $e = script_exit($script); return defined $e && "e$e" }, 60) } // $@;
	is($exit, 'e0', "round $round: dropped") or diag slurp_file($script->{err}), whats_up($node);
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

1;
