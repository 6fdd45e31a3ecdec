# StreamAggTest.pm: what the TAP files share: a node with the library preloaded, psql in the background,
# conditions with a deadline, and the ways to hurt a server. No call here waits a fixed time.
package StreamAggTest;

use strict;
use warnings;

use Exporter 'import';
use POSIX qw(:sys_wait_h);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time usleep);

our @EXPORT = qw(make_node wait_until try_query start_script stop_script script_exit crash_child
  worker_pids terminate_workers wait_until_up kill_server unexpected_crashes balanced_counters);

# A node that comes back by itself after a crash, as servers do by default. Lines are added to its
# configuration, options to initdb's.
sub make_node
{
	my ($name, %params) = @_;
	my $node = PostgreSQL::Test::Cluster->new($name);
	$node->init(extra => [ '--locale=C', '-E', 'UTF8', @{ $params{initdb} || [] } ],
		allows_streaming => $params{allows_streaming} || 0);
	$node->append_conf('postgresql.conf', <<"CONF");
shared_preload_libraries = 'stream_agg'
restart_after_crash = on
log_statement = none
log_min_messages = warning
max_prepared_transactions = 50
max_worker_processes = 32
max_connections = 60
shared_buffers = 64MB
timezone = 'UTC'
CONF
	$node->append_conf('postgresql.conf', $params{conf}) if $params{conf};
	return $node;
}

# Polls until the code returns something true, and returns that; dies at the deadline.
sub wait_until
{
	my ($what, $code, $timeout) = @_;
	my $deadline = time + ($timeout || $PostgreSQL::Test::Utils::timeout_default);
	for (;;)
	{
		my $result = $code->();
		return $result if $result;
		die "timed out waiting until $what\n" if time > $deadline;
		usleep(50_000);
	}
}

# The query's answer, or undef while the server cannot be reached or refuses it.
sub try_query
{
	my ($node, $query, $db) = @_;
	my ($out, $err) = ('', '');
	# psql may be gone before it was given the query, which dies of a broken pipe.
	my $rc = eval { $node->psql($db || 'postgres', $query, stdout => \$out, stderr => \$err) } // 2;
	return $rc == 0 ? $out : undef;
}

# ---- psql in the background

# Runs the SQL in a file of its own; what it prints goes to {out} and {err} (names of files).
sub start_script
{
	my ($node, $name, $sql, %params) = @_;
	my $base = "$PostgreSQL::Test::Utils::tmp_check/$name";
	my %script = (out => "$base.out", err => "$base.err", sql => "$base.sql");
	open(my $file, '>', $script{sql}) or die "$script{sql}: $!";
	print $file $sql;
	close($file);
	for my $output ($script{out}, $script{err})    # there from the start, for those who look
	{
		open(my $empty, '>', $output) or die "$output: $!";
		close($empty);
	}
	my @command = (
		$node->installed_command('psql'), '-XAtq',
		'-v', 'ON_ERROR_STOP=' . ($params{go_on} ? 0 : 1),
		'-d', $node->connstr($params{db} || 'postgres'),
		'-f', $script{sql});
	$script{pid} = fork() // die "fork: $!";
	if (!$script{pid})
	{
		open(STDIN, '<', '/dev/null');
		open(STDOUT, '>', $script{out});
		open(STDERR, '>', $script{err});
		exec(@command) or POSIX::_exit(127);
	}
	return \%script;
}

# Its exit status once it has ended (2: the connection broke, 3: an error), else undef.
sub script_exit
{
	my ($script) = @_;
	if (!defined $script->{exit} && waitpid($script->{pid}, WNOHANG) == $script->{pid})
	{
		$script->{exit} = $? & 127 ? 128 + ($? & 127) : $? >> 8;
	}
	return $script->{exit};
}

sub stop_script
{
	my ($script) = @_;
	kill('TERM', $script->{pid}) unless defined script_exit($script);
	wait_until('psql has ended', sub { return defined script_exit($script) });
	return;
}

# ---- workers and crashes

sub worker_pids
{
	my ($node, $db) = @_;
	my $where = $db ? "AND datname = '$db'" : '';
	my $pids = try_query($node,
		"SELECT pid FROM pg_stat_activity WHERE backend_type = 'stream_agg worker' $where");
	return split /\n/, $pids // '';
}

sub terminate_workers
{
	my ($node, $where) = @_;
	$where ||= 'true';
	return try_query($node,
		"SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE backend_type = 'stream_agg worker' AND $where");
}

sub checkpointer
{
	my ($node) = @_;
	return try_query($node, "SELECT pid FROM pg_stat_activity WHERE backend_type = 'checkpointer'");
}

# Kills a child of the postmaster with SIGKILL, and waits until the server has been through crash recovery.
# The query picks the child; returns false when there was none.
our $kills = 0;

sub crash_child
{
	my ($node, $query) = @_;
	my $before = checkpointer($node) or return 0;
	my $pid = try_query($node, $query) or return 0;
	($pid) = split /\n/, $pid;
	kill('KILL', $pid) or return 0;
	$kills++;
	wait_until_up($node, $before);
	return 1;
}

sub wait_until_up
{
	my ($node, $old_checkpointer) = @_;
	return wait_until('the server is up again', sub {
		my $now = checkpointer($node);
		return $now && $now ne ($old_checkpointer // '');
	});
}

sub postmaster_pid { return (split /\n/, slurp_file($_[0]->data_dir . '/postmaster.pid'))[0]; }

# The machine fails: nothing of the server runs any more, all at once. Options: pid, of its postmaster, which may be about
# to end; alone: only the postmaster is killed, and the others end when they notice.
sub kill_server
{
	my ($node, %options) = @_;
	my $pid = $options{pid} // postmaster_pid($node);
	kill('STOP', $pid);    # it is not to notice, nor to start more
	my @children = map { slurp_stat($_) =~ /^(\d+) .*\) \w $pid / ? $1 : () } glob('/proc/[0-9]*/stat');
	kill('KILL', $pid, $options{alone} ? () : @children);
	# Its number is to be free, too: the next one would take it for alive.
	wait_until('nothing of it runs', sub { return !kill(0, $pid) && !grep { slurp_stat("/proc/$_/stat") =~ /\) [^ZX] / } @children });
	$node->{_pid} = undef;
	return;
}

sub slurp_stat
{
	my ($name) = @_;
	open(my $file, '<', $name) or return '';    # gone meanwhile
	return readline($file) // '';
}

# Lines of the server's log about deaths and panics that no test asked for.
sub unexpected_crashes
{
	my ($node) = @_;
	my @lines = grep { /TRAP:|PANIC:|was terminated by signal|invalid memory alloc|stuck spinlock|without having selected a database/ }
	  split /\n/, slurp_file($node->logfile);
	my @kills = grep { /was terminated by signal 9/ } @lines;
	my @other = grep { !/was terminated by signal 9/ } @lines;
	push @other, @kills if @kills > $kills;
	return @other;
}

# Guarantee 4 as a condition on stream_agg.views.
sub balanced_counters
{
	return '"read" = skipped + tombstone + malformed + null_time + future + duplicate + failed + filtered + late + accepted';
}

1;
