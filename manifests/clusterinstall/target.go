package clusterinstall

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// fieldManager owns the fields that an installation applies.
	fieldManager = "dayone-cluster"
	// waitInterval is how often an installation looks at the cluster while it waits.
	waitInterval = time.Second
)

// Target is the cluster and the namespace of an installation. Every field is required.
type Target struct {
	Client client.Client
	// Config reaches the same API server as Client.
	Config    *rest.Config
	Namespace string
	// Limit bounds the whole work, waiting included.
	Limit time.Duration
	// Out takes a line for each thing that happens.
	Out io.Writer
}

func (t Target) say(format string, args ...any) { fmt.Fprintf(t.Out, format+"\n", args...) }

// within does the work in the time that it may take, and says so when that was not enough or the user ended it.
func (t Target) within(ctx context.Context, work func(context.Context) error) error {
	limit := max(t.Limit, time.Second)
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err := work(ctx)
	switch {
	case err == nil || ctx.Err() == nil:
		return err
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return fmt.Errorf("%w (gave up after %s; the same command goes on where it ended)", err, limit)
	}
	return fmt.Errorf("%w (interrupted; the same command goes on where it ended)", err)
}

// await looks every second until done; it says a detail that is new.
func (t Target) await(ctx context.Context, what string, done func(context.Context) (bool, string, error)) error {
	last := ""
	err := wait.PollUntilContextCancel(ctx, waitInterval, true, func(ctx context.Context) (bool, error) {
		ok, detail, err := done(ctx)
		if err == nil && !ok && detail != last {
			t.say("waiting: %s %s", what, detail)
			last = detail
		}
		return ok, err
	})
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("%s %s", what, last)
	}
	return err
}
