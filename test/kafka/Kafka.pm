# Kafka.pm: a Kafka for TAP tests: the real broker where broker.sh can start one, else librdkafka's mock cluster.
#
#	my $kafka = Kafka->new("$tmp_check/kafka");
#	$kafka->is_real or plan skip_all => $kafka->why_not_real;		# for what the mock cannot do
#	$kafka->start;
#	$kafka->create_topic('t', 4, 'cleanup.policy' => 'compact');
#	$kafka->produce('t', 0, { key => 'k', value => 'v', headers => [ [ 'h', '1' ] ], timestamp => 1_700_000_000_000 }, 'just a value');
#	my $tx = $kafka->begin('tx1');
#	$tx->produce('t', 0, 'a');
#	$tx->commit;
#
# What fails dies, with the broker's words. Whatever was started ends with the test.
#
#	KAFKA_RIG=real|mock   takes just this one
#	KAFKA_TOOLS           folder of kafka_tool and mock_broker; built there when missing
#	KAFKA_LIBS            see broker.sh
package Kafka;

use strict;
use warnings;

use Carp;
use Cwd qw(abs_path);
use File::Basename;
use File::Path qw(make_path);
use IPC::Open2;
use Scalar::Util qw(weaken);

my $here = dirname(abs_path(__FILE__));
my $broker_sh = "$here/broker.sh";
my $tools = $ENV{KAFKA_TOOLS} || "$here/../../tmp_check/kafka";
my ($built, $why_not_real);
my @all;

# Options: rig => 'real' or 'mock'; settings => [ 'name=value', ... ] of the broker; brokers => how many the mock has.
sub new
{
	my ($class, $dir, %options) = @_;
	my $rig = $options{rig} || $ENV{KAFKA_RIG} || '';
	make_path($dir);
	$built ||= build();
	my $self = bless {
		dir => abs_path($dir), owner => $$, settings => $options{settings} || [],
		brokers => $options{brokers} || 1, real => $rig ne 'mock' && why_not_real() eq ''
	}, $class;
	croak "no real broker: $why_not_real" if $rig eq 'real' && !$self->{real};
	push @all, $self;
	weaken($all[-1]);
	return $self;
}

sub build
{
	system('make', '-s', '-C', $here, "BUILD=$tools") == 0 or croak 'the Kafka tools cannot be built';
	$tools = abs_path($tools);
	return 1;
}

# Empty when tests may have a real broker.
sub why_not_real
{
	return 'KAFKA_RIG asks for the mock' if ($ENV{KAFKA_RIG} || '') eq 'mock';
	if (!defined $why_not_real)
	{
		my $reason = qx(bash '$broker_sh' available);
		chomp($why_not_real = $? ? $reason || "broker.sh available failed with $?" : '');
	}
	return $why_not_real;
}

sub is_real { return $_[0]->{real} }

# ---- the broker's life. The mock keeps its records in memory: there, stop and kill make it unreachable.

sub broker_sh
{
	my ($self, $command, @args) = @_;
	system('bash', $broker_sh, $command, $self->{dir}, @args) == 0 or croak "broker.sh $command $self->{dir} failed";
	return;
}

sub start
{
	my ($self) = @_;
	if ($self->{real})
	{
		$self->broker_sh('start', @{ $self->{settings} });
		$self->{env} = read_env("$self->{dir}/env");
	}
	elsif ($self->{mock})
	{
		$self->mock('up 0');
	}
	else
	{
		$self->{mock} = open_process("$tools/mock_broker", $self->{brokers});
		$self->{env} = { PLAINTEXT => answer_of($self->{mock}), PID => $self->{mock}{pid} };
	}
	$self->{up} = 1;
	return;
}

sub stop { return $_[0]->end('stop') }
sub kill { return $_[0]->end('kill') }

sub end
{
	my ($self, $how) = @_;
	if ($self->{real}) { $self->broker_sh($how) }
	else { $self->mock('down 0') }
	$self->{up} = 0;
	return;
}

sub freeze { return $_[0]->signal('freeze', 'STOP') }
sub thaw { return $_[0]->signal('thaw', 'CONT') }

sub signal
{
	my ($self, $command, $signal) = @_;
	if ($self->{real}) { $self->broker_sh($command) }
	else { CORE::kill($signal, $self->{mock}{pid}) or croak "no mock to $command" }
	return;
}

sub restart
{
	my ($self) = @_;
	$self->stop;
	$self->start;
	return;
}

sub read_env
{
	my ($file) = @_;
	open(my $in, '<', $file) or croak "$file: $!";
	return { map { /^KAFKA_(\w+)=(.*)$/ ? ($1, $2) : () } <$in> };
}

