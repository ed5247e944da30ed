package transfer

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// containers/image waits for an answer as long as the connection lives, and a load balancer before a registry that
// hangs keeps it alive.
const (
	// inspectLimit bounds a look at an image: a manifest and a configuration.
	inspectLimit = 5 * time.Minute
	// answerLimit bounds the wait for one answer to a small request.
	answerLimit = time.Minute
)

// silent says that a registry took what was sent and said nothing. It may go away by itself, as any timeout.
type silent struct{ limit time.Duration }

func (s silent) Error() string {
	return fmt.Sprintf("timed out after %s without a byte: check whether the registry answers "+
		"(curl -v https://REGISTRY/v2/), and the load balancer or proxy before it", s.limit)
}

// Timeout and Temporary are net.Error's.
func (silent) Timeout() bool   { return true }
func (silent) Temporary() bool { return true }

// listen gives a context that ends when nothing has been heard for limit.
func listen(ctx context.Context, limit time.Duration) (listening context.Context, heard, stop func()) {
	listening, cancel := context.WithCancelCause(ctx)
	t := time.AfterFunc(limit, func() { cancel(silent{limit}) })
	return listening, func() { t.Reset(limit) }, func() { t.Stop(); cancel(nil) }
}

// orSilence gives the silence that ended a listening context in place of what it made of the work.
func orSilence(ctx context.Context, err error) error {
	var s silent
	if err != nil && errors.As(context.Cause(ctx), &s) {
		return s
	}
	return err
}
