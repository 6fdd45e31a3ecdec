# 195_replay.pl: dead letters are taken in exactly once, through crashes, beside records that keep coming.
#
# Records of a topic are refused for three reasons: by the stream (a field is missing), and by the views' own expression
# (a function raises). Both are mended; then the letters are replayed some at a time, while records come and
# processes die. In the end every view holds what one holds that has read all records as they are now. Some have unlogged
# state, and some leave out duplicates, which both records and letters are full of.
#
#   SA_SEED=n     of what is random; printed
#   SA_STEPS=n    how often something is done (default 25)
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl", "$FindBin::RealBin/../kafka";
use PostgreSQL::Test::Utils;
use Test::More;

use Kafka;
use StreamAggTest;

my $seed = $ENV{SA_SEED} || int(time) % 1_000_000;
my $steps = $ENV{SA_STEPS} || 25;
note "SA_SEED=$seed";
srand($seed);
my $kafka = Kafka->new("$PostgreSQL::Test::Utils::tmp_check/kafka", rig => 'mock');
$kafka->start;
my $node = make_node('replay');
$node->start;
$kafka->create_topic('t', 2);

my $id = 0;
my @sent;

sub produce
{
	my ($count) = @_;
	for my $partition (0, 1)
	{
		$kafka->produce_lines('t', $partition, [ map {
			my $k = rand() < 0.1 ? '' : ',"k":' . int(rand(3));
			push @sent, sprintf('{"id":%d,"ts":%d%s,"v":%d}', ++$id, 1_704_067_200_000 + int(rand(3_000_000)), $k, int(rand(8)));
			rand() < 0.2 ? $sent[ rand @sent ] : $sent[-1];
		} 1 .. $count ]);
	}
	return;
}

my %queries = (
	updated => "SELECT window_start, coalesce(k, -1) AS k, count(*) AS n, sum(part(v)) AS parts, avg(id) AS mean FROM s, tumble(ts, '10 minutes') GROUP BY 1, 2",
	appended => "SELECT window_start, window_end, count(*) AS n, sum(part(v)) AS parts FROM s, hop(ts, '20 minutes', '5 minutes') GROUP BY window_start, window_end",
	unlogged => "SELECT window_start, count(*) AS n, sum(part(v)) AS parts, stddev(id::numeric) AS spread FROM s, tumble(ts, '10 minutes') GROUP BY 1",
	single => "SELECT window_start, count(*) AS n, avg(part(v)) AS parts, sum(id) AS ids FROM s, hop(ts, '20 minutes', '10 minutes') GROUP BY 1",
	singly => "SELECT window_start, count(*) AS n, sum(part(v)) AS parts, sum(id) AS ids FROM s, tumble(ts, '10 minutes') GROUP BY 1",
	single_row => 'SELECT coalesce(k, -1) AS k, sum(part(v)) AS parts, sum(id) AS ids FROM s GROUP BY 1',
	running => 'SELECT coalesce(k, -1) AS k, sum(part(v)) AS parts, avg(id) AS mean FROM s GROUP BY 1',
	every => 'SELECT id, ts, k, v, part(v) AS part, topic, partition, pos FROM s');

sub create_views
{
	my ($suffix, $rows) = @_;
	for my $name (sort keys %queries)
	{
		my $mode = $name =~ /^(appended|single)$/ ? ", stream_agg.output_mode = 'append'" : '';
		$mode .= ", stream_agg.dedup_key = 'id'" if $name =~ /^singl/;
		$node->safe_psql('postgres', "CREATE MATERIALIZED VIEW $name$suffix WITH (stream_agg.continuous, stream_agg.max_batch_rows = $rows$mode) AS $queries{$name}");
	}
	return;
}

$node->safe_psql('postgres', <<"SQL");
CREATE EXTENSION stream_agg;
CREATE SERVER k FOREIGN DATA WRAPPER stream_agg OPTIONS (type 'kafka', bootstrap_servers '@{[ $kafka->bootstrap ]}');
CREATE FOREIGN TABLE s (id bigint NOT NULL, ts timestamptz OPTIONS (timestamp_format 'epoch_ms'), k int NOT NULL, v int,
	topic text OPTIONS (metadata 'topic'), partition int OPTIONS (metadata 'partition'), pos bigint OPTIONS (metadata 'offset'))
	SERVER k OPTIONS (topic 't', event_time 'ts', watermark '1 day');
