# 060_bloat.pl: nothing grows but results. Two million events of 32 groups in 1-minute windows, 32 a batch, so
# that nearly every event is an update; an hour of 5-minute windows with 10,000 keys, update and append; and what closing a
# window costs while many others are open. Autovacuum is off: what is not seen to by ourselves would show.
#
#   SA_EVENTS=n     how many events (default 2,000,000)
#   SA_HOURS=n      how many hours of windows (default 1; make soak-day: 24)
#   SA_STATE_MEMORY=limit      of stream_agg.state_memory in these hours (default 1MB, which holds less than half of the groups)
#   SA_ONLY=name    updates, hours, closing
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";
use List::Util qw(max);
use PostgreSQL::Test::Utils;
use Test::More;

use StreamAggTest;

my $events = $ENV{SA_EVENTS} || 2_000_000;
my $hours = $ENV{SA_HOURS} || 1;
my $node = make_node('bloat', conf => "autovacuum = off\nstream_agg.segment_size = '4MB'\n");
$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION stream_agg');

sub sql { return $node->safe_psql('postgres', $_[0]); }

sub part
{
	my ($name, $code) = @_;
	return if $ENV{SA_ONLY} && $ENV{SA_ONLY} ne $name;
	subtest $name => $code;
	return;
}

# The table has no more than so many pages beyond what its rows need.
sub is_tight
{
	my ($table, $spare) = @_;
	my $options = sql("SELECT coalesce('WITH (' || array_to_string(reloptions, ',') || ')', '') FROM pg_class WHERE oid = '$table'::regclass");
	sql("CREATE TABLE fresh $options AS SELECT * FROM $table");
	my ($pages, $needed) = split /\|/, sql("SELECT pg_relation_size('$table') / 8192, pg_relation_size('fresh') / 8192");
	sql('DROP TABLE fresh');
	cmp_ok($pages, '<=', $needed + $spare, "result table $table: $pages pages, $needed needed");
	return;
}

part 'updates' => sub {
	sql(<<'SQL');
CREATE FOREIGN TABLE s (k int NOT NULL, ts timestamptz, v int) SERVER stream_staged
	OPTIONS (event_time 'ts', watermark '10 seconds');
CREATE MATERIALIZED VIEW v WITH (stream_agg.continuous, stream_agg.trigger = 'manual', stream_agg.max_batch_rows = 32) AS
	SELECT window_start, k, count(*) AS n, sum(v) AS total, max(v) AS top, avg(v) AS mean
	FROM s, tumble(ts, '1 minute') GROUP BY window_start, k;
SQL

	# Half a minute of event time for every 100,000 events: ten windows for two million.
	sql(<<"SQL");
INSERT INTO s SELECT i % 32, timestamptz '2024-01-01 00:00:00Z' + i / 32 * interval '9.6 ms', i % 1000
FROM generate_series(0, $events - 1) i;
SQL
	sql("CALL stream_agg.run('s')");

	is(sql("SELECT sum(n), sum(total) FROM v"), sql("SELECT count(*), sum(i % 1000) FROM generate_series(0, $events - 1) i"), 'the answer');
	is_tight('v', 100);
	my $log = sql('SELECT sum(pg_relation_size(state)) / 1048576 FROM stream_agg.view_config');
	cmp_ok($log, '<=', 64, "state log: $log MB");
	my $positions = sql(
		"SELECT greatest(pg_relation_size('stream_agg.view_position'), pg_relation_size('stream_agg.staged_stream'), pg_relation_size('stream_agg.staged_order')) / 8192");
	cmp_ok($positions, '<=', 50, "tables of positions: at most $positions pages");
	sql('DROP FOREIGN TABLE s CASCADE');
};

# ---- windows that come and go

# Pages of everything that is to stay as it is meanwhile.
my $sizes = <<'SQL';
SELECT 'size', 'state of ' || view, pg_total_relation_size(state) / 8192 FROM stream_agg.view_config
UNION ALL SELECT 'size', 'state of ' || view || ', spilled', pg_total_relation_size(spill) / 8192 FROM stream_agg.view_config WHERE spill IS NOT NULL
UNION ALL SELECT 'size', 'staged rows', sum(staged_bytes) / 8192 FROM stream_agg.streams
UNION ALL SELECT 'size', relname, pg_total_relation_size(oid) / 8192 FROM pg_class
	WHERE relnamespace = 'stream_agg'::regnamespace AND relkind = 'r' AND relname !~ '_\d+$'
