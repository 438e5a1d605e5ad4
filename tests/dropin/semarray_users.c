// Who may do what with an array. As root, children become another user, before and after exec; otherwise what
// needs two users is left out. With the argument "alone" it is what such a child runs.
#include "semarray.h"
#include <grp.h>

enum { NOBODY = 65534 };

static void become_nobody(void) {
    SYS(setgroups(0, NULL));
    SYS(setresgid(NOBODY, NOBODY, NOBODY));
    SYS(setresuid(NOBODY, NOBODY, NOBODY));
}

static int zero_op(int id) { return change(id, 0, 0, IPC_NOWAIT); }

// What an owner without privileges may do with what is his own: the mode binds him, too.
static void own_rights(void) {
    STAGE("one's own rights");
    key_t key = own_key(1);
    struct semid_ds about;
    unsigned short all[2] = {0, 0};
    int id = semget(key, 2, 0400 | IPC_CREAT | IPC_EXCL);
    SYS(id);
    CASE("0400");
    OK(zero_op(id));
    GIVES(value(id, 0), 0);
    OK(semctl(id, 0, GETALL, all));
    OK(semctl(id, 0, IPC_STAT, &about));
    GIVES(semctl(id, 0, GETNCNT), 0);
    REFUSED(change(id, 0, 1, 0), EACCES);
    REFUSED(change(id, 0, -1, IPC_NOWAIT), EACCES);
    struct sembuf mixed[] = {op(0, 0, 0), op(0, 1, 0)};
    REFUSED(semop(id, mixed, 2), EACCES);
    REFUSED(change(id, 2, 1, 0), EFBIG);
    REFUSED(semctl(id, 0, SETVAL, 1), EACCES);
    REFUSED(semctl(id, 0, SETALL, all), EACCES);
    GIVES(semget(key, 2, 0400), id);
    GIVES(semget(key, 2, 0), id);
    REFUSED(semget(key, 2, 0600), EACCES);
    REFUSED(semget(key, 2, 0200), EACCES);
    REFUSED(semget(key, 2, 0600 | IPC_CREAT | IPC_EXCL), EEXIST);
    REFUSED(semget(key, 3, 0600), EINVAL);
    CASE("0200");
    about.sem_perm.mode = 0200;
    OK(semctl(id, 0, IPC_SET, &about));
    OK(change(id, 0, 1, 0));
    REFUSED(zero_op(id), EACCES);
    REFUSED(value(id, 0), EACCES);
    REFUSED(semctl(id, 0, GETALL, all), EACCES);
    REFUSED(semctl(id, 0, GETPID), EACCES);
    REFUSED(semctl(id, 0, GETNCNT), EACCES);
    REFUSED(semctl(id, 0, GETZCNT), EACCES);
    REFUSED(semctl(id, 0, IPC_STAT, &about), EACCES);
    OK(semctl(id, 0, SETVAL, 0));
    // Altering needs the right to alter alone, though one of the operations waits for zero.
    OK(semop(id, mixed, 2));
    REFUSED(semget(key, 2, 0400), EACCES);
    CASE("0000");
    about.sem_perm.mode = 0;
    OK(semctl(id, 0, IPC_SET, &about));
    REFUSED(change(id, 0, 1, 0), EACCES);
    REFUSED(zero_op(id), EACCES);
    GIVES(semget(key, 2, 0), id);
    // Its settings are the owner's at any time.
    CASE("0077");
    about.sem_perm.mode = 0077;
    OK(semctl(id, 0, IPC_SET, &about));
    REFUSED(change(id, 0, 1, 0), EACCES);
    REFUSED(zero_op(id), EACCES);
    about.sem_perm.mode = 0600;
    OK(semctl(id, 0, IPC_SET, &about));
    OK(change(id, 0, 1, 0));
    GIVES(value(id, 0), 2);
    CASE("");
    about.sem_perm.mode = 0;
    OK(semctl(id, 0, IPC_SET, &about));
    remove_array(id);
}

static int stage_in, stage_out;

// One of two processes that take turns.
static void ready(void) { CHECK(write(stage_out, "", 1) == 1, "write: %s", strerror(errno)); }
static void wait_ready(void) {
    char byte;
    CHECK(read(stage_in, &byte, 1) == 1, "the other process has ended");
}

struct arrays {
    int closed, named, readable, open, given;
};

