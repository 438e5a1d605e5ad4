// Four workers share a lock that JavaScript builds of Atomics.wait and Atomics.notify. Each worker times its own waits.
const { Worker, isMainThread, workerData, parentPort } = require("node:worker_threads");

const FREE = 0, HELD = 1, CONTENDED = 2;

function lock(word) {
  if (Atomics.compareExchange(word, 0, FREE, HELD) === FREE) return;
  while (Atomics.exchange(word, 0, CONTENDED) !== FREE) Atomics.wait(word, 0, CONTENDED);
}

function unlock(word) {
  if (Atomics.exchange(word, 0, FREE) === CONTENDED) Atomics.notify(word, 0, 1);
}

if (isMainThread) {
  const memory = new SharedArrayBuffer(4 + 4 * 1000);
  const end = Date.now() + Number(process.argv[2]) * 1000;
  let waited = 0, lived = 0, left = 4;
  for (let teller = 0; teller < 4; teller++) {
    const worker = new Worker(__filename, { workerData: { memory, end } });
    worker.on("message", (times) => {
      waited += times.waited;
      lived += times.lived;
      if (--left === 0) console.log(`waited for the ledger: ${waited.toFixed(0)} ms of ${lived.toFixed(0)} ms thread time`);
    });
  }
} else {
  const word = new Int32Array(workerData.memory, 0, 1);
  const balances = new Int32Array(workerData.memory, 4);
  const begin = performance.now();
  let waited = 0;
  while (Date.now() < workerData.end) {
    const asked = performance.now();
    lock(word);
    waited += performance.now() - asked;
    for (let round = 0; round < 300; round++) for (let at = 0; at < balances.length; at++) balances[at] += round;
    unlock(word);
  }
  parentPort.postMessage({ waited, lived: performance.now() - begin });
}
