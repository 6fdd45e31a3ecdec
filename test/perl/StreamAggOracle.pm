# StreamAggOracle.pm: random streams, views and events from a seed, and the right answer to each view in
# plain SQL over an ordinary table that holds the same events, without anything of the extension.
#
# Every event goes into the stream and into that table in one transaction, so a crash leaves both or
# neither. The order in which events were read is the order of their ids where one session writes them
# one transaction after another ("ordered" seeds); elsewhere prepared transactions commit late, and the
# view "ids", an array of ids appended one by one, tells the order.
package StreamAggOracle;

use strict;
use warnings;

use POSIX qw(floor strftime);

our @COLUMNS = qw(id ts k kt kn kf v n f t);

# ---- helpers

sub pick { return $_[ int(rand(@_)) ]; }
sub chance { return rand() < $_[0]; }

sub literal
{
	my ($value) = @_;
	return 'NULL' unless defined $value;
	$value =~ s/'/''/g;
	return "'$value'";
}

sub copy_field
{
	my ($value) = @_;
	return '\\N' unless defined $value;
	$value =~ s/\\/\\\\/g;
	$value =~ s/\t/\\t/g;
	$value =~ s/\n/\\n/g;
	return $value;
}

# Microseconds since 1970 as a timestamp.
sub timestamp
{
	my ($usecs) = @_;
	my $seconds = floor($usecs / 1_000_000);
	my $rest = $usecs - $seconds * 1_000_000;
	my @utc = gmtime($seconds);
	return sprintf('%04d-%02d-%02d %02d:%02d:%02d.%06d', $utc[5] + 1900, $utc[4] + 1, @utc[ 3, 2, 1, 0 ], $rest);
}

# ---- what every database needs: tables to join, and aggregates of users

sub prelude
{
	return <<'SQL';
CREATE TABLE dim_one (dk int PRIMARY KEY, label text, w int);
INSERT INTO dim_one VALUES (0, 'zero', 10), (1, 'one', 11), (2, NULL, 12), (4, 'four', NULL), (5, 'one', 15);
CREATE TABLE dim_many (mk int, x int);
INSERT INTO dim_many VALUES (0, 1), (0, 1), (1, 2), (1, 3), (1, 4), (3, 5), (NULL, 6);
CREATE TABLE changes (name text, op text);
CREATE FUNCTION note_change() RETURNS trigger LANGUAGE plpgsql AS
$$BEGIN INSERT INTO public.changes VALUES (TG_TABLE_NAME, TG_OP); RETURN NULL; END$$;
CREATE AGGREGATE append_id(bigint) (sfunc = array_append, stype = bigint[], initcond = '{}');
CREATE AGGREGATE append_text(text) (sfunc = array_append, stype = text[], initcond = '{}');
CREATE AGGREGATE narrow_sum(int) (sfunc = int4pl, stype = int, combinefunc = int4pl);
CREATE FUNCTION first_arg(text, text) RETURNS text LANGUAGE sql IMMUTABLE STRICT AS 'SELECT $1';
CREATE AGGREGATE first_text(text) (sfunc = first_arg, stype = text);
CREATE FUNCTION last_arg(text, text) RETURNS text LANGUAGE sql IMMUTABLE AS 'SELECT coalesce($2, $1)';
CREATE AGGREGATE last_text(text) (sfunc = last_arg, stype = text);
CREATE FUNCTION see_key_step(timestamp, timestamp, timestamp) RETURNS timestamp LANGUAGE sql IMMUTABLE AS
	'SELECT CASE WHEN $1 > $3 OR $3 IS NULL AND $1 IS NOT NULL THEN $1 WHEN $2 > $3 OR $3 IS NULL THEN $2 ELSE $1 END';
CREATE AGGREGATE see_key(timestamp, timestamp) (sfunc = see_key_step, stype = timestamp);
CREATE FUNCTION mean_step(numeric[], numeric) RETURNS numeric[] LANGUAGE plpgsql IMMUTABLE AS
$$BEGIN RETURN ARRAY[$1[1] + coalesce($2, 0), $1[2] + 1]; END$$;
CREATE FUNCTION mean_end(numeric[]) RETURNS numeric LANGUAGE sql IMMUTABLE AS 'SELECT $1[1] / NULLIF($1[2], 0)';
CREATE FUNCTION mean_both(numeric[], numeric[]) RETURNS numeric[] LANGUAGE sql IMMUTABLE AS 'SELECT ARRAY[$1[1] + $2[1], $1[2] + $2[2]]';
CREATE AGGREGATE my_mean(numeric) (sfunc = mean_step, finalfunc = mean_end, stype = numeric[], initcond = '{0,0}', combinefunc = mean_both);
CREATE AGGREGATE lone_mean(numeric) (sfunc = mean_step, finalfunc = mean_end, stype = numeric[], initcond = '{0,0}');
SQL
}

# ---- events

my @texts = ('a', 'b', 'c', "quote's", 'back\\slash', '', 'x' x 300, "tab\there", "\x{c3}\x{a4}");

# The first and the later steps of event time, and how far events stray from it, in microseconds.
sub event_times
{
	my ($count) = @_;
	my $minute = 60_000_000;
	# the last three are before changes of the clock in New York, Berlin and Havana
	my $at = pick(1_709_251_200, 0, -43_200, 951_782_400, -31_399_999_999, 1_710_046_800, 1_729_980_000, 1_699_149_600) * 1_000_000;
	my $step = pick(1_000, 7_000_000, $minute, 3 * $minute);
	my $stray = pick(0, $minute, 20 * $minute, 90 * $minute, 1440 * $minute);
	my @times;

	for my $i (1 .. $count)
	{
		$at += floor(rand($step));
		$at += pick(3600, 86_400, 40 * 86_400) * 1_000_000 if chance(0.01);
		my $time = $at - floor(rand($stray));
		$time = floor($time / (10 * $minute)) * 10 * $minute if chance(0.15);	# on a boundary
		$time = $times[-1] if @times && defined $times[-1] && chance(0.15);	# equal to the last
		$time = $at - 500 * 86_400 * 1_000_000 if chance(0.005);
		push @times, $time;
	}
	return @times;
}

sub time_text
{
	my ($usecs, $bad) = @_;
	my $kind = $bad ? rand() : 1;
	return undef if $kind < 0.02;
	return pick('infinity', '-infinity') if $kind < 0.04;
	return sprintf('2190-01-01 00:00:%02d', floor(rand(60))) if $kind < 0.06;
	return timestamp($usecs);
}

