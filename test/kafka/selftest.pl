# selftest.pl: does the Kafka that tests are given do what they will believe? Checked with kcat as well, where
# there is one: prove test/kafka/selftest.pl
use strict;
use warnings;

use File::Basename;
use File::Temp qw(tempdir);
use Test::More;
use Time::HiRes qw(time usleep);

use lib dirname(__FILE__);
use Kafka;

my $dir = tempdir(CLEANUP => 1);
my $kcat = (grep { -x "$_/kcat" } split /:/, $ENV{PATH}) ? 'kcat' : undef;

# Polls until the code returns something true.
sub wait_until
{
	my ($what, $code) = @_;
	my $deadline = time + 60;
	for (;;)
	{
		my $result = $code->();
		return $result if $result;
		die "timed out waiting until $what\n" if time > $deadline;
		usleep(50_000);
	}
}

# What kcat prints, or its complaint, as lines.
sub kcat
{
	my ($settings, @args) = @_;
	my %settings = (ref $settings eq 'HASH' ? %$settings : ('bootstrap.servers' => $settings));
	my @command = ($kcat, map({ ('-X', "$_=$settings{$_}") } sort keys %settings), '-m', 5, @args);
	open(my $out, '-|', join(' ', map { "'$_'" } @command) . ' 2>&1 </dev/null') or die "kcat: $!";
	chomp(my @lines = <$out>);
	close($out);
	return @lines;
}

# The values that kcat reads.
sub kcat_values
{
	my ($settings, $topic, $partition, @args) = @_;
	return kcat($settings, '-q', '-C', '-t', $topic, '-p', $partition, '-o', 'beginning', '-e', '-f', '%s\n', @args);
}

sub values_of { return map { $_->{value} } @_ }

# What both kinds do.
sub test_common
{
	my ($kafka, $name) = @_;
	my $start = time;
	$kafka->start;
	note sprintf('%s started in %.1f s', $name, time - $start);
	$kafka->create_topic('common', 3);
	is($kafka->partitions('common'), 3, "$name: a topic with partitions");
	ok(!eval { $kafka->create_topic('common', 3); 1 }, "$name: not a second time");
	like($@, qr/TOPIC_ALREADY_EXISTS/, "$name: and it says why");

	my @records = (
		{ key => "k \n%\0\xff", value => "v\x{fc} \t\r\n", timestamp => 1_700_000_000_000,
			headers => [ [ 'a', '1:2' ], [ 'a', undef ], [ 'b c', '' ] ] },
		{ key => 'gone' },
		{ value => '' });
	is($kafka->produce('common', 0, @records), 2, "$name: the offset of the last record");
	my @read = $kafka->read_records('common', 0);
	ok($_->{timestamp} > 1_600_000_000_000, "$name: a timestamp") for @read;
	delete $_->{timestamp} for @read, @records;
	is_deeply(\@read, [ map { { headers => [], %{ $records[$_] }, offset => $_ } } 0 .. 2 ], "$name: records come back as they are");
	is_deeply([ $kafka->watermarks('common', 0) ], [ 0, 3, 3 ], "$name: watermarks");
	is($kafka->committed('nobody', 'common', 0), -1, "$name: a group that committed nothing");

	is($kafka->produce_lines('common', 1, [ 'a=1', 'b', '=3' ], separator => '=', timestamp => 1000, step => 5), 3, "$name: lines");
	is_deeply([ map { [ $_->{key}, $_->{value}, $_->{timestamp} ] } $kafka->read_records('common', 1) ],
		[ [ 'a', '1', 1000 ], [ undef, 'b', 1005 ], [ '', '3', 1010 ] ], "$name: with keys and times");
	is($kafka->produce_lines('common', 'spread', [ 1 .. 30 ]), 30, "$name: lines for all partitions");
	is(($kafka->watermarks('common', 2))[1], 10, "$name: in turn");
	for my $codec (qw(gzip snappy lz4 zstd))
	{
		is($kafka->produce_lines('common', 2, [ ("$codec and again") x 1000 ], codec => $codec), 1000, "$name: $codec");
	}
	is((values_of($kafka->read_records('common', 2, from => 3000)))[-1], 'zstd and again', "$name: comes back");
	my $size = $kafka->is_real ? 10_000_000 : 1_000_000;
	my $offset = $kafka->produce('common', 2, 'x' x $size);
	is(length((values_of($kafka->read_records('common', 2, from => $offset)))[0]), $size, "$name: a big record");
	open(my $file, '>', "$dir/lines") or die "lines: $!";
	print $file map { "$_ is a line of some length to be sent quickly\n" } 1 .. 100_000;
	close($file);
	$start = time;
	is($kafka->produce_lines('common', 0, "$dir/lines", codec => 'lz4'), 100_000, "$name: a file of lines");
	note sprintf('%s: 100000 lines in %.2f s', $name, time - $start);
	if ($kcat)
	{
		is_deeply([ kcat_values($kafka->bootstrap, 'common', 1) ], [ 1, 'b', 3, map { 3 * $_ - 1 } 1 .. 10 ],
			"$name: kcat reads the same");
	}
	ok(!eval { $kafka->produce('common', 9, 'x'); 1 }, "$name: no such partition");
	like($@, qr/UNKNOWN_PARTITION/, "$name: and it says why");
	test_freeze($kafka, $name);
	return;
}