UNION ALL SELECT 'size', 'catalogs', sum(pg_total_relation_size(oid)) / 8192 FROM pg_class WHERE relnamespace = 'pg_catalog'::regnamespace AND relkind = 'r';
SQL

# Every key has an event a minute; windows stay open for a minute after their end.
sub minute
{
	my ($minute, $keys) = @_;
	return "INSERT INTO s SELECT k, timestamptz '2024-01-01 00:00Z' + $minute * interval '1 minute' + k * 7919 % 60000 * interval '1 ms', k % 100 + $minute % 7"
	  . " FROM generate_series(1, $keys) k;\nCALL stream_agg.run('s');\n";
}

part 'hours' => sub {
	my $keys = 10_000;
	my $minutes = 60 * $hours;
	my %seen;
	my $memory = $ENV{SA_STATE_MEMORY} || '1MB';
	sql("ALTER SYSTEM SET stream_agg.state_memory = '$memory'");
	$node->reload;
	sql(<<'SQL');
CREATE FOREIGN TABLE s (k int NOT NULL, ts timestamptz, v int) SERVER stream_staged
	OPTIONS (event_time 'ts', watermark '1 minute');
CREATE MATERIALIZED VIEW updated WITH (stream_agg.continuous, stream_agg.trigger = 'manual') AS
	SELECT window_start, k, count(*) AS n, sum(v) AS total, avg(v) AS mean FROM s, tumble(ts, '5 minutes') GROUP BY window_start, k;
CREATE MATERIALIZED VIEW appended WITH (stream_agg.continuous, stream_agg.trigger = 'manual', stream_agg.output_mode = 'append') AS
	SELECT window_start, k, count(*) AS n, sum(v) AS total, stddev(v) AS deviation FROM s, tumble(ts, '5 minutes') GROUP BY window_start, k;
CREATE MATERIALIZED VIEW unlogged WITH (stream_agg.continuous, stream_agg.trigger = 'manual', stream_agg.output_mode = 'append', stream_agg.state = 'unlogged') AS
	SELECT window_start, k, count(*) AS n, sum(v) AS total, avg(v) AS mean FROM s, tumble(ts, '5 minutes') GROUP BY window_start, k;
SQL
	for my $hour (0 .. $hours - 1)
	{
		my %now;
		my $script = join '', map { minute($_, $keys) . ($_ % 2 ? $sizes : '') } 60 * $hour .. 60 * $hour + 59;
		my $answer = sql($script);
		push @{ $now{$1} }, $2 while $answer =~ /^size\|(.*)\|(\d+)/mg;
		push @{ $seen{$_} }, @{ $now{$_} } for keys %now;
		note "hour $hour, most pages: ", join ', ', map { "$_ " . max(@{ $now{$_} }) } sort keys %now;
	}

	# What only grows is three times as large in the end. (The logs go up and down, by three times their live size.)
	delete $seen{'staged rows'};
	for my $name (sort keys %seen)
	{
		my @pages = @{ $seen{$name} };
		my $third = int(@pages / 3);
		my ($first, $last) = (max(@pages[ 0 .. $third - 1 ]), max(@pages[ -$third .. -1 ]));
		cmp_ok($last, '<=', 1.5 * $first + ($name =~ /^state/ ? 1000 : 64), "$name: at most $first pages in the first third, $last in the last");
	}
	ok($node->poll_query_until('postgres', 'SELECT staged_bytes <= 3 * 4 * 1024 * 1024 FROM stream_agg.streams'), 'staged rows are given back');
	my $all = "SELECT count(*), sum(v) FROM (SELECT k % 100 + minute % 7 AS v FROM generate_series(1, $keys) k, generate_series(0, %d) minute) s";
	is(sql('SELECT sum(n), sum(total) FROM updated'), sql(sprintf $all, $minutes - 1), 'the answer, updated');
	is(sql("SELECT sum(n), sum(total) FROM $_"), sql(sprintf $all, $minutes - 6), "and $_") for 'appended', 'unlogged';
	is_tight($_, 100 + sql("SELECT pg_relation_size('$_') / 8192 / 10")) for 'updated', 'appended', 'unlogged';
	sql('DROP FOREIGN TABLE s CASCADE');
};

