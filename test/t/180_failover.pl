# 180_failover.pl: a primary dies under load and its standby is promoted, or a server is restored to a moment in the middle:
# positions and results agree, nothing is lost or doubled, and what is fed afterwards comes out exact. With views whose state
# is kept, and with views whose unlogged state is made again.
#
# Staged rows that did not get across are lost with the primary, like those of any table: the ledger is written in the
# same transactions. A topic outlives the primary: there, everything counts.
#
#   SA_SEED=n           (default: from the clock)
#   SA_ONLY=name        one test
#   KAFKA_RIG=real      with the real broker; else the mock
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl", "$FindBin::RealBin/../kafka";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(usleep);

use Kafka;
use StreamAggLedger;
use StreamAggTest;

my $seed = $ENV{SA_SEED} || time;
note "SA_SEED=$seed";
srand($seed);

my $partitions = 3;
my $kafka;

# ---- words

sub new_ledger
{
	my (%params) = @_;
	return StreamAggLedger->new(options => { max_batch_rows => 100 + int(rand(400)) }, unlogged => 1, %params);
}

# A topic of its own, with a broker that lives as long as the test.
sub new_topic_ledger
{
	my ($topic) = @_;
	if (!$kafka)
	{
		$kafka = Kafka->new("$PostgreSQL::Test::Utils::tmp_check/kafka", rig => $ENV{KAFKA_RIG} || 'mock');
		$kafka->start;
	}
	$kafka->create_topic($topic, $partitions);
	return new_ledger(kafka => { bootstrap => $kafka->bootstrap, topic => $topic, partitions => $partitions });
}

sub make_primary
{
	my ($name, %params) = @_;
	# Hints in the WAL: what pg_rewind needs.
	my $primary = make_node($name, allows_streaming => 1, conf => "wal_log_hints = on\nmax_connections = 60\nwal_keep_size = '1GB'\n" . ($params{conf} || ''));
	$primary->enable_archiving if $params{archives};
	$primary->start;
	return $primary;
}

sub make_standby
{
	my ($primary, $name) = @_;
	$primary->backup("for_$name");
	my $standby = PostgreSQL::Test::Cluster->new($name);
	$standby->init_from_backup($primary, "for_$name", has_streaming => 1);
	$standby->start;
	return $standby;
}

# Staged: transactions of any size, for as long as it takes; each tells its last event when it is committed.
sub start_feeding
{
	my ($on, $name, $ledger) = @_;
	my $sql = join('', map { $ledger->insert_sql(1 + int(rand(12))) . '\echo ' . $ledger->count . "\n" } 1 .. 20000);
	return start_script($on, $name, $sql);
}

my $ours = "SELECT count(*) FROM pg_stat_activity WHERE backend_type LIKE 'stream_agg%'";

sub is_query
{
	my ($on, $query, $wanted, $name) = @_;
	return is($on->safe_psql('postgres', $query), $wanted, $name);
}

# What a standby shows is right, and it runs nothing.
sub check_standby
{
	my ($on, $ledger, $name) = @_;
	is($ledger->differences($on, 'postgres'), '', "$name shows one position");
	is_query($on, $ours, '0', "$name runs nothing");
	return;
}

sub promote
{
	my ($on) = @_;
	$on->promote;
	ok($on->poll_query_until('postgres', "SELECT ($ours) > 0"), $on->name . ' is promoted, and workers start');
	return;
}

# The standby is killed, with all that runs of it, on the way to being a primary, more than once.
sub promote_roughly
{
	my ($on) = @_;
	for (1 .. 3)
	{
		system_or_bail('pg_ctl', '-W', '-D', $on->data_dir, '-l', $on->logfile, 'promote')
		  if $on->safe_psql('postgres', 'SELECT pg_is_in_recovery()') eq 't';
		usleep(rand(300_000));
		kill_server($on);
		$on->start;
	}
	return $on->safe_psql('postgres', 'SELECT pg_is_in_recovery()') eq 't' ? promote($on)
	  : ok($on->poll_query_until('postgres', "SELECT ($ours) > 0"), $on->name . ' has been promoted, and workers start');
}

# A promoted or restored server with staged rows: what there is, is the beginning of what was fed; the rest is fed to it.
sub goes_on
{
	my ($on, $ledger, $name) = @_;
	is($ledger->differences($on, 'postgres'), '', "$name: positions and results agree");
	is_query($on, 'SELECT count(*) = max(id) AND count(DISTINCT id) = max(id) FROM l', 't', "$name has the first so many rows");
	$ledger->go_on($on, 'postgres');
	$ledger->is_exact($on, 'postgres', "$name goes on exactly");
	$on->safe_psql('postgres', $ledger->insert_sql(500));
	$ledger->is_exact($on, 'postgres', "$name, and on");
	return;
}

