# 155_replicas.pl: physical standbys, cascaded and promoted twice under load, and logical replication of results.
#
#   SA_SEED=n     (default: from the clock)
#   SA_ONLY=name  one test
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

use StreamAggLedger;
use StreamAggTest;

my $seed = $ENV{SA_SEED} || time;
note "SA_SEED=$seed";
srand($seed);

sub is_query
{
	my ($on, $db, $query, $wanted, $name) = @_;
	return is($on->safe_psql($db, $query), $wanted, $name);
}

my $ledger;
my $create;

# Of a new ledger: s and l, filled alike.
sub make_ledger
{
	$ledger = StreamAggLedger->new(options => { max_batch_rows => 100 + int(rand(400)) });
	$create = $ledger->create_sql;
	return;
}

my $ours = "SELECT count(*) FROM pg_stat_activity WHERE backend_type LIKE 'stream_agg%'";

# What a standby shows: everything, consistently, and it does nothing.
sub check_standby
{
	my ($on) = @_;
	my $name = $on->name;
	ok($on->poll_query_until('postgres', 'SELECT count(*) > 0 FROM running'), "$name shows results");
	for my $round (1 .. 2)
	{
		is($ledger->differences($on, 'postgres'), '', "$name shows them as of one position, while they change");
	}
	for my $relation (qw(streams views progress partitions dead_letters data_losses watermark_advances))
	{
		my ($rc, $out, $err) = $on->psql('postgres', "SELECT count(*) FROM stream_agg.$relation");
		is($rc, 0, "$name: stream_agg.$relation can be read") or diag $err;
	}
	is_query($on, 'postgres', 'SELECT source, views, status, pid FROM stream_agg.streams', 'staged|6|idle|', "$name says that nothing runs");
	is_query($on, 'postgres', 'SELECT DISTINCT status FROM stream_agg.views', 'running', "$name: views are what they are on the primary");
	is_query($on, 'postgres', $ours, '0', "$name runs nothing");
	my %refused = (
		"CALL stream_agg.run('s')" => qr/cannot execute stream_agg.run\(\) during recovery/,
		"SELECT stream_agg.pause('rows')" => qr/cannot execute stream_agg.pause\(\) during recovery/,
		"SELECT stream_agg.resume('rows')" => qr/cannot execute stream_agg.resume\(\) during recovery/,
		"SELECT stream_agg.drop_view('rows')" => qr/cannot execute stream_agg.drop_view\(\) during recovery/,
		'INSERT INTO s VALUES (1)' => qr/cannot execute INSERT in a read-only transaction/,
		'DELETE FROM running' => qr/cannot execute DELETE in a read-only transaction/);
	for my $sql (sort keys %refused)
	{
		my ($rc, $out, $err) = $on->psql('postgres', $sql);
		like($err, $refused{$sql}, "$name: $sql");
	}
	my ($rc, $out, $err) = $on->psql('postgres', "SELECT count(*) FROM s; SELECT * FROM stream_agg.explain('hours')");
	is($rc, 0, "$name: streams can be looked into, views explained") or diag $err;
	return;
}

