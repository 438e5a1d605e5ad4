// Goroutines that wait for each other, while others work. Without the packages that take long to build.
package main

import (
	"runtime"
	"sync"
	"syscall"
)

func say(word string) { syscall.Write(1, []byte(word+"\n")) }

func take(one, other *sync.Mutex, both *sync.WaitGroup) {
	one.Lock()
	both.Done()
	both.Wait()
	other.Lock()
	say("never")
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
	say("ready")
	var line [1]byte
	syscall.Read(0, line[:])
	close(work)
}