sub end
{
	for my $on (@_)
	{
		my @crashes = unexpected_crashes($on);
		is(scalar(@crashes), 0, $on->name . ': no crash') or diag join("\n", @crashes);
		$on->stop('immediate');
	}
	return;
}

# ---- staged streams

# The primary dies; later it comes back as the standby of its standby, rewound, and is promoted again.
sub test_asynchronous
{
	my $ledger = new_ledger();
	my $first = make_primary('first');
	$first->safe_psql('postgres', $ledger->create_sql . $ledger->insert_sql(1000));
	my $second = make_standby($first, 'second');
	my $script = start_feeding($first, 'feed_first', $ledger);
	ok($second->poll_query_until('postgres', 'SELECT n > 2000 FROM total'), 'the standby follows');
	check_standby($second, $ledger, 'the standby');
	is(script_exit($script), undef, 'under load');
	kill_server($first);
	stop_script($script);
	promote($second);
	goes_on($second, $ledger, 'the promoted one');

	$second->safe_psql('postgres', 'CHECKPOINT');    # pg_rewind goes by it
	command_ok([ $first->installed_command('pg_rewind'), '--target-pgdata', $first->data_dir, '--source-server', $second->connstr('postgres') ], 'pg_rewind');
	$first->append_conf('postgresql.conf', 'port = ' . $first->port);    # it has come with the files
	$first->enable_streaming($second);
	$first->start;
	$second->safe_psql('postgres', $ledger->insert_sql(500));
	ok($first->poll_query_until('postgres', 'SELECT count(*) = ' . $ledger->count . ' FROM l'), 'the old primary follows the new one');
	check_standby($first, $ledger, 'rewound, it');
	$script = start_feeding($second, 'feed_second', $ledger);
	my $at = $second->safe_psql('postgres', 'SELECT max(id) FROM l');
	ok($first->poll_query_until('postgres', "SELECT n > $at + 500 FROM total"), 'under load');
	kill_server($second);
	stop_script($script);
	promote($first);
	goes_on($first, $ledger, 'promoted again, it');
	end($first);
	return;
}

# What was acknowledged is there.
sub test_synchronous
{
	my $ledger = new_ledger();
	my $primary = make_primary('primary');
	$primary->safe_psql('postgres', $ledger->create_sql . $ledger->insert_sql(1000));
	my $standby = make_standby($primary, 'standby');
	$primary->safe_psql('postgres', "ALTER SYSTEM SET synchronous_standby_names = 'standby'");
	$primary->reload;
	ok($primary->poll_query_until('postgres', "SELECT count(*) = 1 FROM pg_stat_replication WHERE sync_state = 'sync'"), 'the standby is synchronous');
	my $script = start_feeding($primary, 'feed_synchronously', $ledger);
	ok($standby->poll_query_until('postgres', 'SELECT n > 2000 FROM total'), 'the standby follows');
	check_standby($standby, $ledger, 'the standby');
	is(script_exit($script), undef, 'under load');
	kill_server($primary);
	stop_script($script);
	my ($acknowledged) = slurp_file($script->{out}) =~ /(\d+)\n\z/;
	promote_roughly($standby);
	cmp_ok($standby->safe_psql('postgres', 'SELECT max(id) FROM l'), '>=', $acknowledged, 'what was acknowledged is there');
	goes_on($standby, $ledger, 'the promoted one');
	end($standby);
	return;
}

# ---- topics

