// Wrong on purpose: a lock that leaves its trace in errno.
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>

int pthread_mutex_lock(pthread_mutex_t *m) {
    int (*lock)(pthread_mutex_t *) = (int (*)(pthread_mutex_t *))dlsym(RTLD_NEXT, "pthread_mutex_lock");
    int result = lock(m);
    errno = EAGAIN;
    return result;
}