sub test_freeze
{
	my ($kafka, $name) = @_;
	$kafka->freeze;
	my $frozen = qx(ps -o stat= -p @{[ $kafka->env('PID') ]});
	like($frozen, qr/^T/, "$name: frozen");
	$kafka->thaw;
	ok($kafka->produce('common', 1, 'thawed'), "$name: thawed");
	return;
}

# ---- mock

sub test_mock
{
	my $kafka = Kafka->new("$dir/mock", rig => 'mock', brokers => 2);
	ok(!$kafka->is_real, 'a mock when asked for');
	test_common($kafka, 'mock');
	my $tx = $kafka->begin('tx');
	$tx->produce('common', 2, 'in a transaction');
	$tx->commit;
	is((values_of($kafka->read_records('common', 2)))[-1], 'in a transaction', 'mock: a transaction');
	ok(!eval { $kafka->delete_topic('common'); 1 }, 'mock: no administration');
	like($@, qr/UNSUPPORTED_FEATURE/, 'mock: and it says so');
	$kafka->mock('error produce TOPIC_AUTHORIZATION_FAILED 1');
	ok(!eval { $kafka->produce('common', 1, 'refused'); 1 }, 'mock: an error that was asked for');
	like($@, qr/TOPIC_AUTHORIZATION_FAILED/, 'mock: is the one');
	my $before = $kafka->bootstrap;
	$kafka->restart;
	is($kafka->bootstrap, $before, 'mock: the same ports when it is back');
	ok($kafka->produce('common', 1, 'again'), 'mock: it serves again');
	return;
}

# ---- the real one

sub test_transactions
{
	my ($kafka) = @_;
	$kafka->create_topic('tx', 2);
	my $one = $kafka->begin('one');
	my $two = $kafka->begin('two', codec => 'lz4');
	$one->produce('tx', 0, 'one 1');
	$two->produce('tx', 0, 'two 1');
	$one->produce_lines('tx', 'spread', [ 'one 2', 'one 3' ]);
	is_deeply([ $kafka->watermarks('tx', 0) ], [ 0, 3, 0 ], 'open transactions hold the last stable offset back');
	is_deeply([ $kafka->read_records('tx', 0, isolation => 'committed') ], [], 'nothing is committed');
	$one->commit;
	is_deeply([ $kafka->watermarks('tx', 0) ], [ 0, 4, 1 ], 'one commit leaves the other');
	is_deeply([ $kafka->watermarks('tx', 1) ], [ 0, 2, 2 ], 'a commit has markers');
	$two->abort;
	is_deeply([ $kafka->watermarks('tx', 0) ], [ 0, 5, 5 ], 'an abort too');
	is_deeply([ values_of($kafka->read_records('tx', 0, isolation => 'committed')) ], [ 'one 1', 'one 2' ], 'what is committed');
	is_deeply([ values_of($kafka->read_records('tx', 0)) ], [ 'one 1', 'two 1', 'one 2' ], 'what is not, too');
	my $open = $kafka->begin('three');
	$open->produce('tx', 1, 'left');
	$open->leave;
	is_deeply([ $kafka->watermarks('tx', 1) ], [ 0, 3, 2 ], 'a transaction that its producer left');
	if ($kcat)
	{
		my $where = $kafka->bootstrap;
		is_deeply([ kcat_values($where, 'tx', 0, '-X', 'isolation.level=read_committed') ], [ 'one 1', 'one 2' ], 'kcat reads what is committed');
		is_deeply([ kcat_values($where, 'tx', 0, '-X', 'isolation.level=read_uncommitted') ], [ 'one 1', 'two 1', 'one 2' ], 'or all');
		is_deeply([ kcat_values($where, 'tx', 1, '-X', 'isolation.level=read_committed') ], ['one 3'], 'and nothing of an open one');
	}
	$kafka->begin('three')->abort;
	is_deeply([ $kafka->watermarks('tx', 1) ], [ 0, 4, 4 ], 'the next of its name ends it');
	return;
}

