// Goroutines that wait for each other, while others work.
package main

import (
	"fmt"
	"runtime"
	"sync"
)

func take(one, other *sync.Mutex, both *sync.WaitGroup) {
	one.Lock()
	both.Done()
	both.Wait()
	other.Lock()
	fmt.Println("never")
}

func main() {
	var first, second sync.Mutex
	var both sync.WaitGroup
	both.Add(2)
	go take(&first, &second, &both)
	go take(&second, &first, &both)
	both.Wait()
	work := make(chan int)
	for n := 0; n < 4; n++ {
		go func() {
			runtime.LockOSThread()
			for range work {
			}
		}()
	}
	fmt.Println("ready")
	var line string
	fmt.Scanln(&line)
	close(work)
}
