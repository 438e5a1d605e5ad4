// Wrong on purpose: unlocks a mutex that was freed. A memory checker that does not object cannot vouch for the others.
#include "check.h"

int main(void) {
    pthread_mutex_t *volatile m = (pthread_mutex_t *)malloc(sizeof *m);
    CHECK(m != NULL, "malloc");
    OK(pthread_mutex_init(m, NULL));
    OK(pthread_mutex_lock(m));
    void *volatile gone = m;
    free(gone);
    pthread_mutex_unlock((pthread_mutex_t *)gone);
    return 0;
}