# primary -> first -> second: promoted one after the other, each under load.
sub test_physical
{
	my $conf = "stream_agg.segment_size = '1MB'\nmax_connections = 60\n";
	my $primary = make_node('primary', allows_streaming => 1, conf => $conf);
	$primary->start;
	$primary->safe_psql('postgres', $create . $ledger->insert_sql(2000));
	$primary->backup('base');
	my $first = PostgreSQL::Test::Cluster->new('first');
	$first->init_from_backup($primary, 'base', has_streaming => 1);
	$first->start;
	$first->backup('cascaded');
	my $second = PostgreSQL::Test::Cluster->new('second');
	$second->init_from_backup($first, 'cascaded', has_streaming => 1);
	$second->append_conf('postgresql.conf', 'recovery_target_timeline = latest');
	$second->start;

	my $feed = sub {
		my ($on, $name) = @_;
		# In transactions of any size; those that the promoted one does not have are left to its own feeding.
		return start_script($on, $name, join('', map { $ledger->insert_sql(1 + int(rand(12))) } 1 .. 20000), go_on => 1);
	};
	my $goes_on = sub {
		my ($on, $name) = @_;
		ok($on->poll_query_until('postgres', "SELECT ($ours) > 0"), "$name: workers start at promotion");
		is_query($on, 'postgres', 'SELECT count(*), count(DISTINCT id), max(id) FROM l', $on->safe_psql('postgres', 'SELECT count(*), count(*), count(*) FROM l'),
			"$name has the first so many rows");
		$ledger->go_on($on, 'postgres');
		$ledger->is_exact($on, 'postgres', "$name goes on exactly");
		$on->safe_psql('postgres', $ledger->insert_sql(500));
		$ledger->is_exact($on, 'postgres', "$name, and on");
		return;
	};

	my $script = $feed->($primary, 'feed_primary');
	ok($primary->poll_query_until('postgres', 'SELECT n > 3000 FROM total'), 'the primary is at work');
	check_standby($first);
	check_standby($second);
	is(script_exit($script), undef, 'all the while');
	$primary->stop('immediate');
	stop_script($script);
	$first->promote;
	$goes_on->($first, 'the first');

	$script = $feed->($first, 'feed_first');
	my $at = $first->safe_psql('postgres', 'SELECT max(id) FROM l');
	ok($second->poll_query_until('postgres', "SELECT n > $at FROM total"), 'the second follows the first');
	is($ledger->differences($second, 'postgres'), '', 'and shows one position');
	is_query($second, 'postgres', $ours, '0', 'and runs nothing still');
	$second->promote;    # the first lives on: two separate histories
	is(script_exit($script), undef, 'promoted under load');
	$goes_on->($second, 'the second');
	stop_script($script);
	ok($first->poll_query_until('postgres', "SELECT count(*) = 0 FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"), 'the first is fed no more');
	$ledger->is_exact($first, 'postgres', 'the first is not disturbed');
	for my $on ($first, $second)
	{
		my @crashes = unexpected_crashes($on);
		is(scalar(@crashes), 0, 'no crash') or diag join("\n", @crashes);
		$on->stop;
	}
	return;
}

