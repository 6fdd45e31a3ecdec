# 090_kafka_data.pl: what is in the topics is what is in the results: transactions, compaction, malformed records,
# great offsets and records, where views begin and end, run(), batch limits, consumer groups, SELECT from a
# stream, and DDL while it is read. On the real broker where there is one; the mock cluster can do the rest.
# SA_ONLY=name runs one of the subtests, SEED=n sets the seed of the random one.
use strict;
use warnings;

use Digest::MD5;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use Kafka;
use List::Util qw(max min shuffle sum);
use POSIX ();
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);

use StreamAggTest;

my $seed = $ENV{SEED} || int(rand(1e9));
note "SEED=$seed";
srand($seed);

my $kafka = Kafka->new("$PostgreSQL::Test::Utils::tmp_check/kafka");
my $real = $kafka->is_real;
my $why_not = Kafka::why_not_real();
note $real ? 'with a real broker' : "with the mock: $why_not";
$kafka->start;

my $node = make_node('kafka_data', conf => "max_worker_processes = 64\n");
$node->start;

my $workers = "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'stream_agg worker' AND datname = current_database()";

# ---- helpers

# A database of its own for each test, with a server k.
sub make_database
{
	my ($db, $like) = @_;
	$node->safe_psql('postgres', "CREATE DATABASE $db " . ($like // ''));
	$node->safe_psql($db, "CREATE EXTENSION stream_agg;"
		. " CREATE SERVER k FOREIGN DATA WRAPPER stream_agg OPTIONS (type 'kafka', bootstrap_servers '@{[ $kafka->bootstrap ]}')");
	return;
}

sub create_stream
{
	my ($db, $name, $columns, %options) = @_;
	my $with = join(', ', map { "$_ '$options{$_}'" } sort keys %options);
	$node->safe_psql($db, "CREATE FOREIGN TABLE $name ($columns) SERVER k OPTIONS ($with)");
	return;
}

sub create_view
{
	my ($db, $name, $query, %options) = @_;
	my $with = join(', ', 'stream_agg.continuous', map { "stream_agg.$_ = '$options{$_}'" } sort keys %options);
	$node->safe_psql($db, "CREATE MATERIALIZED VIEW $name WITH ($with) AS $query");
	return;
}

# What run() says, or nothing.
sub run_all
{
	my ($db, $what, $timeout) = @_;
	$timeout ||= '60 s';
	my ($rc, $out, $err) = $node->psql($db, "CALL stream_agg.run('$what', '$timeout')");
	return $rc == 0 ? '' : $err;
}

sub is_query
{
	my ($db, $query, $wanted, $name) = @_;
	return is($node->safe_psql($db, $query), $wanted, $name);
}

# What a statement that must fail says.
sub error_of
{
	my ($db, $sql) = @_;
	my ($rc, $out, $err) = $node->psql($db, $sql);
	return $rc == 0 ? "no error: $out" : $err;
}

sub becomes
{
	my ($db, $query, $wanted, $name) = @_;
	return ok($node->poll_query_until($db, $query, $wanted), $name);
}

# Records with ids first .. last; the other values follow from the id.
sub events { my ($first, $last) = @_; return map { sprintf('{"id":%d,"k":%d,"v":%d}', $_, $_ % 5, $_ % 11) } $first .. $last }

sub sum_of { my ($first, $last) = @_; return ($first + $last) * ($last - $first + 1) / 2 }

my $event_columns = 'id int, k int, v int';

# ---- transactions and compaction

sub test_transactions
{
	my $db = 'transactions';
	make_database($db);
	$kafka->create_topic('tx', 2);
	create_stream($db, 's', "$event_columns, p int OPTIONS (metadata 'partition')", topic => 'tx');
	create_stream($db, 'dirty', $event_columns, topic => 'tx', isolation_level => 'read_uncommitted');
	create_view($db, 'v', 'SELECT p, count(*) AS n, sum(id) AS s FROM s GROUP BY p', trigger => 'manual');
	create_view($db, 'soon', 'SELECT count(*) AS n, sum(id) AS s FROM s');
	create_view($db, 'all_of_it', 'SELECT count(*) AS n, sum(id) AS s FROM dirty', trigger => 'manual');
	my ($good, $bad) = ($kafka->begin('good'), $kafka->begin('bad'));
	my (%committed, @aborted);
	for my $i (1 .. 40)
	{
		my $p = $i % 2;
		my ($event) = events($i, $i);
		if ($i % 4 < 2) { $good->produce('tx', $p, $event); push @{ $committed{$p} }, $i }
		elsif ($i % 4 == 2) { $bad->produce('tx', $p, $event); push @aborted, $i }
		else { $kafka->produce('tx', $p, $event); push @{ $committed{$p} }, $i }
		if ($i % 20 == 0)
		{
			$good->commit;
			$bad->abort;    # the log of each partition ends in a marker
			($good, $bad) = ($kafka->begin('good'), $kafka->begin('bad')) if $i < 40;
		}
	}
	my $wanted = join "\n", map { join '|', $_, scalar(@{ $committed{$_} }), sum(@{ $committed{$_} }) } sort keys %committed;
	my @committed = map { @$_ } values %committed;
	is(run_all($db, 's'), '', 'run() returns');
	is_query($db, 'SELECT * FROM v ORDER BY p', $wanted, 'only committed records count');
	is_query($db, 'SELECT n, s FROM soon', @committed . '|' . sum(@committed), 'in every view');
	my @ends = map { ($kafka->watermarks('tx', $_))[1] } 0, 1;
	is_query($db, "SELECT partition, position, end_position, lag FROM stream_agg.partitions WHERE view = 'v'::regclass ORDER BY 1",
		join("\n", map { "$_|$ends[$_]|$ends[$_]|0" } 0, 1), 'the position is behind the last marker, and the lag zero');
	is(run_all($db, 'dirty'), '', 'run() with read_uncommitted');
	is_query($db, 'SELECT n, s FROM all_of_it', (@committed + @aborted) . '|' . sum(@committed, @aborted), 'takes what was aborted, too');

	# An open transaction holds nobody up, and nothing behind it is read.
	my $open = $kafka->begin('open');
	$open->produce('tx', 0, events(1000, 1009));
	$kafka->produce_lines('tx', 0, [ events(2000, 2004) ]);
	$kafka->produce_lines('tx', 1, [ events(3000, 3006) ]);
	my ($low, $high, $stable) = $kafka->watermarks('tx', 0);
	cmp_ok($stable, '<', $high, 'a transaction is open');
	is(run_all($db, 's'), '', 'run() returns while it is');
	is_query($db, 'SELECT n, s FROM soon', (@committed + 7) . '|' . (sum(@committed) + sum_of(3000, 3006)), 'with everything up to the last stable offset');
	is_query($db, "SELECT position, lag FROM stream_agg.partitions WHERE view = 'v'::regclass AND partition = 0", "$stable|0", 'where the position is');
	is(run_all($db, 'dirty'), '', 'run() with read_uncommitted');
	is_query($db, 'SELECT n FROM all_of_it', @committed + @aborted + 22, 'goes beyond it');
	$open->commit;
	becomes($db, 'SELECT n, s FROM soon', (@committed + 22) . '|' . (sum(@committed) + sum_of(3000, 3006) + sum_of(1000, 1009) + sum_of(2000, 2004)),
		'when it commits, its records count');
	is(run_all($db, 's'), '', 'run() again');
	is_query($db, "SELECT sum(lag) FROM stream_agg.partitions WHERE view IN ('v'::regclass, 'soon'::regclass)", '0', 'no lag');

	# A topic with nothing but aborted records.
	$kafka->create_topic('only_aborted', 1);
	create_stream($db, 'none', $event_columns, topic => 'only_aborted');
	create_view($db, 'nothing', 'SELECT count(*) AS n FROM none', trigger => 'manual');
	my $tx = $kafka->begin('bad');
	$tx->produce('only_aborted', 0, events(1, 10));
	$tx->abort;
	is(run_all($db, 'none'), '', 'run() over aborted records alone');
	is_query($db, "SELECT position, lag FROM stream_agg.partitions WHERE view = 'nothing'::regclass", '11|0', 'passes them');
	is_query($db, "SELECT read FROM stream_agg.views WHERE view = 'nothing'::regclass", '0', 'and counts none');
	is_query($db, 'SELECT count(*) FROM none', '0', 'SELECT finds none either');
	return;
}

sub test_compaction
{
	my $db = 'compaction';
	make_database($db);
	$kafka->create_topic('compact', 1, 'cleanup.policy' => 'compact', 'segment.ms' => 500, 'segment.bytes' => 1_048_576, 'min.cleanable.dirty.ratio' => 0.01);
	create_stream($db, 's', "$event_columns, o bigint OPTIONS (metadata 'offset')", topic => 'compact');
	$kafka->produce_lines('compact', 0, [ map { "key$_->[0]=$_->[1]" } map { my ($event) = events($_, $_); [ $_ % 3, $event ] } 1 .. 900 ], separator => '=');
	my $more = 0;
	wait_until('the topic is compacted', sub {
		$kafka->produce('compact', 0, { key => 'end' . $more++, value => (events(1000, 1000))[0] });    # a new segment, so that the old one is cleaned
		return 3 == grep { $_->{key} =~ /^key/ } $kafka->read_records('compact', 0);
	});
	my $tx = $kafka->begin('compact');
	$tx->produce('compact', 0, map { { key => "aborted$_", value => '{"id":5000}' } } 1 .. 5);
	$tx->abort;
	my @kept = grep { $_->{value} !~ /5000/ } $kafka->read_records('compact', 0);
	my $wanted = join "\n", map { $_->{offset} } @kept;
	create_view($db, 'v', 'SELECT o, id FROM s', trigger => 'manual');
	create_view($db, 'middle', 'SELECT o FROM s', trigger => 'manual', start => '{"compact": {"0": 400}}', end => '{"compact": {"0": 500}}');
	create_view($db, 'upto', 'SELECT o FROM s', trigger => 'manual', end => '{"compact": {"0": 500}}');
	create_view($db, 'since', 'SELECT o FROM s', trigger => 'manual', start => '{"compact": {"0": 500}}');
	is(run_all($db, 's'), '', 'run() passes gaps');
	is_query($db, 'SELECT o FROM v ORDER BY 1', $wanted, 'what is kept is read');
	is_query($db, 'SELECT o FROM s ORDER BY 1', $wanted, 'by SELECT too');
	is_query($db, 'SELECT count(*) FROM s WHERE o BETWEEN 400 AND 499', '0', 'also of a part that is all gap');
	is_query($db, "SELECT lag FROM stream_agg.partitions WHERE view = 'v'::regclass", '0', 'no lag, with a gap at the end');
	is_query($db, "SELECT view, status, read FROM stream_agg.views WHERE view <> 'v'::regclass ORDER BY view::text",
		"middle|finished|0\nsince|running|" . @kept . "\nupto|finished|0", 'views may begin and end within a gap');
	return;
}

# ---- records

sub test_malformed
{
	my $db = 'malformed';
	make_database($db);
	my %cases = (middle => [ 1000, 500 ], first => [ 1000, 0 ], last => [ 1000, 999 ], alone => [ 1, 0 ]);
	for my $case (sort keys %cases)
	{
		my ($count, $place) = @{ $cases{$case} };
		my $topic = "malformed_$case";
		$kafka->create_topic($topic, 2);
		my @events = events(1, $count);
		$kafka->produce_lines($topic, 1, [ @events[ 0 .. $place - 1 ] ]) if $place > 0;
		$kafka->produce($topic, 1, { key => "k\xff", value => "{\"id\": 1, \"k\": \xff", timestamp => 1_700_000_000_123 });
		$kafka->produce_lines($topic, 1, [ @events[ $place + 1 .. $count - 1 ] ]) if $place < $count - 1;
		create_stream($db, "s_$case", $event_columns, topic => $topic);
		create_view($db, $case, "SELECT count(*) AS n, sum(id) AS s FROM s_$case");
		is(run_all($db, "s_$case"), '', "$case: run()");
		is_query($db, "SELECT n, coalesce(s, 0) FROM $case", $count - 1 . '|' . (sum_of(1, $count) - $place - 1), "$case: all the others count");
		is_query($db, "SELECT read, malformed, accepted FROM stream_agg.views WHERE view = '$case'::regclass", "$count|1|" . ($count - 1), "$case: all are counted");
		is_query($db, 'SELECT topic, partition, position, extract(epoch FROM arrival), key, reason, payload, view, event, message <> \'\''
			  . " FROM stream_agg.dead_letters WHERE stream = 's_$case'::regclass",
			"$topic|1|$place|1700000000.123000|\\x6bff|malformed|\\x7b226964223a20312c20226b223a20ff|||t", "$case: one dead letter with all there is to know");
	}

	# A view that comes later reads the record again, and leaves the letter alone.
	create_view($db, 'again', 'SELECT count(*) AS n FROM s_middle', trigger => 'manual');
	is(run_all($db, 'again'), '', 'a second view');
	is_query($db, 'SELECT n FROM again', '999', 'reads the same');
	is_query($db, "SELECT count(*) FROM stream_agg.dead_letters WHERE stream = 's_middle'::regclass", '1', 'the dead letter is there once');
	my ($rc, $out, $err) = $node->psql($db, 'SELECT count(*) FROM s_middle');
	is($out, '999', 'SELECT leaves it out');
	like($err, qr/NOTICE:  1 record could not be decoded and is left out/, 'and says so');

	# on_malformed = 'fail'
	create_stream($db, 'strict', $event_columns, topic => 'malformed_middle', on_malformed => 'fail');
	create_view($db, 'stops', 'SELECT count(*) AS n FROM strict');
	create_view($db, 'stops_too', 'SELECT k, count(*) AS n FROM strict GROUP BY k');
	becomes($db, "SELECT count(*) = 2 FROM stream_agg.views WHERE stream = 'strict'::regclass AND status = 'failed'", 't', "on_malformed 'fail' stops the views");
	is_query($db, "SELECT DISTINCT message LIKE '%position 500 of topic \"malformed_middle\", partition 1, is malformed: %' FROM stream_agg.views WHERE stream = 'strict'::regclass",
		't', 'with a message that names the record');
	is_query($db, "SELECT count(*) FROM stream_agg.dead_letters WHERE stream = 'strict'::regclass", '0', 'and without a dead letter');
	like(run_all($db, 'strict'), qr/malformed_middle/, 'run() says so');
	$node->safe_psql($db, "ALTER FOREIGN TABLE strict OPTIONS (SET on_malformed 'dead_letter')");
	$node->safe_psql($db, "SELECT stream_agg.resume(view) FROM stream_agg.views WHERE stream = 'strict'::regclass");
	is(run_all($db, 'strict'), '', 'they go on when the option is changed and they are resumed');
	is_query($db, 'SELECT n, (SELECT sum(n) FROM stops_too) FROM stops', '999|999', 'and lose nothing');
	return;
}

sub test_tombstones
{
	my $db = 'tombstones';
	make_database($db);
	$kafka->create_topic('tombs', 1);
	$kafka->produce('tombs', 0, { key => 'gone' }, events(1, 3), { key => 'gone too', timestamp => 1_700_000_000_000 });
	create_stream($db, 'skips', $event_columns, topic => 'tombs');
	create_stream($db, 'keeps', $event_columns, topic => 'tombs', on_tombstone => 'dead_letter');
	create_view($db, 'v1', 'SELECT count(*) AS n FROM skips', trigger => 'manual');
	create_view($db, 'v2', 'SELECT count(*) AS n FROM keeps', trigger => 'manual');
	is(run_all($db, $_), '', "run($_)") for qw(skips keeps);
	is_query($db, 'SELECT v1.n, v2.n FROM v1, v2', '3|3', 'tombstones are no events');
	is_query($db, 'SELECT view, read, tombstone, malformed, accepted FROM stream_agg.views ORDER BY view::text', "v1|5|2|0|3\nv2|5|2|0|3", 'they are counted');
	is_query($db, "SELECT count(*) FROM stream_agg.dead_letters WHERE stream = 'skips'::regclass", '0', 'skip: no dead letters');
	is_query($db, "SELECT reason, position, key, payload IS NULL FROM stream_agg.dead_letters WHERE stream = 'keeps'::regclass ORDER BY position",
		"tombstone|0|\\x676f6e65|t\ntombstone|4|\\x676f6e6520746f6f|t", 'dead_letter: one for each');
	is_query($db, 'SELECT count(*) FROM skips', '3', 'SELECT leaves them out');

	# larger than max_record_bytes
	$kafka->create_topic('sizes', 1);
	my @values = map { '{"id": 1, "t": "' . 'x' x $_ . '"}' } 982, 983, 5000;
	is(length($values[0]), 1000, 'a record of 1000 bytes');
	$kafka->produce('sizes', 0, @values);
	create_stream($db, 'sized', 'id int, t text', topic => 'sizes', max_record_bytes => 1000);
	create_view($db, 'v3', 'SELECT count(*) AS n, max(length(t)) AS l FROM sized', trigger => 'manual');
	is(run_all($db, 'sized'), '', 'run()');
	is_query($db, 'SELECT * FROM v3', '1|982', 'a record as large as max_record_bytes counts');
	is_query($db, "SELECT reason, position, message LIKE '%1000%' FROM stream_agg.dead_letters WHERE stream = 'sized'::regclass ORDER BY position",
		"malformed|1|t\nmalformed|2|t", 'larger ones are dead letters');
	is_query($db, 'SELECT max(length(t)), count(*) FROM sized', '982|1', 'SELECT goes by it as well');
	return;
}

# A record without a timestamp has no arrival, and its metadata is NULL.
sub test_no_timestamp
{
	my $db = 'no_timestamp';
	make_database($db);
	$kafka->create_topic('timeless', 1);
	$kafka->produce('timeless', 0, { value => '{"id":1,"event_time":"2100-01-01T00:00:00Z"}', timestamp => -1 }, { value => '{"id":', timestamp => -1 });
	my ($record) = $kafka->read_records('timeless', 0);
	plan skip_all => 'this client gives every record a timestamp' if $record->{timestamp} != -1;
	create_stream($db, 's', "id int, event_time timestamptz, ts timestamptz OPTIONS (metadata 'timestamp')", topic => 'timeless');
	create_view($db, 'v', 'SELECT count(*) AS n, count(ts) AS with_time FROM s', trigger => 'manual');
	is(run_all($db, 's'), '', 'run()');
	is_query($db, 'SELECT * FROM v', '1|0', 'a record without a timestamp is not held against it');
	is_query($db, 'SELECT id, ts IS NULL FROM s', '1|t', 'nor is it in the metadata');
	is_query($db, 'SELECT position, arrival IS NULL FROM stream_agg.dead_letters', '1|t', 'nor in a dead letter');
	is_query($db, "SELECT count(*) FROM s WHERE ts >= '-infinity' OR ts < 'infinity'", '0', 'and it compares with nothing');
	return;
}

# A log that begins beyond 2^33: made of an empty one by giving its files other names, while the broker is down.
# An event further ahead of its record than max_future moves no watermark; one that is just so far does. What the clock here
# says does not matter.
sub test_future
{
	my $db = 'future';
	make_database($db);
	$kafka->create_topic('future', 2);
	create_stream($db, 'f', 'id int, event_time timestamptz', topic => 'future', watermark => '0', max_future => '10 minutes');
	create_view($db, 'minutes', q{SELECT window_start, count(*) AS n FROM f, tumble(event_time, '1 minute') GROUP BY 1}, output_mode => 'append', trigger => 'manual');
	create_view($db, 'visits', q{SELECT window_start, window_end, count(*) AS n FROM f, session(event_time, '1 minute') GROUP BY 1, 2}, output_mode => 'append', trigger => 'manual',
		max_batch_rows => 1);
	my $sent = 1_700_000_000;
	my $event = sub { my ($id, $after) = @_; return { value => sprintf('{"id":%d,"event_time":"%s"}', $id, iso($sent + $after)), timestamp => $sent * 1000 } };
	for my $p (0, 1)
	{
		$kafka->produce('future', $p, $event->(1, 0), $event->(2, 86_400), $event->(3, 60), $event->(4, 601), $event->(5, 59));
	}
	is(run_all($db, 'f'), '', 'run');
	is_query($db, 'SELECT view, future, late, accepted, watermark FROM stream_agg.views ORDER BY view::text',
		join("\n", 'minutes|4|0|6|2023-11-14 22:14:20+00', 'visits|4|2|4|2023-11-14 22:14:20+00'), 'what is far ahead moves nothing');
	is_query($db, q{SELECT reason, partition, event ->> 'id', arrival FROM stream_agg.dead_letters WHERE view IS NULL ORDER BY partition, position},
		join("\n", map { my $p = $_; map { "future|$p|$_|2023-11-14 22:13:20+00" } 2, 4 } 0, 1), 'and is kept aside');
	$kafka->produce('future', $_, $event->(6, 600)) for 0, 1;
	is(run_all($db, 'f'), '', 'run');
	is_query($db, 'SELECT DISTINCT future, watermark FROM stream_agg.views', '4|2023-11-14 22:23:20+00', 'just so far is not too far');
	is_query($db, 'SELECT sum(n) FROM minutes', '6', 'and closes what is to be closed');
	$node->safe_psql('postgres', "DROP DATABASE $db");
	return;
}

sub test_offsets
{
	my $db = 'offsets';
	my $first = 2**33 + 12345;
	my $dir = "$kafka->{dir}/data";
	make_database($db);
	$kafka->create_topic('far', 1);
	$kafka->stop;
	for my $file (glob "$dir/far-0/00000000000000000000.*")
	{
		my $name = sprintf('%020d', $first);
		rename($file, $file =~ s/0{20}/$name/r) or die "$file: $!";
	}
	unlink "$dir/far-0/leader-epoch-checkpoint";
	for my $file (glob "$dir/*-checkpoint")
	{
		my $text = slurp_file($file);
		next unless $text =~ s/^far 0 \d+$/far 0 $first/m;
		open(my $out, '>', $file) or die "$file: $!";
		print $out $text;
		close($out);
	}
	$kafka->start;
	is(($kafka->watermarks('far', 0))[1], $first, 'a log that begins far away');
	create_stream($db, 's', "$event_columns, o bigint OPTIONS (metadata 'offset')", topic => 'far');
	create_view($db, 'v', 'SELECT count(*) AS n, min(o) AS a, max(o) AS b FROM s', trigger => 'manual');
	create_view($db, 'part', 'SELECT o FROM s', trigger => 'manual', start => "{\"far\": {\"0\": @{[ $first + 1 ]}}}", end => "{\"far\": {\"0\": @{[ $first + 3 ]}}}");
	is(run_all($db, 's'), '', 'run() with nothing in it');
	$kafka->produce_lines('far', 0, [ events(1, 4), 'malformed' ]);
	is(run_all($db, 's'), '', 'run()');
	is_query($db, 'SELECT * FROM v', join('|', 4, $first, $first + 3), 'offsets of 64 bits');
	is_query($db, "SELECT position, end_position FROM stream_agg.partitions WHERE view = 'v'::regclass", join('|', ($first + 5) x 2), 'are positions');
	is_query($db, 'SELECT o FROM part ORDER BY o', join("\n", $first + 1, $first + 2), 'places to begin and end');
	is_query($db, 'SELECT position FROM stream_agg.dead_letters', $first + 4, 'places of dead letters');
	is_query($db, "SELECT count(*), count(*) FILTER (WHERE o > $first) FROM s WHERE o >= @{[ $first + 1 ]} AND o <= @{[ $first + 2 ]}", '2|2', 'and can be asked for');
	terminate_workers($node, "datname = '$db'");
	$kafka->produce_lines('far', 0, [ events(5, 6) ]);
	is(run_all($db, 's'), '', 'run() in a new worker');
	is_query($db, 'SELECT n FROM v', 6, 'goes on there');
	return;
}

sub test_sizes
{
	my $db = 'sizes';
	make_database($db);
	$kafka->create_topic('large', 1);
	my $size = 1_000_000;
	my $count = $real ? 8 : 3;
	for my $i (1 .. $count)
	{
		my $start = "{\"id\":$i,\"t\":\"";
		$kafka->produce('large', 0, $start . chr(64 + $i) x ($size - length($start) - 2) . '"}');
	}
	create_stream($db, 'large', "id int, t text, o bigint OPTIONS (metadata 'offset')", topic => 'large');
	create_view($db, 'v', 'SELECT id, length(t) AS l, md5(t) AS m FROM large', trigger => 'manual', max_batch_bytes => '2MB');
	is(run_all($db, 'large'), '', 'run() over records of 1 MB');
	is_query($db, 'SELECT id, l, m FROM v ORDER BY id', join("\n", map { my $l = $size - length("{\"id\":$_,\"t\":\"\"}"); join '|', $_, $l, Digest::MD5::md5_hex(chr(64 + $_) x $l) } 1 .. $count), 'they come whole');
	is_query($db, 'SELECT count(*), max(length(t)) FROM large', "$count|" . ($size - 15), 'in SELECT too');

	$kafka->create_topic('codecs', 1);
	my $id = 0;
	for my $codec (qw(none gzip snappy lz4 zstd))
	{
		is($kafka->produce_lines('codecs', 0, [ events($id + 1, $id + 1000) ], codec => $codec), 1000, "a thousand records with $codec");
		$id += 1000;
	}
	create_stream($db, 'codecs', $event_columns, topic => 'codecs');
	create_view($db, 'c', 'SELECT count(*) AS n, max(id) AS m, sum(id) AS s FROM codecs', trigger => 'manual');
	is(run_all($db, 'codecs'), '', 'run() over all of them');
	is_query($db, 'SELECT * FROM c', '5000|5000|' . sum_of(1, 5000), 'all are read');

	# Many tiny records, which the broker hands out at once.
	$kafka->create_topic('tiny', 1);
	is($kafka->produce_lines('tiny', 0, [ map { $_ % 10 } 1 .. 100_000 ], codec => 'lz4'), 100_000, 'tiny records');
	create_stream($db, 'tiny', 'v int', topic => 'tiny', format => 'csv', fetch_min_bytes => 100_000, max_partition_fetch_bytes => 10_000_000);
	create_view($db, 't', 'SELECT v, count(*) AS n FROM tiny GROUP BY v', trigger => 'manual');
	is(run_all($db, 'tiny'), '', 'run() over tiny records');
	is_query($db, 'SELECT count(*), min(n), max(n) FROM t', '10|10000|10000', 'all are counted');
	is_query($db, 'SELECT count(*), sum(v) FROM tiny', '100000|450000', 'in SELECT too');
	return;
}

sub test_metadata
{
	my $db = 'metadata';
	make_database($db);
	$kafka->create_topic('meta', 2);
	$kafka->create_topic('meta_append', 1, 'message.timestamp.type' => 'LogAppendTime') if $real;
	$kafka->produce('meta', 1, { key => 'ke"y', value => '{"id":1}', timestamp => 1_700_000_000_123, headers => [ [ 'a', '1' ], [ 'b', undef ], [ 'a', '' ] ] },
		{ value => '{"id":2}', timestamp => 1 }, { key => '', value => '{"id":3}', timestamp => 1_700_000_000_000 });
	$kafka->produce('meta_append', 0, { value => '{"id":4}', timestamp => 1_700_000_000_000 }) if $real;
	create_stream($db, 's', "id int, t text OPTIONS (metadata 'topic'), p int OPTIONS (metadata 'partition'), o bigint OPTIONS (metadata 'offset'),"
		. " ts timestamptz OPTIONS (metadata 'timestamp'), tt text OPTIONS (metadata 'timestamp_type'), key text OPTIONS (metadata 'key'),"
		. " h jsonb OPTIONS (metadata 'headers')", topic => $real ? 'meta,meta_append' : 'meta');
	create_view($db, 'v', 'SELECT id, t, p, o, ts, tt, key, h FROM s', trigger => 'manual');
	is(run_all($db, 's'), '', 'run()');
	my $wanted = '1|meta|1|0|2023-11-14 22:13:20.123+00|create|ke"y|{"a": "", "b": null}'    # the last of a name wins
	  . "\n2|meta|1|1|1970-01-01 00:00:00.001+00|create||{}\n3|meta|1|2|2023-11-14 22:13:20+00|create||{}";
	is_query($db, 'SELECT * FROM v WHERE id < 4 ORDER BY id', $wanted, 'metadata');
	is_query($db, 'SELECT * FROM s WHERE id < 4 ORDER BY id', $wanted, 'in SELECT too');
	is_query($db, 'SELECT id, key IS NULL FROM s WHERE id < 4 ORDER BY id', "1|f\n2|t\n3|f", 'a key that is not there is not an empty one');
	if ($real)
	{
		is_query($db, "SELECT t, p, o, tt, ts > now() - interval '1 hour' FROM v WHERE id = 4", 'meta_append|0|0|append|t', 'the time that the broker gave');
	}
	return;
}

# ---- cursors, beginnings and ends

# How many clients of the library the worker has: one that looks around, and one for every cursor.
sub worker_clients
{
	my ($db) = @_;
	my ($pid) = worker_pids($node, $db);
	return 0 unless $pid;
	my $clients = 0;
	for my $file (glob "/proc/$pid/task/*/comm")
	{
		open(my $in, '<', $file) or next;
		$clients++ if (<$in> // '') =~ /^rdk:main/;
	}
	return $clients;
}

sub test_two_views
{
	my $db = 'two_views';
	make_database($db);
	$kafka->create_topic('two', 2);
	$kafka->produce_lines('two', 'spread', [ events(1, 1000) ]);
	create_stream($db, 's', $event_columns, topic => 'two');
	create_view($db, 'early', 'SELECT count(*) AS n, sum(id) AS s FROM s');
	becomes($db, 'SELECT n, s FROM early', '1000|' . sum_of(1, 1000), 'the first view has what is there');
	create_view($db, 'late', 'SELECT count(*) AS n, sum(id) AS s FROM s', start => 'latest');
	becomes($db, "SELECT count(*) FROM stream_agg.partitions WHERE view = 'late'::regclass AND position = 500", 2, 'the second begins at the end');
	$kafka->produce_lines('two', 'spread', [ events(1001, 1100) ]);
	becomes($db, 'SELECT early.n, late.n FROM early, late', '1100|100', 'both go on');
	$node->safe_psql($db, "SELECT stream_agg.pause('early')");
	for my $i (1 .. 10)
	{
		$kafka->produce_lines('two', 'spread', [ events(1001 + 100 * $i, 1100 + 100 * $i) ]);
		becomes($db, 'SELECT early.n, late.n FROM early, late', '1100|' . 100 * ($i + 1), 'while one is paused, the other goes on');
	}
	is_query($db, "SELECT sum(position) FROM stream_agg.partitions WHERE view = 'early'::regclass", '1100', 'the paused one stands where it did');
	# It catches up in little steps; meanwhile the other goes on.
	$node->safe_psql($db, "SELECT stream_agg.resume('early')");
	$kafka->produce_lines('two', 'spread', [ events(2101, 2200) ]);
	becomes($db, 'SELECT late.n, late.s FROM late', '1200|' . sum_of(1001, 2200), 'the other one never waits');
	becomes($db, 'SELECT early.n, early.s FROM early', '2200|' . sum_of(1, 2200), 'the resumed one catches up');
	is_query($db, 'SELECT count(DISTINCT (position, partition)) FROM stream_agg.partitions', '2', 'they stand at the same places');
	ok(wait_until('the views share a cursor', sub { return worker_clients($db) == 2 }), 'they share one read of the stream');
	$kafka->produce_lines('two', 'spread', [ events(2201, 2300) ]);
	becomes($db, 'SELECT early.n, late.n FROM early, late', '2300|1300', 'and go on together');
	is_query($db, 'SELECT bool_and(' . balanced_counters() . ') FROM stream_agg.views', 't', 'all records are counted once');
	return;
}

sub test_start_end
{
	my $db = 'start_end';
	make_database($db);
	$kafka->create_topic('se', 2);
	for my $p (0, 1) { $kafka->produce_lines('se', $p, [ events(10 * $p + 1, 10 * $p + 10) ], timestamp => 1_700_000_000_000, step => 1000) }
	create_stream($db, 's', "$event_columns, p int OPTIONS (metadata 'partition'), o bigint OPTIONS (metadata 'offset')", topic => 'se');
	my %views = (
		earliest => { start => 'earliest' },
		latest => { start => 'latest' },
		explicit => { start => '{"se": {"0": 3, "1": 10}}' },
		one_named => { start => '{"se": {"1": 4}}' },
		to_latest => { end => 'latest' },
		to_explicit => { end => '{"se": {"0": 4, "1": 0}}' },
		beyond => { end => '{"se": {"0": 12, "1": 10}}' },
		middle => { start => '{"se": {"0": 3, "1": 4}}', end => '{"se": {"0": 8, "1": 5}}' },
		empty => { start => 'latest', end => 'latest' },
		nothing => { start => '{"se": {"0": 5, "1": 5}}', end => '{"se": {"0": 5, "1": 5}}' });
	my %count = (earliest => 20, latest => 0, explicit => 7, one_named => 16, to_latest => 20, to_explicit => 4, beyond => 20, middle => 6, empty => 0, nothing => 0);
	my @finished = qw(to_latest to_explicit middle empty nothing);
	if ($real)    # the mock knows no offsets for a time
	{
		@views{qw(at_time before_all after_all to_time)} = ({ start => '2023-11-14 22:13:24+00' }, { start => '1999-01-01' }, { start => '2023-11-15' },
			{ start => '2023-11-14 22:13:20.001+00', end => '2023-11-14 22:13:23.5+00' });
		@count{qw(at_time before_all after_all to_time)} = (12, 20, 0, 6);
		push @finished, 'to_time';
	}
	for my $view (sort keys %views)
	{
		create_view($db, $view, 'SELECT p, o FROM s', %{ $views{$view} }, trigger => $view =~ /o/ ? 'immediate' : 'manual');
	}
	is(run_all($db, 's'), '', 'run()');
	for my $view (sort keys %views)
	{
		becomes($db, "SELECT count(*), count(DISTINCT (p, o)) FROM $view", "$count{$view}|$count{$view}", "$view: $count{$view} records");
	}
	becomes($db, "SELECT string_agg(view::text, ' ' ORDER BY view::text) FROM stream_agg.views WHERE status = 'finished'", join(' ', sort @finished),
		'those that have come to their end are finished');
	is(run_all($db, 's'), '', 'run() does not mind finished views');
	is(run_all($db, 'middle'), '', 'not even when one is named');
	for my $p (0, 1) { $kafka->produce_lines('se', $p, [ events(21, 25) ]) }
	is(run_all($db, 's'), '', 'run() with more');
	is_query($db, join(' UNION ALL ', map { "SELECT '$_' AS view, count(*) AS n FROM $_" } @finished) . ' ORDER BY view',
		join("\n", map { "$_|$count{$_}" } sort @finished), 'finished views take nothing more');
	is_query($db, 'SELECT (SELECT count(*) FROM earliest), (SELECT count(*) FROM latest), (SELECT count(*) FROM explicit)', '30|10|17', 'the others do');
	is_query($db, 'SELECT max(o) FILTER (WHERE p = 0), max(o) FILTER (WHERE p = 1), count(*) FROM beyond', '11|9|22', 'an end that was yet to come is kept to');
	becomes($db, "SELECT status FROM stream_agg.views WHERE view = 'beyond'::regclass", 'finished', 'and then finishes the view');
	becomes($db, "SELECT count(*) FROM stream_agg.views WHERE status = 'finished'", @finished + 1, 'still');
	terminate_workers($node, "datname = '$db'");
	is(run_all($db, 's'), '', 'run() in a new worker');
	is_query($db, 'SELECT (SELECT count(*) FROM earliest), (SELECT count(*) FROM middle), (SELECT count(*) FROM beyond)', '30|6|22', 'changes nothing');
	is_query($db, 'SELECT bool_and(' . balanced_counters() . ') FROM stream_agg.views', 't', 'all records are counted once');
	is_query($db, 'SELECT sum(lag) FROM stream_agg.partitions', '0', 'and finished views have no lag');
	return;
}

sub test_change
{
	my $db = 'change';
	make_database($db);
	$kafka->create_topic('ch', 2);
	for my $p (0, 1) { $kafka->produce_lines('ch', $p, [ events(10 * $p + 1, 10 * $p + 10) ]) }
	create_stream($db, 's', $event_columns, topic => 'ch');
	create_view($db, 'a', 'SELECT count(*) AS n, sum(id) AS ids FROM s');
	is(run_all($db, 'a'), '', 'run()');
	create_view($db, 'b', 'SELECT count(*) AS n FROM s', start => 'view:a');
	becomes($db, "SELECT sum(position) FROM stream_agg.partitions WHERE view = 'b'::regclass", '20', 'the other view has met its stream');
	for my $p (0, 1) { $kafka->produce_lines('ch', $p, [ events(21, 25) ]) }
	is(run_all($db, 's'), '', 'run() with another view');
	is_query($db, 'SELECT a.n, b.n FROM a, b', '30|10', 'which began where the first one stood');
	$node->safe_psql($db, "SELECT stream_agg.reset('b')");
	is(run_all($db, 's'), '', 'run() after a reset');
	is_query($db, 'SELECT n FROM b', '10', 'back to where it began');
	$node->safe_psql($db, 'CREATE MATERIALIZED VIEW a WITH (stream_agg.continuous, stream_agg.replace) AS SELECT count(*) AS n, max(id) AS top FROM s WHERE id > 2');
	$node->safe_psql($db, "SELECT stream_agg.reset('a')");
	is(run_all($db, 's'), '', 'run() after another query and a reset');
	is_query($db, 'SELECT n, top FROM a', '28|25', 'from the beginning of the topic');
	like(error_of($db, "SELECT stream_agg.seek('a', '{\"ch\": {\"0\": 3}}')"), qr/continuous view "a" is running/, 'seek in a running view');
	$node->safe_psql($db, "SELECT stream_agg.pause('a')");
	like(error_of($db, "SELECT stream_agg.seek('a', '{\"ch\": {\"7\": 3}}')"), qr/does not read partition 7 of topic "ch"/, 'seek in a partition that is not there');
	like(error_of($db, "SELECT stream_agg.seek('a', '12')"), qr/invalid value for option "position"|invalid position/, 'seek without a partition');
	$node->safe_psql($db, "SELECT stream_agg.seek('a', '{\"ch\": {\"0\": 13, \"1\": 15}}'); SELECT stream_agg.resume('a')");
	is(run_all($db, 's'), '', 'run() after a seek');
	is_query($db, 'SELECT n FROM a', '30', 'the last two records of a partition are counted again');
	$node->safe_psql($db, "SELECT stream_agg.pause('a'); SELECT stream_agg.seek('a', '{\"ch\": {\"0\": 100}}'); SELECT stream_agg.resume('a')");
	becomes($db, "SELECT status FROM stream_agg.views WHERE view = 'a'::regclass", 'failed', 'a place beyond the end is said to be one');
	return;
}

sub test_topics
{
	my $db = 'topics';
	make_database($db);
	$kafka->create_topic($_, 1) for qw(list_a list_b pattern.one patterns);
	$kafka->produce_lines($_, 0, [ events(1, 10) ]) for qw(list_a list_b pattern.one patterns);
	my $columns = "$event_columns, t text OPTIONS (metadata 'topic')";
	create_stream($db, 'list', $columns, topic => 'list_a, list_b');
	create_stream($db, 'pattern', $columns, topic_pattern => '^pattern\.', partition_discovery => '1 s');
	create_view($db, 'v', 'SELECT t, count(*) AS n FROM list GROUP BY t');
	create_view($db, 'w', 'SELECT t, count(*) AS n FROM pattern GROUP BY t');
	is(run_all($db, $_), '', "run('$_')") for qw(list pattern);
	is_query($db, 'SELECT * FROM v ORDER BY t', "list_a|10\nlist_b|10", 'a list of topics');
	is_query($db, 'SELECT * FROM w ORDER BY t', 'pattern.one|10', 'a pattern');
	$kafka->create_topic('pattern.two', 2);
	$kafka->produce_lines('pattern.two', 1, [ events(1, 7) ]);
	becomes($db, "SELECT string_agg(t || ' ' || n, ',' ORDER BY t) FROM w", 'pattern.one 10,pattern.two 7', 'a topic that comes later is found');
	if ($real)
	{
		$kafka->add_partitions('pattern.one', 3);
		$kafka->produce_lines('pattern.one', 2, [ events(1, 5) ]);
		becomes($db, "SELECT string_agg(t || ' ' || n, ',' ORDER BY t) FROM w", 'pattern.one 15,pattern.two 7', 'and so are new partitions');
		is_query($db, 'SELECT count(*) FROM pattern', '22', 'by SELECT as well');
	}
	is_query($db, 'SELECT t, count(*) FROM list GROUP BY t ORDER BY t', "list_a|10\nlist_b|10", 'SELECT from a list');

	return unless $real;    # the mock makes every topic that it is asked for

	# A topic that is not there yet.
	create_stream($db, 'missing', $event_columns, topic => 'list_later');
	create_view($db, 'm', 'SELECT count(*) AS n FROM missing');
	becomes($db, "SELECT status = 'retrying' AND message LIKE '%list_later%' AND trouble_since IS NOT NULL FROM stream_agg.streams WHERE stream = 'missing'::regclass",
		't', 'a topic that does not exist is told');
	like(error_of($db, 'SELECT * FROM missing'), qr/list_later/, 'by SELECT as well');
	like(run_all($db, 'missing', '2 s'), qr/list_later/, 'and by run()');
	$kafka->create_topic('list_later', 1);
	$kafka->produce_lines('list_later', 0, [ events(1, 3) ]);
	becomes($db, 'SELECT n FROM m', 3, 'when it comes it is read');
	becomes($db, "SELECT status, message FROM stream_agg.streams WHERE stream = 'missing'::regclass", 'running|', 'and the trouble is over');
	return;
}

# Topics are found by their names in whatever order the database has them.
sub test_topic_order
{
	my $db = 'topic_order';
	my @topics = qw(alpha Beta a-b ab a_c);
	eval { make_database($db, "TEMPLATE template0 LOCALE_PROVIDER icu ICU_LOCALE 'en'"); 1 } or plan skip_all => 'a server with ICU';
	$kafka->create_topic($_, 1) for @topics;
	my $columns = "$event_columns, t text OPTIONS (metadata 'topic'), ts timestamptz OPTIONS (metadata 'timestamp')";
	create_stream($db, 'mixed', $columns, topic => join(', ', @topics), event_time => 'ts', watermark => '1 day');
	create_view($db, 'v', 'SELECT t, sum(10 / (id % 5)) AS total, count(*) AS n FROM mixed GROUP BY t');
	create_view($db, 'u', "SELECT t, window_start, avg(10 / (id % 5)) AS mean, count(*) AS n FROM mixed, tumble(ts, '36500 days') GROUP BY t, window_start",
		state => 'unlogged', dedup_key => 't, id');
	for my $round (1 .. 2)
	{
		$kafka->produce_lines($_, 0, [ events(1, 9), '{' ]) for @topics;
		is(run_all($db, 'mixed'), '', 'run()');
		my $n = 8 * $round;
		is_query($db, 'SELECT string_agg(t, \',\' ORDER BY t COLLATE "C"), min(n), max(n) FROM v', join(',', sort @topics) . "|$n|$n", "round $round: all are read");
		is_query($db, 'SELECT DISTINCT reason, count(*) FROM stream_agg.dead_letters WHERE view IS NULL OR view = \'v\'::regclass GROUP BY topic, reason ORDER BY 1', "failed|$round\nmalformed|$round",
			'and what is refused is kept');
		is_query($db, 'SELECT position FROM stream_agg.partitions GROUP BY position', 10 * $round, 'once');
		crash_child($node, "SELECT pid FROM pg_stat_activity WHERE backend_type = 'stream_agg worker' AND datname = '$db'") if $round == 1;
	}
	is_query($db, 'SELECT DISTINCT n FROM u', '8', 'duplicates, too, after a crash');
	return;
}

# ---- run()

sub test_run
{
	my $db = 'runs';
	make_database($db);
	$kafka->create_topic('run', 1);
	$kafka->produce_lines('run', 0, [ events(1, 100) ]);
	create_stream($db, 's', $event_columns, topic => 'run');
	create_view($db, 'manual', 'SELECT count(*) AS n FROM s', trigger => 'manual');
	create_view($db, 'manual_too', 'SELECT count(*) AS n FROM s', trigger => 'manual');
	create_view($db, 'seldom', 'SELECT count(*) AS n FROM s', trigger => '1 hour');
	becomes($db, 'SELECT n FROM seldom', 100, 'an interval begins at once');
	$kafka->produce_lines('run', 0, [ events(101, 150) ]);
	is(run_all($db, 'manual'), '', 'run() of a view');
	is_query($db, 'SELECT (SELECT n FROM manual), (SELECT n FROM seldom), (SELECT count(*) FROM manual_too WHERE n > 100)', '150|100|0', 'runs that view alone');
	is(run_all($db, 's'), '', 'run() of the stream');
	is_query($db, 'SELECT (SELECT n FROM manual), (SELECT n FROM manual_too), (SELECT n FROM seldom)', '150|150|150', 'runs all');
	for my $i (1 .. 20)
	{
		$kafka->produce('run', 0, events(150 + $i, 150 + $i));
		run_all($db, 's') eq '' or last;
		my $n = $node->safe_psql($db, 'SELECT min(n) FROM (TABLE manual UNION ALL TABLE manual_too UNION ALL TABLE seldom) x');
		is($n, 150 + $i, "what was written before run() is there after it, $i") or last;
	}
	$node->safe_psql($db, "SELECT stream_agg.pause('manual_too')");
	like(run_all($db, 's'), qr/continuous view "manual_too" is paused/, 'a paused view is an error');
	is(run_all($db, 'manual'), '', 'but not for another one');
	$node->safe_psql($db, "SELECT stream_agg.resume('manual_too')");
	create_view($db, 'often', 'SELECT count(*) AS n FROM s', trigger => '200 ms');
	$kafka->produce_lines('run', 0, [ events(171, 180) ]);
	becomes($db, 'SELECT n FROM often', 180, 'a short interval goes on by itself');
	is_query($db, 'SELECT n FROM manual', 170, 'and nobody else');

	# A view that ends early says nothing about where the others are done.
	$kafka->create_topic('run_bounded', 1);
	create_stream($db, 'bounded', $event_columns, topic => 'run_bounded');
	create_view($db, 'short', 'SELECT count(*) AS n FROM bounded', trigger => 'manual', end => '{"run_bounded": {"0": 100}}');
	create_view($db, 'whole', 'SELECT count(*) AS n FROM bounded', trigger => 'manual', max_batch_rows => 1);    # goes on for long
	is(run_all($db, 'bounded'), '', 'run() of a bounded view and another');
	$kafka->produce_lines('run_bounded', 0, [ events(1, 10_000) ]);
	is(run_all($db, 'bounded'), '', 'and again with records');
	is_query($db, 'SELECT short.n, whole.n FROM short, whole', '100|10000', 'returns when both are done');
	$node->safe_psql($db, 'SET client_min_messages = error; DROP FOREIGN TABLE bounded CASCADE');

	# nobody there
	$node->safe_psql($db, "CREATE FOREIGN TABLE unreachable ($event_columns) SERVER stream_kafka OPTIONS (bootstrap_servers '127.0.0.1:1', topic 'x')");
	create_view($db, 'nobody', 'SELECT count(*) AS n FROM unreachable', trigger => 'manual');
	like(run_all($db, 'unreachable', '5 s'), qr/stream "unreachable" was not read to its end in time.*127\.0\.0\.1:1.*refused/s, 'run() on brokers that are not there ends at its timeout and says why');
	is_query($db, "SELECT status, message LIKE '%127.0.0.1:1%refused%', trouble_since < now() FROM stream_agg.streams WHERE stream = 'unreachable'::regclass", 'retrying|t|t',
		'and so does stream_agg.streams');
	$node->safe_psql($db, 'DROP FOREIGN TABLE unreachable CASCADE');
	becomes($db, $workers, 1, 'a stream that cannot be reached can be dropped');

	# one of two brokers away
	$node->safe_psql($db, "CREATE FOREIGN TABLE half ($event_columns) SERVER stream_kafka OPTIONS (bootstrap_servers '127.0.0.1:1,@{[ $kafka->bootstrap ]}', topic 'run')");
	create_view($db, 'half_view', 'SELECT count(*) AS n FROM half', trigger => 'manual');
	is(run_all($db, 'half'), '', 'one broker that is not there does not matter');
	is_query($db, 'SELECT (SELECT n FROM half_view), (SELECT count(*) FROM half)', '180|180', 'neither to a view nor to SELECT');
	becomes($db, "SELECT status FROM stream_agg.streams WHERE stream = 'half'::regclass", 'running', 'and is no trouble for long');
	$node->safe_psql($db, 'SET client_min_messages = error; DROP FOREIGN TABLE half CASCADE');

	# there, and then not
	$kafka->stop;
	like(run_all($db, 'manual', '3 s'), qr/was not read to its end in time.*(refused|down|disconnected|timed out)/is, 'run() while the broker is away');
	becomes($db, 'SELECT status FROM stream_agg.streams', 'retrying', 'which is told');
	$kafka->start;
	$kafka->produce_lines('run', 0, [ events(181, 200) ]);
	is(run_all($db, 's'), '', 'when it is back, run() works');
	is_query($db, 'SELECT (SELECT n FROM manual), (SELECT n FROM manual_too), (SELECT n FROM seldom)', '200|200|200', 'and nothing is lost');
	becomes($db, 'SELECT status FROM stream_agg.streams', 'running', 'all is well again');
	return;
}

# ---- the consumer group

sub test_group
{
	my $db = 'groups';
	make_database($db);
	$kafka->create_topic('grouped', 2);
	$kafka->produce_lines('grouped', 0, [ events(1, 70) ]);
	$kafka->produce_lines('grouped', 1, [ events(71, 100) ]);
	create_stream($db, 's', $event_columns, topic => 'grouped', group_id => 'lag watchers');
	create_view($db, 'v', 'SELECT count(*) AS n FROM s');
	create_view($db, 'slow', 'SELECT count(*) AS n FROM s', trigger => 'manual', start => '{"grouped": {"0": 10, "1": 0}}');
	my $committed = sub { return join ' ', map { $kafka->committed(Kafka::encode('lag watchers'), 'grouped', $_) } 0, 1 };
	is(run_all($db, 's'), '', 'run()');
	is_query($db, 'SELECT v.n, slow.n FROM v, slow', '100|90', 'two views');
	ok(wait_until('offsets are committed', sub { return $committed->() eq '70 30' }), 'the group has no lag when they have read all');
	$node->safe_psql($db, "SELECT stream_agg.pause('slow')");
	$kafka->produce_lines('grouped', 1, [ events(101, 105) ]);
	becomes($db, 'SELECT n FROM v', 105, 'one view goes on');
	is($committed->(), '70 30', 'the group is told how far all of them are');
	$node->safe_psql($db, "SELECT stream_agg.resume('slow')");
	is(run_all($db, 's'), '', 'run() again');
	ok(wait_until('offsets are committed', sub { return $committed->() eq '70 35' }), 'and so it goes on');

	# What the group says is not believed.
	create_stream($db, 's2', $event_columns, topic => 'grouped', group_id => 'lag watchers');
	create_view($db, 'w', 'SELECT count(*) AS n FROM s2', trigger => 'manual');
	is(run_all($db, 's2'), '', 'another stream in the group');
	is_query($db, 'SELECT n FROM w', 105, 'reads from its own position');
	return;
}

# ---- SELECT

sub test_select
{
	my $db = 'selects';
	make_database($db);
	$kafka->create_topic('sel', 3);
	my $start = 1_700_000_000_000;
	for my $p (0, 1) { $kafka->produce_lines('sel', $p, [ events(100 * $p + 1, 100 * $p + 100) ], timestamp => $start + 500 * $p, step => 1000) }
	create_stream($db, 's', "$event_columns, p int OPTIONS (metadata 'partition'), o bigint OPTIONS (metadata 'offset'),"
		. " ts timestamptz OPTIONS (metadata 'timestamp')", topic => 'sel');
	$node->safe_psql($db, 'CREATE TABLE t AS SELECT * FROM s');
	is_query($db, 'SELECT count(*), sum(id), count(DISTINCT (p, o)) FROM t', '200|' . sum_of(1, 200) . '|200', 'SELECT is complete');

	# Every comparison gives what it gives over a table.
	my @times = map { "'" . $node->safe_psql($db, "SELECT ts FROM t WHERE id = $_") . "'" } 1, 50, 100, 101, 200;
	my @conditions;
	for my $op ('<', '<=', '=', '>', '>=', '<>')
	{
		push @conditions, map { "p $op $_" } -1, 0, 1, 2, 3, 2147483647, 9223372036854775807;
		push @conditions, map { "o $op $_" } -1, 0, 1, 42, 99, 100, 9223372036854775807, -9223372036854775808, '42::smallint', '42::int', 42.5, 'NULL';
		push @conditions, map { "$_ $op o" } 42, 99, '42::smallint';
		push @conditions, map { ("ts $op $_", "ts $op CAST($_ AS timestamptz) + interval '0.1 ms'") } @times;
		push @conditions, map { "ts $op $_" } map { "'$_'::timestamptz" } 'infinity', '-infinity', '1960-01-01', '290000-01-01';
		push @conditions, "ts $op '2023-11-14'::date", "p $op 1::smallint", "p $op 1::bigint", "o $op id", "o $op p";
	}
	push @conditions, 'o > 10 AND o < 20', 'o >= 10 AND o <= 20 AND p = 1', 'o > 20 AND o < 10', 'p IN (0, 2)', 'p = 0 OR o = 5', 'NOT o > 10', 'o BETWEEN 5 AND 7 AND ts > ' . $times[1],
		'o = ANY (ARRAY[1, 2, NULL])', 'o IS NULL', 'p = 1 AND o = 99', "o > (SELECT 42)", "ts >= $times[1]::timestamptz AND ts < $times[2]::timestamptz", 'id > 150 AND o < 60';
	@conditions = grep { !/\bts\b/ } @conditions unless $real;    # the mock knows no offsets for a time
	my $sql = join("\n", map { "SELECT '" . s/'/''/gr . "' WHERE EXISTS ((SELECT * FROM s WHERE $_) EXCEPT ALL (SELECT * FROM t WHERE $_)) OR EXISTS ((SELECT * FROM t WHERE $_) EXCEPT ALL (SELECT * FROM s WHERE $_));" } @conditions);
	is($node->safe_psql($db, $sql), '', scalar(@conditions) . ' comparisons with places and times');

	# values that are known only when the query runs
	is_query($db, 'PREPARE q(bigint, int) AS SELECT count(*) FROM s WHERE o < $1 AND p = $2; SET plan_cache_mode = force_generic_plan; EXECUTE q(10, 1); EXECUTE q(NULL, 1); EXECUTE q(1000, 2); EXECUTE q(1000, 0)',
		"10\n0\n0\n100", 'parameters');
	is_query($db, 'SELECT x, (SELECT count(*) FROM s WHERE o >= x AND p = 1) FROM (VALUES (0), (90), (NULL), (100), (-5)) v (x)', "0|100\n90|10\n|0\n100|0\n-5|100", 'parameters that change');
	is_query($db, "SET enable_hashjoin = off; SET enable_mergejoin = off; SET enable_material = off; SELECT count(*), sum(x) FROM (VALUES (1), (5), (NULL), (7)) v (x) JOIN s ON o = x", '6|26', 'a nested loop');
	is_query($db, "SET enable_hashjoin = off; SET enable_mergejoin = off; SET enable_material = off; SELECT count(*) FROM (VALUES (1), (5), (7)) v (x) LEFT JOIN LATERAL (SELECT * FROM s WHERE o < x AND p < x) q ON true",
		$node->safe_psql($db, "SELECT count(*) FROM (VALUES (1), (5), (7)) v (x) LEFT JOIN LATERAL (SELECT * FROM t WHERE o < x AND p < x) q ON true"), 'a lateral join');
	is_query($db, "SET enable_hashjoin = off; SET enable_mergejoin = off; SET enable_material = off; SELECT count(*) FROM s a JOIN s b ON a.id = b.id AND a.o < 4", 8, 'a stream joined with itself, again and again');
	is_query($db, 'SELECT count(*) FROM s a, s b WHERE a.p = 0 AND b.p = 1', '10000', 'and with all others');

	# cursors, subtransactions, errors
	is_query($db, 'BEGIN; DECLARE c CURSOR FOR SELECT o FROM s WHERE p = 0; FETCH 2 FROM c; DECLARE d CURSOR FOR SELECT o FROM s WHERE p = 1 AND o > 50; FETCH 1 FROM d; MOVE 96 FROM c; FETCH 10 FROM c; CLOSE c; FETCH 1 FROM d; COMMIT',
		"0\n1\n51\n98\n99\n52", 'two cursors side by side');
	is_query($db, 'BEGIN; DECLARE c SCROLL CURSOR FOR SELECT o FROM s WHERE p = 0; FETCH LAST FROM c; FETCH FIRST FROM c; FETCH RELATIVE 3 FROM c; ROLLBACK', "99\n0\n3", 'a scrolling one');
	is_query($db, "BEGIN; DECLARE c CURSOR WITH HOLD FOR SELECT o FROM s WHERE p = 0 AND o > 96; COMMIT; FETCH ALL FROM c", "97\n98\n99", 'one that outlives its transaction');
	is_query($db, <<'SQL', '5', 'errors in subtransactions');
SET client_min_messages = error;
CREATE FUNCTION try() RETURNS int LANGUAGE plpgsql AS $$
DECLARE r record; failures int := 0;
BEGIN
	FOR i IN 1 .. 5 LOOP
		BEGIN
			FOR r IN SELECT * FROM s LOOP
				IF r.o = 20 THEN PERFORM 1 / 0; END IF;
			END LOOP;
		EXCEPTION WHEN division_by_zero THEN failures := failures + 1;
		END;
	END LOOP;
	RETURN failures;
END $$;
SELECT try();
SQL
	is_query($db, 'BEGIN; SAVEPOINT a; DECLARE c CURSOR FOR SELECT o FROM s WHERE p = 0; FETCH 1 FROM c; ROLLBACK TO a; SELECT count(*) FROM s; COMMIT', "0\n200", 'a cursor that a subtransaction takes along');

	# rights
	$node->safe_psql($db, 'CREATE ROLE reader LOGIN; GRANT SELECT ON s TO reader');
	is_query($db, 'SET ROLE reader; SELECT count(*) FROM s', 200, 'SELECT is all that a reader needs');
	$node->safe_psql($db, 'REVOKE SELECT ON s FROM reader');
	like(error_of($db, 'SET ROLE reader; SELECT count(*) FROM s'), qr/permission denied/, 'and he does');
	$node->safe_psql($db, 'DROP ROLE reader');
	is_query($db, 'SELECT count(*) FROM (SELECT * FROM s LIMIT 0) x', 0, 'LIMIT 0');
	is_query($db, 'CREATE VIEW over AS SELECT * FROM s WHERE p = 1; SELECT count(*) FROM over WHERE o < 10', 10, 'through a view');
	is_query($db, "SELECT DISTINCT tableoid::regclass FROM s", 's', 'a system column');
	return;
}

# What sessions leave behind: nothing.
sub test_session
{
	my $db = 'sessions';
	make_database($db);
	$kafka->create_topic('session', 1);
	$kafka->produce_lines('session', 0, [ events(1, 100_000) ], codec => 'lz4');
	create_stream($db, 's', $event_columns, topic => 'session');
	$kafka->create_topic('session_small', 1);
	$kafka->produce_lines('session_small', 0, [ events(1, 2000) ]);
	create_stream($db, 'small', $event_columns, topic => 'session_small');
	# little is read ahead: most of it is still to come after the first row
	create_stream($db, 'sparing', $event_columns, topic => 'session', queued_max_messages_kbytes => 100, queued_min_messages => 100, max_partition_fetch_bytes => 10_000);
	is_query($db, "SET statement_timeout = '60s'; SELECT count(*) FROM (SELECT id FROM s LIMIT 5) x; SELECT id FROM s LIMIT 1; BEGIN; DECLARE c CURSOR FOR SELECT id FROM s; FETCH 1 FROM c; COMMIT",
		"5\n1\n1", 'LIMIT does not read all');
	is_query($db, <<'SQL', 't|t', 'fifty SELECTs leave neither threads nor files open');
CREATE TEMP TABLE seen (threads bigint, files bigint);
CREATE FUNCTION look() RETURNS seen LANGUAGE sql AS $$
	SELECT (SELECT count(*) FROM pg_ls_dir('/proc/self/task')), (SELECT count(*) FROM pg_ls_dir('/proc/self/fd')) $$;
-- The library ends its threads in the background: wait until only our own is left.
CREATE PROCEDURE settle() LANGUAGE plpgsql AS $$
DECLARE
	most bigint := (SELECT files FROM seen);
	deadline timestamptz := clock_timestamp() + interval '60 s';
	now_seen seen;
BEGIN
	LOOP
		now_seen := look();
		EXIT WHEN clock_timestamp() > deadline OR (now_seen.threads = 1 AND coalesce(now_seen.files <= most, true));
		PERFORM pg_sleep(0.01);
	END LOOP;
END $$;
SET client_min_messages = error;
DO $$ BEGIN PERFORM count(*) FROM small; PERFORM id FROM small LIMIT 1; END $$;
CALL settle();
INSERT INTO seen SELECT (look()).*;
DO $$ BEGIN
	FOR i IN 1 .. 50 LOOP
		PERFORM id FROM small LIMIT i % 3 * 700 + 1;
		IF i % 10 = 0 THEN
			BEGIN
				PERFORM 1 / (id - 600) FROM small;
			EXCEPTION WHEN division_by_zero THEN NULL;
			END;
		END IF;
	END LOOP;
END $$;
CALL settle();
SELECT l.threads <= seen.threads, l.files <= seen.files FROM seen, look() l;
SQL

	# A broker that does not answer: the query can be cancelled, whatever it waits for.
	$kafka->freeze;
	like(error_of($db, "SET statement_timeout = '1s'; SELECT count(*) FROM s"), qr/canceling statement due to statement timeout/, 'cancelled while it looks for topics');
	$kafka->thaw;
	my $base = "$PostgreSQL::Test::Utils::tmp_check/frozen";
	my $script = start_script($node, 'frozen', <<"SQL", db => $db, go_on => 1);
BEGIN;
DECLARE c CURSOR FOR SELECT id FROM sparing;
FETCH 1 FROM c;
\\! touch $base.begun; while [ ! -e $base.frozen ]; do sleep 0.05; done
SET statement_timeout = '3s';
MOVE ALL FROM c;
ROLLBACK;
SET statement_timeout = '60s';
\\! touch $base.cancelled; while [ ! -e $base.thawed ]; do sleep 0.05; done
DO \$\$ BEGIN    -- for a moment the broker may not know yet what it has
	LOOP
		BEGIN
			PERFORM id FROM s LIMIT 1;
			EXIT;
		EXCEPTION WHEN fdw_unable_to_establish_connection OR fdw_error THEN PERFORM pg_sleep(0.1);
		END;
	END LOOP;
END \$\$;
SELECT count(*) FROM s;
SQL
	wait_until('the cursor has begun', sub { return -e "$base.begun" });
	$kafka->freeze;
	append_to_file("$base.frozen", '');
	wait_until('it is cancelled', sub { return -e "$base.cancelled" });
	$kafka->thaw;
	wait_until('the broker answers again', sub { return eval { $kafka->watermarks('session', 0) } });
	append_to_file("$base.thawed", '');
	wait_until('it has ended', sub { return defined script_exit($script) });
	is(slurp_file($script->{out}), "1\n100000\n", 'the session can read again afterwards') or diag(slurp_file($script->{err}));
	like(slurp_file($script->{err}), qr/canceling statement due to statement timeout/, 'having been cancelled while it waited for records');
	return;
}

# ---- DDL

sub test_ddl
{
	my $db = 'ddl';
	make_database($db);
	$kafka->create_topic($_, 2) for qw(ddl ddl_too);
	$kafka->produce_lines('ddl', 'spread', [ events(1, 20_000) ]);
	$kafka->produce_lines('ddl_too', 'spread', [ events(1, 10) ]);
	create_stream($db, 's', $event_columns, topic => 'ddl');
	like(error_of($db, 'INSERT INTO s VALUES (1, 1, 1)'), qr/cannot insert into stream "s".*read only/s, 'INSERT is refused');
	like(error_of($db, "COPY s FROM STDIN;\n1\t1\t1\n\\.\n"), qr/cannot insert into stream "s".*read only/s, 'COPY is refused');
	like(error_of($db, 'TRUNCATE s'), qr/cannot truncate stream "s".*read only/s, 'TRUNCATE is refused');
	like(error_of($db, 'UPDATE s SET id = 1'), qr/cannot update stream "s"/, 'UPDATE is refused');
	unlike(error_of($db, 'UPDATE s SET id = 1'), qr/INSERT/, 'without bad advice');
	like(error_of($db, 'DELETE FROM s'), qr/cannot delete from stream "s"/, 'DELETE is refused');

	# options while it runs
	create_view($db, 'v', 'SELECT count(*) AS n, sum(id) AS s FROM s', max_batch_rows => 500);
	$node->safe_psql($db, "ALTER FOREIGN TABLE s OPTIONS (ADD queued_min_messages '@{[ $_ * 1000 ]}'); ALTER FOREIGN TABLE s OPTIONS (DROP queued_min_messages)") for 1 .. 5;
	becomes($db, 'SELECT n, s FROM v', '20000|' . sum_of(1, 20_000), 'options that change while it runs lose and double nothing');
	$node->safe_psql($db, "ALTER SERVER k OPTIONS (ADD client_id 'other')");
	$kafka->produce_lines('ddl', 'spread', [ events(1, 10) ]);
	becomes($db, 'SELECT n FROM v', 20_010, 'nor do those of the server');
	$node->safe_psql($db, 'ALTER FOREIGN TABLE s RENAME TO renamed; ALTER FOREIGN TABLE renamed RENAME COLUMN v TO other');
	$kafka->produce_lines('ddl', 'spread', [ events(1, 10) ]);
	becomes($db, 'SELECT n FROM v', 20_020, 'nor names');
	$node->safe_psql($db, 'ALTER FOREIGN TABLE renamed RENAME TO s; ALTER FOREIGN TABLE s RENAME COLUMN other TO v');

	# another topic: the old one is not read any more
	$node->safe_psql($db, "ALTER FOREIGN TABLE s OPTIONS (SET topic 'ddl_too')");
	becomes($db, 'SELECT n FROM v', 20_030, 'another topic is read from its start');
	$kafka->produce_lines('ddl', 'spread', [ events(1, 10) ]);
	$kafka->produce_lines('ddl_too', 'spread', [ events(1, 5) ]);
	is(run_all($db, 's'), '', 'run()');
	is_query($db, 'SELECT n FROM v', 20_035, 'and the old one no more');
	$node->safe_psql($db, "ALTER FOREIGN TABLE s OPTIONS (SET topic 'ddl')");
	is(run_all($db, 's'), '', 'back again');
	becomes($db, 'SELECT n FROM v', 20_045, 'it goes on where it was');

	# the end of streams, with a broker that does not answer
	create_view($db, 'slow', 'SELECT id, k, count(*) AS n FROM s GROUP BY id, k', max_batch_rows => 1);
	becomes($db, "SELECT read > 0 FROM stream_agg.views WHERE view = 'slow'::regclass", 't', 'a view that takes long');
	$kafka->freeze;
	$node->safe_psql($db, "SET statement_timeout = '60s'; SET client_min_messages = error; DROP FOREIGN TABLE s CASCADE");
	becomes($db, $workers, 0, 'DROP of a stream that is being read, from brokers that do not answer');
	is_query($db, 'SELECT count(*) FROM stream_agg.views', 0, 'takes its views along');
	$kafka->thaw;

	create_stream($db, 's', $event_columns, topic => 'ddl');
	create_view($db, 'v', 'SELECT count(*) AS n FROM s');
	becomes($db, 'SELECT n FROM v', 20_030, 'the same name again');
	my $backend = $node->safe_psql('postgres', "SELECT pid FROM pg_stat_activity WHERE datname = '$db'");
	$node->safe_psql($db, "SET statement_timeout = '60s'; SET client_min_messages = error; DROP EXTENSION stream_agg CASCADE");
	becomes($db, $workers, 0, 'DROP EXTENSION CASCADE while it runs');
	is_query($db, "SELECT count(*) FROM pg_foreign_table", 0, 'takes the streams along');
	$node->safe_psql($db, "CREATE EXTENSION stream_agg; CREATE SERVER k FOREIGN DATA WRAPPER stream_agg OPTIONS (type 'kafka', bootstrap_servers '@{[ $kafka->bootstrap ]}')");
	create_stream($db, 's', $event_columns, topic => 'ddl');
	create_view($db, 'v', 'SELECT count(*) AS n FROM s', trigger => '50 ms');
	becomes($db, 'SELECT n FROM v', 20_030, 'and it can come again');
	$kafka->freeze;
	$node->safe_psql('postgres', "SET statement_timeout = '60s'; DROP DATABASE $db");
	is_query('postgres', "SELECT count(*) FROM pg_database WHERE datname = '$db'", 0, 'DROP DATABASE while it runs');
	$kafka->thaw;
	return;
}

# ---- batches

sub test_limits
{
	my $db = 'limits';
	make_database($db);
	$kafka->create_topic('limits', 2);
	my $count = 3000;
	$kafka->produce_lines('limits', 'spread', [ map { my ($e) = events($_, $_); $e =~ s/\}$/',"t":"' . 'x' x 970 . '"}'/er } 1 .. $count ]);
	create_stream($db, 's', $event_columns, topic => 'limits');
	create_view($db, 'by_rows', 'SELECT count(*) AS n, sum(id) AS s FROM s', trigger => 'manual', max_batch_rows => 177);
	create_view($db, 'by_one', 'SELECT count(*) AS n, sum(id) AS s FROM s', trigger => 'manual', max_batch_rows => 1, start => '{"limits": {"0": 1450, "1": 1450}}');
	create_view($db, 'by_bytes', 'SELECT count(*) AS n, sum(id) AS s FROM s', trigger => 'manual', max_batch_bytes => '220kB');
	for my $view (qw(by_rows by_one by_bytes)) { is(run_all($db, $view), '', "run('$view')") }
	is_query($db, 'SELECT a.n, b.n, a.s, b.s FROM by_rows a, by_bytes b', join('|', ($count) x 2, (sum_of(1, $count)) x 2), 'small batches, the same answer');
	is_query($db, "SELECT max(read) FROM stream_agg.progress WHERE view = 'by_rows'::regclass", 177, 'max_batch_rows is respected');
	is_query($db, "SELECT max(read), (SELECT n FROM by_one) FROM stream_agg.progress WHERE view = 'by_one'::regclass", '1|100', 'also when it is 1');
	is_query($db, "SELECT max(read) BETWEEN 100 AND 220 FROM stream_agg.progress WHERE view = 'by_bytes'::regclass", 't', 'max_batch_bytes is respected')
	  or diag $node->safe_psql($db, "SELECT array_agg(read) FROM stream_agg.progress WHERE view = 'by_bytes'::regclass");
	return;
}

# Random events, batch sizes and ends of the worker: the answer is that of the views' own SELECTs over a table.
sub test_random
{
	my $db = 'random';
	make_database($db);
	my $partitions = 1 + int(rand(4));
	my $delay = (0, 10, 100)[ rand(3) ];
	$kafka->create_topic('random', $partitions);
	my $columns = "id int, k int, v numeric, event_time timestamptz, p int OPTIONS (metadata 'partition'), o bigint OPTIONS (metadata 'offset')";
	create_stream($db, 's', $columns, topic => 'random', watermark => "$delay minutes", max_future => 'infinity');
	$node->safe_psql($db, 'CREATE TABLE l (id int, k int, v numeric, event_time timestamptz, p int, o bigint)');
	my %queries = (
		by_key => 'SELECT k, count(*) AS n, sum(v) AS s, min(id) AS a, max(id) AS b FROM l GROUP BY k',
		average => 'SELECT p, avg(v) AS a, max(k) AS m FROM l WHERE id % 3 > 0 GROUP BY p',
		plain => 'SELECT id, k, v, o FROM l WHERE v > 50');
	my $start = time;
	for my $view (sort keys %queries)
	{
		for my $trigger ('immediate', '100 ms', 'manual')
		{
			next if rand() < 0.3;
			my %options = (trigger => $trigger);
			$options{max_batch_rows} = (1, 2, 7, 50, 300)[ rand(5) ] if rand() < 0.7;
			$options{max_batch_bytes} = (1024, 5000, 50_000)[ rand(3) ] if rand() < 0.4;
			my $name = $view . '_' . $trigger =~ s/ //r;
			note "$name: @{[ %options ]}";
			create_view($db, $name, $queries{$view} =~ s/FROM l/FROM s/r, %options);
		}
	}
	create_view($db, 'closed', "SELECT window_start, k, count(*) AS n, sum(v) AS s FROM s, tumble(event_time, '1 hour') GROUP BY window_start, k",
		output_mode => 'append', max_batch_rows => (1, 13, 100, 100_000)[ rand(4) ]);
	my ($id, $clock) = (0, 1_704_067_200);
	my @next = (0) x $partitions;
	for my $round (1 .. 12)
	{
		my @rows;
		for my $p (shuffle 0 .. $partitions - 1)
		{
			my @values;
			for (1 .. 1 + rand(rand() < 0.3 ? 400 : 60))
			{
				$clock += int(rand(120));
				my $time = $clock - (rand() < 0.3 ? int(rand(9000)) : 0);
				my ($k, $v) = (rand() < 0.1 ? 'null' : int(rand(6)), int(rand(10_000)) / 100);
				push @values, sprintf('{"k":%s,"id":%d,"v":%s,"event_time":%s}', $k, ++$id, $v, $real && rand() < 0.5 ? '"' . iso($time) . '"' : '"' . iso($time) . '"');
				push @rows, sprintf("(%d, %s, %s, '%s', %d, %d)", $id, $k, $v, iso($time), $p, $next[$p]++);
			}
			$kafka->produce_lines('random', $p, \@values, codec => (qw(none gzip lz4))[ rand(3) ]);
		}
		$node->safe_psql($db, 'INSERT INTO l VALUES ' . join(', ', @rows));
		terminate_workers($node, "datname = '$db'") if rand() < 0.4;
		run_all($db, 's') if rand() < 0.3;
		if (rand() < 0.15)
		{
			$node->stop('immediate');
			$node->start;
		}
	}
	is(run_all($db, 's'), '', 'run()');
	my @views = split /\n/, $node->safe_psql($db, "SELECT view FROM stream_agg.views WHERE view <> 'closed'::regclass ORDER BY 1");
	for my $view (@views)
	{
		my $query = $queries{ $view =~ s/_[^_]*$//r };
		is_query($db, "SELECT count(*) FROM ((TABLE $view EXCEPT ALL ($query)) UNION ALL (($query) EXCEPT ALL TABLE $view)) x", 0, "$view is exact");
	}
	is_query($db, "SELECT count(*) FROM stream_agg.views WHERE read <> $id OR NOT " . balanced_counters(), 0, "each view has counted all $id records once")
	  or diag $node->safe_psql($db, 'SELECT view, status, read, accepted, late, (SELECT string_agg(concat(partition, \':\', position, \'/\', lag), \' \') FROM stream_agg.partitions p WHERE p.view = v.view) FROM stream_agg.views v')
		. "\nwritten: @next";
	is_query($db, <<"SQL", '', 'closed windows are exact');
WITH e AS (SELECT *, max(event_time) OVER (PARTITION BY p ORDER BY o ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) - interval '$delay minutes' AS wm,
	date_trunc('hour', event_time) AS w FROM l),
answer AS (SELECT w, k, count(*), sum(v) FROM e WHERE (wm IS NULL OR w + interval '1 hour' > wm)
	AND w + interval '1 hour' <= (SELECT min(m) FROM (SELECT max(event_time) - interval '$delay minutes' AS m FROM l GROUP BY p) x) GROUP BY w, k)
(TABLE answer EXCEPT ALL TABLE closed) UNION ALL (TABLE closed EXCEPT ALL TABLE answer) LIMIT 5
SQL
	note sprintf('%d partitions, %d events, %d views, %.1f s', $partitions, $id, scalar(@views) + 1, time - $start);
	return;
}

# A dump is a savepoint: positions and results come back together, and the same topic is read on from there. Options
# of columns come in commands of their own, so that a stream is not whole when it is made.
sub test_dump
{
	my ($db, $copy) = ('dumped', 'restored');
	make_database($db);
	$kafka->create_topic('dump', 2);
	create_stream($db, 's', "$event_columns, p int OPTIONS (metadata 'partition')", topic => 'dump');
	create_stream($db, 'raw', "body text, key text OPTIONS (metadata 'key'), p int OPTIONS (metadata 'partition'), o bigint OPTIONS (metadata 'offset')",
		topic => 'dump', format => 'raw');
	my %views = (
		counted => 'SELECT p, k, count(*) AS n, sum(id) AS s FROM s GROUP BY p, k',
		bodies => 'SELECT p, count(*) AS n, max(o) AS o, min(length(body)) AS shortest FROM raw GROUP BY p');
	create_view($db, $_, $views{$_}, trigger => 'manual') for sort keys %views;
	$kafka->produce_lines('dump', 'spread', [ events(1, 200) ]);
	is(run_all($db, $_), '', "$_: the first records") for qw(s raw);
	$kafka->produce_lines('dump', 'spread', [ events(201, 300) ]);

	my $dump = "$PostgreSQL::Test::Utils::tmp_check/dump.sql";
	$node->command_ok([ 'pg_dump', '-f', $dump, '-d', $node->connstr($db) ], 'pg_dump');
	is(run_all($db, $_), '', "$_: the original reads on") for qw(s raw);
	$node->safe_psql('postgres', "CREATE DATABASE $copy");
	$node->command_ok([ 'psql', '-Xq', '-v', 'ON_ERROR_STOP=1', '-f', $dump, '-d', $node->connstr($copy) ], 'restored');
	is_query($copy, 'SELECT view::text, read, accepted, status FROM stream_agg.views ORDER BY 1', "bodies|200|200|restored\ncounted|200|200|restored", 'as of the dump');
	is_query($copy, 'SELECT sum(n), sum(s) FROM counted', '200|' . sum_of(1, 200), 'its results too');
	is_query($copy, 'SELECT count(*) FROM raw', '300', 'the streams can be read');

	$node->safe_psql($copy, join('; ', map { "SELECT stream_agg.resume('$_')" } sort keys %views));
	$kafka->produce_lines('dump', 'spread', [ events(301, 350) ]);
	for my $where ($db, $copy)
	{
		is(run_all($where, $_), '', "$where, $_: on") for qw(s raw);
		is_query($where, 'SELECT sum(n), sum(s) FROM counted', '350|' . sum_of(1, 350), "$where: nothing lost or doubled");
	}
	is_query($copy, "TABLE $_ ORDER BY 1, 2", $node->safe_psql($db, "TABLE $_ ORDER BY 1, 2"), "$_ is the same in both") for sort keys %views;
	$node->safe_psql('postgres', "DROP DATABASE $_") for $copy, $db;    # there are so many worker slots
	return;
}

sub iso { my ($seconds) = @_; return POSIX::strftime('%Y-%m-%dT%H:%M:%SZ', gmtime($seconds)) }

# ---- all together

# What needs the real broker says so.
my @tests = (
	transactions => [ \&test_transactions, 'aborted records and markers' ],
	compaction => [ \&test_compaction, 'compaction' ],
	offsets => [ \&test_offsets, 'a log that can be made to begin elsewhere' ],
	malformed => [ \&test_malformed ],
	tombstones => [ \&test_tombstones ],
	no_timestamp => [ \&test_no_timestamp ],
	future => [ \&test_future ],
	sizes => [ \&test_sizes ],
	metadata => [ \&test_metadata ],
	two_views => [ \&test_two_views ],
	start_end => [ \&test_start_end ],
	change => [ \&test_change ],
	topics => [ \&test_topics ],
	topic_order => [ \&test_topic_order ],
	run => [ \&test_run ],
	group => [ \&test_group ],
	select => [ \&test_select ],
	session => [ \&test_session ],
	ddl => [ \&test_ddl ],
	dump => [ \&test_dump ],
	limits => [ \&test_limits ],
	random => [ \&test_random ]);
while (my ($name, $test) = splice(@tests, 0, 2))
{
	my ($code, $needs) = @$test;
	next if $ENV{SA_ONLY} && $ENV{SA_ONLY} !~ /\b$name\b/;
	my $start = time;
	subtest $name => sub {
		plan skip_all => "$needs: $why_not" if $needs && !$real;
		eval { $code->(); 1 } or $@ =~ /^ended by/ ? die $@ : fail("died: $@");
	};
	note sprintf('%s: %.1f s', $name, time - $start);
}

my @crashes = unexpected_crashes($node);
is(scalar(@crashes), 0, 'no crash') or diag join("\n", @crashes);
$node->stop;
done_testing();
