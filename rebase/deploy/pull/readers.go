package pull

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"
)

// inTime bounds the wait for a registry that takes the question and never answers.
func inTime(ctx context.Context, limit time.Duration, ask func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("no answer for %s: %w", limit, errStalled))
	defer cancel()
	err := ask(ctx)
	if cause := context.Cause(ctx); err != nil && errors.Is(cause, errStalled) {
		return cause
	}
	return err
}

// stallReader cancels the transfer when no byte comes for limit.
type stallReader struct {
	in    io.Reader
	limit time.Duration
	timer *time.Timer
}

func newStallReader(in io.Reader, limit time.Duration, cancel context.CancelCauseFunc) *stallReader {
	timer := time.AfterFunc(limit, func() { cancel(fmt.Errorf("no byte for %s: %w", limit, errStalled)) })
	timer.Stop()
	return &stallReader{in: in, limit: limit, timer: timer}
}

// Read reads with the clock running; between reads it stands, so that slow unpacking is no stall.
func (s *stallReader) Read(p []byte) (int, error) {
	s.timer.Reset(s.limit)
	n, err := s.in.Read(p)
	s.timer.Stop()
	return n, err
}

// pacedReader reads no faster than so many bytes a second.
type pacedReader struct {
	ctx       context.Context //nolint:containedctx // the transfer's own: a pause must end with it
	in        io.Reader
	perSecond int64
	next      time.Time
}

// paced bounds a transfer to so many bytes a second; 0: no bound.
func paced(ctx context.Context, in io.Reader, perSecond int64) io.Reader {
	if perSecond <= 0 {
		return in
	}
	return &pacedReader{ctx: ctx, in: in, perSecond: perSecond, next: time.Now()}
}

// maxBurst bounds one read, so that a slow pace is an even one.
const maxBurst = 64 << 10

// Read waits until what has been read before may have come.
func (p *pacedReader) Read(b []byte) (int, error) {
	if wait := time.Until(p.next); wait > 0 {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		select {
		case <-p.ctx.Done():
			return 0, errors.Join(errors.New("wait for the next bytes"), p.ctx.Err())
		case <-timer.C:
		}
	}
	n, err := p.in.Read(b[:min(len(b), maxBurst)])
	if now := time.Now(); p.next.Before(now.Add(-time.Second)) {
		p.next = now // a pause is not made up for
	}
	p.next = p.next.Add(time.Duration(n) * time.Second / time.Duration(p.perSecond))
	return n, err
}

// Buffers of a readAhead: enough to keep two cores busy, little beside the rest.
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
