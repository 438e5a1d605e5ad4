// Sixteen goroutines share one mutex. The program prints what the Go runtime's own mutex profile says.
package main

import (
	"fmt"
	"os"
	"runtime"
	"runtime/pprof"
	"strconv"
	"sync"
	"time"
)

type ledger struct {
	mu       sync.Mutex
	balances map[int]int
}

func (l *ledger) book(from int) {
	l.mu.Lock()
	for step := 0; step < 400; step++ {
		l.balances[(from+step)%1000]++
	}
	l.mu.Unlock()
}

func main() {
	runtime.SetMutexProfileFraction(1)
	seconds, _ := strconv.Atoi(os.Args[1])
	l := &ledger{balances: map[int]int{}}
	var tellers sync.WaitGroup
	end := time.Now().Add(time.Duration(seconds) * time.Second)
	for range 16 {
		tellers.Add(1)
		go func() {
			defer tellers.Done()
			for from := 0; time.Now().Before(end); from++ {
				l.book(from)
			}
		}()
	}
	tellers.Wait()
	fmt.Printf("16 goroutines lived %d s each\n", seconds)
	pprof.Lookup("mutex").WriteTo(os.Stdout, 1)
}
