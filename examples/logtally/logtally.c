/*
 * logtally: tally a web server's access log with several threads.
 *
 *     logtally [THREADS [LINES]]
 *
 * The main thread writes a log of LINES lines into memory (always the same one) and hands it out, a few
 * hundred lines at a time, through a bounded queue. THREADS workers take the lines apart and enter each into
 *
 *   - the report: hits by path, bytes and statuses, how long requests took, and the last ones as text. One
 *     lock for all of it.
 *   - the sessions: what each client did, in 16 parts with a lock each.
 *
 * The tally on standard output does not depend on how the threads were scheduled; the time on standard error
 * does.
 *
 * An ordinary pthread program. It knows nothing of Poundlock.
 */
#define _POSIX_C_SOURCE 200809L

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
	PATHS = 256,		/* distinct paths in the log */
	CLIENTS = 4096,		/* distinct clients in the log */
	LINE = 96,		/* longest line, with its end */
	BATCH = 256,		/* lines handed out at a time */
	QUEUE = 16,		/* batches waiting */
	RECENT = 64,		/* requests kept as text */
	STEP = 50,		/* microseconds: request times are counted in steps of so many */
	STEPS = 2048,		/* so many of them */
	BUCKETS = 1024,		/* of the report's hash table: a power of two */
	PARTS = 16,		/* of the sessions */
};

static void *must(void *p)
{
	if (p == NULL) {
		perror("logtally");
		exit(1);
	}
	return p;
}

/* One line of the log, taken apart. */
struct request {
	unsigned client;
	char path[48];
	unsigned status;
	unsigned bytes;
	unsigned micros;
};

/* ---- the report ---- */

struct path_hits {
	char path[48];
	uint64_t hits;
	uint64_t bytes;
	unsigned slowest;
};

static struct {
	pthread_mutex_t lock;
	struct path_hits table[BUCKETS];
	uint64_t requests;
	uint64_t bytes;
	uint64_t by_status[6];
	unsigned by_time[STEPS];
	unsigned median, slow;	/* microseconds in which half, and 99 of 100 requests were answered */
	char recent[RECENT][LINE];
} report = { .lock = PTHREAD_MUTEX_INITIALIZER };

static struct path_hits *report_find(const char *path)
{
	unsigned hash = 2166136261u;
	for (const char *c = path; *c != '\0'; c++)
		hash = (hash ^ (unsigned char)*c) * 16777619u;
	for (unsigned i = hash % BUCKETS;; i = (i + 1) % BUCKETS) {
		struct path_hits *entry = &report.table[i];
		if (entry->path[0] == '\0')
			strcpy(entry->path, path);
		if (strcmp(entry->path, path) == 0)
			return entry;
	}
}

/* The time within which `part` of the requests were answered. */
static unsigned report_within(uint64_t part)
{
	uint64_t requests = 0;
	unsigned step = 0;
	while (step < STEPS - 1 && (requests += report.by_time[step]) < part)
		step++;
	return (step + 1) * STEP;
}

static void report_add(const struct request *r)
{
	pthread_mutex_lock(&report.lock);
	struct path_hits *entry = report_find(r->path);
	entry->hits++;
	entry->bytes += r->bytes;
	if (entry->slowest < r->micros)
		entry->slowest = r->micros;
	report.bytes += r->bytes;
	report.by_status[r->status / 100]++;
	report.by_time[r->micros / STEP < STEPS ? r->micros / STEP : STEPS - 1]++;
	report.requests++;
	/* Adding up and formatting while everybody waits: what a look at the locks is meant to find. */
	report.median = report_within((report.requests + 1) / 2);
	report.slow = report_within(report.requests - report.requests / 100);
	snprintf(report.recent[report.requests % RECENT], LINE, "%u %s %u %u bytes in %u us (%u, %u)", r->client,
		 r->path, r->status, r->bytes, r->micros, report.median, report.slow);
	pthread_mutex_unlock(&report.lock);
}

/* ---- the sessions ---- */

struct session {
	unsigned requests;
	unsigned errors;
	uint64_t bytes;
};

struct sessions {
	pthread_mutex_t lock;
	struct session client[CLIENTS / PARTS];
};

static struct sessions *sessions[PARTS];

static void sessions_create(void)
{
	for (int i = 0; i < PARTS; i++) {
		sessions[i] = must(calloc(1, sizeof *sessions[i]));
		pthread_mutex_init(&sessions[i]->lock, NULL);
	}
}

static void sessions_add(const struct request *r)
{
	struct sessions *part = sessions[r->client % PARTS];
	pthread_mutex_lock(&part->lock);
	struct session *session = &part->client[r->client / PARTS];
	session->requests++;
	session->errors += r->status >= 400;
	session->bytes += r->bytes;
	pthread_mutex_unlock(&part->lock);
}

/* ---- the queue ---- */

struct batch {
	const char *text;
	int lines;
};

static pthread_mutex_t queue_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t queue_filled = PTHREAD_COND_INITIALIZER;
static pthread_cond_t queue_emptied = PTHREAD_COND_INITIALIZER;
static struct batch queue[QUEUE];
static unsigned queue_put_at, queue_taken_at;
static int queue_closed;

static void queue_put(struct batch batch)
{
	pthread_mutex_lock(&queue_lock);
	while (queue_put_at - queue_taken_at == QUEUE)
		pthread_cond_wait(&queue_emptied, &queue_lock);
	queue[queue_put_at++ % QUEUE] = batch;
	pthread_cond_signal(&queue_filled);
	pthread_mutex_unlock(&queue_lock);
}

