/*
 * free-held-realloc-ok: the lock is destroyed before its memory is moved, and made anew where it is then.
 *
 * cc -g -pthread free-held-realloc-ok.c -o free-held-realloc-ok && poundlock check -- ./free-held-realloc-ok
 */
#include <pthread.h>
#include <stdlib.h>

struct table {
	pthread_mutex_t lock;
	size_t rows;
	long row[];
};

static struct table *with_rows(struct table *table, size_t rows)
{
	table = realloc(table, sizeof *table + rows * sizeof(long));
	if (table == NULL)
		abort();
	table->rows = rows;
	return table;
}

int main(void)
{
	struct table *table = with_rows(NULL, 4);
	pthread_mutex_init(&table->lock, NULL);
	pthread_mutex_lock(&table->lock);
	pthread_mutex_unlock(&table->lock);
	pthread_mutex_destroy(&table->lock);
	table = with_rows(table, 1000000);
	pthread_mutex_init(&table->lock, NULL);
	pthread_mutex_destroy(&table->lock);
	free(table);
}
