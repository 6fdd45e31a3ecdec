# TortureViews.pm: random views over the streams of the torture rig, and their right answers in plain SQL.
#
# A stream {name, delay, log, partitions} has the columns of @COLUMNS; table {log} holds the same records with their partition
# and position ("part", "pos"). A view is compared with the answer over exactly the records that its position says
# it has read, in one snapshot, whenever that is.
package TortureViews;

use strict;
use warnings;

use StreamAggOracle ();

our @COLUMNS = ('id bigint', 'ts timestamptz', 'k int', 'kt text', 'v int', 'f float8', 't text');

sub pick { return $_[ int(rand(@_)) ]; }
sub chance { return rand() < $_[0]; }

# The last: more groups than little memory holds, in a long window.
my @keys = ([], ['k'], ['kt'], [ 'k', 'kt' ], ['k % 3 AS k3'], ["coalesce(kt, '?') AS kc"], ['id % 997 AS many', 't']);

# {O}: ordered by position in the answer; the view folds in that order by itself, one partition provided.
my @aggs = ('sum(v)', 'avg(v)', 'min(t)', 'max(t)', 'min(v)', 'max(v)', 'count(v)', 'stddev(v)', 'bool_and(v > 2)',
	'count(*) FILTER (WHERE v > 50)', "coalesce(max(t), 'none')", 'avg(v::numeric / 7)', 'max(ts)', 'bit_or(v)');
my @ordered_aggs = ('sum(f{O})', 'avg(f{O})', 'append_id(id{O})', 'first_text(t{O})', 'last_text(t{O})');
my @filters = ('v >= 20', "kt <> 'b'", 'k IS NOT NULL', 'id % 5 <> 0');
my @tumbles = ("'2 s'", "'10 s'", "'7 s'", "'1 minute'", "'20 s', timezone => 'Asia/Kathmandu'");
my @hops = ("hop(ts, '10 s', '5 s')", "hop(ts, '20 s', '7 s')", "hop(ts, '5 s', '10 s')", "cumulate(ts, '5 s', '20 s')",
	"hop(ts, '20 s', '10 s', timezone => 'Europe/Berlin')");
my @gaps = ("'1 s'", "'5 s'", "k * interval '200 ms'", "CASE WHEN v > 50 THEN interval '8 s' ELSE interval '500 ms' END");

sub some
{
	my ($least, $most, @from) = @_;
	my $count = $least + int(rand($most - $least + 1));
	my %taken;
	while (keys %taken < $count) { $taken{ pick(@from) } = 1 }
	my @result = sort keys %taken;
	return @result;
}