sub test_topics
{
	my ($kafka) = @_;
	$kafka->create_topic('topic', 1);
	$kafka->produce_lines('topic', 0, [ 1 .. 10 ], timestamp => 1000, step => 1000);
	is($kafka->offset_at('topic', 0, 4500), 4, 'the offset at a timestamp');
	is($kafka->offset_at('topic', 0, 99_000), -1, 'or none');
	is($kafka->delete_records('topic', 0, 3), 3, 'records are deleted');
	is_deeply([ $kafka->watermarks('topic', 0) ], [ 3, 10, 10 ], 'the low watermark says so');
	$kafka->add_partitions('topic', 3);
	is($kafka->partitions('topic'), 3, 'partitions are added');
	is($kafka->produce('topic', 2, 'new'), 0, 'and can be used');
	$kafka->alter_topic('topic', 'max.message.bytes' => 1000);
	ok(!eval { $kafka->produce('topic', 0, 'x' x 5000); 1 }, 'an altered setting works');
	like($@, qr/MSG_SIZE_TOO_LARGE/, 'and the broker says why');
	$kafka->delete_topic('topic');
	ok(!eval { $kafka->partitions('topic'); 1 }, 'a topic is deleted');
	$kafka->create_topic('topic', 2);
	is($kafka->produce('topic', 0, 'fresh'), 0, 'and made anew');

	$kafka->create_topic('compact', 1, 'cleanup.policy' => 'compact', 'segment.bytes' => 1_048_576, 'segment.ms' => 1000, 'min.cleanable.dirty.ratio' => 0.01);
	$kafka->produce_lines('compact', 0, [ map { 'k' . ($_ % 3) . '=' . $_ } 1 .. 1000 ], separator => '=');
	my $offset;
	wait_until('a topic is compacted', sub {
		$offset = $kafka->produce('compact', 0, { key => 'last', value => 'x' });    # a new segment, so that the old one can be cleaned
		my @records = grep { $_->{key} ne 'last' } $kafka->read_records('compact', 0);
		return @records == 3;
	});
	cmp_ok($offset, '>=', 1000, 'compaction leaves gaps');
	return;
}

