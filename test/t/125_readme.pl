# 125_readme.pl: what README.md and doc/reference.md show is so: examples give the output that stands below them, the
# functions, relations, columns, options and settings that they name are there, and none is missing.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl", "$FindBin::RealBin/../kafka";
use PostgreSQL::Test::Utils;
use Test::More;

use Kafka;
use StreamAggTest;

my $readme = slurp_file("$FindBin::RealBin/../../README.md");
my $reference = slurp_file("$FindBin::RealBin/../../doc/reference.md");
my $node = make_node('readme');
$node->start;

# The code of a block that has an output below, and that output.
sub example
{
	my ($first_word) = @_;
	my ($code, $output) = $readme =~ /```sql\n(CREATE EXTENSION IF NOT EXISTS stream_agg;\nCREATE $first_word .*?)```\n```\n(.*?)```/s or die "no example that begins with $first_word";
	return ($code, $output);
}

# As psql shows it.
sub shown
{
	my ($code, @variables) = @_;
	my ($out, $err);
	IPC::Run::run([ 'psql', '-X', '-q', '-v', 'ON_ERROR_STOP=1', (map { ('-v', $_) } @variables), '-d', $node->connstr('postgres') ],
		'<', \$code, '>', \$out, '2>', \$err) or diag $err;
	return $out =~ s/[ ]+$//mgr;
}

my ($code, $output) = example('STREAM');
is(shown($code), $output =~ s/[ ]+$//mgr . "\n", 'the example');
shown('DROP STREAM clicks CASCADE');
my $kafka = Kafka->new("$PostgreSQL::Test::Utils::tmp_check/kafka", rig => 'mock');
$kafka->start;
my ($topic, $partitions) = $readme =~ /echo 'create (\S+) (\d+)' \|/;
my ($lines) = $readme =~ /<<'END'\n(.*?\n)END\n/s;
$kafka->create_topic($topic, $partitions);
$kafka->tool(split /\n/, $lines);
($code, $output) = example('SERVER');
is(shown($code, 'broker=' . $kafka->bootstrap), $output =~ s/[ ]+$//mgr . "\n", 'the example with Kafka');
is(shown("DROP SERVER kafka CASCADE; SELECT count(*) FROM stream_agg.views\n\\g (format=unaligned tuples_only)\n"), "0\n", 'goes as it says');

sub rows { return split /\n/, $node->safe_psql('postgres', $_[0]) }

# ---- functions and relations

my $ours = "SELECT DISTINCT %s FROM pg_depend d JOIN %s o ON o.oid = d.objid WHERE d.refclassid = 'pg_extension'::regclass AND d.deptype = 'e'"
  . " AND d.refobjid = (SELECT oid FROM pg_extension WHERE extname = 'stream_agg') AND d.classid = '%s'::regclass AND %s = 'stream_agg'::regnamespace ORDER BY 1";
my %functions = map { $_ => 1 } rows(sprintf($ours, 'proname', 'pg_proc', 'pg_proc', 'pronamespace'));
my %relations = map { $_ => 1 } rows(sprintf($ours, 'relname', 'pg_class', 'pg_class', 'relnamespace'));
my %settings = map { s/^stream_agg\.//r => 1 } rows("SELECT name FROM pg_settings WHERE name LIKE 'stream_agg.%'");
my %words = map { $_ => 1 } qw(continuous execute replace trigger);    # of the spelling in PostgreSQL's words
for my $doc ([ 'README.md', $readme ], [ 'doc/reference.md', $reference ])
{
	my %named = map { $_ => 1 } $doc->[1] =~ /\bstream_agg\.([a-z_]+)/g;
	is(join(' ', grep { !$functions{$_} && !$relations{$_} && !$settings{$_} && !$words{$_} } sort keys %named), '', "$doc->[0] names nothing that is not there");
}
is(join(' ', grep { $readme !~ /`stream_agg\.$_`/ } sort keys %settings), '', 'README.md has every setting');

# Views are what users look at.
for my $view (rows("SELECT relname FROM pg_class WHERE relnamespace = 'stream_agg'::regnamespace AND relkind = 'v' AND relname !~ '^definition_' ORDER BY 1"))
{
	my @columns = rows("SELECT attname FROM pg_attribute WHERE attrelid = 'stream_agg.$view'::regclass AND attnum > 0 ORDER BY attnum");
	my ($section) = $reference =~ /^## stream_agg\.$view\n(.*?)^## /ms or fail("doc/reference.md has no section about $view");
	my ($row) = $readme =~ /^\| `stream_agg\.$view` \|(.*)$/m or fail("README.md has no row about $view");
	my @outcomes = qw(skipped tombstone malformed duplicate null_time future failed filtered late accepted);
	my $short = $row =~ /outcomes/ ? join(' ', @outcomes, $row) : $row;
	my $long = $section =~ /read \.\.\. accepted/ ? join(' ', @outcomes, $section) : $section;
	is(join(' ', grep { $short !~ /\b$_\b/ } @columns), '', "README.md has every column of $view");
	is(join(' ', grep { $long !~ /\b$_\b/ } @columns), '', "doc/reference.md has every column of $view");
}

# ---- options, by the hints that tell them all

sub options_of
{
	my ($statement) = @_;
	my (undef, undef, $err) = $node->psql('postgres', $statement);
	my ($options) = $err =~ /HINT:  Valid options are: (.*?)[.;]/s or die "no hint: $err";
	return split /, /, $options;
}

$node->safe_psql('postgres', 'CREATE STREAM s (k int)');
for my $option (options_of('ALTER STREAM s SET (nonsense = 1)'))
{
	like($readme, qr/^\|[^|]*`$option`[^|]*\|/m, "README.md has the stream's option $option");
}
for my $option (options_of("CREATE CONTINUOUS VIEW v WITH (nonsense = 1) AS SELECT * FROM s"))
{
	like($readme, qr/^\|[^|]*`$option`[^|]*\|/m, "README.md has the view's option $option");
}
$node->stop;
done_testing();
