/*
 * A multi-threaded memcached client that believes nothing: every value that comes back is compared with what
 * was stored, and every result of `incr` must be one that no other thread was given.
 *
 *     memcached_client SOCKET THREADS ROUNDS
 *
 * Each thread has a connection of its own and, ROUNDS times, sends three pipelined batches: BATCH sets, BATCH
 * gets of the same keys, and BATCH increments spread over COUNTERS counters that all threads share. At the
 * end the counters must stand at exactly the number of increments, and the server's own statistics must agree
 * with ours. Exit status 0 and one line of totals on success; 1 and the first discrepancy otherwise.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { BATCH = 64, COUNTERS = 8, VALUE_MAX = 1500, REPLY_MAX = 256 };

struct connection {
	int fd;
	size_t start, end; /* unread bytes of `in` */
	char in[1 << 16];
};

static const char *socket_path;
static unsigned threads, rounds;
static pthread_mutex_t gate_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t gate_open = PTHREAD_COND_INITIALIZER;
static unsigned arrived;
/* seen[c * total + v - 1] is set once somebody was told that counter c had reached v. */
static unsigned char *seen;
static unsigned total; /* increments of one counter */

static void __attribute__((noreturn, format(printf, 1, 2))) fail(const char *format, ...)
{
	va_list args;
	va_start(args, format);
	fputs("memcached_client: ", stderr);
	vfprintf(stderr, format, args);
	fputc('\n', stderr);
	va_end(args);
	_exit(1);
}

static void open_connection(struct connection *c)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	if (strlen(socket_path) >= sizeof address.sun_path)
		fail("socket path too long: %s", socket_path);
	strcpy(address.sun_path, socket_path);
	c->start = c->end = 0;
	c->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (c->fd < 0 || connect(c->fd, (struct sockaddr *)&address, sizeof address) != 0)
		fail("connect %s: %m", socket_path);
}

static void send_all(struct connection *c, const char *data, size_t size)
{
	while (size > 0) {
		ssize_t n = send(c->fd, data, size, MSG_NOSIGNAL);
		if (n <= 0)
			fail("send: %m");
		data += n;
		size -= (size_t)n;
	}
}

static void fill(struct connection *c)
{
	if (c->start == c->end)
		c->start = c->end = 0;
	if (c->end == sizeof c->in) {
		memmove(c->in, c->in + c->start, c->end - c->start);
		c->end -= c->start;
		c->start = 0;
	}
	ssize_t n = recv(c->fd, c->in + c->end, sizeof c->in - c->end, 0);
	if (n < 0)
		fail("recv: %m");
	if (n == 0)
		fail("the server closed the connection");
	c->end += (size_t)n;
}

static void read_exactly(struct connection *c, char *to, size_t size)
{
	while (size > 0) {
		if (c->start == c->end)
			fill(c);
		size_t n = c->end - c->start < size ? c->end - c->start : size;
		memcpy(to, c->in + c->start, n);
		c->start += n;
		to += n;
		size -= n;
	}
}

/* One line of reply without its CR LF. */
static void read_line(struct connection *c, char line[REPLY_MAX])
{
	for (size_t n = 0; n < REPLY_MAX; n++) {
		read_exactly(c, line + n, 1);
		if (line[n] == '\n') {
			if (n == 0 || line[n - 1] != '\r')
				fail("a reply line without CR");
			line[n - 1] = 0;
			return;
		}
	}
	fail("a reply line of more than %d bytes", REPLY_MAX);
}

static void expect_line(struct connection *c, const char *expected, const char *after)
{
	char line[REPLY_MAX];
	read_line(c, line);
	if (strcmp(line, expected) != 0)
		fail("expected \"%s\" after %s, got \"%s\"", expected, after, line);
}

/* The value that thread `t` stores under its key `k` in round `r`: length and bytes follow from the three. */
static size_t make_value(char *to, unsigned t, unsigned k, unsigned r)
{
	uint64_t x = 0x9e3779b97f4a7c15u * ((((uint64_t)t << 40) | ((uint64_t)k << 20) | r) + 1);
	size_t size = 1 + (x >> 33) % VALUE_MAX;
	for (size_t i = 0; i < size; i++) {
		x ^= x << 13;
		x ^= x >> 7;
		x ^= x << 17;
		to[i] = (char)x;
	}
	return size;
}

static void set_batch(struct connection *c, unsigned t, unsigned r)
{
	static _Thread_local char out[BATCH * (VALUE_MAX + 64)];
	size_t n = 0;
	for (unsigned k = 0; k < BATCH; k++) {
		char value[VALUE_MAX];
		size_t size = make_value(value, t, k, r);
		n += (size_t)sprintf(out + n, "set t%u:k%u %u 0 %zu\r\n", t, k, r, size);
		memcpy(out + n, value, size);
		n += size;
		memcpy(out + n, "\r\n", 2);
		n += 2;
	}
	send_all(c, out, n);
	for (unsigned k = 0; k < BATCH; k++)
		expect_line(c, "STORED", "set");
}

static void get_batch(struct connection *c, unsigned t, unsigned r)
{
	char out[BATCH * 32];
	size_t n = 0;
	for (unsigned k = 0; k < BATCH; k++)
		n += (size_t)sprintf(out + n, "get t%u:k%u\r\n", t, k);
	send_all(c, out, n);
	for (unsigned k = 0; k < BATCH; k++) {
		char wanted[VALUE_MAX], got[VALUE_MAX + 2], header[REPLY_MAX];
		size_t size = make_value(wanted, t, k, r);
		snprintf(header, sizeof header, "VALUE t%u:k%u %u %zu", t, k, r, size);
		expect_line(c, header, "get");
		read_exactly(c, got, size + 2);
		if (memcmp(got, wanted, size) != 0 || memcmp(got + size, "\r\n", 2) != 0)
			fail("t%u:k%u came back with other bytes in round %u", t, k, r);
		expect_line(c, "END", "the value of get");
	}
}

