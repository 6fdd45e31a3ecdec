# 070_decode.pl: the decoder beside the server's own json and COPY. Random and damaged records go through
# stream_agg.try_decode_all in one run, and through an oracle in SQL; both must agree on which records are
# good, and on every value.
#
#   SA_DECODE_CASES=n   JSON records (default 30000)
#   SA_DECODE_SEED=n    the seed, as printed by a run
#
# The oracle for JSON: value::json accepts the record and it is an object; each column's value is found by a
# chain of -> and goes through json_populate_record, which calls the type's input function. Two things are
# put differently, for the server looks at a whole document where the decoder looks at wanted values only:
# \u0000 and halves of surrogate pairs are replaced by U+E000 for the oracle, and a record is bad when that
# turns up in a column (columns of type json take it as it stands). Nesting stays within what the server's
# stack allows.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Utils;
use Test::More;

use StreamAggTest;

my $cases = $ENV{SA_DECODE_CASES} || 30_000;
my $seed = $ENV{SA_DECODE_SEED} || int(rand(2**31));
srand($seed);
note("seed $seed");

sub pick { return $_[ int(rand(@_)) ]; }
sub chance { return rand() < $_[0]; }
sub repeat { my ($most, $code) = @_; return map { $code->() } 1 .. int(rand($most + 1)); }

# ---- values

