/*
 * order-cxx-ok: std::scoped_lock takes both, in any order, without waiting for one while it has the other.
 *
 * c++ -g -pthread order-cxx-ok.cpp -o order-cxx-ok && poundlock check -- ./order-cxx-ok
 */
#include <mutex>
#include <thread>

static std::mutex a, b;
static long money, entries;

static void pay_in(long more)
{
	std::scoped_lock both(a, b);
	money += more;
	entries++;
}

static long audit()
{
	std::scoped_lock both(b, a);
	return entries > 0 ? money : 0;
}

int main()
{
	std::thread(pay_in, 10).join();
	std::thread(audit).join();
}