# Events until it is so.
sub produce_until
{
	my ($ledger, $on, $query, $name) = @_;
	return ok(wait_until($name, sub { $ledger->produce($kafka, 1 + int(rand(300))); return (try_query($on, $query) // '') eq 't' }), $name);
}

sub test_kafka
{
	my $ledger = new_topic_ledger('failover');
	my $primary = make_primary('reader');
	$primary->safe_psql('postgres', $ledger->create_sql);
	$ledger->produce($kafka, 500);
	my $standby = make_standby($primary, 'other_reader');
	produce_until($ledger, $standby, 'SELECT n > 3000 FROM total', 'the standby follows');
	check_standby($standby, $ledger, 'the standby');
	$ledger->produce($kafka, 5000);
	kill_server($primary);
	$ledger->produce($kafka, 1000);
	promote_roughly($standby);
	is($ledger->differences($standby, 'postgres'), '', 'positions and results agree');
	$ledger->produce($kafka, 1000);
	$ledger->is_exact($standby, 'postgres', 'the topic outlives the primary');
	$ledger->produce($kafka, 1000);
	$ledger->is_exact($standby, 'postgres', 'and goes on');
	end($standby);
	return;
}

# ---- to a moment in the middle

# What is in a server that was restored so, in both databases.
sub check_restored
{
	my ($primary, $name, $target, $staged, $topic, $least, $most) = @_;
	my $restored = PostgreSQL::Test::Cluster->new($name);
	$restored->init_from_backup($primary, 'base', has_restoring => 1, standby => 0);
	$restored->append_conf('postgresql.conf', "$target\nrecovery_target_action = promote\narchive_mode = off\nautovacuum = off");
	$restored->start;
	ok($restored->poll_query_until('postgres', 'SELECT NOT pg_is_in_recovery()'), "$name: restored");
	my $rows = $restored->safe_psql('postgres', 'SELECT max(id) FROM l');
	cmp_ok($rows, '>=', $least, "$name: what was there before is there");
	cmp_ok($rows, '<=', $most, "$name: and nothing from afterwards");
	is($topic->differences($restored, 'topic'), '', "$name: positions and results agree, of a topic");
	goes_on($restored, $staged, $name);
	$topic->is_exact($restored, 'topic', "$name: with the same topic");
	$topic->produce($kafka, 300);
	$topic->is_exact($restored, 'topic', "$name: and on");
	end($restored);
	return;
}

sub test_point_in_time
{
	my $staged = new_ledger();
	my $topic = new_topic_ledger('point_in_time');
	my $primary = make_primary('archived', archives => 1);
	$primary->safe_psql('postgres', $staged->create_sql . 'CREATE DATABASE topic');
	$primary->safe_psql('topic', $topic->create_sql);
	$primary->backup('base');
	my $script = start_feeding($primary, 'feed_archived', $staged);

	# Three moments under load; how many rows there were just before and just after each.
	my @targets;
	my $rows = 'SELECT max(id) FROM l';
	for my $target ([ by_time => 'recovery_target_time', 'SELECT clock_timestamp()' ], [ by_lsn => 'recovery_target_lsn', 'SELECT pg_current_wal_insert_lsn()' ],
		[ by_xid => 'recovery_target_xid', "BEGIN; CREATE TABLE mark (); SELECT pg_current_xact_id(); DROP TABLE mark; COMMIT" ])
	{
		my ($name, $setting, $query) = @$target;
		my $n = $primary->safe_psql('postgres', 'SELECT n FROM total');
		$topic->produce($kafka, 700);
		ok($primary->poll_query_until('postgres', "SELECT n > $n + 700 FROM total"), "$name: the load goes on");
		ok($primary->poll_query_until('topic', 'SELECT n > 0 FROM total'), "$name: with the topic");
		my $least = $primary->safe_psql('postgres', $rows);
		my $value = $primary->safe_psql('postgres', $query);
		push @targets, [ $name, "$setting = '$value'", $staged, $topic, $least, $primary->safe_psql('postgres', $rows) ];
	}
	is(script_exit($script), undef, 'all under load');
	my $at = $primary->safe_psql('postgres', 'SELECT max(id) FROM l');
	ok($primary->poll_query_until('postgres', "SELECT n > $at FROM total"), 'the load goes on after the last');
	stop_script($script);
	$primary->safe_psql('postgres', 'SELECT pg_switch_wal()');
	my $segment = $primary->safe_psql('postgres', "SELECT pg_walfile_name(pg_current_wal_lsn() - 1)");
	ok($primary->poll_query_until('postgres', "SELECT last_archived_wal >= '$segment' FROM pg_stat_archiver"), 'everything is archived');
	$primary->stop('immediate');
	check_restored($primary, @$_) for @targets;
	return;
}

my @tests = (asynchronous => \&test_asynchronous, synchronous => \&test_synchronous, kafka => \&test_kafka, point_in_time => \&test_point_in_time);
while (my ($name, $code) = splice(@tests, 0, 2))
{
	next if $ENV{SA_ONLY} && $ENV{SA_ONLY} ne $name;
	my $start = time;
	subtest $name => $code;
	note sprintf('%s: %d s', $name, time - $start);
}
done_testing();
