# 190_same_log.pl: the same log gives the same answer, bit for bit, however it is read.
#
# Each seed is a stream with one or two random queries (test/perl/StreamAggOracle.pm), every one of them in
# several views with batches, triggers and state of their own, paused and resumed as it comes; sometimes also
# alone on a stream of its own with the same records.  All read while the records come, through crashes and orderly
# restarts, with more and less memory.  The first view of each query reads everything at once in the end, in peace,
# with other memory again.  All of a query must agree on every row, every counter, every place and watermark, and
# every dead letter; and the first one with the batch answer, where SQL over a table can tell that.  In every
# round there is a Kafka topic besides, of one to three partitions, where order counts within a partition only.
#
# 010_oracle.pl is about whether that answer is right, for more kinds of views over more events; this one is
# about what it may not depend on.
#
#   SA_SEED=n     the first seed (default 1)
#   SA_SEEDS=n    how many (default 300; 1 when SA_SEED is given)
#   SA_ROUND=n    how many share a server's life (default 50)
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl", "$FindBin::RealBin/../kafka";
use PostgreSQL::Test::Utils;
use Test::More;

use Kafka;
use StreamAggFeed;
use StreamAggOracle;
use StreamAggTest;

my $first = $ENV{SA_SEED} || 1;
my $count = $ENV{SA_SEEDS} || ($ENV{SA_SEED} ? 1 : 300);
my $round_size = $ENV{SA_ROUND} || 50;
my %seen = map { $_ => 0 } qw(null_time future duplicate failed filtered late late_windows corrections accepted);
my $comparisons = 0;

my $node = make_node('same_log', conf => <<'CONF');
autovacuum = off
max_worker_processes = 120
stream_agg.max_streams = 100
max_locks_per_transaction = 512
CONF
$node->start;
$node->safe_psql('postgres', "CREATE EXTENSION stream_agg;\n" . StreamAggOracle::prelude());
my @states = ('heap', 'unlogged');
my $kafka = Kafka->new("$PostgreSQL::Test::Utils::tmp_check/kafka", rig => 'mock');
$kafka->start;
$node->safe_psql('postgres', "CREATE SERVER k FOREIGN DATA WRAPPER stream_agg OPTIONS (type 'kafka', bootstrap_servers '"
	  . $kafka->bootstrap . "')");

# All that is to be the same, of every view: by name, what, a text.
sub take_prints
{
	my (@views) = @_;
	my %prints;
	my $counters = join(', ', map { qq("$_") } 'read', 'skipped', 'tombstone', 'malformed', sort keys %seen);
	my $sql = "SET timezone = 'UTC';\n" . <<"SQL";
SELECT view, 'counters', ROW(status, message, watermark, $counters) FROM stream_agg.views;
SELECT view, 'places', array_agg(ROW(topic, partition, position, running_max, watermark) ORDER BY topic, partition)
	FROM stream_agg.partitions GROUP BY view;
SELECT view, 'letters', count(*) || ' ' || md5(string_agg(
	ROW(reason, topic, partition, position, event_time, message, event, key, payload)::text, E'\\n' ORDER BY topic, partition, position, reason))
	FROM stream_agg.dead_letters WHERE view IS NOT NULL GROUP BY view;
SQL
	$sql .= "SELECT '$_->{name}', 'rows', count(*) || ' ' || coalesce(md5(string_agg(whole_row::text, E'\\n' ORDER BY whole_row::text"
	  . " COLLATE \"C\")), '') FROM $_->{name} whole_row;\n"
	  for @views;
	my $out = run_script($node, 'prints', $sql);
	return undef unless defined $out;
	for my $line (split /\n/, $out)
	{
		my ($name, $what, $text) = split /\|/, $line, 3;
		$prints{$name}{$what} = $text;
	}
	return \%prints;
}

# Counts what there was, so that we see that there was something.
sub note_seen
{
	my ($names) = @_;
	my @columns = sort keys %seen;
	my $sums = $node->safe_psql('postgres', 'SELECT ' . join(', ', map { qq(sum("$_")) } @columns)
		  . ' FROM stream_agg.views WHERE view::text IN (' . join(', ', map { "'$_'" } @$names) . ')');
	my @sums = split /\|/, $sums;
	$seen{ $columns[$_] } += $sums[$_] for 0 .. $#columns;
	return;
}

