"""A memcached client that believes nothing: memcached_client.py SOCKET CONNECTIONS ROUNDS

Every value that comes back is compared with what was stored, and every result of `incr` must be one that
nobody else was given. Each connection is a process and, ROUNDS times, sends three pipelined batches: BATCH
sets, BATCH gets of the same keys, and BATCH increments spread over COUNTERS counters that all share. At the
end the counters must stand at exactly the number of increments, and the server's own statistics must agree
with ours.
"""

import multiprocessing
import random
import socket
import sys

BATCH, COUNTERS, VALUE_MAX = 64, 8, 1500


class Connection:
    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(path)
        self.replies = self.socket.makefile("rb")

    def expect(self, command, wanted):
        self.socket.sendall(command)
        got = self.replies.read(len(wanted))
        same = next((i for i, pair in enumerate(zip(got, wanted)) if pair[0] != pair[1]), len(got))
        near = slice(max(same - 40, 0), same + 40)
        assert got == wanted, f"after {command[:40]!r}...: expected {wanted[near]!r}, got {got[near]!r}"

    def line(self):
        line = self.replies.readline()
        assert line.endswith(b"\r\n"), f"a reply line without its end: {line!r}"
        return line[:-2]


def work(path, me, rounds, together, results):
    told = None
    try:
        told = all_rounds(path, me, rounds, together)
    finally:
        results.put(told)


def all_rounds(path, me, rounds, together):
    connection = Connection(path)
    told = [[] for _ in range(COUNTERS)]
    values = random.Random(me)
    together.wait()  # all start when all are connected
    for r in range(rounds):
        keys = [b"t%d:k%d" % (me, k) for k in range(BATCH)]
        stored = [values.randbytes(values.randint(1, VALUE_MAX)) for _ in keys]
        lines = [b"%s %d 0 %d" % (key, r, len(value)) for key, value in zip(keys, stored)]
        sets = b"".join(b"set %s\r\n%s\r\n" % pair for pair in zip(lines, stored))
        connection.expect(sets, b"STORED\r\n" * BATCH)
        answers = (b"VALUE %s %d %d\r\n%s\r\nEND\r\n" % (key, r, len(v), v) for key, v in zip(keys, stored))
        values_back = b"".join(answers)
        connection.expect(b"".join(b"get %s\r\n" % key for key in keys), values_back)
        connection.socket.sendall(b"".join(b"incr counter%d 1\r\n" % (k % COUNTERS) for k in range(BATCH)))
        for k in range(BATCH):
            told[k % COUNTERS].append(int(connection.line()))
    for counter, numbers in enumerate(told):
        assert numbers == sorted(set(numbers)), f"counter{counter} did not go up: {numbers}"
    return told


def main(path, connections, rounds):
    connection = Connection(path)
    for i in range(COUNTERS):
        connection.expect(b"set counter%d 0 0 1\r\n0\r\n" % i, b"STORED\r\n")
    together, results = multiprocessing.Barrier(connections), multiprocessing.SimpleQueue()
    workers = [
        multiprocessing.Process(target=work, args=(path, me, rounds, together, results), daemon=True)
        for me in range(connections)
    ]
    for worker in workers:
        worker.start()
    everything = []
    while len(everything) < connections:
        everything.append(results.get())
        assert everything[-1] is not None, "a worker failed"
    for worker in workers:
        worker.join()

    total = connections * rounds * BATCH // COUNTERS
    for i in range(COUNTERS):
        numbers = sorted(number for told in everything for number in told[i])
        assert numbers == list(range(1, total + 1)), f"counter{i}: an increment was lost, or told twice"
        connection.socket.sendall(b"get counter%d\r\n" % i)
        assert connection.line().startswith(b"VALUE counter%d 0 " % i), "the counter is gone"
        # memcached may leave spaces after a number that grew in place.
        stands = int(connection.line())
        assert stands == total, f"counter{i} stands at {stands} after {total} increments"
        assert connection.line() == b"END", "more than a counter"
    # It keeps one count a worker thread, each under that worker's mutex. The counters were set and read once.
    connection.socket.sendall(b"stats\r\n")
    statistics = {}
    while (line := connection.line()) != b"END":
        _, name, value = line.split(b" ", 2)
        statistics[name] = value
    commands = connections * rounds * BATCH
    counted = [int(statistics[name]) for name in (b"cmd_set", b"get_hits", b"get_misses", b"incr_hits")]
    wanted = [commands + COUNTERS, commands + COUNTERS, 0, commands]
    assert counted == wanted, f"the server counted {counted}, expected {wanted}"
    print(f"{connections} connections: {commands} sets, gets and incrs each, all verified")


if __name__ == "__main__":
    multiprocessing.set_start_method("fork")
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
