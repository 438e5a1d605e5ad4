// Two threads that take two locks in opposite orders, and a third that waits for one of them.
#include <atomic>
#include <mutex>
#include <pthread.h>
#include <thread>

std::mutex a, b;
static std::atomic<int> held;

static void meet() {
  held++;
  while (held < 2)
    std::this_thread::yield();
}

static void a_then_b() {
  std::lock_guard<std::mutex> first(a);
  meet();
  std::lock_guard<std::mutex> second(b); // worker-3 waits
}

static void b_then_a() {
  std::lock_guard<std::mutex> first(b);
  meet();
  std::lock_guard<std::mutex> second(a); // worker-5 waits
}

int main() {
  std::thread three([] {
    pthread_setname_np(pthread_self(), "worker-3");
    a_then_b();
  });
  std::thread five([] {
    pthread_setname_np(pthread_self(), "worker-5");
    b_then_a();
  });
  three.join();
  five.join();
}
