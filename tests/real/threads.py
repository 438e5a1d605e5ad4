"""Eight Python threads over every tool of `threading` and `queue`; prints results that can only be one way.

CPython's interpreter lock is a pthread mutex and condition variable with timed waits: all threads contend for it,
whichever object of Python's they use.
"""

import collections
import queue
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

THREADS = 8
sys.setswitchinterval(1e-5)  # hand the interpreter over often


def on_threads(target, count=THREADS):
    failures = []

    def guarded(i):
        try:
            target(i)
        except BaseException as e:  # a failed check in a thread must fail the program
            failures.append(e)
            raise

    threads = [threading.Thread(target=guarded, args=(i,)) for i in range(count)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    if failures:
        sys.exit(1)


def check(condition, what):
    if not condition:
        raise AssertionError(what)


def locked_counter():
    lock, rlock = threading.Lock(), threading.RLock()
    state = {"lock": 0, "rlock": 0, "timed": 0}

    def work(_):
        for i in range(2000):
            with lock:
                value = state["lock"]
                state["lock"] = value + 1
            with rlock, rlock:
                value = state["rlock"]
                state["rlock"] = value + 1
            if i % 10 == 0:
                check(lock.acquire(timeout=300), "a free lock was not acquired")
                try:
                    value = state["timed"]
                    state["timed"] = value + 1
                finally:
                    lock.release()

    on_threads(work)
    check(not lock.locked(), "a lock was left held")
    print("locks", state["lock"], state["rlock"], state["timed"])


def bounded_buffer():
    """Four producers and four consumers around one Condition, with timed waits."""
    condition = threading.Condition()
    buffer, taken = collections.deque(), collections.Counter()
    producing = [4]

    def work(me):
        if me < 4:
            for i in range(500):
                with condition:
                    while len(buffer) >= 5:
                        condition.wait(timeout=0.05)
                    buffer.append(me * 500 + i)
                    condition.notify()
            with condition:
                producing[0] -= 1
                condition.notify_all()
        else:
            while True:
                with condition:
                    while not buffer and producing[0]:
                        condition.wait(timeout=0.05)
                    if not buffer:
                        return
                    taken[buffer.popleft()] += 1
                    condition.notify()

    on_threads(work)
    check(all(n == 1 for n in taken.values()), "an item was taken twice")
    print("buffer", len(taken), sum(taken))


def queues():
    work_queue, results = queue.Queue(maxsize=16), queue.SimpleQueue()

    def work(_):
        while (n := work_queue.get()) is not None:
            results.put(n * n)
            work_queue.task_done()
        work_queue.task_done()

    def feed():
        for n in range(2000):
            work_queue.put(n)
        for _ in range(THREADS):
            work_queue.put(None)
        work_queue.join()

    feeder = threading.Thread(target=feed)
    feeder.start()
    on_threads(work)
    feeder.join()
    try:
        work_queue.get(timeout=0.01)
        check(False, "an empty queue gave something")
    except queue.Empty:
        pass
    print("queue", results.qsize(), sum(results.get() for _ in range(results.qsize())))


def pool():
    with ThreadPoolExecutor(THREADS) as executor:
        squares = list(executor.map(lambda n: n * n % 1009, range(2000)))
        futures = [executor.submit(sum, range(n)) for n in range(200)]
        total = sum(f.result(timeout=300) for f in futures)
    print("pool", sum(squares), total)


def barrier_and_semaphore():
    barrier, semaphore = threading.Barrier(THREADS), threading.BoundedSemaphore(3)
    inside, most, guard, leaders = [0], [0], threading.Lock(), [0]

    def work(_):
        for _ in range(100):
            with semaphore:
                with guard:
                    inside[0] += 1
                    most[0] = max(most[0], inside[0])
                with guard:
                    inside[0] -= 1
            if barrier.wait(timeout=300) == 0:
                with guard:
                    leaders[0] += 1

    on_threads(work)
    check(most[0] <= 3, f"{most[0]} threads inside a semaphore of 3")
    print("barrier", leaders[0], inside[0])


def waits_run_out():
    lock = threading.Lock()
    with lock:
        check(not lock.acquire(timeout=0.01), "a held lock was acquired")
        check(not lock.acquire(blocking=False), "a held lock was acquired")
    check(not threading.Event().wait(timeout=0.01), "an event nobody set was seen")
    with (condition := threading.Condition()):
        check(not condition.wait(timeout=0.01), "a condition nobody notified was notified")
    print("time-outs ok")


locked_counter()
bounded_buffer()
queues()
pool()
barrier_and_semaphore()
waits_run_out()