sub compare_variants
{
	my ($seed, $prints) = @_;
	for my $query (@{ $seed->{queries} })
	{
		my $reference = $prints->{ $query->{name} };
		note_failure($seed, "no rows of $query->{name}") unless defined $reference->{rows};
		for my $variant (@{ $query->{variants} })
		{
			my $name = $variant->{name};
			$comparisons++;
			for my $what (qw(counters places letters rows))
			{
				my ($got, $wanted) = map { $_->{$what} // 'none' } $prints->{$name}, $reference;
				next if $got eq $wanted;
				note_failure($seed, "$what of $name: $got\n$what of $query->{name}: $wanted\n" . difference($query->{name}, $name));
			}
		}
	}
	return;
}

sub difference
{
	my ($reference, $name) = @_;
	my $rows = sub { return "SELECT whole_row::text FROM $_[0] whole_row" };
	my $letters = sub {
		return "SELECT ROW(reason, partition, position, message, event)::text FROM stream_agg.dead_letters WHERE view = '$_[0]'::regclass";
	};
	return join("\n", map {
		my $of = $_;
		try_query($node, "SELECT 'missing', x.* FROM (" . $of->($reference) . ' EXCEPT ALL ' . $of->($name) . ') x UNION ALL '
			  . "SELECT 'extra', x.* FROM (" . $of->($name) . ' EXCEPT ALL ' . $of->($reference) . ') x LIMIT 10') // 'unknown'
	} $rows, $letters);
}

# The dead letters of two streams that read one topic.
sub compare_stream_letters
{
	my ($seed) = @_;
	my $letters = "SELECT count(*) || ' ' || md5(string_agg(ROW(reason, topic, partition, position, message, event, payload)::text, E'\\n'"
	  . ' ORDER BY partition, position)) FROM stream_agg.dead_letters WHERE view IS NULL AND stream::text = ';
	my ($one, $other) = map { $node->safe_psql('postgres', "$letters'$_'") } $seed->{stream}, $seed->{twin};
	note_failure($seed, "dead letters: $one, and of the twin $other") if $one ne $other || $one !~ /^[1-9]/;
	return;
}

# The views that read everything at once, and the stream's dead letters, against SQL.
sub compare_with_oracle
{
	my (@seeds) = @_;
	my %by_name;
	my $sql = "SET timezone = 'UTC';\n";
	for my $seed (@seeds)
	{
		for my $query (grep { !$_->{no_oracle} } @{ $seed->{queries} })
		{
			$by_name{ $query->{name} } = $seed;
			$sql .= StreamAggOracle::check($seed, $query, 1);
		}
		$by_name{ $seed->{stream} } = $seed;
		$sql .= StreamAggOracle::check_letters($seed);
		next unless $seed->{twin};
		$by_name{ $seed->{twin} } = $seed;
		$sql .= StreamAggOracle::check_letters({ %$seed, stream => $seed->{twin} });
	}
	my $out = run_script($node, 'oracle', $sql);
	for my $line (split /\n/, $out // 'the comparison failed')
	{
		my ($name) = split /\|/, $line;
		note_failure($by_name{$name} || $seeds[0], "not the batch answer: $line");
	}
	return;
}

# ---- a round: many seeds, from CREATE to DROP

# All have been fed; now everybody reads to the end, and those that have waited begin.
sub finish
{
	my (@seeds) = @_;
	my @queries = map { @{ $_->{queries} } } @seeds;
	my $run = sub { return join('', map { "CALL stream_agg.run('$_->{name}', '60 s');\n" } @_) };
	run_script($node, 'run', $run->(map { @{ $_->{variants} } } @queries)) // return undef;
	choose_memory($node);
	run_script($node, 'run_at_once',
		join('', map { "SELECT stream_agg.resume('$_->{name}');\n" } @queries) . $run->(@queries)) // return undef;
	note_seen([ map { $_->{name} } @queries ]);
	return take_prints(map { ($_, @{ $_->{variants} }) } @queries);
}

# Sends the next few records of the topic; false when there are no more.
sub send_some
{
	my ($topic) = @_;
	my @left = grep { @{ $topic->{records}[$_] } } 0 .. $#{ $topic->{records} };
	return 0 unless @left;
	my $partition = $left[ rand @left ];
	$kafka->produce_lines($topic->{topic}, $partition, [ splice(@{ $topic->{records}[$partition] }, 0, 1 + int(rand(20))) ]);
	return 1;
}

sub run_round
{
	my ($round, @numbers) = @_;
	my $topic = StreamAggOracle::generate_topic($numbers[0], "r$round", \@states, 'k');
	my @seeds = map { StreamAggOracle::generate_variants($_, "r$round", \@states) } @numbers;
	my $prints;
	$kafka->create_topic($topic->{topic}, scalar @{ $topic->{records} });
	srand($numbers[0] * 7919);
	choose_memory($node);
	if (!defined run_script($node, "setup_$round",
			"SET client_min_messages = error;\nCREATE SCHEMA r$round;\n"
				. join('', map { "BEGIN;\n$_->{setup}COMMIT;\n" } @seeds, $topic)))
	{
		note_failure($_, 'its round was not set up') for @seeds, $topic;
	}
	else
	{
		my $crashes = feed($node, "feed_$round", \@seeds,
			hurts => [ 'kill_worker', StreamAggOracle::pick('stop', 'kill_child'), 'restart', ('terminate') x 4, ('terminate_all') x 2, ('memory') x 3 ],
			watch => sub { send_some($topic) if rand() < 0.1 });
		finish_prepared($node);    # none, unless feeding has failed
		while (send_some($topic)) { }
		$prints = finish(@seeds, $topic) if defined $crashes;
		if ($prints)
		{
			cmp_ok($crashes, '>=', 1, "round $round: $crashes crashes") if @numbers > 5;
			compare_variants($_, $prints) for @seeds, $topic;
			compare_stream_letters($topic);
			compare_with_oracle(@seeds);
		}
		else
		{
			note_failure($_, 'its round did not come to the end') for @seeds, $topic;
		}
	}
	for my $seed (@seeds, $topic)
	{
		my @wrong = failures_of($seed);
		ok(!@wrong, "seed $seed->{number}: $seed->{events} events, " . scalar(@{ $seed->{queries} }) . ' queries')
		  or diag 'SA_SEED=' . $seed->{number} =~ s/\D//r . "\n$seed->{setup}" . join("\n", @wrong);
	}
	drop_round($node, $round);
	return;
}

my @numbers = ($first .. $first + $count - 1);
for (my $round = 1; @numbers; $round++)
{
	run_round($round, splice(@numbers, 0, $round_size));
}
cmp_ok($comparisons, '>=', 3 * $count, "$comparisons comparisons");
if ($count >= 100)
{
	cmp_ok($seen{$_}, '>', 0, "$_: $seen{$_}") for sort keys %seen;
}
my @crashes = unexpected_crashes($node);
is(scalar(@crashes), 0, 'no crash but those we made') or diag join("\n", @crashes);
$node->stop;
done_testing();
