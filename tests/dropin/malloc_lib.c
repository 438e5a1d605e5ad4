// An allocator that takes pthread mutexes inside malloc and free, as real ones do: one for the whole heap, or
// one for each size in turn, of every type that makes sense; compiled with -DSPIN, spinlocks. It never gives
// memory back to the system and reuses what it gets.
#include <errno.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { CLASSES = 28, SMALLEST = 32 };

struct header {
    struct header *next;
    size_t class;
};

#ifdef SPIN

// They have no initialiser: they are made by the first call, which comes before there is a second thread.
typedef pthread_spinlock_t lock_t;
static lock_t heap_lock, class_lock[CLASSES];
static void make(lock_t *lock) { pthread_spin_init(lock, PTHREAD_PROCESS_PRIVATE); }
static void make_all(void) {
    static int made;
    if (made) return;
    made = 1;
    make(&heap_lock);
    for (int i = 0; i < CLASSES; i++) make(&class_lock[i]);
}
#define LOCK pthread_spin_lock
#define UNLOCK pthread_spin_unlock

#else

typedef pthread_mutex_t lock_t;
static pthread_mutex_t heap_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t class_lock[CLASSES] = {
    [3] = PTHREAD_ADAPTIVE_MUTEX_INITIALIZER_NP,
    [4] = PTHREAD_ERRORCHECK_MUTEX_INITIALIZER_NP,
    [5] = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP,
};
static void make(lock_t *lock) { pthread_mutex_init(lock, NULL); }
static void make_all(void) {}
#define LOCK pthread_mutex_lock
#define UNLOCK pthread_mutex_unlock

#endif

static struct header *free_lists[CLASSES];
static char *chunk, *chunk_end;
unsigned long malloc_lib_calls;

static void give_up(const char *text) {
    if (write(2, text, strlen(text)) < 0) _exit(97);
    _exit(96);
}

static void take(lock_t *m) {
    int saved = errno;
    if (LOCK(m) != 0) give_up("malloc_lib: a lock failed inside malloc\n");
    if (errno != saved) give_up("malloc_lib: a lock changed errno\n");
}

static void release(lock_t *m) {
    int saved = errno;
    if (UNLOCK(m) != 0) give_up("malloc_lib: an unlock failed inside malloc\n");
    if (errno != saved) give_up("malloc_lib: an unlock changed errno\n");
}

static struct header *carve(size_t class) {
    size_t size = (size_t)SMALLEST << class;
    take(&heap_lock);
    if (chunk == NULL || (size_t)(chunk_end - chunk) < size) {
        size_t length = size > (4u << 20) ? size : (4u << 20);
        chunk = (char *)mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (chunk == MAP_FAILED) give_up("malloc_lib: mmap failed\n");
        chunk_end = chunk + length;
    }
    struct header *header = (struct header *)(void *)chunk;
    chunk += size;
    release(&heap_lock);
    header->class = class;
    return header;
}

void *malloc(size_t wanted) {
    size_t class = 0;
    while (class < CLASSES && ((size_t)SMALLEST << class) < wanted + sizeof(struct header)) class++;
    if (class == CLASSES) {
        errno = ENOMEM;
        return NULL;
    }
    make_all();
    take(&class_lock[class]);
    struct header *header = free_lists[class];
    if (header != NULL) free_lists[class] = header->next;
    release(&class_lock[class]);
    if (header == NULL) header = carve(class);
    __atomic_fetch_add(&malloc_lib_calls, 1, __ATOMIC_RELAXED);
    return header + 1;
}

static struct header *header_of(void *p) {
    struct header *header = (struct header *)p - 1;
    // Aligned allocations point back to the block that they lie in.
    return header->class == SIZE_MAX ? header->next : header;
}

void free(void *p) {
    if (p == NULL) return;
    struct header *header = header_of(p);
    size_t class = header->class;
    take(&class_lock[class]);
    header->next = free_lists[class];
    free_lists[class] = header;
    release(&class_lock[class]);
}

void *calloc(size_t n, size_t size) {
    size_t total;
    if (__builtin_mul_overflow(n, size, &total)) {
        errno = ENOMEM;
        return NULL;
    }
    // Not memset after malloc in plain sight: the compiler makes that a call of calloc.
    char *volatile p = (char *)malloc(total);
    if (p != NULL) memset(p, 0, total);
    return p;
}

size_t malloc_usable_size(void *p) {
    if (p == NULL) return 0;
    struct header *header = header_of(p);
    return ((size_t)SMALLEST << header->class) - (size_t)((char *)p - (char *)header);
}

void *realloc(void *old, size_t size) {
    if (old == NULL) return malloc(size);
    size_t room = malloc_usable_size(old);
    if (size <= room) return old;
    void *p = malloc(size);
    if (p == NULL) return NULL;
    memcpy(p, old, room);
    free(old);
    return p;
}

void *memalign(size_t alignment, size_t size) {
    if (alignment <= sizeof(struct header)) return malloc(size);
    char *block = (char *)malloc(size + alignment + sizeof(struct header));
    if (block == NULL) return NULL;
    char *p = (char *)(((uintptr_t)block + sizeof(struct header) + alignment - 1) & ~(alignment - 1));
    struct header *mark = (struct header *)(void *)p - 1;
    mark->next = (struct header *)(void *)block - 1;
    mark->class = SIZE_MAX;
    return p;
}

void *aligned_alloc(size_t alignment, size_t size) { return memalign(alignment, size); }
int posix_memalign(void **p, size_t alignment, size_t size) {
    *p = memalign(alignment, size);
    return *p == NULL ? ENOMEM : 0;
}
void *valloc(size_t size) { return memalign(4096, size); }
void *pvalloc(size_t size) { return memalign(4096, (size + 4095) & ~(size_t)4095); }

// As allocators do, so that a forked child can allocate.
static void prepare(void) {
    for (int i = 0; i < CLASSES; i++) take(&class_lock[i]);
    take(&heap_lock);
}
static void parent(void) {
    release(&heap_lock);
    for (int i = CLASSES - 1; i >= 0; i--) release(&class_lock[i]);
}
static void child(void) {
    make(&heap_lock);
    for (int i = 0; i < CLASSES; i++) make(&class_lock[i]);
}
__attribute__((constructor)) static void constructor(void) { pthread_atfork(prepare, parent, child); }