sub make_events
{
	my ($count, $bad, $not_null) = @_;
	my $id = 0;
	my $keys = pick(1, 3, 7);
	return map {
		{
			id => ++$id,
			ts => time_text($_, $bad),
			k => $not_null || chance(0.85) ? floor(rand($keys)) : undef,
			kt => chance(0.85) ? pick(@texts) : undef,
			kn => pick('1', '1.0', '1.00', '2.5', 'NaN', '-3', undef),
			kf => pick('0', '-0', '1.5', 'NaN', 'Infinity', '1e-300', undef),
			v => chance(0.1) ? undef : chance(0.04) ? 0 : floor(rand(120)) - 19,
			n => pick(undef, '12.34', '-0.001', '1e25', sprintf('%.3f', rand(100)), sprintf('%d', rand(1e9))),
			f => chance(0.1) ? undef : sprintf('%.17g', (rand() - 0.3) * 10**floor(rand(20) - 10)),
			t => chance(0.1) ? undef : pick(@texts) . floor(rand(4)),
		}
	} event_times($count);
}

# ---- views

# So many and so wide that the least memory for state (64 kB) does not hold all groups.
my $wide = 'rpad((id % 97)::text, 400) AS wide';
my @keys = ([], ['k'], ['kt'], ['kn'], ['kf'], [ 'k', 'kt' ], ['k % 3 AS k3'],
	["coalesce(kt, '?') AS kc"], [ 'kn', 'kf' ], ['lower(t) AS lt'], [ 'k', 'v > 50 AS big' ], ([$wide]) x 3);

# {O}: ordered by the order of reading, in the oracle; the engine folds in that order by itself.
my @aggs = ('count(*)', 'count(v)', 'sum(v)', 'sum(n)', 'avg(v)', 'avg(n)', 'min(t)', 'max(t)', 'min(n)',
	'max(ts)', 'sum(f{O})', 'avg(f{O})', 'stddev(v)', 'variance(n)', 'stddev(f{O})', 'corr(v, f{O})',
	'count(*) FILTER (WHERE v > 50)', 'sum(v) FILTER (WHERE v < 30)', 'bool_and(v > -10)', 'bit_or(v)',
	'round(avg(v), 2)', 'sum(v) * 2 + count(*)', "coalesce(max(t), 'none')", 'append_id(id{O})',
	'append_text(kt{O})', 'first_text(t{O})', 'last_text(t{O})', 'my_mean(n)', 'sum(100 / (v * v + 1))', 'max(kf)', 'sum(v) + sum(v)',
	'min(v)::text || max(v)::text');

my @having = ('count(*) > 2', 'sum(v) > 100', 'count(*) % 2 = 0', "min(t) < 'b'", 'count(v) > 0 AND avg(v) < 60');
my @filters = ('v >= 20', "kt <> 'b'", 'k IS NOT NULL', 'v % 2 = 0 OR v IS NULL', 'id % 5 <> 0',
	'k IN (SELECT dk FROM dim_one)', 'EXISTS (SELECT 1 FROM dim_many WHERE mk = k)', 'f > 0');
my @joins = ('JOIN dim_one ON dk = k', 'LEFT JOIN dim_one ON dk = k', "LEFT JOIN dim_one ON dk = k AND label <> 'one'",
	'JOIN dim_many ON mk = k', 'LEFT JOIN dim_many ON mk = k');

my @tumbles = ('1 hour', '7 minutes', '10 minutes', '1 day', '7 days', '13:00:07', '0.25 seconds');
my @hops = ([ '1 hour', '20 minutes' ], [ '1 hour', '25 minutes' ], [ '10 minutes', '1 hour' ],
	[ '1 day', '07:00' ], [ '30 minutes', '30 minutes' ], [ '90 minutes', '7 minutes' ]);
my @origins = ('2001-02-03 04:05:06.789', '2031-01-01 00:00:03', '1950-06-07 08:00');

sub tumble_window
{
	my ($type) = @_;
	my $size = pick(@tumbles);
	my $origin = chance(0.3) ? pick(@origins) : undef;
	my $aligned = $origin // ($size eq '7 days' ? '1970-01-05' : '1970-01-01');
	return {
		call => "tumble(ts, '$size'" . ($origin ? ", '$origin')" : ')'),
		rows => "(SELECT b + interval '0' AS window_start, b + interval '$size' AS window_end"
		  . " FROM date_bin('$size', ts, $type '$aligned') b) w"
	};
}

sub hop_window
{
	my ($type) = @_;
	my ($size, $slide) = @{ pick(@hops) };
	my $origin = chance(0.3) ? pick(@origins) : undef;
	my $aligned = $origin // '1970-01-01';
	return {
		call => "hop(ts, '$size', '$slide'" . ($origin ? ", '$origin')" : ')'),
		rows => "(SELECT s AS window_start, s + interval '$size' AS window_end FROM generate_series(0, 30) g,"
		  . " LATERAL (SELECT date_bin('$slide', ts, $type '$aligned') - g * interval '$slide' AS s) b"
		  . " WHERE s <= ts AND ts < s + interval '$size') w"
	};
}

# Ends every step, and with the size.
sub cumulate_window
{
	my ($type) = @_;
	my ($step, $size) = @{ pick([ '10 minutes', '1 hour' ], [ '7 minutes', '30 minutes' ], [ '1 hour', '1 hour' ], [ '6 hours', '1 day' ]) };
	my $origin = chance(0.3) ? pick(@origins) : undef;
	my $aligned = $origin // '1970-01-01';
	return {
		call => "cumulate(ts, '$step', '$size'" . ($origin ? ", '$origin')" : ')'),
		rows => "(SELECT b + interval '0' AS window_start, least(b + k * interval '$step', b + interval '$size') AS window_end"
		  . " FROM generate_series(1, 6) k, date_bin('$size', ts, $type '$aligned') b"
		  . " WHERE b + (k - 1) * interval '$step' < b + interval '$size' AND ts < b + k * interval '$step') w",
		bounds => [ 'both', 'end' ]
	};
}

# ---- windows by the calendar: in local time ($local), whose bounds AT TIME ZONE turns into instants

my @zones = ('America/New_York', 'Europe/Berlin', 'Asia/Kolkata');

# The local time of an event, and a local time as an instant; of a plain timestamp, or in UTC, months alone are such.
sub calendar_zone
{
	my ($type, @zones) = @_;
	return { arg => '', local => 'ts', instant => sub { $_[0] } } if $type eq 'timestamp';
	my $zone = pick(@zones, undef);
	my $name = $zone // 'UTC';
	return { arg => $zone ? ", timezone => '$zone'" : '', local => "(ts AT TIME ZONE '$name')", instant => sub { "($_[0] AT TIME ZONE '$name')" }, zone => $zone };
}

# Where the n-th day (or so) begins that holds a local time.
sub local_start
{
	my ($zone, $size) = @_;
	return "date_trunc('$1', $zone->{local})" if $size =~ /^1 (month|year)$/;
	return "date_trunc('quarter', $zone->{local})" if $size eq '3 months';
	my $aligned = $size eq '7 days' ? '1970-01-05' : '1970-01-01';
	return "date_bin('$size', $zone->{local}, timestamp '$aligned')";
}

