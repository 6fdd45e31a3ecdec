# StreamAggCrowd.pm: more groups than memory for state holds. Events are written a part at a time, to the table l and the stream s
# alike, and after each part the memory of every view is looked at; views are compared with what the events say.
#
#	my $crowd = StreamAggCrowd->new(node => $node, views => [ 'a', 'b' ], limit => $kilobytes, rows => 25_000, values => 'i % 100');
#	$crowd->feed('new groups', 300_000, 'i % 1000', "i * interval '1 s'");
#	$crowd->compare('at last', 'CREATE TEMP TABLE answer AS ...;', a => 'TABLE answer', b => 'SELECT * FROM answer WHERE ...');
package StreamAggCrowd;
use strict;
use warnings;

use List::Util qw(max min);
use PostgreSQL::Test::Utils;
use Test::More;

use StreamAggTest;

# values: what an event i has besides its key and time, in SQL.
sub new
{
	my ($class, %self) = @_;
	return bless { events => 0, %self }, $class;
}

# SQL that writes events first to last of all, has them read, and tells how much memory each view has taken.
sub part
{
	my ($self, $first, $last, $key, $at) = @_;
	return "WITH x AS (INSERT INTO l SELECT $key, timestamptz '2024-01-01Z' + $at, $self->{values} FROM generate_series($first, $last) i RETURNING *)"
	  . " INSERT INTO s SELECT * FROM x;\nCALL stream_agg.run('s', '300 s');\nSELECT view, max(state_bytes) FROM stream_agg.progress GROUP BY 1;\n";
}

# Writes so many events, of the key that {key} says for event i, at {at}, and has them read. Looks at the memory after every batch.
sub feed
{
	my ($self, $what, $count, $key, $at) = @_;
	my $start = time;
	my $end = $self->{events} + $count;
	my $sql = '';
	for (my $last = $self->{events}; $last < $end; $last = $self->{events})
	{
		$self->{events} = min($last + $self->{rows}, $end);
		$sql .= $self->part($last + 1, $self->{events}, $key, $at);
	}
	my %most;
	for (split /\n/, $self->{node}->safe_psql('postgres', $sql))
	{
		my ($view, $bytes) = split /\|/;
		$most{$view} = max($bytes, $most{$view} // 0);
	}
	is(join(' ', sort keys %most), join(' ', sort @{ $self->{views} }), "$what: all views have read");
	cmp_ok($most{$_}, '<=', 2 * 1024 * $self->{limit}, "$what: memory of $_ is bounded") for sort keys %most;
	note sprintf('%s: %d s; most bytes: ', $what, time - $start) . join(', ', map { "$_ $most{$_}" } sort keys %most);
	return;
}

# Views against their answers, as queries over what {sql} makes; it may also complain of something by a row of its own.
sub compare
{
	my ($self, $what, $sql, %answers) = @_;
	$sql = "SET timezone = 'UTC';\n$sql";
	for my $view (sort keys %answers)
	{
		my $answer = "($answers{$view})";
		$sql .= "SELECT '$view', (SELECT count(*) FROM ($answer EXCEPT ALL TABLE $view) x), (SELECT count(*) FROM $view) - (SELECT count(*) FROM $answer x);\n";
	}
	my $wrong = join(', ', grep { !/\|0\|0$/ } split /\n/, $self->{node}->safe_psql('postgres', $sql));
	is($wrong, '', "$what: all views are right");
	return;
}

# How often a view reads again what it had read, since the log was so long.
sub rebuilds
{
	my ($self, $length) = @_;
	return scalar(() = slurp_file($self->{node}->logfile, $length) =~ /to rebuild its state/g);
}

1;
