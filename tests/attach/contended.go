// Goroutines, each on a thread of its own, that wait for a mutex, and sum up by themselves how long. Argument:
// how often each takes it.
package main

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

var busy sync.Mutex
var waited atomic.Int64

func work(rounds int, done *sync.WaitGroup) {
	runtime.LockOSThread()
	defer done.Done()
	sum := time.Duration(0)
	for round := 0; round < rounds; round++ {
		begin := time.Now()
		busy.Lock()
		sum += time.Since(begin)
		time.Sleep(time.Millisecond)
		busy.Unlock()
	}
	waited.Add(int64(sum))
}

func main() {
	rounds, err := strconv.Atoi(os.Args[1])
	if err != nil {
		panic(err)
	}
	var done sync.WaitGroup
	done.Add(4)
	for n := 0; n < 4; n++ {
		go work(rounds, &done)
	}
	done.Wait()
	fmt.Println(waited.Load())
}
