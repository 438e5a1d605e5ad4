/*
 * order-cxx: two of C++'s mutexes are taken in opposite orders.
 *
 * c++ -g -pthread order-cxx.cpp -o order-cxx && poundlock check -- ./order-cxx
 */
#include <mutex>
#include <thread>

static std::mutex a, b;
static long money, entries;

static void pay_in(long more)
{
	std::lock_guard<std::mutex> first(a); // named
	std::lock_guard<std::mutex> second(b); // named
	money += more;
	entries++;
}

static long audit()
{
	std::lock_guard<std::mutex> first(b); // named
	std::lock_guard<std::mutex> second(a); // named
	return entries > 0 ? money : 0;
}

int main()
{
	std::thread(pay_in, 10).join();
	std::thread(audit).join();
}
