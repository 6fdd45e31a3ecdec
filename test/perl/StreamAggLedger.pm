# StreamAggLedger.pm: a stream s of numbered events, views on it, and a ledger of the same events: the views' own queries
# over it are the right answer, at the end and at every position in between.
#
#	my $ledger = StreamAggLedger->new(options => { max_batch_rows => 100 });
#	$node->safe_psql($db, $ledger->create_sql . $ledger->insert_sql(1000));
#	is($ledger->differences($node, $db), '');		# now, wherever the views stand
#	$ledger->is_exact($node, $db, 'at the end');
#	$ledger->go_on($node, $db);		# after a crash: from the last event that the table has
#
# Staged, the ledger is the table l, written in the same transactions as the stream; with Kafka, event n is record
# (n - 1) / partitions of partition (n - 1) % partitions, and the ledger is computed.
package StreamAggLedger;

use strict;
use warnings;

use Test::More;

use StreamAggTest;

# Event number g. Times only rise, so nothing is late. Keys may be NULL.
my $event = "g AS id, timestamptz '2024-01-01Z' + g * interval '1 minute' AS ts, nullif(g % 5, 4)::int AS k, g % 10 AS v";

# Over the events (%s). Of some aggregates the state is their result, of others it is not.
my %queries = (
	running => 'SELECT k, count(*) AS n, avg(v) AS a FROM %s GROUP BY k',
	hours => "SELECT window_start, k, sum(v) AS v, stddev(v) AS d FROM %s, tumble(ts, '1 hour') GROUP BY window_start, k",
	hops => "SELECT window_start, window_end, count(*) AS n FROM %s, hop(ts, '1 hour', '20 minutes') GROUP BY window_start, window_end",
	closed => "SELECT window_start, k, count(*) AS n, avg(v) AS a FROM %s, tumble(ts, '1 hour') GROUP BY window_start, k",
	total => 'SELECT count(*) AS n, max(id) AS m FROM %s',
	rows => 'SELECT id, v FROM %s WHERE v > 2');
my %windowed = map { $_ => 1 } qw(hours hops closed);

# options: of every view; unlogged: those with windows are there once more, {name}_unlogged; views: only these;
# kafka: { bootstrap, topic, partitions }.
sub new
{
	my ($class, %params) = @_;
	my @views = $params{views} ? @{ $params{views} } : sort keys %queries;
	push @views, map { "${_}_unlogged" } grep { $windowed{$_} } @views if $params{unlogged};
	return bless {
		next => 1, options => $params{options} || {}, views => \@views, kafka => $params{kafka},
		partitions => $params{kafka} ? $params{kafka}{partitions} : 1
	}, $class;
}

sub views { return @{ $_[0]->{views} } }

# How many events there are.
sub count { return $_[0]->{next} - 1 }

