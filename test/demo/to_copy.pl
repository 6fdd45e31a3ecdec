#!/usr/bin/perl
# to_copy.pl: JSON objects, one a line, to COPY's text format; the arguments name the columns.
use strict;
use warnings;
use JSON::PP;

my $json = JSON::PP->new->utf8;
my %escape = ("\\" => "\\\\", "\t" => "\\t", "\n" => "\\n", "\r" => "\\r");

sub field
{
	my ($value) = @_;
	return '\N' unless defined $value;
	$value =~ s/([\\\t\n\r])/$escape{$1}/g;
	return $value;
}

binmode STDOUT, ':utf8';
while (my $line = <STDIN>)
{
	my $row = $json->decode($line);
	print join("\t", map { field($row->{$_}) } @ARGV), "\n";
}
