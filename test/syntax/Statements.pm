# Statements.pm: the statements of scripts for psql, one by one. Rough where psql's own ways go beyond SQL: a piece
# that is no statement does no harm here.
#
#	perl -MStatements -e 'print Statements::copy_rows(@ARGV)' FILE...	rows for COPY: file, statement
package Statements;

use strict;
use warnings;

my $comment = qr{(?<comment>/\*(?:[^*/]++|\*(?!/)|/(?!\*)|(?&comment))*+\*/)};

sub read_file
{
	my ($name) = @_;
	open(my $file, '<:raw', $name) or die "$name: $!";
	local $/;
	return <$file>;
}

# Splits at each semicolon outside of parentheses and function bodies, and at psql's commands.
sub split_text
{
	my ($text) = @_;
	my @statements;
	my ($statement, $depth, $body) = ('', 0, 0);
	my $end = sub {
		push @statements, $statement if $statement =~ /\S/;
		($statement, $depth, $body) = ('', 0, 0);
	};
	pos($text) = 0;
	while (pos($text) < length $text)
	{
		if ($text =~ /\G\\;/gc) { $statement .= ';'; }
		elsif ($text =~ /\G\\[^\n]*/gc) { $end->(); }
		elsif ($text =~ /\G(?:--[^\n]*|$comment)/gc) { $statement .= $&; }
		elsif ($text =~ /\G(?:[eE]'(?:[^'\\]++|\\.|'')*+'|'(?:[^']++|'')*+'|"(?:[^"]++|"")*+")/gcs) { $statement .= $&; }
		elsif ($text =~ /\G\$(\w*)\$.*?\$\1\$/gcs) { $statement .= $&; }
		elsif ($text =~ /\G[A-Za-z_\x80-\xff][\w\$\x80-\xff]*/gc)
		{
			my $word = $&;
			$statement .= $word;
			if ($statement =~ /^\s*create\b.*\b(function|procedure)\b/is)
			{
				$body++ if $word =~ /^(begin|case)$/i;
				$body-- if $word =~ /^end$/i && $body > 0;
			}
		}
		elsif ($depth == 0 && $body == 0 && $text =~ /\G;/gc)
		{
			my $copy = $statement =~ /^\s*copy\b.*\bfrom\s+stdin\b/is;
			$end->();
			$text =~ /\G.*?^\\\.$/gcms if $copy;
		}
		else
		{
			$text =~ /\G./gcs;
			$statement .= $&;
			$depth += $& eq '(' ? 1 : $& eq ')' && $depth > 0 ? -1 : 0;
		}
	}
	$end->();
	return @statements;
}

my %escape = ("\\" => '\\\\', "\t" => '\t', "\n" => '\n', "\r" => '\r');

# In UTF-8, for what is not is no text.
sub copy_rows
{
	my (@files) = @_;
	my $rows = '';
	foreach my $file (@files)
	{
		foreach my $statement (split_text(read_file($file)))
		{
			next if $statement =~ /\0/ || !utf8::decode(my $copy = $statement);
			$statement =~ s/([\\\t\n\r])/$escape{$1}/g;
			(my $name = $file) =~ s{.*/}{};
			$rows .= "$name\t$statement\n";
		}
	}
	return $rows;
}

1;