sub calendar_tumble
{
	my ($type) = @_;
	my $zone = calendar_zone($type, @zones);
	my $size = pick('1 month', '3 months', '1 year', '1 day', '1 day', '3 days', '7 days', '1 hour', '30 seconds');
	my $start = local_start($zone, $size);
	# What divides the change of the clock is of one length, and the clock's offset that of the event.
	my $rows = $size =~ /hour|second/
	  ? "SELECT b AS window_start, b + interval '$size' AS window_end FROM (SELECT ts - ($zone->{local} - $start)) x (b)"
	  : "SELECT " . $zone->{instant}->('b') . " AS window_start, " . $zone->{instant}->("(b + interval '$size')") . " AS window_end FROM $start b";
	return { call => "tumble(ts, '$size'$zone->{arg})", rows => "($rows) w" };
}

sub calendar_hop
{
	my ($type) = @_;
	my $zone = calendar_zone($type, @zones);
	my ($size, $slide) = @{ pick([ '3 days', '1 day' ], [ '1 month', '7 days' ], [ '1 year', '3 months' ], [ '2 days', '3 days' ], [ '7 days', '1 month' ]) };
	my $start = local_start($zone, $slide);
	return {
		call => "hop(ts, '$size', '$slide'$zone->{arg})",
		rows => "(SELECT " . $zone->{instant}->('b') . " AS window_start, " . $zone->{instant}->("(b + interval '$size')") . " AS window_end"
		  . " FROM generate_series(0, 5) g, LATERAL (SELECT $start - g * interval '$slide') x (b)"
		  . " WHERE ts < " . $zone->{instant}->("(b + interval '$size')") . ") w",
		bounds => [ 'both', 'both', 'start' ]
	};
}

sub calendar_cumulate
{
	my ($type) = @_;
	my $zone = calendar_zone($type, @zones);
	my ($step, $size) = @{ pick([ '6 hours', '1 day' ], [ '1 day', '7 days' ], [ '7 days', '1 month' ], [ '1 month', '1 year' ]) };
	my $start = local_start($zone, $size);
	return {
		call => "cumulate(ts, '$step', '$size'$zone->{arg})",
		rows => "(SELECT " . $zone->{instant}->('b') . " AS window_start, "
		  . $zone->{instant}->("least(b + k * interval '$step', b + interval '$size')") . " AS window_end"
		  . " FROM generate_series(1, 12) k, $start b WHERE b + (k - 1) * interval '$step' < b + interval '$size'"
		  . " AND ts < " . $zone->{instant}->("(b + k * interval '$step')") . ") w",
		bounds => [ 'both', 'end' ]
	};
}

