/* Objects that threads share, with their locks among their members. A program is named for what is wrong
   with it; its twin, `_not`, makes the same calls and has nothing of the sort. Work is CPU time, in
   microseconds. */
#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <semaphore.h>
#include <shared_mutex>
#include <string>
#include <vector>
#include "work.h"

static std::string name;
/* Whether this is the twin. */
static bool fine;

/* Several of a class. */
class Account {
    std::mutex lock;
    long sum = 0;
public:
    void add(long amount, long microseconds)
    {
        std::lock_guard<std::mutex> guard(lock); /* too_long */
        sum += amount;
        compute(microseconds);
    }
};
static std::vector<std::unique_ptr<Account>> accounts;

static std::atomic<bool> over;

/* One thread sees to two accounts, one after the other, for long; another one pays in now and then: to one of
   them, or to a third. */
static void too_long(int thread)
{
    for (int turn = 0; thread == 0 && turn < 60; turn++) accounts[turn % 2]->add(1, 2000);
    if (thread == 0) over = true;
    for (int turn = 0; !over; turn++) {
        accounts[fine ? 2 : turn % 2]->add(1, 0);
        usleep(300);
    }
}

/* Jobs: how many are waiting is all that matters here. */
class Queue {
    std::mutex lock;
    long jobs = 0;
public:
    void push()
    {
        std::lock_guard<std::mutex> guard(lock); /* too_often */
        jobs++;
    }
    void pop(long microseconds)
    {
        std::lock_guard<std::mutex> guard(lock); /* too_often */
        compute(microseconds);
        jobs--;
    }
    /* Whether it had to wait. */
    bool take(long microseconds)
    {
        std::unique_lock<std::mutex> guard(lock, std::try_to_lock); /* convoy */
        bool waits = !guard.owns_lock();
        if (waits) guard.lock(); /* convoy */
        compute(microseconds);
        return waits;
    }
};
static Queue queue;

/* A consumer that is always at the queue, if not for long, and a producer. */
static void too_often(int thread)
{
    for (int turn = 0; thread == 0 && turn < 2500; turn++) {
        queue.pop(fine ? 0 : 60);
        compute(fine ? 60 : 1);
    }
    if (thread == 0) over = true;
    while (!over) {
        queue.push();
        usleep(50);
    }
}

/* With a lock that hands itself over (`--lock handoff`): it goes from one sleeper to the next. */
static void convoy(int)
{
    static std::atomic<int> waits;
    while (waits < (fine ? 60 : 3000)) waits += queue.take(fine ? 2000 : 0);
}

/* Reads note when they were. */
class Cache {
    std::shared_mutex lock;
    int last = 0;
public:
    void get(int key, int note_one_in, long microseconds)
    {
        if (key % note_one_in == 0) {
            std::unique_lock<std::shared_mutex> guard(lock); /* writing_readers */
            last = key;
            compute(microseconds);
        } else {
            std::shared_lock<std::shared_mutex> guard(lock); /* writing_readers */
            compute(microseconds + (last == key));
        }
    }
};
static Cache cache;

static void writing_readers(int thread)
{
    for (int key = 0; thread == 0 && key < 150; key++) cache.get(key, fine ? 50 : 3, 1000);
    if (thread == 0) over = true;
    for (int key = 0; !over; key++) {
        cache.get(key, fine ? 50 : 3, 0);
        usleep(300);
    }
}

/* Whose turn it is, round and round: told to all that wait, or to that one. */
class Ring {
public:
    static constexpr int SEATS = 6;
    void sit(int thread)
    {
        const int passes = fine ? 180 : 60;
        std::unique_lock<std::mutex> guard(lock);
        while (passed < passes) {
            if (seat != thread) {
                waiting++;
                (fine ? of_seat[thread] : all).wait(guard); /* storm */
            } else if (waiting < SEATS - 1) { /* Not before all wait. */
                guard.unlock();
                usleep(200);
                guard.lock();
            } else {
                passed++;
                seat = (seat + 1) % SEATS;
                waiting = fine ? waiting - 1 : 0;
                fine ? of_seat[seat].notify_one() : all.notify_all();
            }
        }
        all.notify_all();
        for (auto &one : of_seat) one.notify_all();
    }
private:
    std::mutex lock;
    std::condition_variable all, of_seat[SEATS];
    int seat = 0, waiting = 0, passed = 0;
};
static Ring ring;

static void storm(int thread) { ring.sit(thread); }

/* One thread at a time has something to do: it waits for the other one, and never for the lock. */
static sem_t turns[2];

static void false_alarm(int thread)
{
    for (int turn = 0; turn < 300; turn++) {
        if (!fine)
            while (sem_wait(&turns[thread])) {
            }
        accounts[0]->add(1, fine && thread ? 0 : 500);
        if (fine && thread) usleep(300);
        if (!fine) sem_post(&turns[1 - thread]);
    }
}

int main(int argc, char **argv)
{
    name = argc == 2 ? argv[1] : "";
    fine = name.size() > 4 && name.substr(name.size() - 4) == "_not";
    if (fine) name.resize(name.size() - 4);
    for (int i = 0; i < 3; i++) accounts.push_back(std::make_unique<Account>());
    sem_init(&turns[0], 0, 1);
    sem_init(&turns[1], 0, 0);
    if (name == "too_long") run_threads(2, too_long);
    else if (name == "too_often") run_threads(2, too_often);
    else if (name == "convoy") run_threads(4, convoy);
    else if (name == "writing_readers") run_threads(2, writing_readers);
    else if (name == "storm") run_threads(Ring::SEATS, storm);
    else if (name == "false_alarm") run_threads(2, false_alarm);
    else return 2;
}
