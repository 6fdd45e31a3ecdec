# 120_syntax.pl: CREATE STREAM and its like as statements: over libpq and JDBC, in logs and pg_stat_statements, beside
# every statement of our own scripts; and a server that does not know them: switched off, not allowed to, or since
# somebody else had been there.
#
#	SYNTAX_TOOLS	folder of what test/syntax/Makefile builds; built when missing
#	SYNTAX_JDBC		'no', or else JDBC_LIBS, see test/syntax/jdbc.sh
use strict;
use warnings;

use Cwd qw(abs_path);
use File::Path qw(make_path);
use FindBin;
use lib "$FindBin::RealBin/../perl";
use lib "$FindBin::RealBin/../syntax";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

use Statements;
use StreamAggTest;

my $here = abs_path("$FindBin::RealBin/../syntax");
my $tools = $ENV{SYNTAX_TOOLS};
my $only = $ENV{SA_ONLY};
my $warning = 'CREATE STREAM and CREATE CONTINUOUS VIEW are not available as statements';
if (!$tools)
{
	$tools = "$PostgreSQL::Test::Utils::tmp_check/syntax";
	system('make', '-s', '-C', $here, "BUILD=$tools") == 0 or die 'the tools cannot be built';
}

sub part
{
	my ($name, $code) = @_;
	subtest($name, $code) if !defined $only || $only eq $name;
	return;
}

# The settings of the server, whose log begins anew.
sub count_warnings
{
	my ($node) = @_;
	my $log = slurp_file($node->logfile);
	my $count = () = $log =~ /$warning/g;
	return $count;
}

# What all three doors do where the statements themselves are refused.
sub check_other_doors
{
	my ($node) = @_;
	is($node->safe_psql('postgres', 'SHOW stream_agg.syntax'), 'off', 'the setting tells');
	my ($status, $out, $err) = $node->psql('postgres', 'CREATE STREAM s (a int)');
	like($err, qr/syntax error at or near "STREAM"/, 'the statement is not known');
	$node->safe_psql('postgres', <<'SQL');
SELECT stream_agg.execute('CREATE STREAM s (a int); CREATE CONTINUOUS VIEW v AS SELECT a, count(*) FROM s GROUP BY a');
DO LANGUAGE stream_sql 'ALTER STREAM s SET (max_future = ''1 day''); CREATE STREAM s2 (a int)';
CREATE FOREIGN TABLE s3 (a int) SERVER stream_staged;
CREATE MATERIALIZED VIEW v3 WITH (stream_agg.continuous) AS SELECT a, count(*) FROM s3 GROUP BY a;
INSERT INTO s VALUES (1), (1);
INSERT INTO s3 VALUES (1);
SQL
	$node->safe_psql('postgres', "CALL stream_agg.run('s')");
	$node->safe_psql('postgres', "CALL stream_agg.run('s3')");
	is($node->safe_psql('postgres', 'SELECT v.count, v3.count FROM v, v3'), '2|1', 'views made through the other doors run');
	$node->safe_psql('postgres', <<'SQL');
SELECT stream_agg.execute('DROP CONTINUOUS VIEW v; DROP STREAM s, s2');
DROP MATERIALIZED VIEW v3;
DROP FOREIGN TABLE s3;
SQL
	return;
}

# ---- a server that knows them

my $node = make_node('syntax');
$node->append_conf('postgresql.conf', <<'CONF');
shared_preload_libraries = 'stream_agg, pg_stat_statements'
pg_stat_statements.track = all
listen_addresses = '127.0.0.1'
log_min_messages = warning
CONF
$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION stream_agg; CREATE EXTENSION pg_stat_statements; CREATE DATABASE bare');
is($node->safe_psql('postgres', 'SHOW stream_agg.syntax'), 'auto', 'the server knows our statements');

