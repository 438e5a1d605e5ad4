// The result of every semaphore call in one thread: every error number that needs no second process, in the
// kernel's order of precedence where two apply, and every command of semctl.
#include "semarray.h"

// Nobody's array, whatever exists: negative ones are refused by number, this one by search.
static int nobodys_array(void) {
    int id = new_array(1);
    remove_array(id);
    return id;
}

// A page that nothing may read or write.
static void *nothing(void) {
    void *page = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(page != MAP_FAILED, "mmap: %s", strerror(errno));
    return page;
}

static void get(void) {
    STAGE("semget");
    REFUSED(semget(IPC_PRIVATE, 0, 0600), EINVAL);
    REFUSED(semget(IPC_PRIVATE, -1, 0600), EINVAL);
    REFUSED(semget(IPC_PRIVATE, MOST_SEMAPHORES + 1, 0600), EINVAL);
    REFUSED(semget(IPC_PRIVATE, INT_MAX, 0600), EINVAL);
    REFUSED(semget(IPC_PRIVATE, INT_MIN, 0600), EINVAL);

    key_t key = own_key(0);
    REFUSED(semget(key, 3, 0600), ENOENT);
    REFUSED(semget(key, 0, 0), ENOENT);
    REFUSED(semget(key, 3, 0600 | IPC_EXCL), ENOENT);
    REFUSED(semget(key, 0, 0600 | IPC_CREAT), EINVAL);
    REFUSED(semget(key, -1, 0600), EINVAL);
    REFUSED(semget(key, MOST_SEMAPHORES + 1, 0600 | IPC_CREAT), EINVAL);

    errno = ERRNO_SENTINEL;
    int id = semget(key, 3, 0600 | IPC_CREAT | IPC_EXCL);
    CHECK(id >= 0, "semget: %s", strerror(errno));
    CHECK(errno == ERRNO_SENTINEL, "semget changed errno to %s", strerror(errno));
    GIVES(semget(key, 3, 0600 | IPC_CREAT), id);
    GIVES(semget(key, 3, 0600), id);
    GIVES(semget(key, 2, 0600), id);
    GIVES(semget(key, 0, 0600), id);
    GIVES(semget(key, 0, 0), id);
    GIVES(semget(key, 1, 0600 | IPC_EXCL), id);
    REFUSED(semget(key, 4, 0600), EINVAL);
    REFUSED(semget(key, 4, 0600 | IPC_CREAT), EINVAL);
    REFUSED(semget(key, 3, 0600 | IPC_CREAT | IPC_EXCL), EEXIST);
    REFUSED(semget(key, 4, 0600 | IPC_CREAT | IPC_EXCL), EEXIST);
    REFUSED(semget(key, -1, 0600 | IPC_CREAT | IPC_EXCL), EINVAL);

    // Of two arrays, and of a second one under the same key, neither is the other.
    int other = semget(own_key(1), 1, 0600 | IPC_CREAT);
    CHECK(other >= 0 && other != id, "semget: %d", other);
    remove_array(id);
    REFUSED(semget(key, 3, 0600), ENOENT);
    int again = semget(key, 1, 0600 | IPC_CREAT | IPC_EXCL);
    CHECK(again >= 0 && again != id && again != other, "semget: %d", again);
    REFUSED(value(id, 0), EINVAL);
    remove_array(again);
    remove_array(other);

    STAGE("IPC_PRIVATE");
    int one = semget(IPC_PRIVATE, 1, 0600 | IPC_CREAT | IPC_EXCL),
        two = semget(IPC_PRIVATE, 1, 0600 | IPC_CREAT);
    CHECK(one >= 0 && two >= 0 && one != two, "semget: %d %d", one, two);
    GIVES(value(one, 0), 0);
    OK(change(one, 0, 1, 0));
    GIVES(value(two, 0), 0);
    remove_array(one);
    GIVES(value(two, 0), 0);
    remove_array(two);
}