static void queue_close(void)
{
	pthread_mutex_lock(&queue_lock);
	queue_closed = 1;
	pthread_cond_broadcast(&queue_filled);
	pthread_mutex_unlock(&queue_lock);
}

static int queue_take(struct batch *batch)
{
	pthread_mutex_lock(&queue_lock);
	while (queue_put_at == queue_taken_at && !queue_closed)
		pthread_cond_wait(&queue_filled, &queue_lock);
	int there_is_one = queue_put_at != queue_taken_at;
	if (there_is_one) {
		*batch = queue[queue_taken_at++ % QUEUE];
		pthread_cond_signal(&queue_emptied);
	}
	pthread_mutex_unlock(&queue_lock);
	return there_is_one;
}

/* ---- the workers ---- */

static int parse(const char *line, struct request *r)
{
	unsigned high, low;
	if (sscanf(line, "10.0.%u.%u GET %47s %u %u %u", &high, &low, r->path, &r->status, &r->bytes,
	           &r->micros) != 6)
		return 0;
	r->client = (high << 8 | low) % CLIENTS;
	return r->status >= 100 && r->status < 600;
}

static void *worker(void *unused)
{
	struct batch batch;
	struct request request;
	while (queue_take(&batch)) {
		const char *line = batch.text;
		for (int i = 0; i < batch.lines; i++, line += LINE) {
			if (!parse(line, &request)) {
				fprintf(stderr, "logtally: no log line: %s\n", line);
				exit(1);
			}
			sessions_add(&request);
			report_add(&request);
		}
	}
	return unused;
}

/* ---- the log ---- */

static uint32_t next_random(uint64_t *state)
{
	*state = *state * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(*state >> 33);
}

static char *write_log(int lines)
{
	static const char *const kinds[] = { "img", "api", "css", "doc" };
	static const unsigned statuses[] = { 200, 200, 200, 200, 200, 304, 404, 500 };
	char *log = must(malloc((size_t)lines * LINE));
	uint64_t random = 1;
	for (int i = 0; i < lines; i++) {
		unsigned client = next_random(&random) % CLIENTS;
		/* The smaller of two: some paths are asked for more often than others. */
		unsigned a = next_random(&random) % PATHS, b = next_random(&random) % PATHS, path = a < b ? a : b;
		unsigned status = statuses[next_random(&random) % 8];
		unsigned bytes = 200 + next_random(&random) % 60000;
		unsigned micros = 100 + next_random(&random) % 90000;
		snprintf(log + (size_t)i * LINE, LINE, "10.0.%u.%u GET /%s/page-%03u.html %u %u %u", client >> 8,
			 client & 255, kinds[path % 4], path, status, bytes, micros);
	}
	return log;
}

/* ---- the tally ---- */

static int by_hits(const void *left, const void *right)
{
	const struct path_hits *a = left, *b = right;
	if (a->hits != b->hits)
		return a->hits < b->hits ? 1 : -1;
	return strcmp(a->path, b->path);
}

static void print_tally(void)
{
	uint64_t requests = 0, errors = 0;
	unsigned clients = 0, busiest = 0;
	for (int i = 0; i < CLIENTS; i++) {
		const struct session *session = &sessions[i % PARTS]->client[i / PARTS];
		requests += session->requests;
		errors += session->errors;
		clients += session->requests != 0;
		if (busiest < session->requests)
			busiest = session->requests;
	}
	printf("%" PRIu64 " requests, %" PRIu64 " bytes\n", report.requests, report.bytes);
	printf("%" PRIu64 " by %u clients, at most %u by one; %" PRIu64 " errors\n", requests, clients,
	       busiest, errors);
	for (int i = 1; i < 6; i++)
		printf("%dxx %" PRIu64 "\n", i, report.by_status[i]);
	printf("half within %u us, 99 of 100 within %u us\n", report.median, report.slow);
	qsort(report.table, BUCKETS, sizeof report.table[0], by_hits);
	for (int i = 0; i < 5; i++) {
		const struct path_hits *entry = &report.table[i];
		printf("%s %" PRIu64 " hits, %" PRIu64 " bytes, slowest %u.%03u ms\n", entry->path, entry->hits,
		       entry->bytes, entry->slowest / 1000, entry->slowest % 1000);
	}
}

static double seconds(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

int main(int argc, char **argv)
{
	int threads = argc > 1 ? atoi(argv[1]) : 8;
	int lines = argc > 2 ? atoi(argv[2]) : 400000;
	if (argc > 3 || threads < 1 || threads > 1000 || lines < 1) {
		fprintf(stderr, "usage: logtally [THREADS [LINES]]\n");
		return 2;
	}
	char *log = write_log(lines);
	sessions_create();
	pthread_t *thread = must(calloc((size_t)threads, sizeof *thread));

	double start = seconds();
	for (int i = 0; i < threads; i++) {
		if (pthread_create(&thread[i], NULL, worker, NULL) != 0) {
			fprintf(stderr, "logtally: cannot start thread %d\n", i);
			return 1;
		}
	}
	for (int i = 0; i < lines; i += BATCH)
		queue_put((struct batch){ log + (size_t)i * LINE, lines - i < BATCH ? lines - i : BATCH });
	queue_close();
	for (int i = 0; i < threads; i++)
		pthread_join(thread[i], NULL);
	double took = seconds() - start;

	print_tally();
	fprintf(stderr, "logtally: %d lines by %d threads in %.3f s\n", lines, threads, took);
	free(thread);
	free(log);
	return 0;
}
