# 100_kafka_security.pl: every way to log in, and what is said when it fails: a clear state, no secrets, and no
# way to lend somebody else's. Needs the real broker.
# SA_ONLY=name runs one of the subtests.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";
use Kafka;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);

use StreamAggTest;

my $kafka = Kafka->new("$PostgreSQL::Test::Utils::tmp_check/kafka");
plan skip_all => 'needs a real broker: ' . Kafka::why_not_real() unless $kafka->is_real;
$kafka->start;

my $node = make_node('kafka_security', conf => "log_min_messages = debug1\nlog_min_error_statement = error\n");
$node->start;

# Passwords that appear nowhere. (The broker's own are words of their own, too.)
my $wrong = 'hush-4711';
my $secrets = qr/\Q$wrong\E|\bsecret\b|keysecret|BEGIN (?:ENCRYPTED )?PRIVATE/;
my @said;    # all that clients were told
my $db = 'security';

sub sql
{
	my ($sql) = @_;
	my ($rc, $out, $err) = $node->psql($db, $sql);
	push @said, $out, $err;
	die "$err\n" if $rc != 0;
	return $out;
}

# What a statement says that must fail.
sub error_of
{
	my ($sql) = @_;
	my ($rc, $out, $err) = $node->psql($db, $sql);
	push @said, $out, $err;
	return $rc == 0 ? "no error: $out" : $err;
}

sub run_all
{
	my ($what, $timeout) = @_;
	$timeout ||= '60 s';
	my ($rc, $out, $err) = $node->psql($db, "CALL stream_agg.run('$what', '$timeout')");
	push @said, $err;
	return $rc == 0 ? '' : $err;
}

sub is_query
{
	my ($query, $wanted, $name) = @_;
	return is(sql($query), $wanted, $name);
}

sub becomes
{
	my ($query, $wanted, $name) = @_;
	return ok($node->poll_query_until($db, $query, $wanted), $name) || diag $node->safe_psql($db, 'SELECT stream, status, message FROM stream_agg.streams');
}

# How many records the topic "open" has.
sub total { return (($kafka->watermarks('open', 0))[1] + ($kafka->watermarks('open', 1))[1]) }

