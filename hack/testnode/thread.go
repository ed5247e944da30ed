package testnode

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// onOwnThread calls f in a goroutine whose thread ends with it, so that f may enter namespaces for good. It is never
// the process's first thread: that one cannot end, and /proc/self shows its namespaces to the whole process.
func onOwnThread(f func()) {
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() != unix.Getpid() {
			f() // never unlocked
			return
		}
		locked := make(chan struct{})
		go func() {
			runtime.LockOSThread() // another thread: the first one is held
			close(locked)
			f()
		}()
		<-locked
		runtime.UnlockOSThread()
	}()
}