sub test_access
{
	my ($kafka) = @_;
	$kafka->create_topic($_, 1) for qw(denied_topic access);
	$kafka->produce($_, 0, 'secret') for qw(denied_topic access);
	$kafka->deny($kafka->env('OTHER_USER'), 'denied');
	$kcat or return;
	# librdkafka before 2.6.1 repeats its nonce, which brokers since 4.0 refuse.
	my ($major, $minor, $patch) = qx(kcat -V) =~ /librdkafka (\d+)\.(\d+)\.(\d+)/;
	my $scram_works = $major * 10_000 + $minor * 100 + $patch >= 20_601;
	my %ways = (SSL => [''], MTLS => [''], map { $_ => [qw(PLAIN SCRAM-SHA-256 SCRAM-SHA-512)] } qw(SASL_PLAINTEXT SASL_SSL));
	my $settings_for = sub {
		my ($listener, $settings, %options) = @_;
		my %settings = ($kafka->client_settings($listener, %options), %$settings);
		delete $settings{$_} for grep { !defined $settings{$_} } keys %settings;
		return \%settings;
	};
	my $reads = sub { my ($topic, @how) = @_; return join "\n", kcat_values($settings_for->(@how), $topic, 0) };
	my $complaint = sub { my ($topic, @how) = @_; return join "\n", kcat($settings_for->(@how), '-m', 2, '-C', '-t', $topic, '-p', 0, '-e') };
	for my $listener (sort keys %ways)
	{
		for my $mechanism (@{ $ways{$listener} })
		{
			my @how = ('access', $listener, {}, mechanism => $mechanism);
			if ($mechanism !~ /SCRAM/ || $scram_works) { is($reads->(@how), 'secret', "$listener $mechanism") }
			else { like($complaint->(@how), qr/invalid credentials/, "$listener $mechanism: known to fail with this librdkafka") }
		}
	}
	is($reads->('access', 'MTLS', { 'ssl.key.location' => $kafka->env('CLIENT_KEY_ENCRYPTED'), 'ssl.key.password' => $kafka->env('CLIENT_KEY_PASSWORD') }),
		'secret', 'a key with a password');
	like($complaint->('access', 'MTLS', { 'ssl.certificate.location' => undef, 'ssl.key.location' => undef }), qr/transport failure/, 'MTLS: not without a certificate');
	my $answer = $complaint->('access', 'SSL', { 'ssl.ca.location' => $kafka->env('WRONG_CA') });
	like($answer, qr/certificate verify failed/, 'SSL: not with another authority');
	for my $mechanism (grep { !/SCRAM/ || $scram_works } @{ $ways{SASL_SSL} })
	{
		$answer = $complaint->('access', 'SASL_SSL', {}, mechanism => $mechanism, password => 'wrong');
		like($answer, qr/SASL authentication error/, "$mechanism: not with a wrong password");
	}
	is($reads->('access', 'SASL_PLAINTEXT', { 'enable.sasl.oauthbearer.unsecure.jwt' => 'true', 'sasl.oauthbearer.config' => 'principal=alice',
		'sasl.username' => undef, 'sasl.password' => undef }, mechanism => 'OAUTHBEARER'), 'secret', 'SASL_PLAINTEXT OAUTHBEARER');
	my @other = (user => $kafka->env('OTHER_USER'), password => $kafka->env('OTHER_PASSWORD'));
	is($reads->('denied_topic', 'SASL_PLAINTEXT', {}), 'secret', 'one user may read');
	like($complaint->('denied_topic', 'SASL_PLAINTEXT', {}, @other), qr/authorization failed/i, 'the other may not');
	is($reads->('access', 'SASL_PLAINTEXT', {}, @other), 'secret', 'but other topics');
	return;
}

sub test_restarts
{
	my ($kafka) = @_;
	my @status = ('bash', dirname(__FILE__) . '/broker.sh', 'status', "$dir/real");
	my %before = %{ $kafka->{env} };
	my @before = values_of($kafka->read_records('tx', 0));
	my $start = time;
	$kafka->restart;
	note sprintf('restarted in %.1f s', time - $start);
	is_deeply({ %{ $kafka->{env} }, PID => 0 }, { %before, PID => 0 }, 'all but the pid is the same after a restart');
	isnt($kafka->env('PID'), $before{PID}, 'the pid is another');
	is_deeply([ values_of($kafka->read_records('tx', 0)) ], \@before, 'the records are there');
	my $tx = $kafka->begin('killed');
	$tx->produce('tx', 0, 'open');
	$kafka->kill;
	isnt(system(@status), 0, 'killed');
	$start = time;
	$kafka->start;
	note sprintf('started after kill -9 in %.1f s', time - $start);
	is_deeply([ values_of($kafka->read_records('tx', 0)) ], [ @before, 'open' ], 'the records are there after kill -9');
	$tx->commit;
	is((values_of($kafka->read_records('tx', 0, isolation => 'committed')))[-1], 'open', 'an open transaction survives it');
	ok($kafka->produce('tx', 0, 'more'), 'it takes more');
	is(system(@status), 0, 'it runs');
	$kafka->finish;
	isnt(system(@status), 0, 'it is gone with its test');
	return;
}

test_mock();
SKIP:
{
	my $reason = Kafka::why_not_real();
	skip "no real broker: $reason", 1 if $reason;
	my $kafka = Kafka->new("$dir/real", rig => 'real');
	test_common($kafka, 'real');
	test_transactions($kafka);
	test_topics($kafka);
	test_access($kafka);
	test_restarts($kafka);
}
done_testing();
