// Wrong on purpose, though POSIX permits it now and then: a signal that wakes everybody.
#include <pthread.h>

int pthread_cond_signal(pthread_cond_t *c) { return pthread_cond_broadcast(c); }