static void operate(void) {
    STAGE("semop");
    int id = new_array(3), gone = nobodys_array();
    void *bad = nothing();
    struct sembuf ops[MOST_OPERATIONS + 1];
    for (int i = 0; i <= MOST_OPERATIONS; i++) ops[i] = op(0, 1, 0);
    struct timespec past = {0, 0}, wrong;

    CASE("how many");
    REFUSED(semop(id, ops, 0), EINVAL);
    REFUSED(semop(id, bad, 0), EINVAL);
    REFUSED(semop(id, ops, MOST_OPERATIONS + 1), E2BIG);
    REFUSED(semop(id, bad, MOST_OPERATIONS + 1), E2BIG);
    REFUSED(semop(gone, ops, MOST_OPERATIONS + 1), E2BIG);
    REFUSED(semop(id, ops, (size_t)-1), E2BIG);
    GIVES(value(id, 0), 0);
    OK(semop(id, ops, MOST_OPERATIONS));
    GIVES(value(id, 0), MOST_OPERATIONS);
    set(id, 0, 0);

    CASE("what");
    REFUSED(semop(id, NULL, 1), EFAULT);
    REFUSED(semop(id, bad, 1), EFAULT);
    REFUSED(semop(gone, bad, 1), EFAULT);
    // The last operations lie where nothing may be read.
    char *two = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(two != MAP_FAILED, "mmap: %s", strerror(errno));
    SYS(mprotect(two + 4096, 4096, PROT_NONE));
    struct sembuf *edge = (struct sembuf *)(two + 4096) - 2;
    edge[0] = edge[1] = op(0, 1, 0);
    OK(semop(id, edge, 2));
    REFUSED(semop(id, edge, 3), EFAULT);
    GIVES(value(id, 0), 2);
    set(id, 0, 0);

    CASE("which");
    REFUSED(semop(gone, ops, 1), EINVAL);
    REFUSED(semop(-1, ops, 1), EINVAL);
    REFUSED(semop(INT_MIN, ops, 1), EINVAL);
    REFUSED(semop(INT_MAX, ops, 1), EINVAL);
    REFUSED(change(id, 3, 1, 0), EFBIG);
    REFUSED(change(id, 65535, 1, 0), EFBIG);
    REFUSED(change(id, 3, 0, IPC_NOWAIT), EFBIG);
    REFUSED(change(gone, 3, 1, 0), EINVAL);
    struct sembuf second[] = {op(0, 1, 0), op(3, 1, 0)};
    REFUSED(semop(id, second, 2), EFBIG);
    GIVES(value(id, 0), 0);

    CASE("not now");
    REFUSED(change(id, 0, -1, IPC_NOWAIT), EAGAIN);
    REFUSED(change(id, 0, -32768, IPC_NOWAIT), EAGAIN);
    OK(change(id, 0, 0, IPC_NOWAIT));
    OK(change(id, 0, 1, IPC_NOWAIT));
    REFUSED(change(id, 0, 0, IPC_NOWAIT), EAGAIN);
    REFUSED(change(id, 0, -2, IPC_NOWAIT), EAGAIN);
    OK(change(id, 0, -1, IPC_NOWAIT));
    // It is the flag of the operation that has to wait which counts.
    struct sembuf waits[] = {op(0, 1, IPC_NOWAIT), op(1, -1, 0)};
    struct timespec soon = ms(5);
    REFUSED(semtimedop(id, waits, 2, &soon), EAGAIN);
    struct sembuf refuses[] = {op(0, 1, 0), op(1, -1, IPC_NOWAIT)};
    REFUSED(semop(id, refuses, 2), EAGAIN);
    GIVES(value(id, 0), 0);

    CASE("too far");
    OK(change(id, 0, MOST_VALUE, 0));
    REFUSED(change(id, 0, 1, 0), ERANGE);
    REFUSED(change(id, 0, 1, IPC_NOWAIT), ERANGE);
    REFUSED(change(id, 0, MOST_VALUE, 0), ERANGE);
    struct sembuf beyond[] = {op(1, 1, 0), op(0, 1, 0)};
    REFUSED(semop(id, beyond, 2), ERANGE);
    GIVES(value(id, 1), 0);
    GIVES(value(id, 0), MOST_VALUE);
    // Beyond on the way is beyond, although the sum is not.
    struct sembuf there_and_back[] = {op(0, 1, 0), op(0, -1, 0)};
    REFUSED(semop(id, there_and_back, 2), ERANGE);
    struct sembuf back_and_there[] = {op(0, -1, 0), op(0, 1, 0)};
    OK(semop(id, back_and_there, 2));
    // What comes first decides: a wait that is refused before a value is exceeded, and the other way round.
    struct sembuf wait_first[] = {op(1, -1, IPC_NOWAIT), op(0, 1, 0)};
    REFUSED(semop(id, wait_first, 2), EAGAIN);
    struct sembuf range_first[] = {op(0, 1, 0), op(1, -1, IPC_NOWAIT)};
    REFUSED(semop(id, range_first, 2), ERANGE);
    OK(change(id, 0, -MOST_VALUE, 0));
    GIVES(value(id, 0), 0);

    CASE("too far to undo");
    OK(change(id, 0, MOST_VALUE, SEM_UNDO));
    GIVES(value(id, 0), MOST_VALUE);
    OK(change(id, 0, -MOST_VALUE, 0));
    OK(change(id, 0, 1, SEM_UNDO));
    REFUSED(change(id, 0, 1, SEM_UNDO), ERANGE);
    REFUSED(change(id, 0, 2, SEM_UNDO | IPC_NOWAIT), ERANGE);
    GIVES(value(id, 0), 1);
    OK(change(id, 0, 1, 0));
    set(id, 0, MOST_VALUE);
    // Setting a value forgets what was to be undone.
    OK(change(id, 0, -MOST_VALUE, SEM_UNDO));
    OK(change(id, 0, MOST_VALUE, 0));
    REFUSED(change(id, 0, -1, SEM_UNDO), ERANGE);
    GIVES(value(id, 0), MOST_VALUE);
    set(id, 0, 0);

    CASE("in time");
    OK(semtimedop(id, ops, 1, NULL));
    OK(semtimedop(id, ops, 1, &past));
    wrong = (struct timespec){0, 1000000000};
    REFUSED(semtimedop(id, ops, 1, &wrong), EINVAL);
    wrong = (struct timespec){0, -1};
    REFUSED(semtimedop(id, ops, 1, &wrong), EINVAL);
    wrong = (struct timespec){-1, 0};
    REFUSED(semtimedop(id, ops, 1, &wrong), EINVAL);
    REFUSED(semtimedop(id, bad, 1, &wrong), EFAULT);
    REFUSED(semtimedop(id, bad, 1, bad), EFAULT);
    REFUSED(semop(id, (void *)-5, 1), EFAULT);
    struct sembuf nowhere = op(9, 1, 0), not_now = op(1, -1, IPC_NOWAIT);
    wrong = (struct timespec){0, 1000000000};
    REFUSED(semtimedop(id, &nowhere, 1, &wrong), EINVAL);
    struct timespec end_of_time = {LONG_MAX, 999999999};
    REFUSED(semtimedop(id, &not_now, 1, &end_of_time), EAGAIN);
    OK(semtimedop(id, ops, 1, &end_of_time));
    OK(change(id, 0, -1, 0));
    REFUSED(semtimedop(id, ops, 1, bad), EFAULT);
    REFUSED(semtimedop(id, ops, MOST_OPERATIONS + 1, &wrong), E2BIG);
    REFUSED(semtimedop(gone, ops, 1, &past), EINVAL);
    GIVES(value(id, 0), 2);
    struct sembuf down = op(1, -1, 0), zero = op(0, 0, 0);
    REFUSED(semtimedop(id, &down, 1, &past), EAGAIN);
    REFUSED(semtimedop(id, &zero, 1, &past), EAGAIN);
    GIVES(semctl(id, 1, GETNCNT), 0);
    GIVES(semctl(id, 0, GETZCNT), 0);
    munmap(two, 8192);
    munmap(bad, 4096);
    CASE("");
    remove_array(id);
    REFUSED(semop(id, ops, 1), EINVAL);
}

