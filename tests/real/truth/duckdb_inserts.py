"""Eight threads insert into one DuckDB database. Each thread times its own calls, and what of them was CPU time."""

import sys
import threading
import time

import duckdb

seconds = float(sys.argv[1])
database = duckdb.connect()
database.execute("create table entries (teller integer, amount integer)")
database.execute("create index entry on entries (amount)")
end = time.monotonic() + seconds
in_calls, on_cpu = [0.0] * 8, [0.0] * 8


def teller(number: int) -> None:
    connection = database.cursor()
    count = 0
    while time.monotonic() < end:
        begin, cpu = time.monotonic(), time.thread_time()
        connection.execute("insert into entries select ?, range from range(?, ?)", [number, count, count + 2000])
        in_calls[number] += time.monotonic() - begin
        on_cpu[number] += time.thread_time() - cpu
        count += 2000


tellers = [threading.Thread(target=teller, args=(number,), name=f"teller-{number}") for number in range(8)]
for thread in tellers:
    thread.start()
for thread in tellers:
    thread.join()
print(f"in DuckDB's calls {sum(in_calls):.2f} s, {sum(on_cpu):.2f} s of them CPU time, of {8 * seconds:.0f} s thread time")
