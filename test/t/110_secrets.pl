# 110_secrets.pl: what a user mapping holds, or was meant to hold, is in no message and not in the server's
# log, also when the statement is refused, sits in a function, or a stream is read that cannot be reached.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

use StreamAggTest;

my $node = make_node('secrets');
$node->append_conf('postgresql.conf', "log_min_messages = debug1\nlog_min_error_statement = error\nlog_statement = none\n");
$node->start;
$node->safe_psql('postgres', <<'SQL');
CREATE EXTENSION stream_agg;
CREATE SERVER k FOREIGN DATA WRAPPER stream_agg OPTIONS (type 'kafka', bootstrap_servers '127.0.0.1:1', security_protocol 'sasl_plaintext',
	sasl_mechanism 'PLAIN');
CREATE FOREIGN TABLE s (a int) SERVER k OPTIONS (topic 't');
SQL

# Each is refused; the client sees the statement it sent only as context of a function.
my %refused = (
	'on a server' => "CREATE SERVER bad FOREIGN DATA WRAPPER stream_agg OPTIONS (type 'kafka', sasl_password 'hush')",
	'on a server, with other errors' => "CREATE SERVER bad FOREIGN DATA WRAPPER stream_agg OPTIONS (colour 'blue', sasl_password 'hush')",
	'added to a server' => "ALTER SERVER k OPTIONS (ADD ssl_key_pem 'hush')",
	'on a stream' => "CREATE FOREIGN TABLE bad (a int) SERVER k OPTIONS (topic 't', sasl_password 'hush')",
	'under a wrong name' => "CREATE USER MAPPING FOR CURRENT_USER SERVER k OPTIONS (sasl_pasword 'hush')",
	'on a server, under a wrong name' => "CREATE SERVER bad FOREIGN DATA WRAPPER stream_agg OPTIONS (type 'kafka', sasl_pasword 'hush')",
	'beside a wrong value' => "CREATE USER MAPPING FOR CURRENT_USER SERVER k OPTIONS (sasl_password 'hush', sasl_username '')",
	'for a staged server' => "CREATE USER MAPPING FOR CURRENT_USER SERVER stream_staged OPTIONS (sasl_password 'hush')",
);

foreach my $where (sort keys %refused)
{
	my ($status, $out, $err) = $node->psql('postgres', $refused{$where});
	isnt($status, 0, "a secret $where is refused");
	unlike($err, qr/hush/, "a secret $where is not in the message");
	$node->psql('postgres', 'DO $do$ BEGIN EXECUTE $x$' . $refused{$where} . '$x$; END $do$');
}

$node->safe_psql('postgres', "CREATE USER MAPPING FOR CURRENT_USER SERVER k OPTIONS (sasl_username 'hush', sasl_password 'hush')");
my ($status, $out, $err) = $node->psql('postgres', "SET statement_timeout = '3s'; SELECT * FROM s");
isnt($status, 0, 'a stream that cannot be reached cannot be read');
unlike($err, qr/hush/, 'nor does it tell the secrets');
like($node->safe_psql('postgres', 'SELECT umoptions FROM pg_user_mappings'), qr/hush/, 'the secrets are where they belong');
$node->stop;
unlike(slurp_file($node->logfile), qr/hush/, "no secret is in the server's log");

done_testing();
