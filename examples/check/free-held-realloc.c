/*
 * free-held-realloc: memory is moved with a locked lock in it. What waits for the lock waits where it was.
 *
 * cc -g -pthread free-held-realloc.c -o free-held-realloc && poundlock check -- ./free-held-realloc
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
	table = realloc(table, sizeof *table + rows * sizeof(long)); // named
	if (table == NULL)
		abort();
	table->rows = rows;
	return table;
}

int main(void)
{
	struct table *table = with_rows(NULL, 4);
	pthread_mutex_init(&table->lock, NULL);
	pthread_mutex_lock(&table->lock); // named
	table = with_rows(table, 1000000);
	pthread_mutex_unlock(&table->lock);
	free(table);
}