static void incr_batch(struct connection *c, unsigned long last[COUNTERS])
{
	char out[BATCH * 32];
	size_t n = 0;
	for (unsigned k = 0; k < BATCH; k++)
		n += (size_t)sprintf(out + n, "incr counter%u 1\r\n", k % COUNTERS);
	send_all(c, out, n);
	for (unsigned k = 0; k < BATCH; k++) {
		char line[REPLY_MAX], *end;
		unsigned counter = k % COUNTERS;
		read_line(c, line);
		unsigned long value = strtoul(line, &end, 10);
		if (end == line || *end != 0 || value == 0 || value > total)
			fail("incr answered \"%s\" where 1 to %u is possible", line, total);
		if (value <= last[counter])
			fail("counter%u went from %lu to %lu", counter, last[counter], value);
		last[counter] = value;
		if (__atomic_exchange_n(&seen[counter * total + value - 1], 1, __ATOMIC_RELAXED))
			fail("two increments of counter%u were both told %lu: one was lost", counter, value);
	}
}

static void *work(void *argument)
{
	unsigned t = (unsigned)(uintptr_t)argument;
	unsigned long last[COUNTERS] = { 0 };
	struct connection *c = malloc(sizeof *c);
	if (!c)
		fail("out of memory");
	open_connection(c);

	/* All threads start together, when all are connected. */
	pthread_mutex_lock(&gate_lock);
	if (++arrived == threads)
		pthread_cond_broadcast(&gate_open);
	while (arrived < threads)
		pthread_cond_wait(&gate_open, &gate_lock);
	pthread_mutex_unlock(&gate_lock);

	for (unsigned r = 0; r < rounds; r++) {
		set_batch(c, t, r);
		get_batch(c, t, r);
		incr_batch(c, last);
	}
	close(c->fd);
	free(c);
	return NULL;
}

static void check_counters(struct connection *c)
{
	for (unsigned i = 0; i < COUNTERS; i++) {
		char command[REPLY_MAX], line[REPLY_MAX];
		unsigned value_size;
		int n = sprintf(command, "get counter%u\r\n", i);
		send_all(c, command, (size_t)n);
		read_line(c, line);
		/* memcached may leave spaces after a number that grew in place. */
		if (sscanf(line, "VALUE counter%*u 0 %u", &value_size) != 1 || value_size >= REPLY_MAX - 2)
			fail("get counter%u answered \"%s\"", i, line);
		read_line(c, line);
		if (strtoul(line, NULL, 10) != total)
			fail("counter%u stands at %s after %u increments", i, line, total);
		expect_line(c, "END", "a counter");
	}
}

/* The server's own count of our commands: it keeps one count a worker thread, each under that worker's
   mutex. */
static void check_statistics(struct connection *c)
{
	unsigned long commands = (unsigned long)threads * rounds * BATCH;
	unsigned long sets = 0, hits = 0, misses = ~0ul, increments = 0;
	send_all(c, "stats\r\n", 7);
	for (;;) {
		char line[REPLY_MAX];
		read_line(c, line);
		if (strcmp(line, "END") == 0)
			break;
		sscanf(line, "STAT cmd_set %lu", &sets);
		sscanf(line, "STAT get_hits %lu", &hits);
		sscanf(line, "STAT get_misses %lu", &misses);
		sscanf(line, "STAT incr_hits %lu", &increments);
	}
	/* The counters were each set once and read back once. */
	if (sets != commands + COUNTERS || hits != commands + COUNTERS || misses != 0 || increments != commands)
		fail("the server counted %lu sets, %lu hits, %lu misses, %lu increments; sent were %lu of each, and %d counters",
		     sets, hits, misses, increments, commands, COUNTERS);
}

int main(int argc, char **argv)
{
	if (argc != 4 || (threads = (unsigned)atoi(argv[2])) == 0 || (rounds = (unsigned)atoi(argv[3])) == 0)
		fail("usage: memcached_client SOCKET THREADS ROUNDS");
	socket_path = argv[1];
	total = threads * rounds * (BATCH / COUNTERS);
	seen = calloc((size_t)COUNTERS, total);
	pthread_t *ids = calloc(threads, sizeof *ids);
	struct connection *c = malloc(sizeof *c);
	if (!seen || !ids || !c)
		fail("out of memory");

	open_connection(c);
	for (unsigned i = 0; i < COUNTERS; i++) {
		char command[REPLY_MAX];
		int n = sprintf(command, "set counter%u 0 0 1\r\n0\r\n", i);
		send_all(c, command, (size_t)n);
		expect_line(c, "STORED", "set of a counter");
	}
	for (unsigned t = 0; t < threads; t++)
		if (pthread_create(&ids[t], NULL, work, (void *)(uintptr_t)t) != 0)
			fail("pthread_create failed");
	for (unsigned t = 0; t < threads; t++)
		pthread_join(ids[t], NULL);
	check_counters(c);
	check_statistics(c);
	close(c->fd);
	printf("%u threads: %lu sets, gets and incrs each, all verified\n", threads,
	       (unsigned long)threads * rounds * BATCH);
	return 0;
}
