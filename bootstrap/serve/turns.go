package serve

import (
	"container/heap"
	"runtime"
	"sync"
	"time"
)

// turnTime is after what time an answer that is still being written no longer counts as one: its reader is slow. An
// answer of 450 kB takes a processor 0.2 to 0.5 ms.
const turnTime = 2 * time.Millisecond

// turnBytes is from what size on an answer needs a turn: a smaller one is written sooner than others could be asked to
// wait for it.
const turnBytes = 64 << 10

// turns lets as many answers be written at the same time as there are processors, and among those that wait the one
// whose client has gone longest without an answer. Go's scheduler alone would not: it sees ready connections in batches
// and runs each batch from its end, so that a request that just missed a batch waits for all of it and is the last of
// the next.
type turns struct {
	mu      sync.Mutex
	free    int
	waiting byLastAnswer
}

func newTurns() *turns { return &turns{free: runtime.GOMAXPROCS(0)} }

// take waits for a turn, for a client that had its last answer at since, or connected then. The turn ends when the
// returned function is called, or by itself after turnTime.
func (t *turns) take(since time.Time) func() {
	if next := t.enter(since); next != nil {
		<-next
	}
	end := sync.OnceFunc(t.pass)
	timer := time.AfterFunc(turnTime, end)
	return func() {
		runtime.Gosched() // requests that came meanwhile are read and take their place in the line first
		timer.Stop()
		end()
	}
}

// enter returns nil if there is a turn now, else what is closed when there is one.
func (t *turns) enter(since time.Time) <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.free > 0 {
		t.free--
		return nil
	}
	w := waiter{since: since, next: make(chan struct{})}
	heap.Push(&t.waiting, w)
	return w.next
}

// pass gives a turn that has ended to the first of those that wait.
func (t *turns) pass() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.waiting) == 0 {
		t.free++
		return
	}
	close(heap.Pop(&t.waiting).(waiter).next)
}

// waiter is a request whose answer is not written yet.
type waiter struct {
	since time.Time
	next  chan struct{}
}

// byLastAnswer is a heap with the longest wait on top.
type byLastAnswer []waiter

func (b byLastAnswer) Len() int           { return len(b) }
func (b byLastAnswer) Less(i, j int) bool { return b[i].since.Before(b[j].since) }
func (b byLastAnswer) Swap(i, j int)      { b[i], b[j] = b[j], b[i] }

// Push is called by heap.
func (b *byLastAnswer) Push(x any) { *b = append(*b, x.(waiter)) }

// Pop is called by heap.
func (b *byLastAnswer) Pop() any {
	last := len(*b) - 1
	w := (*b)[last]
	(*b)[last] = waiter{}
	*b = (*b)[:last]
	return w
}
