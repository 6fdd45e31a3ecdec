# Hostile.pm: a machine that turns hostile when told (hostile.c): its clock is set, its disk is full.
#
#	my $machine = Hostile->new($directory) or plan skip_all => 'no C compiler';
#	$machine->run(sub { $node->start });		# what is started here is on that machine
#	$machine->set_clock(-3600);		# seconds from the right time
#	$machine->fill_disk('/base/');		# files with this in their path cannot grow ...
#	$machine->make_room;		# ... again
package Hostile;

use strict;
use warnings;

use Cwd qw(abs_path);
use File::Basename;

sub new
{
	my ($class, $dir) = @_;
	my $source = abs_path(dirname(__FILE__)) . '/hostile.c';
	my $self = bless { library => "$dir/hostile.so", control => "$dir/hostile", seconds => 0, full => '' }, $class;
	return undef if system("cc -shared -fPIC -O1 -Wall -o '$self->{library}' '$source' -ldl") != 0;
	$self->tell;
	return $self;
}

# In place: whoever has mapped the file sees it.
sub tell
{
	my ($self) = @_;
	open(my $file, '+>>', $self->{control}) or die "$self->{control}: $!";
	close($file);
	open($file, '+<', $self->{control}) or die "$self->{control}: $!";
	print $file pack('q a120', $self->{seconds}, $self->{full});
	close($file) or die "$self->{control}: $!";
	return;
}

sub run
{
	my ($self, $code) = @_;
	local $ENV{LD_PRELOAD} = $self->{library};
	local $ENV{HOSTILE} = $self->{control};
	return $code->();
}

sub set_clock { my ($self, $seconds) = @_; $self->{seconds} = $seconds; return $self->tell }
sub fill_disk { my ($self, $path) = @_; $self->{full} = $path; return $self->tell }
sub make_room { my ($self) = @_; return $self->fill_disk('') }

1;