# Result tables published like any others.
sub test_logical
{
	my $publisher = make_node('publisher', allows_streaming => 'logical', conf => "wal_level = logical\n");
	my $subscriber = make_node('subscriber');
	$_->start for $publisher, $subscriber;
	$publisher->safe_psql('postgres', $create . $ledger->insert_sql(1000) . "CALL stream_agg.run('s');\n");
	my @views = $ledger->views;
	$publisher->safe_psql('postgres', 'CREATE PUBLICATION results FOR TABLE ' . join(', ', @views));

	# The tables as pg_dump writes them, into a server that has never heard of the extension.
	my $file = "$PostgreSQL::Test::Utils::tmp_check/results.sql";
	$publisher->command_ok([ 'pg_dump', '--schema-only', '--no-publications', (map { ('-t', $_) } @views), '-f', $file, '-d', $publisher->connstr('postgres') ], 'pg_dump --schema-only -t');
	$subscriber->command_ok([ 'psql', '-Xq', '-v', 'ON_ERROR_STOP=1', '-f', $file, '-d', $subscriber->connstr('postgres') ], 'into a server without the extension');
	my $connection = $publisher->connstr('postgres');
	$connection =~ s/'/''/g;
	$subscriber->safe_psql('postgres', "CREATE SUBSCRIPTION sub CONNECTION '$connection' PUBLICATION results");
	$publisher->safe_psql('postgres', "SELECT pg_create_logical_replication_slot('watch', 'test_decoding')");
	# Somebody publishes everything, beside: the extension's own tables take no harm.
	$publisher->safe_psql('postgres', 'CREATE PUBLICATION everything FOR ALL TABLES');

	my $equal = sub {
		my ($name) = @_;
		# Workers commit asynchronously: what is shown need not be on disk yet, from where it is sent.
		$publisher->wait_for_catchup('sub', 'replay', $publisher->lsn('insert'));
		$subscriber->wait_for_subscription_sync($publisher, 'sub') if $name =~ /copy/;
		is_query($subscriber, 'postgres', "SELECT * FROM $_ whole ORDER BY whole::text COLLATE \"C\"", $publisher->safe_psql('postgres', "SELECT * FROM $_ whole ORDER BY whole::text COLLATE \"C\""), "$name: $_") for @views;
		return;
	};
	$subscriber->wait_for_subscription_sync($publisher, 'sub');
	$equal->('the first copy');
	my $script = start_script($publisher, 'feed', join('', map { $ledger->insert_sql(1 + int(rand(40))) } 1 .. 300));
	is(wait_until('all is fed', sub { my $e = script_exit($script); defined $e ? "e$e" : undef }), 'e0', 'fed') or diag slurp_file($script->{err});
	$ledger->is_exact($publisher, 'postgres', 'the publisher');
	$equal->('after many batches');
	is_query($subscriber, 'postgres', "SELECT count(*) FILTER (WHERE k IS NULL) > 0, count(DISTINCT (window_start, k)) = count(*) FROM hours", 't|t', 'keys that are NULL too');
	is_query($publisher, 'postgres', "SELECT string_agg(status, ',') FROM (SELECT DISTINCT status FROM stream_agg.views) x", 'running', 'nothing has failed');

	# Every batch is one transaction, in order: whoever applies the changes has a consistent state after each commit.
	my $changes = $publisher->safe_psql('postgres', "SELECT data FROM pg_logical_slot_get_changes('watch', NULL, NULL, 'skip-empty-xacts', '1')");
	my ($commits, $rows, $total, $order) = (0, 0, 1000, 1);
	for my $line (split /\n/, $changes)
	{
		$rows++ if $line =~ /^table public.rows: INSERT/;
		if ($line =~ /^table public.total: UPDATE.* n\[bigint\]:(\d+) m\[integer\]:(\d+)$/)
		{
			$order = 0 if $1 < $total || $1 != $2;
			$total = $1;
		}
		$commits++ if $line =~ /^COMMIT/;
	}
	cmp_ok($commits, '>', 3, "$commits transactions");
	ok($order, 'in the order of positions');
	is($total, $ledger->count, 'up to the end');
	is($rows, $publisher->safe_psql('postgres', 'SELECT count(*) FROM l WHERE v > 2 AND id > 1000'), 'no row of a transform twice');

	# Crash and go on: neither side loses or doubles anything.
	$script = start_script($publisher, 'feed_again', join('', map { $ledger->insert_sql(1 + int(rand(40))) } 1 .. 300), go_on => 1);
	ok($publisher->poll_query_until('postgres', "SELECT n > $total + 500 FROM total"), 'at work again');
	$publisher->stop('immediate');
	$publisher->start;
	stop_script($script);
	$ledger->go_on($publisher, 'postgres');
	$publisher->safe_psql('postgres', $ledger->insert_sql(100));
	$ledger->is_exact($publisher, 'postgres', 'the publisher after a crash');
	$equal->('after a crash');
	$publisher->safe_psql('postgres', 'DROP MATERIALIZED VIEW rows; DROP PUBLICATION everything');
	for my $on ($publisher, $subscriber)
	{
		my @crashes = unexpected_crashes($on);
		is(scalar(@crashes), 0, 'no crash') or diag join("\n", @crashes);
		$on->stop;
	}
	return;
}

my @tests = (physical => \&test_physical, logical => \&test_logical);
while (my ($name, $code) = splice(@tests, 0, 2))
{
	next if $ENV{SA_ONLY} && $ENV{SA_ONLY} ne $name;
	make_ledger();
	subtest $name => $code;
}
done_testing();
