// Wrong on purpose: unlocks a mutex, or with the argument "spin" a spinlock, that was freed. A memory checker
// that does not object cannot vouch for the others.
#include "check.h"

static void spin(void) {
    pthread_spinlock_t *volatile s = (pthread_spinlock_t *)malloc(sizeof *s);
    CHECK(s != NULL, "malloc");
    OK(pthread_spin_init(s, PTHREAD_PROCESS_PRIVATE));
    OK(pthread_spin_lock(s));
    void *volatile gone = (void *)s;
    free(gone);
    pthread_spin_unlock((pthread_spinlock_t *)gone);
}

int main(int argc, char **argv) {
    if (argc > 1 && strcmp(argv[1], "spin") == 0) {
        spin();
        return 0;
    }
    pthread_mutex_t *volatile m = (pthread_mutex_t *)malloc(sizeof *m);
    CHECK(m != NULL, "malloc");
    OK(pthread_mutex_init(m, NULL));
    OK(pthread_mutex_lock(m));
    void *volatile gone = m;
    free(gone);
    pthread_mutex_unlock((pthread_mutex_t *)gone);
    return 0;
}
