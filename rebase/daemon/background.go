package daemon

import "context"

// bell asks the loop for a step: there is something to look at. It rings until the loop hears it.
type bell chan struct{}

func newBell() bell { return make(bell, 1) }

func (b bell) ring() {
	select {
	case b <- struct{}{}:
	default: // it rings already
	}
}

// background starts work beside the state machine. end cancels its context and waits until it returns.
func background(ctx context.Context, work func(context.Context)) (end func()) {
	ctx, cancel := context.WithCancel(ctx)
	over := make(chan struct{})
	go func() {
		defer close(over)
		defer cancel()
		work(ctx)
	}()
	return func() {
		cancel()
		<-over
	}
}
