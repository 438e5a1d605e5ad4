/*
 * order-c11-ok: two of C11's mutexes are taken in one order.
 *
 * cc -g -pthread order-c11-ok.c -o order-c11-ok && poundlock check -- ./order-c11-ok
 */
#include <threads.h>

static mtx_t a, b;

static int one(void *unused)
{
	(void)unused;
	mtx_lock(&a);
	mtx_lock(&b);
	mtx_unlock(&b);
	mtx_unlock(&a);
	return 0;
}

static int other(void *unused)
{
	(void)unused;
	mtx_lock(&a);
	mtx_lock(&b);
	mtx_unlock(&b);
	mtx_unlock(&a);
	return 0;
}

static void in_a_thread(int (*body)(void *))
{
	thrd_t thread;
	thrd_create(&thread, body, NULL);
	thrd_join(thread, NULL);
}

int main(void)
{
	mtx_init(&a, mtx_plain);
	mtx_init(&b, mtx_plain);
	in_a_thread(one);
	in_a_thread(other);
}
