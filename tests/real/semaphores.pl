# Processes that share a buffer under System V semaphores, in Perl: producers and consumers, members that are killed in
# the middle, and what the module offers beside. Prints the same whatever the order of events.
use strict;
use warnings;
use IPC::SysV qw(IPC_PRIVATE IPC_CREAT IPC_EXCL IPC_NOWAIT IPC_RMID SEM_UNDO S_IRUSR S_IWUSR ftok);
use IPC::Semaphore;
use IPC::SharedMem;
use Errno qw(EAGAIN EIDRM EINTR ENOENT EEXIST);

use constant { PRODUCERS => 4, CONSUMERS => 3, EACH => 600, ROOM => 8 };
use constant { LOCK => 0, FREE => 1, FULL => 2 };
$SIG{ALRM} = sub { die "out of time\n" };
alarm 100;

my $array = IPC::Semaphore->new(IPC_PRIVATE, 3, S_IRUSR | S_IWUSR | IPC_CREAT) or die "semget: $!";
my $memory = IPC::SharedMem->new(IPC_PRIVATE, 4 * (ROOM + 4), S_IRUSR | S_IWUSR | IPC_CREAT) or die "shmget: $!";
$memory->attach or die "shmat: $!";
$memory->remove;

# Words: [0] where to put, [1] where to take, [2] taken, [3] sum, then the buffer.
sub get { unpack 'L', $memory->read(4 * $_[0], 4) }
sub put { $memory->write(pack('L', $_[1]), 4 * $_[0], 4) or die "write: $!" }
put($_, 0) for 0 .. ROOM + 3;
$array->setall(1, ROOM, 0) or die "setall: $!";

sub child {
    my $body = shift;
    my $child = fork // die "fork: $!";
    return $child if $child;
    alarm 100;
    $body->(@_);
    exit 0;
}

sub produce {
    my $me = shift;
    for my $i (1 .. EACH) {
        # Both at once: room, and the lock, which is given back if we die.
        $array->op(FREE, -1, 0, LOCK, -1, SEM_UNDO) or die "op: $!";
        my $at = get(0);
        put(4 + $at, $me * EACH + $i);
        put(0, ($at + 1) % ROOM);
        $array->op(LOCK, 1, SEM_UNDO, FULL, 1, 0) or die "op: $!";
    }
}

sub consume {
    for (1 .. shift) {
        $array->op(FULL, -1, 0, LOCK, -1, SEM_UNDO) or die "op: $!";
        my $at = get(1);
        put(3, get(3) + get(4 + $at));
        put(2, get(2) + 1);
        put(1, ($at + 1) % ROOM);
        $array->op(LOCK, 1, SEM_UNDO, FREE, 1, 0) or die "op: $!";
    }
}

my @children = map { child(\&produce, $_) } 0 .. PRODUCERS - 1;
push @children, map { child(\&consume, PRODUCERS * EACH / CONSUMERS) } 1 .. CONSUMERS;

# Some who take the lock and are killed with it in hand.
for my $i (1 .. 20) {
    pipe my $reader, my $writer or die "pipe: $!";
    my $victim = child(sub {
        $array->op(LOCK, -1, SEM_UNDO) or die "op: $!";
        syswrite $writer, 'x';
        sleep 100;
    });
    close $writer;
    sysread $reader, my $byte, 1 or die "the victim has ended";
    kill KILL => $victim;
    waitpid $victim, 0;
}
for (@children) {
    waitpid $_, 0;
    die "a child ended with $?\n" if $?;
}
print "buffer ", get(2), " ", get(3), " ", join(' ', $array->getall), "\n";

# The rest of the module.
my @said;
push @said, $array->setval(LOCK, 7) ? $array->getval(LOCK) : "setval: $!";
push @said, $array->op(LOCK, -8, IPC_NOWAIT) ? 'done' : $! == EAGAIN ? 'EAGAIN' : $!;
push @said, $array->getpid(LOCK) == $$ ? 'own' : 'other';
my $stat = $array->stat;
push @said, $stat->nsems, sprintf('%o', $stat->mode & 0777), $stat->uid == $> ? 'own' : 'other', $stat->otime > 0 ? 1 : 0;
my $waiter = child(sub { $array->op(LOCK, -100, 0); exit($! == EIDRM ? 9 : 1) });
select undef, undef, undef, 0.001 until $array->getncnt(LOCK) == 1;
push @said, $array->getzcnt(LOCK);
$array->remove or die "remove: $!";
waitpid $waiter, 0;
push @said, $? >> 8;
print "calls @said\n";

# By key, from a file as programs make them.
my $key = ftok($0, $$ & 255) // die "ftok: $!";
my $named = IPC::Semaphore->new($key, 2, 0600 | IPC_CREAT | IPC_EXCL) or die "semget: $!";
my $again = IPC::Semaphore->new($key, 2, 0600 | IPC_CREAT | IPC_EXCL) ? 'made' : $! == EEXIST ? 'EEXIST' : $!;
my $found = IPC::Semaphore->new($key, 2, 0600) or die "semget: $!";
$found->op(1, 5, 0) or die "op: $!";
my $value = $named->getval(1);
$found->remove or die "remove: $!";
my $gone = IPC::Semaphore->new($key, 2, 0600) ? 'there' : $! == ENOENT ? 'ENOENT' : $!;
print "key $again $value $gone\n";