sub query
{
	my ($view, $from) = @_;
	return sprintf($queries{ $view =~ s/_unlogged$//r }, $from);
}

sub create_view_sql
{
	my ($self, $view) = @_;
	my %options = (%{ $self->{options} }, output_mode => $view =~ /^closed/ ? 'append' : 'update');
	$options{state} = 'unlogged' if $view =~ /_unlogged$/;
	return sprintf("CREATE MATERIALIZED VIEW %s WITH (stream_agg.continuous, %s) AS %s;\n", $view,
		join(', ', map { "stream_agg.$_ = '$options{$_}'" } sort keys %options), query($view, 's'));
}

sub create_sql
{
	my ($self) = @_;
	my $kafka = $self->{kafka};
	my $of = $kafka
	  ? "SERVER stream_kafka OPTIONS (bootstrap_servers '$kafka->{bootstrap}', topic '$kafka->{topic}', event_time 'ts', watermark '10 minutes')"
	  : "SERVER stream_staged OPTIONS (event_time 'ts', watermark '10 minutes')";
	my $format = $kafka ? " OPTIONS (timestamp_format 'epoch_ms')" : '';
	return "CREATE EXTENSION IF NOT EXISTS stream_agg;\n"
	  . "CREATE TABLE l (id int, ts timestamptz, k int, v int);\n"
	  . "CREATE FOREIGN TABLE s (id int, ts timestamptz$format, k int, v int) $of;\n"
	  . join('', map { $self->create_view_sql($_) } $self->views);
}

# Staged: the next so many events, in one transaction, into the table and the stream.
sub insert_sql
{
	my ($self, $count) = @_;
	my ($first, $last) = ($self->{next}, $self->{next} + $count - 1);
	$self->{next} += $count;
	return "WITH x AS (INSERT INTO l SELECT $event FROM generate_series($first, $last) g RETURNING *) INSERT INTO s SELECT * FROM x;\n";
}

# Kafka: the next so many events, into the topic.
sub produce
{
	my ($self, $broker, $count) = @_;
	my @lines;
	for my $g ($self->{next} .. $self->{next} + $count - 1)
	{
		my $k = $g % 5 == 4 ? 'null' : $g % 5;
		push @{ $lines[ ($g - 1) % $self->{partitions} ] },
		  sprintf('{"id":%d,"ts":%d,"k":%s,"v":%d}', $g, 1000 * (1_704_067_200 + 60 * $g), $k, $g % 10);
	}
	$broker->produce_lines($self->{kafka}{topic}, $_, $lines[$_]) for grep { $lines[$_] } 0 .. $#lines;
	$self->{next} += $count;
	return;
}

# After a crash: the events that the table has are the ones that there are.
sub go_on
{
	my ($self, $on, $db) = @_;
	$self->{next} = 1 + $on->safe_psql($db, 'SELECT coalesce(max(id), 0) FROM l');
	return;
}

sub events
{
	my ($self) = @_;
	return $self->{kafka} ? "(SELECT $event FROM generate_series(1, @{[ $self->count ]}) g) l" : 'l';
}

# Rows that differ between each view and the answer over the records before its position.
sub differences
{
	my ($self, $on, $db, @views) = @_;
	my $n = $self->{partitions};
	my $sql = "SET TIME ZONE 'UTC';\nBEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY;\n";
	for my $view (@views ? @views : $self->views)
	{
		my $from = "(SELECT l.* FROM @{[ $self->events ]} JOIN stream_agg.partitions p ON p.view = '$view'::regclass AND p.partition = (id - 1) % $n WHERE (id - 1) / $n < p.position)";
		$from = "(SELECT * FROM $from x WHERE date_trunc('hour', ts) + interval '1 hour' <="
		  . " (SELECT CASE WHEN count(*) = $n THEN min(m) - interval '10 minutes' END FROM (SELECT max(ts) AS m FROM $from y GROUP BY (id - 1) % $n) z))"
		  if $view =~ /^closed/;
		my $answer = query($view, "$from l");
		$sql .= "SELECT '$view', x FROM ((($answer) EXCEPT ALL TABLE $view) UNION ALL (TABLE $view EXCEPT ALL ($answer))) x LIMIT 3;\n";
	}
	return $on->safe_psql($db, "$sql COMMIT");
}

# Everything is read, once, and the views hold the answer over all events.
sub is_exact
{
	my ($self, $on, $db, $name) = @_;
	my ($rc, $out, $err) = $on->psql($db, "CALL stream_agg.run('s', '120 s')");
	is($rc, 0, "$name: read to the end") or diag $err;
	is($self->differences($on, $db), '', $name);
	my $mine = join(', ', map { "'$_'::regclass" } $self->views);
	my $counters = "SELECT view, status, message, \"read\", late, accepted FROM stream_agg.views WHERE view IN ($mine) AND NOT (\"read\" = "
	  . "(SELECT count(*) FROM @{[ $self->events ]}) AND status = 'running' AND late = 0 AND " . balanced_counters() . ')';
	is($on->safe_psql($db, $counters), '', "$name: everything is read once");
	return;
}

1;
