# 010_oracle.pl: every view holds the batch answer, whatever the events, batch cuts and crashes.
#
# Each seed is a stream with a few random views, random events in random transactions, and calls of run()
# in between (test/perl/StreamAggOracle.pm). Many seeds share a server, its crashes and its memory: workers and
# other children killed with SIGKILL, workers terminated, the server stopped at once or in order, the limit of
# memory for state changed. After every crash or restart views are compared with the answer over what their position says that they have read; in the end, with the
# answer over everything.  (190_same_log.pl is about what the answer may not depend on.)
#
#   SA_SEED=n     the first seed (default 1)
#   SA_SEEDS=n    how many (default 160; 1 when SA_SEED is given)
#   SA_ROUND=n    how many share a server's life (default 40)
#   SA_SESSIONS=x the share of windows that are sessions (default 0.2)
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);

use StreamAggFeed;
use StreamAggOracle;
use StreamAggTest;

my $first = $ENV{SA_SEED} || 1;
my $count = $ENV{SA_SEEDS} || ($ENV{SA_SEED} ? 1 : 160);
my $round_size = $ENV{SA_ROUND} || 40;
my $monitored = 0;
my $checks = 0;
my $panes = 0;

my $node = make_node('oracle', conf => <<'CONF');
autovacuum = off
max_worker_processes = 80
stream_agg.max_streams = 60
max_locks_per_transaction = 256
CONF
$node->start;
$node->safe_psql('postgres', "CREATE EXTENSION stream_agg;\n" . StreamAggOracle::prelude());

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
	my $out = run_script($node, $final ? 'final' : 'compare', $sql);
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

# Every record is counted once at every commit, and no sessions of one key overlap or touch, whoever looks. Ten times a second.
my $next_look = 0;
my $sessions_seen = 0;

sub look_at_sessions
{
	my @sessions = grep { $_->{window} && $_->{window}{session} && !$_->{created_after} } map { @{ $_->{views} } } @_;
	return unless @sessions;
	my $overlaps = try_query($node, StreamAggOracle::overlaps($sessions[ rand @sessions ]));
	return unless defined $overlaps;
	$sessions_seen++;
	note_failure({ number => $1 }, "sessions overlap: $overlaps") if $overlaps =~ /v(\d+)/;
	return;
}

sub monitor
{
	my (@seeds) = @_;
	return if time < $next_look;
	$next_look = time + 0.1;
	look_at_sessions(@seeds);
	my $unbalanced = try_query($node,
		'SELECT view, read FROM stream_agg.views WHERE NOT (' . balanced_counters() . ') OR status NOT IN (' . "'running', 'retrying', 'paused')");
	return unless defined $unbalanced;
	$monitored++;
	return if $unbalanced eq '';
	note_failure({ number => $1 }, "counters or status are wrong: $unbalanced") if $unbalanced =~ /v(\d+)/;
	return;
}

# ---- a round: many seeds, from CREATE to DROP

sub run_round
{
	my ($round, @numbers) = @_;
	my @seeds = map { StreamAggOracle::generate($_, "r$round") } @numbers;
	srand($numbers[0] * 7919);
	choose_memory($node);

	if (!defined run_script($node, "setup_$round",
			"SET client_min_messages = error;\nCREATE SCHEMA r$round;\n" . join('', map { $_->{setup} } @seeds)))
	{
		note_failure($_, 'its round was not set up') for @seeds;
		$node->psql('postgres', "DROP SCHEMA IF EXISTS r$round CASCADE");
		return;
	}
	my $crashes = feed($node, "feed_$round", \@seeds,
		hurts => [ ('kill_worker') x 2, 'kill_child', 'stop', 'restart', ('terminate') x 4, 'terminate_all', ('memory') x 3 ],
		watch => sub { monitor(@seeds) },
		crashed => sub {
			my @ordered = grep { $_->{ordered} && rand() < 12 / @seeds } @seeds;
			compare(0, @ordered) if @ordered;
		});
	finish_prepared($node);    # none, unless feeding has failed
	if (defined $crashes)
	{
		cmp_ok($crashes, '>=', 2, "round $round: $crashes crashes") if @numbers > 5;
		run_script($node, "run_$round", join('', map { "CALL stream_agg.run('$_->{stream}', '60 s');\n" } @seeds));
		compare(1, @seeds);
		$panes += $node->safe_psql('postgres', "SELECT count(*) FROM stream_agg.views v, stream_agg.explain(v.view) line WHERE line LIKE '%panes'");
	}
	else
	{
		note_failure($_, 'its round was not fed to the end') for @seeds;
	}
	for my $seed (@seeds)
	{
		my @wrong = failures_of($seed);
		ok(!@wrong, "seed $seed->{number}: $seed->{events} events, " . scalar(@{ $seed->{views} }) . ' views')
		  or diag "SA_SEED=$seed->{number}\n$seed->{setup}" . join("\n", @wrong);
	}
	drop_round($node, $round);
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
cmp_ok($rebuilds, '>', 0, "state was rebuilt $rebuilds times") if $count >= 40 && !$ENV{SA_SESSIONS};
cmp_ok($sessions_seen, '>', 0, "sessions were apart, looked at $sessions_seen times") if $count >= 40;
cmp_ok($panes, '>', 0, "$panes views of panes") if $count >= 40 && !$ENV{SA_SESSIONS};
my @crashes = unexpected_crashes($node);
is(scalar(@crashes), 0, 'no crash but those we made') or diag join("\n", @crashes);
$node->stop;
done_testing();
