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
	"syscall"
	"time"
)

var busy sync.Mutex
var waited atomic.Int64

// The thread sleeps itself: a goroutine that sleeps waits as one does that waits for a lock.
func hold() {
	pause := syscall.NsecToTimespec(int64(time.Millisecond))
	syscall.Nanosleep(&pause, nil)
}

func work(rounds int, done *sync.WaitGroup) {
	runtime.LockOSThread()
	defer done.Done()
	sum := time.Duration(0)
	for round := 0; round < rounds; round++ {
		begin := time.Now()
		busy.Lock()
		sum += time.Since(begin)
		hold()
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