CREATE FUNCTION part(v int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS 'BEGIN RETURN 840 / v; END';
SQL
create_views('', 7);
produce(150);
is(($node->psql('postgres', "CALL stream_agg.run('s')"))[0], 0, 'all is read');
my $refused = "SELECT DISTINCT malformed > 0, failed > 0, read = malformed + failed + accepted + duplicate FROM stream_agg.views";
is($node->safe_psql('postgres', $refused), 't|t|t', 'events are refused for both reasons');

# Mended: from here on nothing is refused.
$node->safe_psql('postgres', <<'SQL');
CREATE OR REPLACE FUNCTION part(v int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS 'BEGIN RETURN CASE WHEN v = 0 THEN -1 ELSE 840 / v END; END';
ALTER FOREIGN TABLE s ALTER k DROP NOT NULL;
SQL
$node->safe_psql('postgres', "ALTER MATERIALIZED VIEW $_ SET (stream_agg.state = 'unlogged')") for qw(unlogged single singly);
my $all = "view::text !~ '^singl'";
my $was_refused = $node->safe_psql('postgres', "SELECT sum(malformed + failed) FROM stream_agg.views WHERE $all");

my $some = "SELECT stream_agg.replay_dead_letters(coalesce(view, stream), array_agg(id)) FROM (SELECT * FROM stream_agg.dead_letters ORDER BY random() LIMIT 60) x GROUP BY coalesce(view, stream)";
my $crashes = 0;
for my $step (1 .. $steps)
{
	my $what = int(rand(6));
	if ($what == 0) { produce(10); }
	elsif ($what == 1) { terminate_workers($node); }
	elsif ($what == 2 && $crashes < 3) { $crashes++ if crash_child($node, "SELECT pid FROM pg_stat_activity WHERE backend_type = 'stream_agg worker' LIMIT 1"); }
	else { try_query($node, $some); }
	try_query($node, "CALL stream_agg.run('s', '20 s')") if rand() < 0.2;
}
wait_until_up($node);
wait_until('no letter is left', sub {
	$node->safe_psql('postgres', "SELECT stream_agg.replay_dead_letters(r) FROM (SELECT view FROM stream_agg.views UNION ALL SELECT 's') x (r)");
	$node->psql('postgres', "CALL stream_agg.run('s')");
	return $node->safe_psql('postgres', 'SELECT count(*) FROM stream_agg.dead_letters') eq '0' });

my $ids = $node->safe_psql('postgres', 'SELECT count(DISTINCT id) FROM every');
is($node->safe_psql('postgres', "SELECT sum(replayed) FROM stream_agg.views WHERE $all"), $was_refused, "all $was_refused are taken in, once");
is($node->safe_psql('postgres', 'SELECT DISTINCT status, read = malformed + failed + accepted + duplicate, late FROM stream_agg.views'), 'running|t|0', 'and the counters add up');
is($node->safe_psql('postgres', "SELECT DISTINCT accepted + replayed, duplicate > 0 FROM stream_agg.views WHERE NOT $all"), "$ids|t", 'each once where duplicates are left out');
is($node->safe_psql('postgres', 'SELECT count(*) FROM stream_agg.replay'), '0', 'nothing more is asked for');
create_views('_fresh', 100_000);
is(($node->psql('postgres', "CALL stream_agg.run('s')"))[0], 0, 'others read all of it as it is now');
$node->safe_psql('postgres', "SELECT stream_agg.advance_watermark(view, '2024-02-01Z') FROM stream_agg.views");
is(($node->psql('postgres', "CALL stream_agg.run('s')"))[0], 0, 'windows close');
for my $name (sort keys %queries)
{
	is($node->safe_psql('postgres', "(TABLE $name EXCEPT ALL TABLE ${name}_fresh) UNION ALL (TABLE ${name}_fresh EXCEPT ALL TABLE $name)"), '', "$name: the same");
	cmp_ok($node->safe_psql('postgres', "SELECT count(*) FROM $name"), '>', 2, "$name: there is something");
}
my @crashes = unexpected_crashes($node);
is(scalar(@crashes), 0, 'no crash but those we made') or diag join("\n", @crashes);
$node->stop;
$kafka->finish;
done_testing();