# Kinds: tumble, hop, session, running, rows. Options: mode; unlogged, where the view allows that; many groups.
sub make_view
{
	my ($name, $stream, $kind, %options) = @_;
	my %view = (name => $name, stream => $stream, kind => $kind, mode => 'update', drop_late => chance(0.2));
	$view{mode} = $options{mode} || pick('update', 'append') if $kind =~ /tumble|hop|session/;
	$view{mode} = pick('update', 'complete') if $kind eq 'running';
	$view{window} = 'tumble(ts, ' . ($options{many} ? "'1 minute'" : pick(@tumbles)) . ')' if $kind eq 'tumble';
	$view{window} = pick(@hops) if $kind eq 'hop';
	$view{window} = 'session(ts, ' . pick(@gaps) . ')' if $kind eq 'session';
	$view{where} = pick(@filters) if chance(0.4);
	$view{join} = 'LEFT JOIN public.dim_one ON dk = k' if chance(0.15);
	if ($kind eq 'rows')
	{
		$view{targets} = [ 'id', 'ts', 'upper(t) AS ut', 'v + 1 AS v1' ];
		$view{mode} = pick('update', 'append');
	}
	else
	{
		my @chosen = @{ $options{many} ? $keys[-1] : pick(@keys) };
		my @window = $view{window} ? qw(window_start window_end) : ();
		my $i = 0;
		# Arrays that grow for ever would make the rig slow, and a join's order is not the events'.
		my @pool = ($stream->{partitions} > 1 || $view{join} || $kind eq 'session' ? () : grep { $view{window} || !/append_id/ } @ordered_aggs);
		# Panes are added up one after another, which rounds in another way.
		@pool = grep { !/^(?:sum|avg)\(f/ } @pool if $kind eq 'hop' && $view{mode} eq 'append';
		$view{targets} = [ @chosen, @window, 'count(*) AS n', 'sum(id) AS ids', map { "$_ AS a" . ++$i } some(1, 4, @aggs, @pool) ];
		$view{keys} = [ map { s/ AS .*$//r } @chosen ];
		$view{group} = [ (map { s/^.* AS //r } @chosen), @window ];
		$view{having} = 'count(*) > 2' if chance(0.15);
	}
	# In which order events of several partitions are read is nobody's to tell.
	$view{dedup} = pick('v', 'k, v', 'v, kt') if $stream->{partitions} == 1 && $view{mode} ne 'complete' && chance(0.3);
	$view{state} = 'unlogged' if $options{unlogged} && $view{window} && !$view{join};
	return \%view;
}

sub body
{
	my ($view, $from, $order) = @_;
	my $sql = 'SELECT ' . join(', ', @{ $view->{targets} }) . " FROM $from";
	$sql .= ' GROUP BY ' . join(', ', @{ $view->{group} }) if $view->{group} && @{ $view->{group} };
	$sql .= " HAVING $view->{having}" if $view->{having};
	return $sql =~ s/\{O\}/$order/gr;
}

sub create
{
	my ($view) = @_;
	my %options = (output_mode => $view->{mode}, trigger => pick('immediate', 'immediate', '50 ms', '300 ms'));
	$options{max_batch_rows} = pick(7, 50, 300) if chance(0.5);
	$options{late_events} = 'drop' if $view->{drop_late};
	$options{dedup_key} = $view->{dedup} if $view->{dedup};
	$options{state} = $view->{state} if $view->{state};
	my $with = join(', ', 'stream_agg.continuous', map { "stream_agg.$_ = '$options{$_}'" } sort keys %options);
	my $from = $view->{stream}{name} . ($view->{join} ? " $view->{join}" : '') . ($view->{window} ? ", $view->{window}" : '');
	$from .= " WHERE $view->{where}" if $view->{where};
	return "CREATE MATERIALIZED VIEW $view->{name} WITH ($with) AS\n  " . body($view, $from, '') . ";\n";
}

# One row: view, rows missing, rows too many, events in the rows (n) and how many there should be; counters, dead
# letters, watermark, and what they should be; positions and records there are.
sub check
{
	my ($view) = @_;
	my ($name, $log, $delay) = ($view->{name}, $view->{stream}{log}, $view->{stream}{delay});
	my $session = $view->{kind} eq 'session';
	my $from = 'good' . ($view->{join} ? " $view->{join}" : '') . ($view->{window} ? ", $view->{window}" : '');
	$from .= ' AS own (own_start, own_end)' if $session;
	$from .= " WHERE $view->{where}" if $view->{where};
	my $kept = $session ? 'wm IS NULL OR own_start >= wm' : $view->{window} ? 'wm IS NULL OR window_end > wm' : $view->{dedup} ? 'wm IS NULL OR ts >= wm' : 'true';
	my $until = $view->{window} && !$session ? "(SELECT max(window_end) FROM $view->{window})" : "ts + interval '1 microsecond'";
	my $single = $view->{dedup}
	  ? "SELECT * FROM (SELECT *, see_key(until::timestamp, wm::timestamp) OVER (PARTITION BY $view->{dedup} ORDER BY pos ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)"
	  . " AS seen FROM (SELECT *, $until AS until FROM timed) t) t WHERE ROW($view->{dedup}) IS NOT NULL IS NOT TRUE OR seen IS NULL OR coalesce(seen <= wm::timestamp, false)"
	  : 'TABLE timed';
	my $late_windows = $view->{window} ? '(SELECT count(*) FROM below) - (SELECT count(*) FROM kept)' : '0';
	my $closed = !$view->{window} || $view->{mode} ne 'append' ? ''
	  : ' WHERE window_end ' . ($session ? '<' : '<=') . ' (SELECT watermark FROM last)';
	my $sessions = $session ? StreamAggOracle::sessions('true', @{ $view->{keys} }) : '';
	my $answer = body($view, ($session ? 'sessions' : 'kept') . $closed, ' ORDER BY pos');
	my $n = $view->{group} ? 'sum(n)' : 'count(*)';
	# Where only the stream's first view knows the order, others may be ahead of it: then they are not judged.
	my $ordered = $view->{stream}{order} ? " WHERE (SELECT sum(position) FROM p) <= (SELECT count(*) FROM $log)" : '';
	my $letters = $view->{drop_late} ? '0' : 'late';
	my @counters = qw(read skipped tombstone malformed null_time future duplicate failed filtered late accepted late_windows);
	my $got = join(', ', map { qq(sum("$_")) } @counters);
	my $wanted = join(', ', map { qq("$_") } @counters);
	return <<"SQL";
BEGIN ISOLATION LEVEL REPEATABLE READ;
WITH c AS MATERIALIZED (SELECT id, status, message FROM stream_agg.view_config WHERE view = '$name'::regclass),
p AS MATERIALIZED (SELECT * FROM stream_agg.view_position WHERE view_id = (SELECT id FROM c)),
mine AS MATERIALIZED (SELECT l.*, pos * 16 + part AS place FROM $log l JOIN p ON p.partition = l.part WHERE pos >= coalesce(p.start_position, 0) AND pos < p.position),
timed AS MATERIALIZED (SELECT *, max(ts) OVER (PARTITION BY part ORDER BY pos ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) - interval '$delay' AS wm
	FROM mine WHERE verdict = 'good'),
good AS MATERIALIZED ($single),
last AS MATERIALIZED (SELECT CASE WHEN count(*) = count(m) THEN min(m) END - interval '$delay' AS watermark
	FROM p LEFT JOIN LATERAL (SELECT max(ts) AS m FROM timed WHERE part = p.partition) x ON true),
below AS MATERIALIZED (SELECT * FROM $from),
kept AS MATERIALIZED (SELECT * FROM below WHERE $kept),$sessions
answer AS MATERIALIZED ($answer),
got AS MATERIALIZED (TABLE $name),
w AS MATERIALIZED (SELECT count(*) AS "read", 0 AS skipped, 0 AS tombstone, count(*) FILTER (WHERE verdict = 'malformed') AS malformed,
	count(*) FILTER (WHERE verdict = 'null_time') AS null_time, 0 AS future,
	(SELECT count(*) FROM timed) - (SELECT count(*) FROM good) AS duplicate, 0 AS failed,
	(SELECT count(*) FROM good) - (SELECT count(DISTINCT place) FROM below) AS filtered,
	(SELECT count(DISTINCT place) FROM below) - (SELECT count(DISTINCT place) FROM kept) AS late,
	(SELECT count(DISTINCT place) FROM kept) AS accepted,
	$late_windows AS late_windows FROM mine)
SELECT '$name', (SELECT count(*) FROM (TABLE answer EXCEPT ALL TABLE got) x), (SELECT count(*) FROM (TABLE got EXCEPT ALL TABLE answer) x),
	(SELECT coalesce($n, 0) FROM got), (SELECT coalesce($n, 0) FROM answer),
	(SELECT ROW($got)::text FROM p), (SELECT ROW($wanted)::text FROM w),
	(SELECT count(*) FROM stream_agg.dead_letter WHERE view = '$name'::regclass), (SELECT $letters FROM w),
	(SELECT CASE WHEN bool_and(watermark IS NOT NULL) THEN stream_agg.to_time(min(watermark)) END FROM p), (SELECT watermark FROM last),
	(SELECT coalesce(sum(position), 0) FROM p), (SELECT count(*) FROM $log),
	(SELECT concat_ws(': ', status, message) FROM c)$ordered;
COMMIT;
SQL
}

# The rows that differ, for the report of a failure.
sub difference
{
	my ($view) = @_;
	my $sql = check($view);
	$sql =~ s/\nSELECT '.*\z//s;
	return "$sql\n(SELECT 'missing', x.* FROM (TABLE answer EXCEPT ALL TABLE got) x LIMIT 5) UNION ALL "
	  . "(SELECT 'extra', x.* FROM (TABLE got EXCEPT ALL TABLE answer) x LIMIT 5);\nCOMMIT;\n";
}

1;