// The other user: a child that was forked with the arrays in use.
static void in_child(const struct arrays *a, key_t closed_key, key_t readable_key) {
    struct semid_ds about;
    become_nobody();
    STAGE("another user");
    const int closed[] = {a->closed, a->named};
    for (int i = 0; i < 2; i++) {
        int id = closed[i];
        CASE(i ? "0600, with a key" : "0600");
        REFUSED(change(id, 0, 1, 0), EACCES);
        REFUSED(zero_op(id), EACCES);
        REFUSED(value(id, 0), EACCES);
        REFUSED(semctl(id, 0, GETPID), EACCES);
        REFUSED(semctl(id, 0, SETVAL, 0), EACCES);
        REFUSED(semctl(id, 0, IPC_STAT, &about), EACCES);
        REFUSED(semctl(id, 0, IPC_RMID), EPERM);
        memset(&about, 0, sizeof about);
        about.sem_perm.uid = about.sem_perm.gid = NOBODY;
        about.sem_perm.mode = 0666;
        REFUSED(semctl(id, 0, IPC_SET, &about), EPERM);
    }
    CASE("0644");
    GIVES(semget(readable_key, 1, 0444), a->readable);
    REFUSED(semget(readable_key, 1, 0666), EACCES);
    GIVES(value(a->readable, 0), 0);
    OK(zero_op(a->readable));
    OK(semctl(a->readable, 0, IPC_STAT, &about));
    REFUSED(change(a->readable, 0, 1, 0), EACCES);
    REFUSED(semctl(a->readable, 0, SETVAL, 0), EACCES);
    REFUSED(semctl(a->readable, 0, IPC_RMID), EPERM);
    CASE("0666");
    OK(change(a->open, 0, 1, SEM_UNDO));
    GIVES(value(a->open, 0), 1);
    REFUSED(semctl(a->open, 0, IPC_RMID), EPERM);
    CASE("given away");
    REFUSED(change(a->given, 0, 1, 0), EACCES);
    ready();
    wait_ready();
    OK(change(a->given, 0, 1, SEM_UNDO));
    OK(change(a->given, 0, 2, 0));
    GIVES(value(a->given, 0), 3);
    ready();
    wait_ready();
    REFUSED(change(a->given, 0, 1, 0), EACCES);
    REFUSED(value(a->given, 0), EACCES);
    ready();
    wait_ready();
    OK(change(a->given, 0, 1, 0));
    CASE("");
    REFUSED(semget(closed_key, 1, 0600), EACCES);
    REFUSED(semget(closed_key, 1, 0600 | IPC_CREAT | IPC_EXCL), EEXIST);
    GIVES(semget(closed_key, 1, 0), a->named);
    // What a process makes after it changed its user is its own.
    own_rights();
    exit(0);
}

static void two_users(void) {
    STAGE("two users");
    struct arrays a;
    key_t closed_key = own_key(2), readable_key = own_key(3);
    a.closed = new_array(1);
    a.given = new_array(1);
    SYS(a.named = semget(closed_key, 1, 0600 | IPC_CREAT | IPC_EXCL));
    SYS(a.readable = semget(readable_key, 1, 0644 | IPC_CREAT | IPC_EXCL));
    a.open = semget(IPC_PRIVATE, 1, 0666);
    SYS(a.open);
    int to[2], from[2];
    SYS(pipe(to));
    SYS(pipe(from));
    pid_t child = fork_limited(60);
    if (child == 0) {
        close(to[1]);
        close(from[0]);
        stage_in = to[0];
        stage_out = from[1];
        in_child(&a, closed_key, readable_key);
    }
    close(to[0]);
    close(from[1]);
    stage_in = from[0];
    stage_out = to[1];
    struct semid_ds about;
    wait_ready();
    OK(semctl(a.given, 0, IPC_STAT, &about));
    about.sem_perm.uid = NOBODY;
    OK(semctl(a.given, 0, IPC_SET, &about));
    ready();
    wait_ready();
    about.sem_perm.mode = 0;
    OK(semctl(a.given, 0, IPC_SET, &about));
    ready();
    wait_ready();
    // Root may all.
    GIVES(value(a.given, 0), 3);
    about.sem_perm.mode = 0600;
    OK(semctl(a.given, 0, IPC_SET, &about));
    ready();
    await_child(child);
    GIVES(value(a.given, 0), 3);
    GIVES(value(a.open, 0), 0);
    OK(semctl(a.given, 0, IPC_STAT, &about));
    CHECK(about.sem_perm.uid == NOBODY && about.sem_perm.cuid == 0, "owner %d", about.sem_perm.uid);
    remove_array(a.closed);
    remove_array(a.named);
    remove_array(a.readable);
    remove_array(a.open);

    // It was made the other user's: it is his to remove.
    IN_CHILD(60) {
        become_nobody();
        remove_array(a.given);
    }
    REFUSED(value(a.given, 0), EINVAL);
}

// Another user's program, from its start.
static void started_by_another(void) {
    STAGE("another user's program");
    pid_t child = fork_limited(60);
    if (child == 0) {
        become_nobody();
        // Without the library it would be the control once more, with a complaint of the dynamic linker's.
        const char *library = getenv("LD_PRELOAD");
        if (library != NULL && access(library, R_OK | X_OK) != 0) _exit(0);
        unsetenv("POUNDLOCK_IPC_DIR");
        char *arguments[] = {"sem_users", "alone", NULL};
        execv("/proc/self/exe", arguments);
        FAIL("exec: %s", strerror(errno));
    }
    await_child(child);
}

int main(int argc, char **argv) {
    limit_seconds(60);
    if (argc > 1 || geteuid() != 0) {
        own_rights();
        return 0;
    }
    // Root of a user namespace may not.
    if (setgroups(0, NULL) == -1) {
        dprintf(2, "this root may not become another user: %s\n", strerror(errno));
        return 77;
    }
    two_users();
    started_by_another();
    return 0;
}
