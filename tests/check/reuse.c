/* Memory with locks in it that comes back: freed without pthread_mutex_destroy, as C++ does it, and zeroed or
 * initialised anew at the same address. Nothing here is wrong. */
#define _GNU_SOURCE
#include "check.h"

#include <errno.h>
#include <semaphore.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

struct object {
    char name[40];
    pthread_mutex_t lock;
    pthread_rwlock_t table;
    pthread_cond_t changed;
    sem_t count;
    pthread_barrier_t alone;
    char rest[24];
};

static void use(struct object *object) {
    CHECK(pthread_mutex_lock(&object->lock), 0);
    CHECK(pthread_rwlock_rdlock(&object->table), 0);
    CHECK(pthread_rwlock_unlock(&object->table), 0);
    CHECK(pthread_cond_broadcast(&object->changed), 0);
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    CHECK(pthread_cond_timedwait(&object->changed, &object->lock, &now), ETIMEDOUT);
    CHECK(pthread_mutex_unlock(&object->lock), 0);
    sem_init(&object->count, 0, 1);
    CHECK(sem_wait(&object->count), 0);
    CHECK(sem_timedwait(&object->count, &now), -1);
    pthread_barrier_init(&object->alone, NULL, 1);
    CHECK(pthread_barrier_wait(&object->alone), PTHREAD_BARRIER_SERIAL_THREAD);
}

static void *in_a_thread(void *object) {
    use(object);
    return NULL;
}

static void use_in_two_threads(struct object *object) {
    pthread_t thread;
    use(object);
    CHECK(pthread_create(&thread, NULL, in_a_thread, object), 0);
    CHECK(pthread_join(thread, NULL), 0);
}

/* The same addresses again, for the allocator gives out first what came back last. */
static void blocks(void) {
    for (int round = 0; round < 200; round++) {
        struct object *object = malloc(sizeof *object);
        memset(object, 0, sizeof *object);
        use(object);
        free(object);
        object = malloc(sizeof *object);
        pthread_mutex_init(&object->lock, NULL);
        pthread_rwlock_init(&object->table, NULL);
        pthread_cond_init(&object->changed, NULL);
        use_in_two_threads(object);
        if (round % 2) {
            pthread_mutex_destroy(&object->lock);
            pthread_rwlock_destroy(&object->table);
            pthread_cond_destroy(&object->changed);
        }
        free(object);
    }
}

/* A table of unlocked objects that grows: they are copied, and used where they are now. */
static void tables(void) {
    struct object *table = NULL;
    for (size_t count = 1; count < 400; count = count * 3 / 2 + 1) {
        size_t before = count == 1 ? 0 : (count - 1) * 2 / 3;
        table = realloc(table, count * sizeof *table);
        memset(table + before, 0, (count - before) * sizeof *table);
        for (size_t n = 0; n < count; n++)
            use(&table[n]);
    }
    table = realloc(table, sizeof *table);
    use(table);
    free(table);
    table = reallocarray(NULL, 8, sizeof *table);
    memset(table, 0, 8 * sizeof *table);
    use(table + 7);
    table = reallocarray(table, 2, sizeof *table);
    use(table + 1);
    free(table);
}

static void mappings(void) {
    size_t size = 1 << 20;
    struct object *place = NULL;
    for (int round = 0; round < 50; round++) {
        int flags = MAP_PRIVATE | MAP_ANONYMOUS | (place ? MAP_FIXED : 0);
        struct object *map = mmap(place, size, PROT_READ | PROT_WRITE, flags, -1, 0);
        use(map + 100);
        use(map);
        map = mremap(map, size, 2 * size, MREMAP_MAYMOVE);
        use(map + 100);
        CHECK(munmap(map, 2 * size), 0);
        place = map;
    }
}

/* Other locks are held meanwhile, here and by another thread, beside the memory and not in it. */
int main(void) {
    static pthread_mutex_t outer = PTHREAD_MUTEX_INITIALIZER;
    struct object *held = calloc(3, sizeof *held);
    pthread_mutex_lock(&outer);
    pthread_mutex_lock(&held[1].lock);
    blocks();
    tables();
    mappings();
    pthread_mutex_unlock(&held[1].lock);
    pthread_mutex_unlock(&outer);
    free(held);
    return failures();
}