part 'libpq' => sub {
	my ($out, $err) = run_command([ "$tools/libpq_client", $node->connstr('postgres') ]);
	is($err, '', 'no noise');
	is("$out\n", <<'OUT', 'the extended protocol and pipelines');
create stream: PGRES_COMMAND_OK CREATE FOREIGN TABLE
prepare view: PGRES_COMMAND_OK
describe view: PGRES_COMMAND_OK
create view: PGRES_COMMAND_OK SELECT 0
alter stream: PGRES_COMMAND_OK ALTER FOREIGN TABLE
explain: PGRES_TUPLES_OK SELECT 7
prepare drop: PGRES_COMMAND_OK
drop view: PGRES_COMMAND_OK DROP MATERIALIZED VIEW
another column: PGRES_COMMAND_OK ALTER FOREIGN TABLE
create view again: PGRES_COMMAND_OK SELECT 0
drop view again: PGRES_COMMAND_OK DROP MATERIALIZED VIEW
two in one: PGRES_FATAL_ERROR cannot insert multiple commands into a prepared statement
parameter: PGRES_FATAL_ERROR materialized views may not be defined using bound parameters
syntax error: PGRES_FATAL_ERROR syntax error at or near ")" at 25
refused: PGRES_FATAL_ERROR a stream cannot be temporary or unlogged at 16
drop stream: PGRES_COMMAND_OK DROP FOREIGN TABLE
pipeline: PGRES_COMMAND_OK CREATE FOREIGN TABLE
pipeline: PGRES_COMMAND_OK COMMENT
pipeline: PGRES_COMMAND_OK DROP FOREIGN TABLE
pipeline: PGRES_PIPELINE_SYNC
OUT
};