# What broker.sh says of the broker: CA, USER, SSL, ... (without KAFKA_).
sub env
{
	my ($self, $name) = @_;
	return $self->{env}{$name} // croak "this Kafka has no $name";
}

sub bootstrap { return $_[0]->env($_[1] || 'PLAINTEXT') }

# What a client of librdkafka's needs for a listener. Options: mechanism (default PLAIN), user, password.
sub client_settings
{
	my ($self, $listener, %options) = @_;
	my %settings = ('bootstrap.servers' => $self->bootstrap($listener), 'security.protocol' => $listener);
	$settings{'security.protocol'} = 'SSL' if $listener eq 'MTLS';
	$settings{'ssl.ca.location'} = $self->env('CA') if $listener =~ /SSL|MTLS/;
	if ($listener eq 'MTLS')
	{
		$settings{'ssl.certificate.location'} = $self->env('CLIENT_CERT');
		$settings{'ssl.key.location'} = $self->env('CLIENT_KEY');
	}
	if ($listener =~ /^SASL/)
	{
		$settings{'sasl.mechanism'} = $options{mechanism} || 'PLAIN';
		$settings{'sasl.username'} = $options{user} || $self->env('USER');
		$settings{'sasl.password'} = $options{password} || $self->env('PASSWORD');
	}
	return %settings;
}

# ---- processes that answer each line with one

sub open_process
{
	my @command = @_;
	my $pid = open2(my $out, my $in, @command);
	$in->autoflush(1);
	return { pid => $pid, in => $in, out => $out, name => basename($command[0]) };
}

sub close_process
{
	my ($process) = @_;
	CORE::kill('CONT', $process->{pid});
	close($process->{in});
	close($process->{out});
	my $status = $?;
	waitpid($process->{pid}, 0);
	$? = $status;
	return;
}

sub answer_of
{
	my ($process) = @_;
	my $answer = readline($process->{out}) // croak "$process->{name} has ended";
	chomp($answer);
	return $1 if $answer =~ /^ok ?(.*)$/;
	croak $answer =~ s/^error/$process->{name}:/r;
}

sub ask
{
	my ($process, @lines) = @_;
	local $SIG{PIPE} = 'IGNORE';
	print { $process->{in} } map { "$_\n" } @lines;
	return answer_of($process);
}

# A command of kafka_tool, as its source file describes them, and its answer.
sub tool
{
	my ($self, @lines) = @_;
	$self->{tool} ||= open_process("$tools/kafka_tool", $self->bootstrap);
	return ask($self->{tool}, @lines);
}

# The same for mock_broker.
sub mock
{
	my ($self, $command) = @_;
	croak 'this is not the mock' unless $self->{mock};
	return ask($self->{mock}, $command);
}

# ---- words

sub encode
{
	my ($text) = @_;
	utf8::encode($text) if utf8::is_utf8($text);
	$text =~ s/([^!-\$&-~])/sprintf('%%%02X', ord($1))/ge;
	return $text;
}

sub decode
{
	my ($text) = @_;
	$text =~ s/%([0-9A-F]{2})/chr(hex($1))/gei;
	return $text;
}

# name=value for all that have a value.
sub options
{
	my (%options) = @_;
	return map { defined $options{$_} ? "$_=" . encode($options{$_}) : () } sort keys %options;
}

# ---- topics

sub create_topic
{
	my ($self, $topic, $partitions, %config) = @_;
	$partitions ||= 1;
	return $self->mock("topic $topic $partitions") unless $self->{real};
	return $self->tool(join ' ', 'create', $topic, $partitions, options(%config));
}

sub delete_topic { my ($self, $topic) = @_; return $self->tool("delete $topic") }
sub add_partitions { my ($self, $topic, $count) = @_; return $self->tool("partitions $topic $count") }
sub partitions { my ($self, $topic) = @_; return $self->tool("partitions $topic") }

sub alter_topic
{
	my ($self, $topic, %config) = @_;
	return $self->tool(join ' ', 'alter', $topic, options(%config));
}