# ---- closing

# Rows inserted, updated, deleted and blocks looked at in a table by all sessions but this one, since `before`, once all
# have told and the condition holds.
sub work
{
	my ($table, $condition, @before) = @_;
	my $answer = wait_until("the work on $table is known", sub {
		return sql("SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()") eq '0'
		  && sql('SELECT n_tup_ins, n_tup_upd, n_tup_del, heap_blks_hit + heap_blks_read + coalesce(idx_blks_hit + idx_blks_read, 0) '
			  . "FROM pg_stat_all_tables JOIN pg_statio_all_tables USING (relid) WHERE relid = '$table'::regclass AND $condition");
	});
	my @now = split /\|/, $answer;
	return map { $now[$_] - ($before[$_] // 0) } 0 .. $#now;
}

# Two windows, of 300 and 3,000 groups, close one after the other while 60,000 groups in others stay open.
part 'closing' => sub {
	for my $mode ('update', 'append')
	{
		sql(<<"SQL");
CREATE FOREIGN TABLE s (k int NOT NULL, ts timestamptz, v int) SERVER stream_staged OPTIONS (event_time 'ts', watermark '1 hour');
CREATE MATERIALIZED VIEW c WITH (stream_agg.continuous, stream_agg.trigger = 'manual', stream_agg.output_mode = '$mode') AS
	SELECT window_start, k, count(*) AS n, avg(v) AS mean FROM s, tumble(ts, '1 minute') GROUP BY window_start, k;
INSERT INTO s SELECT k, timestamptz '2024-01-01 00:01Z' - k % 2 * interval '1 s', k FROM generate_series(1, 600) k WHERE k % 2 = 1;
INSERT INTO s SELECT k, timestamptz '2024-01-01 00:01Z', k FROM generate_series(1, 3000) k;
INSERT INTO s SELECT k, timestamptz '2024-01-01 00:40Z' + minute * interval '1 minute', k FROM generate_series(1, 3000) k, generate_series(1, 20) minute;
CALL stream_agg.run('s');
SQL
		my $log = sql('SELECT state FROM stream_agg.view_config');
		my %chunks = map { split /\|/ } split /\n/, sql("SELECT window_end, count(*) FROM $log GROUP BY 1 ORDER BY 1 LIMIT 2");
		my @chunks = map { $chunks{$_} } sort { $a <=> $b } keys %chunks;
		my ($rows, $results) = split /\|/, sql("SELECT (SELECT count(*) FROM $log), (SELECT count(*) FROM c)");
		my @log = work($log, "n_tup_ins = $rows");
		my @result = work('c', "n_tup_ins = $results");
		for my $minute (1, 2)
		{
			my $groups = $minute == 1 ? 300 : 3000;
			my $closed = shift @chunks;
			my ($written, $blocks) = $mode eq 'append' ? ($groups, 4 * $groups + 100) : (1, 20);
			sql("INSERT INTO s SELECT 1, timestamptz '2024-01-01 00:00Z' + interval '1 hour $minute minutes', 1; CALL stream_agg.run('s')");
			my @in_log = work($log, "n_tup_del >= $log[2] + $closed", @log);
			my @in_result = work('c', "n_tup_ins + n_tup_upd >= $result[0] + $result[1] + $written", @result);
			is("@in_log[0 .. 2]", "1 0 $closed", "$mode, $groups groups: its $closed chunks of $rows go from the log, one of the event comes");
			cmp_ok($in_log[3], '<=', 4 * $closed + 20, 'and little else is looked at there');
			is($in_result[0] + $in_result[1], $written, "$written rows are written in the result");
			is($in_result[2], 0, 'and none deleted');
			cmp_ok($in_result[3], '<=', $blocks, 'and little else is looked at there');
			@log = map { $log[$_] + $in_log[$_] } 0 .. 3;
			@result = map { $result[$_] + $in_result[$_] } 0 .. 3;
		}
		is(sql('SELECT groups FROM stream_agg.views'), 60_002, 'the others are open still');
		sql('DROP FOREIGN TABLE s CASCADE');
	}
};

is_deeply([ unexpected_crashes($node) ], [], 'no crash');
$node->stop;
done_testing();