# GROUP BY date_bin() or date_trunc() without a window function; the end is where the next one begins.
sub expression_window
{
	my ($type) = @_;
	if (chance(0.4))
	{
		my ($size, $origin) = (pick(@tumbles), pick(@origins));
		my $bin = "date_bin('$size', ts, $type '$origin')";
		return { expression => $bin, rows => "(SELECT b AS window_start, b + interval '$size' AS window_end FROM $bin b) w", bounds => ['start'] };
	}
	my $unit = pick(qw(second minute hour day week month quarter year decade));
	my %next = (quarter => '3 months', decade => '10 years');
	my $next = "interval '" . ($next{$unit} // "1 $unit") . "'";
	my %window = (bounds => ['start']);
	if ($type eq 'timestamp')
	{
		$window{expression} = "date_trunc('$unit', ts)";
		$window{rows} = "(SELECT b AS window_start, b + $next AS window_end FROM date_trunc('$unit', ts) b) w";
		return \%window;
	}
	my $zone = pick(@zones, 'America/Havana', 'Australia/Lord_Howe', 'UTC');
	my $end = $unit =~ /day|week|month|quarter|year|decade/
	  ? "(date_trunc('$unit', ts AT TIME ZONE '$zone') + $next) AT TIME ZONE '$zone'" : "date_trunc('$unit', ts, '$zone') + $next";
	$window{timezone} = $zone if chance(0.5);
	$window{expression} = $window{timezone} ? "date_trunc('$unit', ts)" : "date_trunc('$unit', ts, '$zone')";
	$window{rows} = "(SELECT date_trunc('$unit', ts, '$zone') AS window_start, $end AS window_end) w";
	return \%window;
}

# What an event alone has of its session; what sessions it makes with others is told in check(), gaps and islands.
my $session_share = $ENV{SA_SESSIONS} // 0.2;

sub session_window
{
	my $gap = pick(("interval '10 minutes'") x 2, "interval '1 minute'", "interval '1 hour'", "interval '3 seconds'", "interval '1 day'",
		"CASE k WHEN 1 THEN interval '2 hours' WHEN 2 THEN interval '0' ELSE interval '5 minutes' END",
		"v * interval '1 minute'");
	return {
		session => 1,
		call => "session(ts, $gap)",
		rows => "(SELECT ts AS own_start, ts + $gap AS own_end WHERE $gap > interval '0') w",
		bounds => ['both']
	};
}

sub make_window
{
	my ($type) = @_;
	return session_window() if chance($session_share);
	my $kind = rand();
	return tumble_window($type) if $kind < 0.3;
	return hop_window($type) if $kind < 0.55;
	return cumulate_window($type) if $kind < 0.65;
	return calendar_tumble($type) if $kind < 0.75;
	return calendar_hop($type) if $kind < 0.8;
	return calendar_cumulate($type) if $kind < 0.85;
	return expression_window($type);
}

sub some
{
	my ($least, $most, @from) = @_;
	my $count = $least + floor(rand($most - $least + 1));
	my %taken;
	while (keys %taken < $count) { $taken{ pick(@from) } = 1; }
	my @result = sort keys %taken;
	return @result;
}

# WHERE and the events that fail in it or, having passed it, in an argument of an aggregate.
sub add_filter
{
	my ($view) = @_;
	$view->{fails} = 'false';
	return if $view->{join} && chance(0.5);
	if (!$view->{join} && chance(0.12))
	{
		($view->{where}, $view->{fails}) = ('100 / v <> 7', 'v = 0');
	}
	elsif (chance(0.4))
	{
		$view->{where} = pick(@filters);
		$view->{where} .= ' AND ' . pick(@filters) if chance(0.2);
	}
	return;
}

sub failing_argument
{
	my ($view, $aggs) = @_;
	return if $view->{join} || $view->{fails} ne 'false' || !chance(0.12);
	return if $view->{window} && ($view->{window}{call} // '') =~ /^(hop|cumulate)/;
	push @$aggs, 'sum(100 / v)';
	$view->{fails} = 'v = 0' . ($view->{where} ? " AND ($view->{where})" : '');
	return;
}

# Hopping windows are put together from panes where all aggregates combine; but a sum of floats is then a sum of sums.
sub choose_panes
{
	my ($view, @aggs) = @_;
	return (@aggs, 'lone_mean(n)') if chance(0.3);
	my @combining = grep { !/\{O\}|lone_mean/ } @aggs;
	return @combining ? @combining : ('count(*)', 'my_mean(n)');
}

sub add_aggregation
{
	my ($view, $windowed) = @_;
	my @keys = @{ pick(@keys) };
	@keys = ('label') if $view->{join} && $view->{join} =~ /dim_one/ && chance(0.3);
	# The planner may join in an order that is not that of the events.
	my $joins = $view->{join} || ($view->{where} && $view->{where} =~ /SELECT/);
	# And sessions that meet have been folded apart.
	my @aggs = some(1, 5, $joins || ($view->{window} && $view->{window}{session}) ? grep { !/\{O\}/ } @aggs : @aggs);
	@aggs = choose_panes($view, @aggs) if $view->{mode} eq 'append' && ($view->{window}{call} // '') =~ /^hop/;
	my $bounds = $windowed ? pick(@{ $view->{window}{bounds} // [ 'both', 'both', 'both', 'start', 'end' ] }) : 'none';
	my @window = $bounds eq 'both' ? qw(window_start window_end) : $bounds eq 'none' ? () : ("window_$bounds");

	failing_argument($view, \@aggs);
	my @names = map { my $key = $_; $key =~ s/^.* AS //; $key } @keys;
	my @exprs = map { my $key = $_; $key =~ s/ AS .*$//; $key } @keys;
	my $i = 0;
	$view->{targets} = [ @keys, @window, map { "$_ AS a" . ++$i } @aggs ];
	@{ $view->{targets} } = reverse @{ $view->{targets} } if chance(0.15);
	$view->{keys} = \@exprs;
	$view->{names} = \@names;
	$view->{group} = [ chance(0.5) ? @exprs : @names, @window ];
	$view->{having} = pick(@having) if chance(0.2);
	return;
}

sub make_view
{
	my ($name, $seed) = @_;
	my %view = (name => $name, mode => 'update', delay => $seed->{delay});
	my $kind = rand();
	my $windowed = $seed->{timed} && $kind < 0.75;

	if ($windowed)
	{
		$view{window} = make_window($seed->{type});
		$view{delay} = $view{own_delay} = pick('0', '10 minutes', '5 hours') if chance(0.15);
		$view{mode} = chance(0.1) ? 'complete' : defined $view{delay} && chance(0.5) ? 'append' : 'update';
	}
	$view{join} = pick(@joins) if chance(0.3);
	add_filter(\%view);
	if (!$windowed && $kind > 0.9)
	{
		$view{targets} = [ 'id', 'ts', 'upper(t) AS ut', 'v + 1 AS v1', 'kn' ];
		push @{ $view{targets} }, 'label' if $view{join} && $view{join} =~ /dim_one/;
		$view{mode} = 'append' if chance(0.5);
	}
	else
	{
		add_aggregation(\%view, $windowed);
		$view{mode} = 'complete' if !$windowed && chance(0.3);
	}
	$view{drop_late} = chance(0.2);
	$view{dedup} = pick('v', 'k, v', 'v, kn', 'kf, v', 'kt, v', 'id') if defined $view{delay} && $view{mode} ne 'complete' && chance(0.3);
	$view{lateness} = pick('1 minute', '20 minutes', '1 day') if $view{window} && defined $view{delay} && chance(0.4);
	return \%view;
}

sub ids_view
{
	my ($name, $seed) = @_;
	return {
		name => $name, mode => 'update', delay => $seed->{delay}, fails => 'false', drop_late => 0,
		targets => [ 'append_id(id{O}) AS ids', 'count(*) AS n' ], group => []
	};
}

sub body
{
	my ($view, $from, $ordered) = @_;
	my $sql = 'SELECT ' . join(', ', @{ $view->{targets} }) . " FROM $from";
	$sql .= ' GROUP BY ' . join(', ', @{ $view->{group} }) if $view->{group} && @{ $view->{group} };
	$sql .= " HAVING $view->{having}" if $view->{having};
	my $order = $ordered ? ' ORDER BY ord' : '';
	$sql =~ s/\{O\}/$order/g;
	return $sql;
}

sub create_view
{
	my ($view, $seed, $start) = @_;
	my %options = (
		output_mode => $view->{mode},
		trigger => pick('manual', 'manual', 'manual', 'immediate', 'immediate', '50 ms', '1 second'));
	$options{max_batch_rows} = pick(1, 2, 7, 20, 100, 300) if chance(0.7);
	$options{watermark} = $view->{own_delay} if defined $view->{own_delay};
	$options{late_events} = 'drop' if $view->{drop_late};
	$options{dedup_key} = $view->{dedup} if $view->{dedup};
	$options{allowed_lateness} = $view->{lateness} if $view->{lateness};
	$options{start} = $start if $start;
	%options = (%options, %{ $view->{options} || {} });
	my $with = join(', ', 'stream_agg.continuous', map { "stream_agg.$_ = '$options{$_}'" } sort keys %options);
	my $from = "$seed->{stream} e";
	$from .= " $view->{join}" if $view->{join};
	my %window = %{ $view->{window} // {} };
	$from .= ", $window{call}" if $window{call};
	my $query = body($view, "$from {WHERE}", 0);
	$query =~ s/\bwindow_start\b/$window{expression} AS window_start/ if $window{expression};
	my $where = $view->{where} ? "WHERE $view->{where}" : '';
	$query =~ s/\{WHERE\}/$where/;
	return ($window{timezone} ? "SET timezone = '$window{timezone}';\n" : '')
	  . "CREATE MATERIALIZED VIEW $view->{name} WITH ($with) AS\n  $query;\n"
	  . ($window{timezone} ? "SET timezone = 'UTC';\n" : '')
	  . ($view->{window} && chance(0.6) ? set_state($view, 'unlogged') : '');
}

# The state comes to lie elsewhere, where the view allows that.
sub set_state
{
	my ($view, $state) = @_;
	return "DO \$\$BEGIN ALTER MATERIALIZED VIEW $view->{name} SET (stream_agg.state = '$state');"
	  . " EXCEPTION WHEN invalid_parameter_value THEN NULL; END\$\$;\n";
}

# ---- transactions

sub values_list { return join(",\n", map { my $e = $_; '(' . join(', ', map { literal($e->{$_}) } @COLUMNS) . ')' } @_); }

sub copy_block
{
	my ($table, @events) = @_;
	return "COPY $table FROM STDIN;\n"
	  . join('', map { my $e = $_; join("\t", map { copy_field($e->{$_}) } @COLUMNS) . "\n" } @events) . "\\.\n";
}

sub junk
{
	my ($seed) = @_;
	return "INSERT INTO $seed->{stream} (id, ts, k) SELECT -g, '2024-03-01', 1 FROM generate_series(1, "
	  . pick(1, 5, 50) . ") g;\n";
}

# One transaction's statements: the events into the table and, in the same order, into the stream.
sub write_events
{
	my ($seed, @events) = @_;
	my ($stream, $log) = ($seed->{stream}, $seed->{log});
	my ($first, $last) = ($events[0]{id}, $events[-1]{id});
	my $way = rand();
	my $sql = '';

	$sql .= "SAVEPOINT a;\n" . junk($seed) . "ROLLBACK TO a;\n" if chance(0.1);
	if ($way < 0.3)
	{
		$sql .= copy_block($log, @events) . copy_block($stream, @events);
	}
	elsif ($way < 0.5)
	{
		$sql .= "WITH x AS (INSERT INTO $log VALUES\n" . values_list(@events)
		  . " RETURNING *)\nINSERT INTO $stream SELECT * FROM x;\n";
	}
	else
	{
		my $middle = chance(0.3) ? $first + floor(rand($last - $first + 1)) : $last;
		$sql .= "INSERT INTO $log VALUES\n" . values_list(@events) . ";\n";
		for my $part ([ $first, $middle ], [ $middle + 1, $last ])
		{
			next if $part->[0] > $part->[1];
			$sql .= "SAVEPOINT b;\n" if chance(0.2);
			$sql .= "INSERT INTO $stream SELECT * FROM $log WHERE id BETWEEN $part->[0] AND $part->[1] ORDER BY id;\n";
		}
	}
	$sql .= "INSERT INTO $seed->{twin} SELECT * FROM $log WHERE id BETWEEN $first AND $last ORDER BY id;\n" if $seed->{twin};
	$sql .= "SAVEPOINT c;\n" . junk($seed) . "ROLLBACK TO c;\n" if chance(0.1);
	return $sql;
}

# What users do with results while the view lives: none of it may change the answer.
sub maintenance
{
	my ($seed) = @_;
	my $view = pick(@{ $seed->{views} });
	my ($column) = pick(@{ $view->{targets} }) =~ /(\w+)$/;
	return pick(
		"VACUUM FULL $view->{name};\n",
		"VACUUM $view->{name};\n",
		"REINDEX TABLE $view->{name};\n",
		"DROP INDEX IF EXISTS $view->{name}_idx;\nCREATE INDEX " . ($view->{name} =~ s/.*\.//r) . "_idx ON $view->{name} ($column);\n",
		"CREATE OR REPLACE TRIGGER note_change AFTER INSERT OR UPDATE OR DELETE ON $view->{name} FOR EACH ROW EXECUTE FUNCTION note_change();\n",
		"ALTER TABLE $view->{name} SET (fillfactor = 20);\n",
		"DROP MATERIALIZED VIEW IF EXISTS $seed->{name}_doomed;\n");
}

# A column of the stream has another name for a while. (Not where prepared transactions hold the stream.)
sub renamed
{
	my ($seed, @steps) = @_;
	my $rename = sub {
		return { sql => "DO \$\$BEGIN ALTER FOREIGN TABLE $seed->{stream} RENAME COLUMN $_[0] TO $_[1];"
			  . " EXCEPTION WHEN undefined_column THEN NULL; END\$\$;\n" };
	};
	my $back = $rename->('v_then', 'v');
	$seed->{back} = $back;    # first thing after a crash, for steps before these may be done again
	return ($rename->('v', 'v_then'), @steps, $back);
}

# Steps: {sql}, and {txn} (id of the first event) where it adds events. Steps may be done twice, but
# those with events only when the events are not there.
sub make_steps
{
	my ($seed, @events) = @_;
	my @steps;
	my @prepared;
	my $most = pick(5, 30, 60, 150);
	my $run_often = pick(0.05, 0.25);
	my $late_view = !$seed->{queries} && $seed->{ordered} && chance(0.5) ? scalar(@events) * (0.2 + rand(0.5)) : undef;
	my $paused;

	while (@events)
	{
		my @some = splice(@events, 0, 1 + floor(rand($most)));
		my $first = $some[0]{id};
		my $write = write_events($seed, @some);
		if (!$seed->{ordered} && chance(0.3))
		{
			push @steps, { txn => $first, sql => "BEGIN;\n${write}PREPARE TRANSACTION '$seed->{stream}-$first';\n" };
			push @prepared, "$seed->{stream}-$first";
		}
		else
		{
			my $step = { txn => $first, sql => "BEGIN;\n${write}COMMIT;\n" };
			# Dead letters show the name that a column had when they were written.
			push @steps, !$seed->{queries} && $seed->{ordered} && chance(0.02) ? renamed($seed, $step) : $step;
		}
		push @steps, { sql => "BEGIN;\n" . junk($seed) . "ROLLBACK;\n" } if chance(0.05);
		push @steps, { prepared => shift @prepared } if @prepared && chance(0.4);

		push @steps, { sql => maintenance($seed) } if chance(0.05);
		push @steps, { sql => set_state(pick(@{ $seed->{views} }), pick('heap', 'unlogged')) } if chance(0.05);

		if (defined $late_view && $first > $late_view)
		{
			my $view = make_view("$seed->{name}_late", $seed);
			$view->{start} = pick('earliest', 'latest');
			$view->{created_after} = $some[-1]{id};
			push @{ $seed->{views} }, $view;
			push @steps, { sql => "DROP MATERIALIZED VIEW IF EXISTS $view->{name};\n"
				  . create_view($view, $seed, $view->{start}) . "CALL stream_agg.run('$view->{name}');\n" };
			$late_view = undef;
		}
		if ($paused)
		{
			push @steps, { sql => "SELECT stream_agg.resume('$paused');\n" } if chance(0.5);
			$paused = undef if $steps[-1]{sql} && $steps[-1]{sql} =~ /resume/;
		}
		elsif (chance(0.02))
		{
			$paused = pick(@{ $seed->{views} })->{name};
			push @steps, { sql => "SELECT stream_agg.pause('$paused');\n" };
		}
		if (!$paused && chance($run_often))
		{
			# Not the stream, where a view waits, paused.
			my $what = $seed->{queries} ? pick(@{ $seed->{views} })->{name}
			  : chance(0.7) ? $seed->{stream} : $seed->{views}[0]{name};
			push @steps, { sql => "CALL stream_agg.run('$what');\n" };
		}
	}
	push @steps, { prepared => $_ } for @prepared;
	push @steps, { sql => "SELECT stream_agg.resume('$paused');\n" } if $paused;
	return @steps;
}

# ---- a seed

# The stream and its table.
sub new_seed
{
	my ($number, $schema) = @_;
	srand($number);
	my %seed = (
		number => $number,
		name => "$schema.v$number",
		stream => "$schema.s$number",
		log => "$schema.l$number",
		timed => !chance(0.05),
		type => chance(0.2) ? 'timestamp' : 'timestamptz',
		ordered => chance(0.7),
		max_future => pick(undef, undef, '10 minutes', 'infinity'),
		not_null => chance(0.4));
	# Without the order of bad events, the prefix that a view has read is not known: only good ones there.
	$seed{bad} = $seed{timed} && $seed{ordered} && chance(0.7);
	$seed{delay} = $seed{timed} && chance(0.9) ? pick('0', '5 minutes', '1 hour', '1 day') : undef;

	my $columns = "(id bigint NOT NULL, ts $seed{type}, k int" . ($seed{not_null} ? ' NOT NULL' : '')
	  . ', kt text, kn numeric, kf float8, v int, n numeric, f float8, t text)';
	$seed{setup} = "CREATE TABLE $seed{log} $columns;\nCREATE UNIQUE INDEX ON $seed{log} (id);\n"
	  . create_stream(\%seed, $seed{stream}, $columns);
	$seed{twin_setup} = create_stream(\%seed, "$schema.t$number", $columns);
	return \%seed;
}

sub create_stream
{
	my ($seed, $name, $columns) = @_;
	my %options;
	$options{event_time} = 'ts' if $seed->{timed};
	$options{watermark} = $seed->{delay} if defined $seed->{delay};
	$options{max_future} = $seed->{max_future} if defined $seed->{max_future};
	my $options = join(', ', map { "$_ '$options{$_}'" } sort keys %options);
	return "CREATE FOREIGN TABLE $name $columns SERVER stream_staged" . ($options ? " OPTIONS ($options)" : '') . ";\n";
}

# Random views over one staged stream.
sub generate
{
	my ($number, $schema) = @_;
	my $seed = new_seed($number, $schema);
	$seed->{views} = [ ids_view("$seed->{name}_ids", $seed) ];
	push @{ $seed->{views} }, make_view("$seed->{name}_$_", $seed) for 1 .. 2 + floor(rand(3));
	my $doomed = make_view("$seed->{name}_doomed", $seed);
	$seed->{setup} .= join('', map { create_view($_, $seed) } @{ $seed->{views} }, $doomed);
	$seed->{events} = 60 + floor(rand(540));
	$seed->{steps} = [ make_steps($seed, make_events($seed->{events}, $seed->{bad}, $seed->{not_null})) ];
	return $seed;
}

# ---- the same query in several views

# What no SQL over a table tells: an aggregate that fails on the way.
sub add_failing_fold
{
	my ($view) = @_;
	return if $view->{join} || !$view->{group} || ($view->{where} // '') =~ /SELECT/;
	push @{ $view->{targets} }, 'narrow_sum(v * 19000000) AS ns';
	$view->{no_oracle} = 1;
	return;
}

# A copy of the view with another name, and options of its own.
sub variant
{
	my ($view, $name, %options) = @_;
	return { %$view, name => $name, options => \%options };
}

# Where state can be had again by reading again.
sub is_rebuildable
{
	my ($view) = @_;
	return $view->{window} && defined $view->{delay} && $view->{mode} ne 'complete' && !$view->{join}
	  && ($view->{where} // '') !~ /SELECT/;
}

sub random_variant
{
	my ($view, $name, $states, @rows) = @_;
	return variant($view, $name,
		max_batch_rows => pick(@rows),
		state => is_rebuildable($view) ? pick(@$states) : 'heap',
		trigger => pick('manual', 'manual', 'immediate', 'immediate', '50 ms', '1 second'));
}

# Several views of each query of the seed.  The first waits until everything is fed and then reads it at once; the
# others, {views} of the seed, read as it comes.  With a twin, a stream with the same records, one view has a stream
# to itself.  states: the values of the option that the others may have.
sub add_variants
{
	my ($seed, $states, $twin_setup) = @_;
	my @queries = @{ $seed->{queries} };
	my @sizes = ([ 1, 2, 3, 5, 7, 7 ], [ 20, 50, 100 ], [ 7, 300, 100000 ]);
	for my $query (@queries)
	{
		$query->{options} = { max_batch_rows => 100000, state => 'heap', trigger => 'manual' };
		$query->{variants} = [ map { random_variant($query, "$query->{name}_$_", $states, @{ $sizes[ $_ - 1 ] }) } 1 .. 3 ];
		push @{ $seed->{views} }, @{ $query->{variants} };
		$seed->{setup} .= join('', map { create_view($_, $seed) } $query, @{ $query->{variants} })
		  . "SELECT stream_agg.pause('$query->{name}');\n";
	}
	return unless $seed->{twin};
	my $alone = random_variant($queries[0], "$queries[0]{name}_alone", $states, 3, 20, 100000);
	push @{ $queries[0]{variants} }, $alone;
	$seed->{setup} .= $twin_setup . create_view($alone, { %$seed, stream => $seed->{twin} });
	return;
}

# Over a staged stream.
sub generate_variants
{
	my ($number, $schema, $states) = @_;
	my $seed = new_seed($number, $schema);
	my @queries = $seed->{ordered} ? () : ids_view("$seed->{name}_ids", $seed);
	push @queries, make_view("$seed->{name}_$_", $seed) for 1 .. pick(1, 1, 2);
	add_failing_fold($queries[-1]) if chance(0.2);
	$seed->{queries} = \@queries;
	$seed->{twin} = "$schema.t$number" if $seed->{ordered} && chance(0.3);
	add_variants($seed, $states, $seed->{twin_setup});
	$seed->{events} = 30 + floor(rand(120));
	$seed->{steps} = [ make_steps($seed, make_events($seed->{events}, $seed->{bad}, $seed->{not_null})) ];
	return $seed;
}

# ---- the same over a topic

# What depends on the order within each partition, and what depends on none.
my @topic_queries = (
	{ mode => 'append', delay => '10 s', targets => [ 'k', 'window_start', 'count(*) AS n', 'avg(v) AS v', 'max(id) AS id' ],
		group => [ 'k', 'window_start' ], window => { call => "tumble(ts, '10 seconds')" } },
	{ mode => 'append', delay => '10 s', lateness => '5 s', targets => [ $wide, 'window_start', 'count(*) AS n', 'avg(v) AS v' ],
		group => [ 'wide', 'window_start' ], window => { call => "hop(ts, '20 seconds', '5 seconds')" } },
	{ mode => 'append', delay => '10 s', targets => [ 'part', 'window_start', 'count(*) AS n', 'sum(v / 7.0::float8) AS f', 'stddev(v / 7.0::float8) AS g' ],
		group => [ 'part', 'window_start' ], window => { call => "hop(ts, '21 seconds', '5 seconds')" } },
	{ mode => 'update', delay => '10 s', targets => [ 'part', 'window_start', 'window_end', 'append_id(id) AS ids', 'narrow_sum(v * 19000000) AS ns' ],
		group => [ 'part', 'window_start', 'window_end' ], window => { call => "hop(ts, '20 seconds', '5 seconds')" } },
	{ mode => 'append', delay => '10 s', targets => [ 'k', 'window_start', 'window_end', 'count(*) AS n', 'avg(v) AS v' ],
		group => [ 'k', 'window_start', 'window_end' ], window => { session => 1, call => "session(ts, k * interval '100 ms')" } },
	{ mode => 'append', delay => '10 s', lateness => '8 s', targets => [ 'part', 'window_start', 'window_end', 'count(*) AS n', 'avg(v) AS v' ],
		group => [ 'part', 'window_start', 'window_end' ], window => { session => 1, call => "session(ts, k * interval '400 ms')" } },
	{ mode => 'update', targets => [ 'part', 'k', 'append_id(id) AS ids', 'sum(v / 7.0::float8) AS v' ], group => [ 'part', 'k' ],
		where => '100 / v <> 3' },
	{ mode => 'append', targets => [ 'id', 'ts', 'part', '100 / v AS w' ] },
	{ mode => 'append', delay => '10 s', dedup => 'v, part', targets => [ 'part', 'window_start', 'append_id(id) AS ids' ],
		group => [ 'part', 'window_start' ], window => { call => "hop(ts, '20 seconds', '10 seconds')" } },
	{ mode => 'update', delay => '1 day', own_delay => '1 day', dedup => 'v', targets => [ 'v', 'count(*) AS n' ], group => ['v'] },
	{ mode => 'update', delay => '10 s', dedup => 'k, part, v', targets => [ 'part', 'append_id(id) AS ids' ], group => ['part'] });

# Values of records, per partition, in their order.
sub topic_records
{
	my ($partitions, $count) = @_;
	my $id = 0;
	return map {
		my $at = 1_704_067_200_000;
		my $step = pick(20, 200, 1500);
		my $stray = pick(0, 5_000, 30_000);
		[ map {
			my $ts = chance(0.02) ? 'null' : chance(0.01) ? 7_000_000_000_000 : ($at += floor(rand($step))) - floor(rand($stray + 1));
			my $value = sprintf('{"id":%d,"ts":%s,"k":%d,"v":%d}', ++$id, $ts, floor(rand(3)), floor(rand(120)) - 10);
			chance(0.02) ? pick('{', '{"ts":1}', "{\"id\":$id,\"v\":\"x\"}") : $value;
		} 1 .. floor($count / $partitions) ]
	} 1 .. $partitions;
}

# server: the name of a Kafka server.  Its records are in {records}, by partition.
sub generate_topic
{
	my ($number, $schema, $states, $server) = @_;
	srand($number * 31);
	my $partitions = pick(1, 2, 3);
	my $name = "$schema.k$number";
	my $create = sub {
		return "CREATE FOREIGN TABLE $_[0] (id bigint NOT NULL, ts timestamptz OPTIONS (timestamp_format 'epoch_ms'), k int, v int,"
		  . " part int OPTIONS (metadata 'partition')) SERVER $server OPTIONS (topic 'same$number', event_time 'ts', watermark '10 s');\n";
	};
	my $seed = { number => "k$number", stream => $name, twin => "${name}_twin", topic => "same$number", setup => $create->($name) };
	my $i = 0;
	$seed->{queries} = [ map { { %$_, name => "${name}_" . ++$i, drop_late => chance(0.2) } } @topic_queries ];
	add_variants($seed, $states, $create->($seed->{twin}));
	$seed->{records} = [ topic_records($partitions, 300) ];
	$seed->{events} = map { @$_ } @{ $seed->{records} };
	return $seed;
}

# ---- the right answer

# Is the event time held against the clock?  One without a zone only when max_future is set.
sub checks_future
{
	my ($seed) = @_;
	return ($seed->{max_future} // ($seed->{type} eq 'timestamp' ? 'infinity' : '')) ne 'infinity';
}

# Gaps and islands: the accepted events, each with the session that it makes with others of these keys.
sub sessions
{
	my $keys = join(', ', @_);
	return <<"SQL";

marked AS (SELECT *, own_start > max(own_end) OVER (PARTITION BY $keys ORDER BY own_start, own_end
	ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS begins FROM kept),
numbered AS (SELECT *, count(*) FILTER (WHERE begins) OVER (PARTITION BY $keys ORDER BY own_start, own_end
	ROWS UNBOUNDED PRECEDING) AS island FROM marked),
sessions AS MATERIALIZED (SELECT *, min(own_start) OVER (PARTITION BY $keys, island) AS window_start,
	max(own_end) OVER (PARTITION BY $keys, island) AS window_end FROM numbered),
SQL
}

# Rows of one key whose sessions overlap or touch: there are none, whoever looks.
sub overlaps
{
	my ($view) = @_;
	my @same = map { "a.$_ IS NOT DISTINCT FROM b.$_" } @{ $view->{names} };
	return "SELECT '$view->{name}', a.window_start FROM $view->{name} a JOIN $view->{name} b ON "
	  . join(' AND ', @same, 'a.window_start <= b.window_end', 'b.window_start <= a.window_end', 'a.ctid <> b.ctid');
}

# One query per view, that returns a row when something is wrong: the view, rows missing from it, rows
# too many, its counters and what they should be. Final: everything has been read. Else the view is
# compared with the answer over what its position says that it has read (ordered seeds only).
sub check
{
	my ($seed, $view, $final) = @_;
	my $name = $view->{name};
	my $timed = $seed->{timed};
	my $future = checks_future($seed) ? "ts > '2100-01-01'" : 'false';
	my $verdict = $timed
	  ? "CASE WHEN ts IS NULL OR NOT isfinite(ts) THEN 'null_time' WHEN $future THEN 'future' ELSE 'good' END"
	  : "'good'";
	my $order = $seed->{ordered}
	  ? "SELECT *, row_number() OVER (ORDER BY id) AS ord FROM $seed->{log}"
	  : "SELECT l.*, u.ord FROM $seed->{log} l LEFT JOIN (SELECT u.* FROM $seed->{name}_ids, unnest(ids) WITH ORDINALITY u(id, ord)) u USING (id)";
	my $range = $seed->{ordered} ? 'ord > p.first AND ord <= p.position' : 'true';
	my $delay = defined $view->{delay} ? "interval '$view->{delay}'" : "NULL::interval";
	my $joined = 'ok';
	$joined .= " $view->{join}" if $view->{join};
	$joined .= ", LATERAL $view->{window}{rows}" if $view->{window};
	$joined .= " WHERE $view->{where}" if $view->{where};
	my $session = $view->{window} && $view->{window}{session};
	my $pair = $session ? '(id, own_start, own_end)' : $view->{window} ? '(id, window_start, window_end)' : 'id';
	my $lateness = $view->{lateness} // '0';
	my $closes = $view->{window} && $view->{mode} ne 'complete';
	my $kept = !$closes ? 'true' : $session ? "wm IS NULL OR own_start + interval '$lateness' >= wm" : "wm IS NULL OR window_end + interval '$lateness' > wm";
	$kept = 'wm IS NULL OR ts >= wm' if $view->{dedup} && !$view->{window};
	# The key of an event is seen until its last window is forgotten, as of the first event that is not late.
	my $until = $view->{window} && !$session ? "(SELECT max(window_end) + interval '$lateness' FROM $view->{window}{rows})"
	  : "ts + interval '1 microsecond' + interval '$lateness'";
	my $judged = $view->{dedup}
	  ? "SELECT *, ROW($view->{dedup}) IS NOT NULL AND coalesce(seen > wm, seen IS NOT NULL AND wm IS NULL) AS is_duplicate FROM (SELECT *,"
	  . " see_key(until::timestamp, wm::timestamp) OVER (PARTITION BY $view->{dedup} ORDER BY ord ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)"
	  . " AS seen FROM (SELECT *, $until AS until FROM timed) t) t"
	  : 'SELECT *, false AS is_duplicate FROM timed';
	my $late_windows = $view->{window} ? "(SELECT count(DISTINCT $pair) FROM below) - (SELECT count(DISTINCT $pair) FROM kept)" : '0';
	my $corrected = !$closes || !$view->{lateness} ? 'false' : $session ? 'own_start < wm' : 'window_end <= wm';
	my $groups = $session ? 'sessions' : 'kept';
	my $closed = $view->{window} && $view->{mode} eq 'append'
	  ? "$groups WHERE window_end " . ($session ? '<' : '<=') . ' (SELECT watermark FROM last)' : $groups;
	my $sessions = $session ? sessions('true', @{ $view->{keys} }) : '';
	my $answer = body($view, $closed, 1);
	my @counters = qw(read skipped tombstone malformed null_time future duplicate failed filtered late accepted late_windows corrections);
	my $counters = join(', ', map { qq("$_") } @counters);
	my $letters = $view->{drop_late} ? '0' : "(SELECT late FROM expected)";
	my @wrong = ('missing > 0', 'extra > 0', 'got IS DISTINCT FROM wanted',
		$final ? "status <> 'running'" : "status NOT IN ('running', 'retrying', 'paused')",
		'letters IS DISTINCT FROM wanted_letters', 'watermark IS DISTINCT FROM wanted_watermark');
	push @wrong, 'position <> total' if $final;
	if ($view->{created_after})
	{
		push @wrong, $view->{start} eq 'latest' ? "first <> $view->{created_after}" : "first > $view->{created_after}";
	}
	elsif ($seed->{ordered})
	{
		push @wrong, 'first <> 0';
	}
	my $wrong = join(' OR ', @wrong);

	# Materialized, so that the planner does not move a filter below the removal of events that fail in it.
	return <<"SQL";
WITH c AS MATERIALIZED (SELECT * FROM stream_agg.views WHERE view = '$name'::regclass),
p AS MATERIALIZED (SELECT position, position - coalesce((SELECT "read" FROM c), 0) AS first
	FROM (SELECT coalesce(max(position), 0) AS position FROM stream_agg.partitions WHERE view = '$name'::regclass) x),
ev AS MATERIALIZED ($order),
mine AS MATERIALIZED (SELECT ev.*, $verdict AS verdict FROM ev, p WHERE $range),
timed AS MATERIALIZED (SELECT *, max(ts) OVER (ORDER BY ord ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) - $delay AS wm
	FROM mine WHERE verdict = 'good'),
last AS MATERIALIZED (SELECT max(ts) - $delay AS watermark FROM timed),
judged AS MATERIALIZED ($judged),
single AS MATERIALIZED (SELECT * FROM judged WHERE NOT is_duplicate),
ok AS MATERIALIZED (SELECT * FROM single WHERE ($view->{fails}) IS NOT TRUE),
below AS MATERIALIZED (SELECT * FROM $joined),
kept AS MATERIALIZED (SELECT * FROM below WHERE $kept),$sessions
answer AS MATERIALIZED ($answer),
expected AS MATERIALIZED (SELECT count(*) AS "read", 0 AS skipped, 0 AS tombstone, 0 AS malformed,
	count(*) FILTER (WHERE verdict = 'null_time') AS null_time, count(*) FILTER (WHERE verdict = 'future') AS future,
	(SELECT count(*) FROM timed) - (SELECT count(*) FROM single) AS duplicate,
	(SELECT count(*) FROM single) - (SELECT count(*) FROM ok) AS failed,
	(SELECT count(*) FROM ok) - (SELECT count(DISTINCT id) FROM below) AS filtered,
	(SELECT count(DISTINCT id) FROM below) - (SELECT count(DISTINCT id) FROM kept) AS late,
	(SELECT count(DISTINCT id) FROM kept) AS accepted,
	$late_windows AS late_windows,
	(SELECT count(DISTINCT $pair) FROM kept WHERE $corrected) AS corrections FROM mine)
SELECT * FROM (SELECT '$name' AS view, p.first, p.position, (SELECT count(*) FROM $seed->{log}) AS total,
	(SELECT count(*) FROM (TABLE answer EXCEPT ALL TABLE $name) x) AS missing,
	(SELECT count(*) FROM (TABLE $name EXCEPT ALL TABLE answer) x) AS extra,
	(SELECT ROW($counters)::text FROM c) AS got, (SELECT ROW($counters)::text FROM expected) AS wanted,
	(SELECT format('%s %s', coalesce(sum(CASE WHEN reason = 'late' THEN 1 ELSE 0 END), 0),
		coalesce(sum(CASE WHEN reason = 'failed' THEN 1 ELSE 0 END), 0)) FROM stream_agg.dead_letters WHERE view = '$name'::regclass) AS letters,
	format('%s %s', $letters, (SELECT failed FROM expected)) AS wanted_letters,
	(SELECT watermark FROM c)::text AS watermark, (SELECT watermark FROM last)::timestamptz::text AS wanted_watermark,
	(SELECT status FROM c) AS status, (SELECT message FROM c) AS message
	FROM p) q WHERE $wrong;
SQL
}

# Dead letters of the stream itself: a row when they are not the events without a time and of the future.
sub check_letters
{
	my ($seed) = @_;
	my $future = checks_future($seed) ? "ts > '2100-01-01'" : 'false';
	my $bad = $seed->{timed} ? "ts IS NULL OR NOT isfinite(ts) OR $future" : 'false';
	return <<"SQL";
SELECT '$seed->{stream}', got, wanted FROM (SELECT
	(SELECT array_agg(reason || ' ' || (event->>'id') ORDER BY (event->>'id')::bigint) FROM stream_agg.dead_letters
		WHERE stream = '$seed->{stream}'::regclass AND view IS NULL) AS got,
	(SELECT array_agg(CASE WHEN ts IS NULL OR NOT isfinite(ts) THEN 'null_time ' ELSE 'future ' END || id ORDER BY id)
		FROM $seed->{log} WHERE $bad) AS wanted) q WHERE got IS DISTINCT FROM wanted;
SQL
}

# The rows that differ, for the report of a failure.
sub difference
{
	my ($seed, $view) = @_;
	my $sql = check($seed, $view, 1);
	$sql =~ s/\nSELECT \* FROM \(SELECT '.*\z//s;
	return "$sql\nSELECT 'missing', x.* FROM (TABLE answer EXCEPT ALL TABLE $view->{name}) x UNION ALL "
	  . "SELECT 'extra', x.* FROM (TABLE $view->{name} EXCEPT ALL TABLE answer) x LIMIT 10;\n";
}

1;