# All before this offset; undef: all there are.
sub delete_records
{
	my ($self, $topic, $partition, $before) = @_;
	return $self->tool(join ' ', 'delete_records', $topic, $partition, $before // -1);
}

# Forbids a user all topics whose names start so; others may go on using them. Or groups, as the kind.
sub deny
{
	my ($self, $user, $prefix, $kind) = @_;
	$kind ||= 'topic';
	$self->tool("acl deny $user $kind prefixed $prefix all");
	return $self->tool("acl allow * $kind prefixed $prefix all");
}

# ---- records

# Records: a string is the value of one without a key; no value makes a tombstone. Returns the last one's offset.
sub produce
{
	my ($self, $topic, $partition, @records) = @_;
	return $self->produce_with({}, $topic, $partition, @records);
}

sub produce_with
{
	my ($self, $options, $topic, $partition, @records) = @_;
	my $offset;
	for my $record (map { ref $_ eq 'ARRAY' ? @$_ : $_ } @records)
	{
		my %record = ref $record ? %$record : (value => $record);
		my @headers = map { 'header=' . encode($_->[0]) . (defined $_->[1] ? ':' . encode($_->[1]) : '') } @{ $record{headers} || [] };
		delete $record{headers};
		$offset = $self->tool(join ' ', 'send', $topic, $partition, options(%$options, %record), @headers);
	}
	return $offset;
}

# The fast way: values, or lines of a file when given its name. Options: separator, timestamp, step, codec. Returns
# how many. The partition may be 'any' (by key) or 'spread' (in turn).
sub produce_lines
{
	my ($self, $topic, $partition, $lines, %options) = @_;
	my @rest = options(%options);
	return $self->tool(join ' ', 'file', $topic, $partition, encode($lines), @rest) unless ref $lines;
	return $self->tool(join(' ', 'lines', $topic, $partition, scalar(@$lines), @rest), @$lines);
}

# A transaction, with produce, produce_lines, commit, abort and leave. Options: codec, timeout.
sub begin
{
	my ($self, $id, %options) = @_;
	$self->tool(join ' ', 'begin', $id, options(%options));
	return bless { kafka => $self, id => $id }, 'Kafka::Transaction';
}

# Low, high, last stable offset.
sub watermarks
{
	my ($self, $topic, $partition) = @_;
	return split / /, $self->ask_leader("watermarks $topic $partition");
}

# A broker that has just started does not lead its partitions yet: the same question again, with a deadline.
sub ask_leader
{
	my ($self, $command) = @_;
	my $deadline = time + 60;
	for (;;)
	{
		my $answer = eval { $self->tool($command) };
		return $answer if defined $answer;
		die $@ if time > $deadline || $@ !~ /NOT_LEADER|LEADER_NOT_AVAILABLE/;
		select(undef, undef, undef, 0.05);
	}
}

sub offset_at { my ($self, @args) = @_; return $self->ask_leader("offset @args") }
sub committed { my ($self, @args) = @_; return $self->tool("committed @args") }

# What the partition holds now. Options: from => offset, isolation => 'committed'.
sub read_records
{
	my ($self, $topic, $partition, %options) = @_;
	my $count = $self->tool(join ' ', 'read', $topic, $partition, options(%options));
	return map { parse_record(scalar readline($self->{tool}{out})) } 1 .. $count;
}

sub parse_record
{
	my ($line) = @_;
	my ($offset, $timestamp, @words) = split ' ', $line;
	my %record = (offset => $offset, timestamp => $timestamp, headers => []);
	for (@words)
	{
		my ($name, $value) = split /=/, $_, 2;
		if ($name ne 'header') { $record{$name} = decode($value); next }
		($name, $value) = split /:/, $value, 2;
		push @{ $record{headers} }, [ decode($name), defined $value ? decode($value) : undef ];
	}
	return \%record;
}

# ---- the end

sub finish
{
	my ($self) = @_;
	return unless $self->{owner} == $$;    # a fork has no part in it
	local ($?, $@);
	for my $process (delete $self->{tool}, delete $self->{mock})
	{
		close_process($process) if $process;
	}
	eval { $self->broker_sh('kill') } if $self->{real} && $self->{up};
	$self->{up} = 0;
	return;
}

sub DESTROY { my ($self) = @_; $self->finish; return }

$SIG{$_} ||= sub { die "ended by SIG$_[0]\n" } for qw(HUP INT TERM);
END { local $?; $_->finish for grep { defined } @all }

package Kafka::Transaction;

sub produce { my ($self, @args) = @_; return $self->{kafka}->produce_with({ tx => $self->{id} }, @args) }

sub produce_lines
{
	my ($self, $topic, $partition, $lines, %options) = @_;
	return $self->{kafka}->produce_lines($topic, $partition, $lines, %options, tx => $self->{id});
}

sub commit { my ($self) = @_; return $self->{kafka}->tool("commit $self->{id}") }
sub abort { my ($self) = @_; return $self->{kafka}->tool("abort $self->{id}") }
sub leave { my ($self) = @_; return $self->{kafka}->tool("leave $self->{id}") }

1;
