# Faults.pm: fault points from tests (src/fault.h). A test that says `use Faults;` runs on a library that was built
# with FAULTS=1; run_tests.sh sees to that.
#
#	Faults::prepare($node);
#	Faults::arm($node, 'fold', 'kill', pass => 3, relation => 'my_view');
#	wait_until('it fires', sub { Faults::state($node, 'fold') eq 'fired' });
#
# Actions: wait, error, shortage (an error that may pass), exit, panic, kill. A crash of the server disarms all; the
# setting stream_agg.faults = 'point=action, point=action@pass' arms once, when the server starts.
package Faults;

use strict;
use warnings;

use StreamAggTest;

# The functions, in a schema of their own.
sub prepare
{
	my ($node, $db) = @_;
	$node->safe_psql($db || 'postgres', <<'SQL');
CREATE SCHEMA faults;
CREATE FUNCTION faults.arm(point text, action text, pass int, relation oid) RETURNS void AS '$libdir/stream_agg', 'sa_fault_arm' LANGUAGE C STRICT;
CREATE FUNCTION faults.state(point text) RETURNS text AS '$libdir/stream_agg', 'sa_fault_state' LANGUAGE C STRICT;
CREATE FUNCTION faults.wake(point text) RETURNS void AS '$libdir/stream_agg', 'sa_fault_wake' LANGUAGE C STRICT;
CREATE FUNCTION faults.disarm() RETURNS void AS '$libdir/stream_agg', 'sa_fault_disarm' LANGUAGE C STRICT;
SQL
	return;
}

# Options: pass (the first), relation (any), db. False when the server cannot be had.
sub arm
{
	my ($node, $point, $action, %options) = @_;
	my $relation = $options{relation} ? "'$options{relation}'::regclass" : '0';
	my $pass = $options{pass} || 1;
	return defined try_query($node, "SELECT faults.arm('$point', '$action', $pass, $relation)", $options{db});
}

# armed, waiting, fired, or '' (also while the server cannot be had)
sub state
{
	my ($node, $point, $db) = @_;
	return try_query($node, "SELECT faults.state('$point')", $db) // '';
}

sub wake
{
	my ($node, $point, $db) = @_;
	return try_query($node, "SELECT faults.wake('$point')", $db);
}

sub disarm
{
	my ($node, $db) = @_;
	return defined try_query($node, 'SELECT faults.disarm()', $db);
}

1;