my @texts = ('', 'a', 'abc', 'abcd', 'abc   ', ' 7 ', 'null', 'NULL', '{}', '{1,2}', '{a,"b c",NULL}', '{"a":1}', "\xc3\xa4", "\xf0\x9f\x98\x80",
	"\xe2\x82\xac", 'x' x 300, "'", ',', 'ok', 'sad', 'OK', 'true', 'f', 'off', 'o', 'yes ', 'NaN', '-Infinity', 'inf', '0x1F', '1_000', '-', '+5', '.5', '5.',
	'1e3', '00012', '\\x6162', '\\xzz', 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', '{a0eebc999c0b4ef8bb6d6bb9bd380a11}', 'a0eebc99-9c0b', "\x7f");

sub number
{
	my $kind = int(rand(14));
	return pick(0, 1, -1, 5, '-0', 12, 300) if $kind < 3;
	return pick(32767, 32768, -32768, -32769, 2147483647, 2147483648, -2147483648, -2147483649, '9223372036854775807',
		'9223372036854775808', '-9223372036854775808', '-9223372036854775809', '999999999999999999', '1000000000000000000') if $kind < 5;
	return sprintf('%d', rand(2**31)) if $kind < 6;
	return sprintf('%.*f', int(rand(10)), (rand() - 0.5) * 10**int(rand(8))) if $kind < 8;
	return sprintf('%.*g', 1 + int(rand(17)), (rand() - 0.5) * 10**int(rand(600) - 300)) if $kind < 9;
	return join('', map { int(rand(10)) } 1 .. 1 + int(rand(40))) if $kind < 10;
	return pick('0.1', '1e400', '-1e400', '1e-400', '4.9e-324', '2.2250738585072011e-308', '1.7976931348623157e308', '1.8e308', '3.4028235e38', '3.5e38',
		'1e-46', '1.17549435e-38', '16777217', '16777219.0', '0.30000000000000004', '9007199254740993', '-0.0', '0e0', '1E+2', '1e2', '1.0', '100000000000000000000000',
		'123456789012345.6', '0.000001', '8388609.5', '1.5', '999.995', '9999.995') if $kind < 12;
	return pick('01', '+1', '.5', '1.', '1e', '1e+', '-', '--1', '0x10', '1_000', 'NaN', 'Infinity', '-Infinity', '1a', '1.2.3', '00', '-01') if $kind == 12 && chance(0.3);
	return int(rand(1000));
}

sub time_text
{
	my $date = sprintf('%04d-%02d-%02d', pick(2026, 2024, 1969, 1900, 2000, 1, 0, 9999, int(rand(3000))), pick(1 .. 12, 0, 13), pick(1 .. 31, 0, 29, 30, 31, 32));
	my $clock = sprintf('%02d:%02d:%02d', pick(0 .. 23, 24), pick(0 .. 59, 60), pick(0 .. 59, 60));
	$clock = substr($clock, 0, 5) if chance(0.03);
	$clock .= '.' . join('', map { int(rand(10)) } 1 .. int(rand(9))) if chance(0.5);
	my $zone = pick('Z', 'Z', '', '+00', '+02:00', '-05:30', '+0530', '-14', '+15:59', '+16', '+05:', '+5', ' UTC', 'z', '+05:60', ' +01', '+02:00:30', '-00:00', 'ZZ');
	return pick('infinity', '-infinity', 'epoch', '', '2026-01-02', '20260102T030405Z', 'January 2, 2026', '2026-01-02 BC', '12026-01-02T00:00:00Z', '294277-01-01', '2026-1-2 3:4:5',
		'2026-01-02T03:04:05,5Z', 'allballs') if chance(0.1);
	return $date if chance(0.15);
	return $date . pick('T', 'T', ' ', 't', '  ') . $clock . $zone;
}

# A JSON string of these bytes, some of them as escapes.
sub string
{
	my ($bytes) = @_;
	$bytes = pick(@texts) unless defined $bytes;
	my $out = '';
	for my $c (split //, $bytes)
	{
		if ($c eq '"' || $c eq '\\') { $out .= "\\$c"; }
		elsif (ord($c) < 128 && chance(0.03)) { $out .= sprintf(pick('\\u%04x', '\\u%04X'), ord($c)); }
		else { $out .= $c; }
	}
	$out .= pick('\\n', '\\t', '\\/', '\\b\\f\\r', '\\"', '\\\\', '\\u00e9', '\\u20AC', '\\ud83d\\ude00', '\\uD83D\\uDE00x', '\\ue001') if chance(0.12);
	$out .= pick('\\u0000', '\\ud800', '\\udc00', '\\ud83d\\ud83d', '\\ud83dx', '\\ud83d\\n', '\\ude00\\ud83d', '\\ud83d\\u0041', '\\\\u0000', '\\ud83d\\') if chance(0.015);
	$out .= pick('\\x', '\\u12', '\\u12g4', '\\U0041', '\\', "\n", "\t", "\x01", "\x00", "\x1f") if chance(0.006);
	return "\"$out\"";
}

sub space { return chance(0.8) ? '' : pick(' ', "\n", "\t", "\r\n", '  ', ' ' x 20); }

sub container
{
	my ($depth) = @_;
	return '[' x 300 . ']' x 300 if chance(0.001);
	return '{"k":[' x 400 . ']}' x 400 if chance(0.001);
	return '[' . space() . join(space() . ',' . space(), repeat(3, sub { any($depth - 1) })) . space() . ']' if chance(0.5);
	return '{' . space() . join(',', repeat(3, sub { string(pick('a', 'b', 'k', "\xc3\xa9", '')) . space() . ':' . space() . any($depth - 1) })) . '}';
}

sub any
{
	my ($depth) = @_;
	my $kind = rand();
	return container($depth) if $depth > 0 && $kind < 0.25;
	return pick('true', 'false') if $kind < 0.35;
	return 'null' if $kind < 0.42;
	return number() if $kind < 0.65;
	return string(time_text()) if $kind < 0.72;
	return pick('True', 'nul', 'nulll', 'truefalse', 'NULL', "'a'", 'undefined', '') if $kind < 0.723;
	return string();
}

sub array
{
	my ($element) = @_;
	my $flat = sub { return '[' . join(pick(',', ', ', " ,\n"), repeat(3, $element)) . ']'; };
	return '[' . join(',', repeat(2, $flat)) . ']' if chance(0.2);
	return $flat->();
}

# ---- columns: name, type, path, values

my $word = sub { my @words = @_; return sub { return chance(0.8) ? string(pick(@words)) : string(); } };
my $num = sub { return chance(0.8) ? number() : string(number()); };
my $time = sub { return string(time_text()); };
my @columns = (
	[ 'i2', 'int2', undef, $num ],
	[ 'i4', 'int', undef, $num ],
	[ 'i8', 'bigint', undef, $num ],
	[ 'f4', 'real', undef, $num ],
	[ 'f8', 'double precision', undef, $num ],
	[ 'b', 'boolean', undef, sub { return chance(0.6) ? pick('true', 'false') : string(pick(qw(t f true FALSE yes on off 1 0 tru x), ' t ', '')); } ],
	[ 't', 'text', undef, \&string ],
	[ 'v', 'varchar', undef, \&string ],
	[ 'v3', 'varchar(3)', undef, \&string ],
	[ 'c3', 'char(3)', undef, \&string ],
	[ 'ts', 'timestamptz', undef, $time ],
	[ 'tl', 'timestamp', undef, $time ],
	[ 't3', 'timestamptz(3)', undef, $time ],
	[ 'd', 'date', undef, $time ],
	[ 'n', 'numeric', undef, $num ],
	[ 'n2', 'numeric(6,2)', undef, $num ],
	[ 'j', 'json', undef, sub { return any(2); } ],
	[ 'jb', 'jsonb', undef, sub { return any(2); } ],
	[ 'ia', 'int[]', undef, sub { return array($num); } ],
	[ 'ta', 'text[]', undef, sub { return array(sub { return any(1); }); } ],
	[ 'ja', 'jsonb[]', undef, sub { return array(sub { return any(0); }); } ],
	[ 'u', 'uuid', undef, $word->('a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', 'A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11',
		'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a1g', 'a0eebc99-9c0b-4ef8-bb6d6-bb9bd380a11', 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a1-', '{A0EEBC999C0B4EF8BB6D6BB9BD380A11}', 'a0eebc99', 'zz') ],
	[ 'm', 'mood', undef, $word->('ok', 'sad', 'happy', 'OK') ],
	[ 'p', 'positive', undef, $num ],
	[ 'w', 'wordy', undef, \&string ],
	[ 'by', 'bytea', undef, $word->('\\x6162', '\\x616', 'a\\000b', 'abc') ],
	[ 'a', 'jsonb', undef, undef ],
	[ 'ab', 'text', 'a.b', undef ],
	[ 'ab2', 'int', 'a.b', undef ],
	[ 'abk', 'text', 'a.b.k', undef ],
	[ "\xc3\xa9", 'text', undef, \&string ],
	[ 'dead', 'text', undef, undef ]);
my %values = map { $_->[0] => $_->[3] } grep { $_->[3] } @columns;
$values{a} = sub {
	return any(1) if chance(0.3);
	return '{' . join(space() . ',', repeat(3, sub { return string(pick('b', 'b', 'c', 'k')) . ':' .
		(chance(0.4) ? '{' . join(',', repeat(2, sub { return '"k":' . any(1); })) . '}' : chance(0.5) ? number() : any(2)); })) . '}';
};

# ---- records

sub member
{
	my ($key) = pick(keys %values);
	my $value = chance(0.9) ? $values{$key}->() : any(3);
	$key = pick('zz', 'A', 'a.b', '', 'i44', 'dead ', string()) if chance(0.15);
	return string($key) . space() . ':' . space() . $value;
}

# Few members: a record with many of them would nearly always have a bad one.
sub record
{
	my @members = repeat(pick(1, 1, 2, 4, 8), \&member);
	push @members, pick(@members) if @members && chance(0.05);
	my $record = space() . '{' . space() . join(space() . ',' . space(), @members) . space() . '}' . space();
	return any(3) if chance(0.02);
	return pick('', ' ', '{}', ' { } ', '{', '}', '{,}', '{"a":1,}', '{"a"}', '{"a":}', '{a:1}', '{}{}', '{} x', '[]', "\xef\xbb\xbf{}") if chance(0.01);
	return $record;
}

sub damage
{
	my ($record) = @_;
	my $at = int(rand(length($record) + 1));
	my $kind = int(rand(7));
	if ($kind == 0) { $record = substr($record, 0, $at); }
	elsif ($kind == 1) { substr($record, $at, 1) = chr(int(rand(256))) if $at < length($record); }
	elsif ($kind == 2) { substr($record, $at, 1) = '' if $at < length($record); }
	elsif ($kind == 3) { substr($record, $at, 0) = pick('"', '\\', ',', ':', '{', '}', '[', ']', ' ', '0', '-', "\0", "\x80", "\xff", 'e', '.', "\xc3", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xc0\x80"); }
	elsif ($kind == 4) { substr($record, $at, 0) = substr($record, int(rand($at + 1)), int(rand(20))); }
	elsif ($kind == 5) { substr($record, $at, 0) = pick('true', 'null', '"a":1,', '[1]', '\\u0000', "\n", "\xe2\x82\xac"); }
	elsif ($at < length($record)) { substr($record, $at, 1) = chr(ord(substr($record, $at, 1)) ^ (1 << int(rand(8)))); }
	return $record;
}

# With U+E000 in place of \u0000 and of halves of surrogate pairs.
sub neutral
{
	my ($record) = @_;
	$record =~ s{(\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})|\\u(?:0000|[dD][89a-fA-F][0-9a-fA-F]{2})|(\\.)}{$1 // $2 // '\\ue000'}gse;
	return $record;
}

# The same for escapes that stand in a text or in json, for they were in an object or array.
sub without_halves
{
	my ($event) = @_;
	$event =~ s{\\u(?:0000|[eE]000|[dD][89a-fA-F][0-9a-fA-F]{2})}{\\ue000}g;
	return $event;
}

# ---- the server

my $node = make_node('decode');
$node->start;
my $list = join(', ', map { "\"$_->[0]\" $_->[1]" . ($_->[2] ? " OPTIONS (path '$_->[2]')" : '') } @columns);
my $built = join(', ', map { "'$_->[0]', d" . join('', map { "->'$_'" } split /\./, $_->[2] // $_->[0]) } @columns);
$node->safe_psql('postgres', <<"SQL");
CREATE EXTENSION stream_agg;
CREATE SERVER k FOREIGN DATA WRAPPER stream_agg OPTIONS (type 'kafka', bootstrap_servers 'nowhere:1');
CREATE TYPE mood AS ENUM ('sad', 'ok');
CREATE DOMAIN positive AS int CHECK (VALUE > 0);
CREATE DOMAIN wordy AS text CHECK (VALUE IS NULL OR VALUE <> 'abc');
CREATE FOREIGN TABLE s ($list) SERVER k OPTIONS (topic 't', format 'json');
CREATE FOREIGN TABLE c (x text, y text, z text) SERVER k OPTIONS (topic 't', format 'csv');
ALTER FOREIGN TABLE s DROP COLUMN dead;
CREATE TABLE json_case (id int, record bytea, neutral bytea);
CREATE TABLE csv_case (id int, record bytea);
CREATE TABLE csv_row (x text, y text, z text);

-- The event as text; NULL: malformed.
CREATE FUNCTION expected(record bytea, neutral bytea) RETURNS text LANGUAGE plpgsql AS \$\$
DECLARE
	d json;
	event s;
BEGIN
	d := convert_from(record, 'UTF8')::json;
	IF json_typeof(d) <> 'object' THEN RETURN NULL; END IF;
	d := convert_from(neutral, 'UTF8')::json;
	event := json_populate_record(NULL::s, json_build_object($built));
	event.j := NULL;
	IF row_to_json(event)::text ~ U&'\\E000|ee8080'
		OR concat(d->'a', d->'jb', d->'ja') LIKE '%ue000%' THEN RETURN NULL; END IF;    -- among duplicates too
	event.j := CASE WHEN json_typeof(d->'j') <> 'null' THEN d->'j' END;    -- json_populate_record writes strings anew
	RETURN row_to_json(event);
EXCEPTION WHEN OTHERS THEN RETURN NULL;
END \$\$;

-- What COPY makes of a file of one line.
CREATE FUNCTION copied(file text) RETURNS text LANGUAGE plpgsql AS \$\$
DECLARE
	result text;
BEGIN
	DELETE FROM csv_row;
	EXECUTE format('COPY csv_row FROM %L (FORMAT csv)', file);
	IF (SELECT count(*) FROM csv_row) <> 1 THEN RETURN NULL; END IF;
	SELECT row_to_json(csv_row) INTO result FROM csv_row;
	RETURN result;
EXCEPTION WHEN OTHERS THEN RETURN NULL;
END \$\$;
SQL

# ---- JSON

my $file = "$PostgreSQL::Test::Utils::tmp_check/cases";
my @records;
open(my $out, '>', $file) or die "$file: $!";
for my $id (1 .. $cases)
{
	my $record = record();
	$record = damage($record) for repeat(chance(0.3) ? 2 : 0, sub { return 1; });
	push @records, $record;
	printf $out "%d\t\\\\x%s\t\\\\x%s\n", $id, unpack('H*', $record), unpack('H*', neutral($record));
}
close($out);
$node->safe_psql('postgres', "COPY json_case FROM '$file'");
my $result = $node->safe_psql('postgres', <<'SQL');
CREATE TABLE json_result AS
SELECT id, got.event::text AS got, got.error, expected(record, neutral) AS expected
FROM json_case JOIN stream_agg.try_decode_all('s', (SELECT array_agg(record ORDER BY id) FROM json_case)) got ON got.ordinal = id;
SELECT count(*), count(got), count(DISTINCT regexp_replace(error, '[0-9]+|"[^"]*"', '', 'g')) FROM json_result;
SQL
my ($total, $good, $reasons) = split /\|/, $result;
note("$good of $total records are good; $reasons kinds of errors");
is($total, $cases, 'every record became an event or an error');
cmp_ok($good, '>', $cases / 5, 'many records are good');
cmp_ok($total - $good, '>', $cases / 5, 'many records are bad');

my @differences;
for my $line (split /\n/, $node->safe_psql('postgres', <<'SQL'))
SELECT id, encode(convert_to(coalesce(got, ''), 'UTF8'), 'hex'), encode(convert_to(coalesce(expected, ''), 'UTF8'), 'hex'), error
FROM json_result WHERE got IS DISTINCT FROM expected ORDER BY id
SQL
{
	my ($id, $got, $expected, $error) = split /\|/, $line, 4;
	($got, $expected) = map { pack('H*', $_) } $got, $expected;
	next if without_halves($got) eq without_halves($expected);
	next if $records[$id - 1] =~ /\\ue000|\xee\x80\x80/i;    # by chance itself what stands for the replaced
	push @differences, "record: $records[$id - 1]\ngot: $got $error\nexpected: " . ($expected eq '' ? 'an error' : $expected);
}
is(scalar(@differences), 0, "the decoder agrees with the server on $cases records (seed $seed)")
  or diag(join("\n\n", @differences[ 0 .. ($#differences > 9 ? 9 : $#differences) ]));

# One by one is the same as in one run.
is($node->safe_psql('postgres', <<'SQL'), '0', 'records do not depend on those beside them');
SELECT count(*) FROM json_result r JOIN json_case c USING (id), stream_agg.try_decode('s', c.record) one
WHERE id % 20 = 0 AND (one.event::text, one.error) IS DISTINCT FROM (r.got, r.error)
SQL

# Errors are one short line, and name what they are about.
is($node->safe_psql('postgres', <<'SQL'), '', 'errors are short lines without a period');
SELECT error FROM json_result WHERE octet_length(error) > 260 OR error ~ '[\n\r]' OR error ~ '[^.]\.$' LIMIT 3
SQL

# ---- csv

my $csv_cases = int($cases / 40);
open($out, '>', $file) or die "$file: $!";
for my $id (1 .. $csv_cases)
{
	my $field = sub {
		my $text = join('', repeat(4, sub { return pick('a', 'b', ' ', '""', ',', "\n", "\xc3\xa4", 'NULL'); }));
		return chance(0.4) ? "\"$text\"" : join('', repeat(3, sub { return pick('a', ' ', "'", 'x', '\\', 'NULL', chance(0.1) ? ('"', '"a,"', "\r", "\n") : ()); }));
	};
	my $record = join(',', map { $field->() } 1 .. (chance(0.9) ? 3 : 1 + int(rand(5))));
	$record =~ s/\\\././g;
	$record .= pick('', '', "\n", "\r\n");
	next if $record eq '';
	printf $out "%d\t\\\\x%s\n", $id, unpack('H*', $record);
	my $name = "$file.$id";
	open(my $single, '>:raw', $name) or die "$name: $!";
	print $single $record;
	close($single);
}
close($out);
$node->safe_psql('postgres', "COPY csv_case FROM '$file'");
my $csv_differences = $node->safe_psql('postgres', <<"SQL");
SELECT id, encode(record, 'escape'), one.event, one.error, copied('$file.' || id)
FROM csv_case, stream_agg.try_decode('c', record) one WHERE one.event::text IS DISTINCT FROM copied('$file.' || id)
SQL
is($csv_differences, '', "the decoder agrees with COPY on $csv_cases lines (seed $seed)");
unlink glob("$file.*");

is(join("\n", unexpected_crashes($node)), '', 'nothing crashed');
$node->stop;
done_testing();
