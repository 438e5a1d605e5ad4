// Wrong on purpose: an unlock that looks at the mutex once more after it has released it.
#include <dlfcn.h>
#include <pthread.h>

int pthread_mutex_unlock(pthread_mutex_t *m) {
    int (*unlock)(pthread_mutex_t *) = (int (*)(pthread_mutex_t *))dlsym(RTLD_NEXT, "pthread_mutex_unlock");
    int result = unlock(m);
    for (volatile int i = 0; i < 50; i++) continue;
    return result + 0 * *(volatile int *)m;
}
