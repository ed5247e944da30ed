package deploy

import "io"

// Buffers of a readAhead: enough to keep two cores busy, little enough to be forgotten beside the rest.
const (
	aheadBuffers = 4
	aheadSize    = 256 << 10
)

// readAhead reads in a goroutine of its own, so that fetching, unpacking and digests go on beside the writing of files.
type readAhead struct {
	full    chan chunk
	empty   chan []byte
	quit    chan struct{}
	done    chan struct{}
	current chunk
	rest    []byte
}

type chunk struct {
	data []byte
	err  error
}

func newReadAhead(in io.Reader) *readAhead {
	a := &readAhead{full: make(chan chunk, aheadBuffers), empty: make(chan []byte, aheadBuffers),
		quit: make(chan struct{}), done: make(chan struct{})}
	for range aheadBuffers {
		a.empty <- make([]byte, aheadSize)
	}
	go a.run(in)
	return a
}

func (a *readAhead) run(in io.Reader) {
	defer close(a.done)
	for {
		var buffer []byte
		select {
		case <-a.quit:
			return
		case buffer = <-a.empty:
		}
		n, err := fill(in, buffer)
		a.full <- chunk{buffer[:n], err} // never blocks: there are no more buffers than places
		if err != nil {
			return
		}
	}
}

// fill reads until the buffer is full or something ends the reading; unlike io.ReadFull it leaves the reader's error as
// it is.
func fill(in io.Reader, buffer []byte) (n int, err error) {
	for n < len(buffer) && err == nil {
		var m int
		m, err = in.Read(buffer[n:])
		n += m
	}
	return n, err
}

// Read gives what was read ahead.
func (a *readAhead) Read(p []byte) (int, error) {
	for len(a.rest) == 0 {
		if a.current.err != nil {
			return 0, a.current.err
		}
		if a.current.data != nil {
			a.empty <- a.current.data[:cap(a.current.data)]
		}
		a.current = <-a.full
		a.rest = a.current.data
	}
	n := copy(p, a.rest)
	a.rest = a.rest[n:]
	return n, nil
}

// stop ends the goroutine and waits for it; what it has not read stays to be read.
func (a *readAhead) stop() {
	close(a.quit)
	<-a.done
}
