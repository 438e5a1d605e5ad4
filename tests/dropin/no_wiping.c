// Runs a program for which the kernel refuses to wipe pages when it forks, as kernels before Linux 4.14 do:
// `no_wiping PROGRAM [ARGUMENTS]`.
#include "check.h"
#include <linux/filter.h>
#include <linux/seccomp.h>

int main(int argc, char **argv) {
    CHECK(argc > 1, "usage: no_wiping PROGRAM [ARGUMENTS]");
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_madvise, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[2])),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, MADV_WIPEONFORK, 0, 1),
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
