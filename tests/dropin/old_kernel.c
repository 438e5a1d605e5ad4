// Runs a program for which the kernel is an old one, before Linux 4.14: it wipes no pages when it forks, and has
// no restartable sequences, no membarrier, and none of the calls that came later: `old_kernel PROGRAM [ARGUMENTS]`.
#include "check.h"
#include <linux/filter.h>
#include <linux/seccomp.h>

// Some have no name in older headers. What comes after statx is all newer.
enum { POPULATE_WRITE = 23, FORK_WIPES = 18 };

int main(int argc, char **argv) {
    CHECK(argc > 1, "usage: old_kernel PROGRAM [ARGUMENTS]");
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, SYS_statx, 1, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_membarrier, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_madvise, 0, 4),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[2])),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, FORK_WIPES, 1, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, POPULATE_WRITE, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EINVAL),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof filter / sizeof filter[0], filter};
    SYS(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
    // A kernel without seccomp, or a container that does not hand it on.
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == -1) {
        dprintf(2, "needs seccomp: %s\n", strerror(errno));
        return 77;
    }
    SYS(execv(argv[1], argv + 1));
}