part 'JDBC' => sub {
	plan skip_all => 'pgjdbc cannot be had' if ($ENV{SYNTAX_JDBC} // '') eq 'no';
	my ($out, $err) = run_command([ 'bash', "$here/jdbc.sh", 'libs' ]);
	plan skip_all => "pgjdbc cannot be had: $out" if $? >> 8 == 77;
	my $classes = "$PostgreSQL::Test::Utils::tmp_check/classes";
	make_path($classes);
	foreach my $mode (qw(extended simple))
	{
		my $url = 'jdbc:postgresql://127.0.0.1:' . $node->port . "/postgres?preferQueryMode=$mode&user=" . getpwuid($<);
		($out, $err) = run_command([ 'bash', "$here/jdbc.sh", 'run', $classes, $url ]);
		is($err, '', "$mode: no noise");
		is("$out\n", <<'OUT', "$mode statements");
create stream: count 0
create view: count 0
insert: count 2
alter: count 0
explain: 7 rows
run: count -1
select: 2 rows
syntax error: syntax error at or near ")" at 24
refused: a stream cannot be temporary or unlogged at 8
two in one: count 0
create in a transaction: count 0
rolled back: 0 rows
OUT
	}
};

# Statements appear as they were typed.
part 'texts' => sub {
	my $offset = -s $node->logfile;
	my $stream = "CREATE  STREAM /* mine */ ls (a int)\n\tWITH (max_future = '1 day')";
	my $view = 'create continuous view lv with (trigger = manual) as select a from ls';
	$node->safe_psql('postgres', 'SELECT pg_stat_statements_reset()');
	my ($out, $err) = run_command(
		[ $node->installed_command('psql'), '-XAtq', '-d', $node->connstr('postgres'), '-c', "SET log_statement = 'ddl'",
			'-c', "SELECT 1; $stream; $view; COMMENT ON STREAM ls IS 'x'", '-c', 'DROP STREAM ls CASCADE' ]);
	my $log = slurp_file($node->logfile, $offset) =~ s/\n\t/\n/gr;
	like($log, qr/statement: SELECT 1; \Q$stream; $view\E; COMMENT ON STREAM ls IS 'x'/, 'in the log');
	like($log, qr/statement: DROP STREAM ls CASCADE/, 'DROP, too');
	my $seen = sub { return $node->safe_psql('postgres', "SELECT count(*) FROM pg_stat_statements WHERE query = \$q\$$_[0]\$q\$"); };
	is($seen->($stream), 1, 'in pg_stat_statements');
	is($seen->($view), 1, 'one of several, in pg_stat_statements');
};

part 'without the extension' => sub {
	foreach my $statement ('CREATE STREAM s (a int)', 'DROP STREAM s', 'ALTER CONTINUOUS VIEW v RENAME TO w')
	{
		my ($status, $out, $err) = $node->psql('bare', $statement);
		like($err, qr/in this database\nHINT:  Use CREATE EXTENSION stream_agg first/, $statement);
	}
};

# Columns come and go while a worker runs.
part 'altering while it runs' => sub {
	$node->safe_psql('postgres', <<'SQL');
CREATE STREAM s (a int NOT NULL, b int);
CREATE CONTINUOUS VIEW v AS SELECT a, count(*), sum(b) AS sum FROM s GROUP BY a;
INSERT INTO s VALUES (1, 10), (2, 20);
SQL
	my $view = sub { return $node->safe_psql('postgres', "SELECT string_agg($_[0]::text, ' ' ORDER BY $_[0]) FROM $_[0]"); };
	wait_until('the first rows are there', sub { return $view->('v') eq '(1,1,10) (2,1,20)' });
	$node->safe_psql('postgres', <<'SQL');
ALTER STREAM s ADD COLUMN c text DEFAULT 'none', ADD COLUMN d int;
INSERT INTO s (a, b, c) VALUES (1, 1, 'x'), (3, 30, 'y');
CREATE CONTINUOUS VIEW w WITH (start = 'latest') AS SELECT c, count(*) FROM s GROUP BY c;
SQL
	wait_until('rows with the new column are there', sub { return $view->('v') eq '(1,2,11) (2,1,20) (3,1,30)' });
	# It begins with what comes after it has been seen, which its position tells.
	wait_until('the second view has its place',
		sub { return $node->safe_psql('postgres', "SELECT count(*) FROM stream_agg.partitions WHERE view = 'w'::regclass AND position = 4") });
	$node->safe_psql('postgres', "INSERT INTO s (a, b, c) VALUES (1, 1, 'z'); INSERT INTO s (a) VALUES (1)");
	wait_until('a new view sees the new column', sub { return $view->('w') eq '(none,1) (z,1)' });
	foreach my $used ('DROP COLUMN c', 'DROP COLUMN b', 'ALTER COLUMN b TYPE text')
	{
		my ($status, $out, $err) = $node->psql('postgres', "ALTER STREAM s $used");
		like($err, qr/depend|used by a view/, "$used, which a view uses, is refused");
	}
	$node->safe_psql('postgres', "ALTER STREAM s DROP COLUMN d; ALTER STREAM s RENAME COLUMN c TO e; INSERT INTO s VALUES (1, 1, 'z')");
	wait_until('a column that was not used has gone', sub { return $view->('w') eq '(none,1) (z,2)' });
	is($view->('v'), '(1,5,13) (2,1,20) (3,1,30)', 'all are counted');
	is($node->safe_psql('postgres', 'SELECT DISTINCT status FROM stream_agg.views'), 'running', 'nothing failed');
	$node->safe_psql('postgres', 'DROP STREAM s CASCADE');
};

# Every statement of our own scripts, with each of its words replaced.
part 'fuzz' => sub {
	my @files = glob("$FindBin::RealBin/../../sql/*.sql");
	my $load = "$PostgreSQL::Test::Utils::tmp_check/statements";
	open(my $file, '>:raw', $load) or die "$load: $!";
	print $file Statements::copy_rows(@files);
	close($file);
	$node->safe_psql('postgres', slurp_file("$here/syntax_tools.sql") =~ s/:'tools'/'$tools\/syntax_tools'/gr);
	$node->safe_psql('postgres', "CREATE TABLE statements (file text, statement text); COPY statements FROM '$load'");
	$node->safe_psql('postgres',
		'SET client_min_messages = error; CREATE TABLE outcome AS SELECT * FROM statements, fuzz(statement)');
	cmp_ok($node->safe_psql('postgres', 'SELECT sum(accepted) FROM outcome'), '>', 10000, 'enough to try');
	cmp_ok($node->safe_psql('postgres', 'SELECT sum(taken) FROM outcome'), '>', 100, 'ours are among them');
	is($node->safe_psql('postgres', 'SELECT sum(lost), sum(different), sum(told) FROM outcome'), '0|0|0',
		'nothing lost, nothing different, nothing told otherwise');
	is($node->safe_psql('postgres', 'SELECT file, sample FROM outcome WHERE sample IS NOT NULL LIMIT 3'), '', 'no bad sample');
};

part 'crash' => sub {
	ok(crash_child($node, "SELECT pid FROM pg_stat_activity WHERE backend_type = 'checkpointer'"), 'a process is killed');
	$node->safe_psql('postgres', 'CREATE STREAM s (a int); DROP STREAM s');
	is(count_warnings($node), 0, 'the statements are still known');
};
is_deeply([ unexpected_crashes($node) ], [], 'no crash that was not meant');
$node->stop;

# ---- servers that do not

part 'off' => sub {
	$node->append_conf('postgresql.conf', "stream_agg.syntax = off\n");
	$node->start;
	check_other_doors($node);
	is(count_warnings($node), 0, 'no warning');
	$node->stop;
	$node->append_conf('postgresql.conf', "stream_agg.syntax = auto\n");
};

# Somebody else has redirected the parser first.
part 'redirected already' => sub {
	$node->append_conf('postgresql.conf', "shared_preload_libraries = '$tools/syntax_tools, stream_agg'\n");
	$node->start;
	check_other_doors($node);
	$node->safe_psql('postgres', 'SELECT 1') for 1 .. 3;
	is(count_warnings($node), 1, 'one warning');
	like(slurp_file($node->logfile), qr/$warning: the function does not begin like one.*\n.*HINT:.*stream_agg\.execute\(\)/, 'with its reason and a hint');
	$node->reload;
	is($node->safe_psql('postgres', 'SHOW stream_agg.syntax'), 'off', 'a reload changes nothing');
	$node->stop;
	$node->append_conf('postgresql.conf', "shared_preload_libraries = 'stream_agg'\n");
};

# Memory that was writable may not become executable.
part 'MDWE' => sub {
	system("$tools/mdwe", 'true');
	plan skip_all => 'the kernel has no PR_SET_MDWE' if $? >> 8 == 77;
	my $before = count_warnings($node);
	system("$tools/mdwe", $node->installed_command('pg_ctl'), '-D', $node->data_dir, '-l', $node->logfile, '-w', 'start') == 0
	  or die 'the server did not start';
	check_other_doors($node);
	is(count_warnings($node), $before + 1, 'one warning');
	like(slurp_file($node->logfile), qr/$warning: the system does not allow changed code/, 'with its reason');
	system($node->installed_command('pg_ctl'), '-D', $node->data_dir, '-m', 'fast', '-w', 'stop') == 0
	  or die 'the server did not stop';
};

part 'not preloaded' => sub {
	$node->append_conf('postgresql.conf', "shared_preload_libraries = ''\n");
	$node->start;
	$node->safe_psql('postgres', <<'SQL');
SELECT stream_agg.execute('CREATE STREAM s (a int) WITH (max_future = ''1 day'')');
DO LANGUAGE stream_sql 'COMMENT ON STREAM s IS ''x''';
INSERT INTO s VALUES (1);
SQL
	is($node->safe_psql('postgres', 'TABLE s'), '1', 'a stream that was made by execute');
	my ($status, $out, $err) = $node->psql('postgres', "SELECT stream_agg.execute('CREATE CONTINUOUS VIEW v AS SELECT a FROM s')");
	like($err, qr/shared_preload_libraries/, 'views need the library');
	$node->safe_psql('postgres', "SELECT stream_agg.execute('DROP STREAM s')");
	$node->stop;
};

done_testing();
