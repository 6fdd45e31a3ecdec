# 040_memory.pl: a worker's memory does not grow with the batches it has done. Groups are constant; windows
# come and go. A longer run with one view is test/soak.sh.
#
#   SA_BATCHES=n    how many batches after warm-up (default 600)
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Utils;
use Test::More;

use StreamAggTest;

my $batches = $ENV{SA_BATCHES} || 600;
my $warm_up = 150;
my $rows = 1000;
my $node = make_node('memory', conf => "stream_agg.segment_size = '1MB'\n");
$node->start;
$node->safe_psql('postgres', <<'SQL');
CREATE EXTENSION stream_agg;
CREATE TABLE dim (k int PRIMARY KEY, label text);
INSERT INTO dim SELECT g, 'label ' || g FROM generate_series(0, 99) g;
CREATE FOREIGN TABLE s (k int NOT NULL, ts timestamptz, v int, t text) SERVER stream_staged
	OPTIONS (event_time 'ts', watermark '1 minute', max_future 'infinity');
CREATE MATERIALIZED VIEW running WITH (stream_agg.continuous, stream_agg.trigger = 'manual') AS
	SELECT k, count(*) AS n, avg(v) AS a, min(t) AS t FROM s GROUP BY k;
CREATE MATERIALIZED VIEW windows WITH (stream_agg.continuous, stream_agg.trigger = 'manual') AS
	SELECT window_start, window_end, k % 20 AS k, count(*) AS n, max(t) AS t, sum(v::numeric) AS v
	FROM s, hop(ts, '1 minute', '20 seconds') GROUP BY window_start, window_end, k % 20;
CREATE MATERIALIZED VIEW closed WITH (stream_agg.continuous, stream_agg.trigger = 'manual', stream_agg.output_mode = 'append') AS
	SELECT window_start, label, stddev(v) AS d FROM s LEFT JOIN dim USING (k), tumble(ts, '30 seconds') GROUP BY window_start, label;
CREATE MATERIALIZED VIEW rows WITH (stream_agg.continuous, stream_agg.trigger = 'manual') AS
	SELECT k, upper(t) AS t FROM s WHERE v = 7;
CREATE MATERIALIZED VIEW failing WITH (stream_agg.continuous, stream_agg.trigger = 'manual', stream_agg.late_events = 'drop') AS
	SELECT window_start, k % 10 AS k, sum(100 / v) AS n FROM s, tumble(ts, '10 seconds') WHERE v > 0 OR k = 50 GROUP BY window_start, k % 10;
SQL

# Ten seconds of event time a batch, a few events late, a few that fail.
my $batch = 0;

sub run_batches
{
	my ($count) = @_;
	my $sql = '';
	for (1 .. $count)
	{
		my $start = 10 * $batch++;
		$sql .= "INSERT INTO s SELECT g % 100, '2024-01-01Z'::timestamptz + ($start + random() * 10 - CASE WHEN g % 97 = 0 THEN 300 ELSE 0 END) * interval '1 second',"
		  . " g % 50, 'text ' || g % 1000 FROM generate_series(1, $rows) g;\nCALL stream_agg.run('s');\n";
	}
	$node->safe_psql('postgres', $sql);
	return;
}

my $pid;

# Bytes in use by each memory context, as the worker logs them, and private memory (kB) as the system sees it.
sub measure
{
	my $offset = -s $node->logfile;
	my $log;
	my %used;
	$node->safe_psql('postgres', "SELECT pg_log_backend_memory_contexts($pid)");
	wait_until('the worker logs its memory', sub {
		$log = slurp_file($node->logfile, $offset);
		return $log =~ /\[$pid\].*Grand total: /;
	});
	while ($log =~ /\[$pid\].*level: \d+; (.*?): \d+ total in .*; (\d+) used/g) { $used{$1} += $2; }
	while ($log =~ /\[$pid\].*level: \d+; \d+ more child contexts containing .*; (\d+) used/g) { $used{'more'} += $1; }
	my ($private) = slurp_file("/proc/$pid/status") =~ /^RssAnon:\s+(\d+) kB/m;
	return (\%used, $private);
}

run_batches($warm_up);
$pid = $node->safe_psql('postgres', "SELECT pid FROM pg_stat_activity WHERE backend_type = 'stream_agg worker'");
run_batches($batches / 2);
my ($used_before, $private_before) = measure();
run_batches($batches / 2);
my ($used_after, $private_after) = measure();

is($node->safe_psql('postgres', "SELECT pid FROM pg_stat_activity WHERE backend_type = 'stream_agg worker'"), $pid, 'it is the same worker');
is($node->safe_psql('postgres', 'SELECT DISTINCT read FROM stream_agg.views'), $rows * $batch, 'every view has read everything');
is($node->safe_psql('postgres', 'SELECT count(*) FROM running'), '100', 'groups are constant');
is($node->safe_psql('postgres', "SELECT failed > 0, late > 0 FROM stream_agg.views WHERE view = 'failing'::regclass"), 't|t',
	'there were errors and late events');

# What the source knows of staged rows goes with them, when their segment is given back.
cmp_ok($used_after->{'stream_agg staged order'} || 0, '<', 1024 * 1024, 'what is known of staged rows is bounded');
delete $_->{'stream_agg staged order'} for $used_before, $used_after;
# The server's own caches move a little with the segments that come and go.
my %growth = (ours => 0, caches => 0);
my @grown;
for my $name (sort keys %$used_after)
{
	my $more = $used_after->{$name} - ($used_before->{$name} || 0);
	$growth{ $name =~ /^(CacheMemoryContext|Relcache|index info|relation rules|MdSmgr|PgStat|more$)/ ? 'caches' : 'ours' } += $more;
	push @grown, "$name: $more bytes" if $more > 0;
}
# A leak of one small chunk a batch would be seen.
cmp_ok($growth{ours}, '<', 24 * $batches / 2, "contexts do not grow by batch ($growth{ours} bytes in all)") or diag join("\n", @grown);
cmp_ok($growth{caches}, '<', 65_536, "nor do the server's caches ($growth{caches} bytes in all)") or diag join("\n", @grown);
cmp_ok($private_after - $private_before, '<', 1024, 'nor does private memory');

$node->stop;
done_testing();