static void control(void) {
    STAGE("semctl");
    int id = new_array(4), gone = nobodys_array();
    void *bad = nothing();
    unsigned short all[4] = {1, 2, 3, 4};
    static unsigned short many[MOST_SEMAPHORES];

    CASE("no such array or command");
    const int commands[] = {GETVAL, GETPID, GETNCNT, GETZCNT, IPC_RMID};
    for (unsigned i = 0; i < sizeof commands / sizeof *commands; i++) {
        REFUSED(semctl(gone, 0, commands[i]), EINVAL);
        REFUSED(semctl(-1, 0, commands[i]), EINVAL);
    }
    struct semid_ds about;
    REFUSED(semctl(gone, 0, IPC_STAT, &about), EINVAL);
    REFUSED(semctl(gone, 0, IPC_SET, &about), EINVAL);
    REFUSED(semctl(gone, 0, GETALL, many), EINVAL);
    REFUSED(semctl(gone, 0, SETALL, many), EINVAL);
    REFUSED(semctl(gone, 0, SETVAL, 1), EINVAL);
    REFUSED(semctl(-1, 0, SETALL, many), EINVAL);
    REFUSED(semctl(gone, 0, SETALL, bad), EINVAL);
    REFUSED(semctl(gone, 0, IPC_SET, bad), EFAULT);
    REFUSED(semctl(gone, 0, SETVAL, -1), ERANGE);
    REFUSED(semctl(id, 0, 9999), EINVAL);
    REFUSED(semctl(id, 0, -1), EINVAL);
    REFUSED(semctl(-1, 0, 9999), EINVAL);

    CASE("no such semaphore");
    for (unsigned i = 0; i < 4; i++) {
        REFUSED(semctl(id, 4, commands[i]), EINVAL);
        REFUSED(semctl(id, -1, commands[i]), EINVAL);
        REFUSED(semctl(id, INT_MAX, commands[i]), EINVAL);
    }
    REFUSED(semctl(id, 4, SETVAL, 0), EINVAL);
    REFUSED(semctl(id, -1, SETVAL, 0), EINVAL);
    REFUSED(semctl(id, 4, SETVAL, -1), ERANGE);

    CASE("SETVAL, GETVAL");
    union semun argument = {.val = 5};
    OK(semctl(id, 0, SETVAL, argument));
    GIVES(semctl(id, 0, GETVAL), 5);
    OK(semctl(id, 0, SETVAL, MOST_VALUE));
    GIVES(value(id, 0), MOST_VALUE);
    REFUSED(semctl(id, 0, SETVAL, MOST_VALUE + 1), ERANGE);
    REFUSED(semctl(id, 0, SETVAL, -1), ERANGE);
    REFUSED(semctl(id, 0, SETVAL, INT_MIN), ERANGE);
    GIVES(value(id, 0), MOST_VALUE);
    OK(semctl(id, 0, SETVAL, 0));
    GIVES(value(id, 0), 0);
    GIVES(value(id, 1), 0);

    CASE("SETALL, GETALL");
    // Their semaphore's number is of no account.
    OK(semctl(id, 17, SETALL, all));
    memset(many, 0xff, sizeof many);
    OK(semctl(id, -3, GETALL, many));
    for (int i = 0; i < 4; i++) CHECK(many[i] == i + 1, "semaphore %d is %d", i, many[i]);
    CHECK(many[4] == 0xffff, "GETALL wrote too far");
    for (int i = 0; i < 4; i++) GIVES(value(id, i), i + 1);
    all[3] = MOST_VALUE + 1;
    all[0] = 9;
    REFUSED(semctl(id, 0, SETALL, all), ERANGE);
    GIVES(value(id, 0), 1);
    REFUSED(semctl(id, 0, SETALL, bad), EFAULT);
    REFUSED(semctl(id, 0, GETALL, bad), EFAULT);
    REFUSED(semctl(id, 0, GETALL, NULL), EFAULT);
    GIVES(value(id, 3), 4);

    CASE("GETPID");
    for (int i = 0; i < 4; i++) GIVES(semctl(id, i, GETPID), (int)getpid());
    int fresh = new_array(3);
    GIVES(semctl(fresh, 0, GETPID), 0);
    OK(change(fresh, 0, 1, 0));
    GIVES(semctl(fresh, 0, GETPID), (int)getpid());
    OK(change(fresh, 1, 0, 0));
    GIVES(semctl(fresh, 1, GETPID), (int)getpid());
    REFUSED(change(fresh, 2, -1, IPC_NOWAIT), EAGAIN);
    GIVES(semctl(fresh, 2, GETPID), 0);
    set(fresh, 2, 0);
    GIVES(semctl(fresh, 2, GETPID), (int)getpid());
    GIVES(semctl(fresh, 2, GETNCNT), 0);
    GIVES(semctl(fresh, 2, GETZCNT), 0);
    remove_array(fresh);

    CASE("IPC_STAT");
    REFUSED(semctl(id, 0, IPC_STAT, bad), EFAULT);
    REFUSED(semctl(id, 0, IPC_STAT, NULL), EFAULT);
    time_t before = time(NULL);
    key_t key = own_key(2);
    int named = semget(key, 7, 0600 | IPC_CREAT | IPC_EXCL);
    SYS(named);
    memset(&about, 0xa5, sizeof about);
    OK(semctl(named, 99, IPC_STAT, &about));
    CHECK(about.sem_perm.__key == key, "key %x", about.sem_perm.__key);
    CHECK(about.sem_perm.uid == geteuid() && about.sem_perm.cuid == geteuid(), "owner %d",
          about.sem_perm.uid);
    CHECK(about.sem_perm.gid == getegid() && about.sem_perm.cgid == getegid(), "group %d",
          about.sem_perm.gid);
    CHECK(about.sem_perm.mode == 0600, "mode %o", about.sem_perm.mode);
    CHECK(about.sem_nsems == 7, "%lu semaphores", about.sem_nsems);
    CHECK(about.sem_otime == 0, "operated on at %ld, before any operation", (long)about.sem_otime);
    CHECK(about.sem_ctime >= before - 1 && about.sem_ctime <= time(NULL), "made at %ld",
          (long)about.sem_ctime);
    OK(change(named, 0, 0, 0));
    OK(semctl(named, 0, IPC_STAT, &about));
    CHECK(about.sem_otime >= before - 1 && about.sem_otime <= time(NULL), "operated at %ld",
          (long)about.sem_otime);

    CASE("IPC_SET");
    REFUSED(semctl(named, 0, IPC_SET, bad), EFAULT);
    REFUSED(semctl(named, 0, IPC_SET, NULL), EFAULT);
    struct semid_ds settings = about;
    // The rest is not for setting.
    settings.sem_perm.mode = 0107400;
    settings.sem_perm.__key = 1;
    settings.sem_perm.cuid = 77;
    settings.sem_nsems = 1;
    settings.sem_otime = settings.sem_ctime = 1;
    OK(semctl(named, 0, IPC_SET, &settings));
    OK(semctl(named, 0, IPC_STAT, &about));
    CHECK(about.sem_perm.mode == 0400, "mode %o", about.sem_perm.mode);
    CHECK(about.sem_perm.__key == key && about.sem_perm.cuid == geteuid() && about.sem_nsems == 7,
          "IPC_SET set more");
    CHECK(about.sem_otime >= before - 1 && about.sem_ctime >= before - 1, "IPC_SET set the times");
    settings.sem_perm.mode = 0600;
    OK(semctl(named, 0, IPC_SET, &settings));
    settings.sem_perm.uid = (uid_t)-1;
    REFUSED(semctl(named, 0, IPC_SET, &settings), EINVAL);
    settings.sem_perm.uid = geteuid();
    settings.sem_perm.gid = (gid_t)-1;
    REFUSED(semctl(named, 0, IPC_SET, &settings), EINVAL);

    CASE("IPC_INFO, SEM_INFO");
    struct seminfo info;
    memset(&info, 0, sizeof info);
    int highest = semctl(0, 0, IPC_INFO, &info);
    CHECK(highest >= 0, "IPC_INFO: %s", strerror(errno));
    CHECK(info.semmsl == MOST_SEMAPHORES && info.semopm == MOST_OPERATIONS && info.semvmx == MOST_VALUE,
          "limits: %d semaphores, %d operations, %d at most", info.semmsl, info.semopm, info.semvmx);
    CHECK(info.semmni >= 3 && info.semmns >= info.semmsl && info.semaem == MOST_VALUE,
          "limits: %d arrays, %d semaphores",
          info.semmni, info.semmns);
    memset(&info, 0, sizeof info);
    highest = semctl(0, 0, SEM_INFO, &info);
    CHECK(highest >= 0, "SEM_INFO: %s", strerror(errno));
    CHECK(info.semusz >= 2 && info.semaem >= 4 + 7, "in use: %d arrays of %d semaphores", info.semusz,
          info.semaem);
    REFUSED(semctl(0, 0, IPC_INFO, bad), EFAULT);
    REFUSED(semctl(0, 0, SEM_INFO, bad), EFAULT);

    CASE("SEM_STAT");
    for (int any = 0; any < 2; any++) {
        int command = any ? SEM_STAT_ANY : SEM_STAT, found = 0;
        for (int i = 0; i <= highest; i++) {
            memset(&about, 0, sizeof about);
            int which = semctl(i, 0, command, &about);
            CHECK(which >= 0 || errno == EINVAL || errno == EACCES || errno == EIDRM, "SEM_STAT of %d: %s", i,
                  strerror(errno));
            if (which == named) {
                found++;
                CHECK(about.sem_nsems == 7 && about.sem_perm.__key == key, "SEM_STAT says another array");
            }
            found += which == id ? 100 : 0;
        }
        CHECK(found == 101, "SEM_STAT of 0 to %d found our two arrays %d times", highest, found);
    }
    REFUSED(semctl(-1, 0, SEM_STAT, &about), EINVAL);
    // Of an id, that part counts that is an index.
    for (int any = 0; any < 2; any++) {
        memset(&about, 0, sizeof about);
        GIVES(semctl(named, 0, any ? SEM_STAT_ANY : SEM_STAT, &about), named);
        CHECK(about.sem_nsems == 7 && about.sem_perm.__key == key, "SEM_STAT of an id says another array");
    }

    CASE("IPC_RMID");
    remove_array(named);
    REFUSED(semctl(named, 0, IPC_RMID), EINVAL);
    REFUSED(value(named, 0), EINVAL);
    REFUSED(semctl(named, 0, IPC_STAT, &about), EINVAL);
    REFUSED(semget(key, 7, 0600), ENOENT);
    remove_array(id);
    munmap(bad, 4096);
}