sub option_list
{
	my (%options) = @_;
	return join ', ', map { my $value = $options{$_} =~ s/'/''/gr; s/[.]/_/gr . " '$value'" } sort keys %options;
}

# What the mapping holds; the rest is the server's.
sub is_secret { return $_[0] =~ /^sasl.(username|password|oauthbearer.config)|^ssl.key|^ssl.certificate/ }

# A server, a mapping for its user and a stream on a topic, all of one name. Settings are the library's.
sub create_stream
{
	my ($name, $topic, %settings) = @_;
	my %secret = map { $_ => $settings{$_} } grep { is_secret($_) } keys %settings;
	delete @settings{ keys %secret };
	sql("CREATE SERVER $name FOREIGN DATA WRAPPER stream_agg OPTIONS (type 'kafka', " . option_list(%settings) . ')');
	sql("CREATE USER MAPPING FOR CURRENT_USER SERVER $name OPTIONS (" . option_list(%secret) . ')') if %secret;
	sql("CREATE FOREIGN TABLE $name (id int) SERVER $name OPTIONS (topic '$topic')");
	return;
}

sub create_view
{
	my ($name, $stream, $trigger) = @_;
	$trigger ||= 'manual';
	sql("CREATE MATERIALIZED VIEW $name WITH (stream_agg.continuous, stream_agg.trigger = '$trigger') AS SELECT count(*) AS n FROM $stream");
	return;
}

# The stream's worker says that it tries again, and why.
sub retries
{
	my ($stream, $why, $name) = @_;
	return becomes("SELECT status = 'retrying' AND trouble_since <= now() AND message ~* '$why' FROM stream_agg.streams WHERE stream = '$stream'::regclass", 't', $name);
}

# Settings that the library does not take: there is no worker, and the launcher tries again.
sub cannot_be_set_up
{
	my ($stream, $why, $name) = @_;
	return becomes("SELECT status = 'waiting' AND message ~ 'could not set up the Kafka client.*$why' FROM stream_agg.streams WHERE stream = '$stream'::regclass", 't', $name);
}

sub read_file { return slurp_file($kafka->env($_[0])) }

# librdkafka before 2.6.1 repeats its nonce, which brokers since 4.0 refuse.
sub scram_works
{
	my $version = qx(echo '#include <librdkafka/rdkafka.h>\nRD_KAFKA_VERSION' | gcc -E - 2>/dev/null | tail -n 1);
	return hex($version =~ s/\s+//gr) >= 0x020601ff;
}

$node->safe_psql('postgres', "CREATE DATABASE $db");
sql('CREATE EXTENSION stream_agg');
$kafka->create_topic($_, 2) for qw(open denied_topic);
$kafka->produce_lines($_, 'spread', [ map { "{\"id\":$_}" } 1 .. 5 ]) for qw(open denied_topic);
$kafka->deny($kafka->env('OTHER_USER'), 'denied');
$kafka->deny($kafka->env('OTHER_USER'), 'denied_group', 'group');

# ---- ways in

sub test_ways
{
	my %tls = ('bootstrap.servers' => $kafka->bootstrap('MTLS'), 'security.protocol' => 'SSL', 'ssl.ca.location' => $kafka->env('CA'));
	my %ways = (
		plaintext => { $kafka->client_settings('PLAINTEXT') },
		ssl => { $kafka->client_settings('SSL') },
		ssl_pem => { %{ { $kafka->client_settings('SSL') } }, 'ssl.ca.pem' => read_file('CA') },
		mtls => { $kafka->client_settings('MTLS') },
		mtls_password => { %tls, 'ssl.certificate.location' => $kafka->env('CLIENT_CERT'), 'ssl.key.location' => $kafka->env('CLIENT_KEY_ENCRYPTED'),
			'ssl.key.password' => $kafka->env('CLIENT_KEY_PASSWORD') },
		mtls_pem => { %tls, 'ssl.certificate.pem' => read_file('CLIENT_CERT'), 'ssl.key.pem' => read_file('CLIENT_KEY') },
		oauth => { 'bootstrap.servers' => $kafka->bootstrap('SASL_PLAINTEXT'), 'security.protocol' => 'SASL_PLAINTEXT', 'sasl.mechanism' => 'OAUTHBEARER',
			'enable.sasl.oauthbearer.unsecure.jwt' => 'true', 'sasl.oauthbearer.config' => 'principal=alice' });
	delete $ways{ssl_pem}{'ssl.ca.location'};
	for my $listener (qw(SASL_PLAINTEXT SASL_SSL))
	{
		for my $mechanism (qw(PLAIN SCRAM-SHA-256 SCRAM-SHA-512))
		{
			$ways{ lc("${listener}_$mechanism") =~ tr/-/_/r } = { $kafka->client_settings($listener, mechanism => $mechanism) };
		}
	}
	for my $way (sort keys %ways)
	{
		create_stream($way, 'open', %{ $ways{$way} });
		create_view("v_$way", $way, 'immediate');
	}
	for my $way (sort keys %ways)
	{
		if ($way =~ /scram/ && !scram_works())
		{
			retries($way, 'authentication', "$way: known to fail with this librdkafka");
			next;
		}
		becomes("SELECT n FROM v_$way", total(), "$way: a view");
		is_query("SELECT count(*) FROM $way", total(), "$way: SELECT");
	}
	sql("SET client_min_messages = error; DROP SERVER $_ CASCADE") for sort keys %ways;
	return;
}

# ---- no way in

sub test_wrong_password
{
	my %settings = $kafka->client_settings('SASL_SSL', password => $wrong);
	create_stream('wrong', 'open', %settings);
	create_view('v', 'wrong', 'immediate');
	create_view('w', 'wrong');
	retries('wrong', 'authentication', 'a wrong password is told');
	like(run_all('w', '2 s'), qr/stream "wrong" was not read to its end in time.*authentication/si, 'by run()');
	like(error_of('SELECT * FROM wrong'), qr/could not read stream "wrong" from Kafka.*authentication/si, 'and by SELECT');
	sql("ALTER USER MAPPING FOR CURRENT_USER SERVER wrong OPTIONS (SET sasl_password '@{[ $kafka->env('PASSWORD') ]}')");
	becomes('SELECT n FROM v', total(), 'when the mapping is mended the view goes on by itself');
	is(run_all('wrong'), '', 'and run() works');
	becomes("SELECT status, message FROM stream_agg.streams WHERE stream = 'wrong'::regclass", 'running|', 'all is well');
	is_query('SELECT count(*) FROM wrong', total(), 'for SELECT as well');

	# the other way around, and a mapping that goes and comes
	sql("ALTER USER MAPPING FOR CURRENT_USER SERVER wrong OPTIONS (SET sasl_password '$wrong')");
	retries('wrong', 'authentication', 'a password that becomes wrong is told at once');
	sql('DROP USER MAPPING FOR CURRENT_USER SERVER wrong');
	sql("CREATE USER MAPPING FOR PUBLIC SERVER wrong OPTIONS (sasl_username '@{[ $kafka->env('USER') ]}', sasl_password '@{[ $kafka->env('PASSWORD') ]}')");
	$kafka->produce('open', 0, '{"id":6}');
	is(run_all('wrong'), '', "PUBLIC's mapping does as well");
	is_query('SELECT v.n, w.n FROM v, w', join('|', (total()) x 2), 'nothing is lost');

	# a mapping with nothing in it
	sql('DROP USER MAPPING FOR PUBLIC SERVER wrong');
	cannot_be_set_up('wrong', 'sasl', 'no mapping is told');
	sql('SET client_min_messages = error; DROP SERVER wrong CASCADE');
	return;
}

sub test_wrong_ca
{
	my %settings = $kafka->client_settings('SSL');
	create_stream('ca', 'open', %settings, 'ssl.ca.location' => $kafka->env('WRONG_CA'));
	create_view('v', 'ca', 'immediate');
	retries('ca', 'certificate verify failed', 'a wrong CA is told');
	like(run_all('v', '2 s'), qr/certificate verify failed/, 'by run()');
	like(error_of('SELECT * FROM ca'), qr/certificate verify failed/, 'and by SELECT');
	sql("ALTER SERVER ca OPTIONS (SET ssl_ca_location '@{[ $kafka->env('CA') ]}')");
	becomes('SELECT n FROM v', total(), 'when the server is mended the view goes on by itself');
	sql("ALTER FOREIGN TABLE ca OPTIONS (ADD ssl_ca_location '@{[ $kafka->env('CA') ]}.gone')");
	cannot_be_set_up('ca', 'ssl.ca', 'a file that is not there is told');
	like(error_of('SELECT * FROM ca'), qr/could not set up the Kafka client/, 'to SELECT, too');
	sql('ALTER FOREIGN TABLE ca OPTIONS (DROP ssl_ca_location)');
	is(run_all('ca'), '', 'and it comes back');

	# a server that wants a certificate
	create_stream('mtls', 'open', %settings, 'bootstrap.servers' => $kafka->bootstrap('MTLS'));
	create_view('m', 'mtls', 'immediate');
	retries('mtls', 'mtls|SSL|certificate|disconnected|closed|' . $kafka->bootstrap('MTLS'), 'no certificate of our own: told');
	sql('SET client_min_messages = error; DROP SERVER ca CASCADE; DROP SERVER mtls CASCADE');

	# a wrong password of the key
	my %mtls = $kafka->client_settings('MTLS');
	create_stream('locked', 'open', %mtls, 'ssl.key.location' => $kafka->env('CLIENT_KEY_ENCRYPTED'), 'ssl.key.password' => $wrong);
	like(error_of('SELECT * FROM locked'), qr/could not set up the Kafka client/, "a wrong password of the key: SELECT says so");
	create_view('l', 'locked', 'immediate');
	cannot_be_set_up('locked', 'ssl.key', 'and the stream does');
	sql("ALTER USER MAPPING FOR CURRENT_USER SERVER locked OPTIONS (SET ssl_key_password '@{[ $kafka->env('CLIENT_KEY_PASSWORD') ]}')");
	becomes('SELECT n FROM l', total(), 'mended, it goes on by itself');
	sql('SET client_min_messages = error; DROP SERVER locked CASCADE');
	return;
}

sub test_denied
{
	my %settings = $kafka->client_settings('SASL_PLAINTEXT', user => $kafka->env('OTHER_USER'), password => $kafka->env('OTHER_PASSWORD'));
	create_stream('denied', 'denied_topic', %settings);
	create_view('v', 'denied', 'immediate');
	retries('denied', 'denied_topic.*authorization failed', 'a topic that may not be read is told');
	like(run_all('v', '2 s'), qr/authorization failed/i, 'by run()');
	like(error_of('SELECT * FROM denied'), qr/denied_topic.*authorization failed/si, 'and by SELECT');

	# one of two topics
	sql("CREATE FOREIGN TABLE one_of_two (id int) SERVER denied OPTIONS (topic 'open,denied_topic')");
	create_view('w', 'one_of_two', 'immediate');
	retries('one_of_two', 'denied_topic.*authorization failed', 'also when it is one of two');

	# No right to the group: nobody cares.
	sql("CREATE FOREIGN TABLE grouped (id int) SERVER denied OPTIONS (topic 'open', group_id 'denied_group')");
	create_view('g', 'grouped');
	is(run_all('g'), '', 'a group without authorisation');
	is_query('SELECT n FROM g', total(), 'changes nothing');
	is_query("SELECT status, message FROM stream_agg.streams WHERE stream = 'grouped'::regclass", 'running|', 'and is no trouble');
	is_query('SELECT count(*) FROM grouped', total(), 'nor for SELECT');
	$kafka->deny($kafka->env('OTHER_USER'), 'stream_agg', 'group');
	sql("CREATE FOREIGN TABLE ungrouped (id int) SERVER denied OPTIONS (topic 'open')");
	create_view('u', 'ungrouped');
	is(run_all('u'), '', 'nor does it matter that no group may be used at all');
	is_query('SELECT n FROM u', total(), 'and all is read');
	is_query("SELECT status, message FROM stream_agg.streams WHERE stream = 'ungrouped'::regclass", 'running|', 'without trouble');
	sql('SET client_min_messages = error; DROP SERVER denied CASCADE');
	return;
}

# ---- whose secrets

sub test_refused
{
	my %plain = $kafka->client_settings('SASL_PLAINTEXT');
	my ($password, $where) = ($kafka->env('PASSWORD'), $plain{'bootstrap.servers'});
	for my $option (qw(sasl_password sasl_username ssl_key_pem ssl_key_password))
	{
		like(error_of("CREATE SERVER bad FOREIGN DATA WRAPPER stream_agg OPTIONS (type 'kafka', $option '$wrong')"), qr/ERROR:.*$option/s, "$option is not for servers");
		like(error_of("CREATE FOREIGN TABLE bad (id int) SERVER stream_kafka OPTIONS (topic 'open', bootstrap_servers '$where', $option '$wrong')"), qr/ERROR:.*$option/s, "$option is not for streams");
	}

	sql("CREATE ROLE keeper LOGIN; CREATE ROLE eve LOGIN; GRANT CREATE ON SCHEMA public TO keeper, eve;"
		. " GRANT USAGE ON FOREIGN DATA WRAPPER stream_agg TO keeper, eve");
	sql("SET ROLE keeper; CREATE SERVER kept FOREIGN DATA WRAPPER stream_agg OPTIONS (type 'kafka', bootstrap_servers '$where', security_protocol 'sasl_plaintext', sasl_mechanism 'PLAIN');"
		. " GRANT USAGE ON FOREIGN SERVER kept TO eve;"
		. " CREATE USER MAPPING FOR keeper SERVER kept OPTIONS (sasl_username '@{[ $kafka->env('USER') ]}', sasl_password '$password');"
		. " CREATE FOREIGN TABLE keepers (id int) SERVER kept OPTIONS (topic 'open'); GRANT SELECT ON keepers TO eve");

	# Whoever may read the stream reads it with its owner's mapping, and does not get to see that.
	my $all = total();
	is_query('SET ROLE eve; SELECT count(*) FROM keepers', $all, "SELECT uses the owner's mapping");
	sql("SET ROLE eve; CREATE MATERIALIZED VIEW eves WITH (stream_agg.continuous) AS SELECT count(*) AS n FROM keepers");
	becomes('SELECT n FROM eves', $all, 'so does a view of somebody else');
	is_query("SET ROLE eve; SELECT count(umoptions) FROM pg_user_mappings WHERE srvname = 'kept'", 0, 'who cannot see it');
	like(error_of("SET ROLE eve; ALTER FOREIGN TABLE keepers OPTIONS (ADD bootstrap_servers '127.0.0.1:1')"), qr/must be owner/, 'nor lead it elsewhere');
	like(error_of("SET ROLE eve; ALTER SERVER kept OPTIONS (SET bootstrap_servers '127.0.0.1:1')"), qr/must be owner/, 'nor by the server');
	like(error_of("SET ROLE eve; ALTER FOREIGN TABLE keepers OWNER TO eve"), qr/must be owner/, 'nor take the stream');
	is_query("SET ROLE eve; SELECT stream FROM stream_agg.streams", '', 'nor sees the stream');
	# A stream of one's own does not have it.
	sql("SET ROLE eve; CREATE FOREIGN TABLE eves_own (id int) SERVER kept OPTIONS (topic 'open')");
	like(error_of('SET ROLE eve; SELECT * FROM eves_own'), qr/could not/, 'a stream of her own has no secrets');
	like(error_of("SET ROLE eve; ALTER FOREIGN TABLE eves_own OWNER TO keeper"), qr/must be (able to|member)/, 'nor gets them by its owner');

	# PUBLIC's mapping goes where the server says.
	sql("SET ROLE keeper; CREATE USER MAPPING FOR PUBLIC SERVER kept OPTIONS (sasl_username '@{[ $kafka->env('USER') ]}', sasl_password '$password')");
	is_query('SET ROLE eve; SELECT count(*) FROM eves_own', $all, "PUBLIC's mapping serves everybody");
	for my $option ("bootstrap_servers '127.0.0.1:1'", "security_protocol 'plaintext'", "sasl_mechanism 'PLAIN'", "enable_ssl_certificate_verification 'false'")
	{
		like(error_of("SET ROLE eve; ALTER FOREIGN TABLE eves_own OPTIONS (ADD $option)"), qr/stream "eves_own" may not use the user mapping for PUBLIC/, "but not with $option of one's own");
	}
	like(error_of("SET ROLE eve; CREATE FOREIGN TABLE eves_other (id int) SERVER kept OPTIONS (topic 'open', bootstrap_servers '127.0.0.1:1')"),
		qr/may not use the user mapping for PUBLIC/, 'nor when the stream is made so');

	# Files need pg_read_server_files, wherever they are named.
	my $ca = $kafka->env('CA');
	my @files = ("CREATE SERVER files FOREIGN DATA WRAPPER stream_agg OPTIONS (type 'kafka', bootstrap_servers '$where', ssl_ca_location '$ca')",
		"CREATE FOREIGN TABLE files (id int) SERVER kept OPTIONS (topic 'open', ssl_crl_location '$ca')",
		"CREATE USER MAPPING FOR eve SERVER kept OPTIONS (sasl_password '$password', ssl_key_location '$ca')");
	like(error_of("SET ROLE eve; $_"), qr/permission denied to set option "ssl_\w+_location".*pg_read_server_files/s, 'files are not for everybody: ' . substr($_, 0, 20)) for @files;
	sql('GRANT pg_read_server_files TO eve');
	sql("SET ROLE eve; $_") for @files[ 0, 2 ];
	sql('SET client_min_messages = error; DROP SERVER files CASCADE; DROP SERVER kept CASCADE; DROP OWNED BY keeper, eve; DROP ROLE keeper, eve');
	return;
}

# ---- what can be seen

sub test_nothing_shown
{
	my %settings = $kafka->client_settings('SASL_SSL', password => $wrong);
	create_stream('seen', 'open', %settings);
	create_view('v', 'seen', 'immediate');
	my %good = $kafka->client_settings('SASL_SSL');
	create_stream('good', 'open', %good);
	create_view('g', 'good', 'immediate');
	$kafka->produce('open', 0, 'malformed');
	retries('seen', 'authentication', 'one stream fails');
	becomes("SELECT count(*) FROM stream_agg.dead_letters WHERE stream = 'good'::regclass", 1, 'another has a dead letter');
	my @relations = split /\n/, sql("SELECT c.oid::regclass FROM pg_class c WHERE relnamespace = 'stream_agg'::regnamespace AND relkind IN ('r', 'v') AND relname !~ '^definition_'");
	for my $relation (@relations, 'pg_stat_activity', 'information_schema.foreign_table_options', 'pg_foreign_server', 'information_schema.foreign_server_options')
	{
		unlike(sql("SELECT x::text FROM $relation x"), $secrets, "no secret in $relation");
	}
	unlike(sql("SELECT stream_agg.explain('v')"), $secrets, 'no secret in explain()');
	unlike(sql('EXPLAIN (VERBOSE) SELECT * FROM seen'), $secrets, 'no secret in EXPLAIN');
	like(sql('SELECT umoptions FROM pg_user_mappings'), qr/\Q$wrong\E/, 'where it belongs, it is');
	pop @said;
	pop @said;
	sql('SET client_min_messages = error; DROP SERVER seen CASCADE; DROP SERVER good CASCADE');
	return;
}

my @tests = (
	ways => \&test_ways,
	wrong_password => \&test_wrong_password,
	wrong_ca => \&test_wrong_ca,
	denied => \&test_denied,
	refused => \&test_refused,
	nothing_shown => \&test_nothing_shown);
while (my ($name, $code) = splice(@tests, 0, 2))
{
	next if $ENV{SA_ONLY} && $ENV{SA_ONLY} !~ /\b$name\b/;
	my $start = time;
	subtest $name => sub { eval { $code->(); 1 } or $@ =~ /^ended by/ ? die $@ : fail("died: $@") };
	note sprintf('%s: %.1f s', $name, time - $start);
}

is((grep { defined && /$secrets/ } @said)[0], undef, 'no secret was ever told to a client');
my @crashes = unexpected_crashes($node);
is(scalar(@crashes), 0, 'no crash') or diag join("\n", @crashes);
$node->stop;
my @lines = grep { /$secrets/ } split /\n/, slurp_file($node->logfile);
is($lines[0], undef, "no secret is in the server's log");
done_testing();