// The largest array, and operations on both of its ends at once.
static void large(void) {
    STAGE("32000 semaphores");
    static unsigned short all[MOST_SEMAPHORES];
    int id = new_array(MOST_SEMAPHORES);
    struct sembuf ends[] = {op(0, 1, 0), op(MOST_SEMAPHORES - 1, 2, 0)};
    OK(semop(id, ends, 2));
    OK(semctl(id, 0, GETALL, all));
    for (int i = 0; i < MOST_SEMAPHORES; i++) {
        int want = i == 0 ? 1 : i == MOST_SEMAPHORES - 1 ? 2 : 0;
        CHECK(all[i] == want, "semaphore %d is %d", i, all[i]);
        all[i] = (unsigned short)(i % (MOST_VALUE + 1));
    }
    REFUSED(change(id, MOST_SEMAPHORES, 1, 0), EFBIG);
    OK(semctl(id, 0, SETALL, all));
    memset(all, 0, sizeof all);
    OK(semctl(id, 0, GETALL, all));
    for (int i = 0; i < MOST_SEMAPHORES; i++)
        CHECK(all[i] == i % (MOST_VALUE + 1), "semaphore %d is %d", i, all[i]);
    for (int i = 1; i < MOST_SEMAPHORES; i += 997) GIVES(value(id, i), i);

    // 500 of them at once, all or none; and with an adjustment each.
    struct sembuf ops[MOST_OPERATIONS];
    for (int i = 0; i < MOST_OPERATIONS; i++) ops[i] = op(1 + i * 61, -1, SEM_UNDO | IPC_NOWAIT);
    OK(semop(id, ops, MOST_OPERATIONS));
    for (int i = 0; i < MOST_OPERATIONS; i++) GIVES(value(id, 1 + i * 61), i * 61);
    // The first of them has nothing left.
    REFUSED(semop(id, ops, MOST_OPERATIONS), EAGAIN);
    for (int i = 0; i < MOST_OPERATIONS; i++) GIVES(value(id, 1 + i * 61), i * 61);
    for (int i = 0; i < MOST_OPERATIONS; i++) ops[i].sem_op = 1;
    OK(semop(id, ops, MOST_OPERATIONS));
    for (int i = 0; i < MOST_OPERATIONS; i++) GIVES(value(id, 1 + i * 61), 1 + i * 61);
    remove_array(id);
}

// Arrays that come and go: neither memory nor ids run out.
static void many_arrays(void) {
    STAGE("arrays that come and go");
    int before = -1;
    for (int i = 0; i < 3000; i++) {
        int id = new_array(1 + i % 50);
        CHECK(id != before, "an array has the id of the one before");
        OK(change(id, i % (1 + i % 50), 1, SEM_UNDO));
        remove_array(id);
        REFUSED(change(id, 0, 1, 0), EINVAL);
        before = id;
    }
    STAGE("many arrays at once");
    enum { AT_ONCE = 300 };
    int ids[AT_ONCE];
    for (int i = 0; i < AT_ONCE; i++) {
        ids[i] = new_array(2);
        set(ids[i], 1, i);
    }
    for (int i = 0; i < AT_ONCE; i++) GIVES(value(ids[i], 1), i);
    for (int i = 0; i < AT_ONCE; i++) remove_array(ids[i]);
}

int main(void) {
    limit_seconds(60);
    get();
    operate();
    control();
    large();
    many_arrays();
    return 0;
}
