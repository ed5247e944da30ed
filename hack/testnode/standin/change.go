package standin

import (
	"context"
	"errors"
	"fmt"

	"github.com/gofrs/flock"
)

// locking says what a second change does while one is under way: rpm-ostree refuses it, bootc waits.
type locking struct {
	wait bool
	busy func() error // the refusal, where it does not wait
}

// change runs f, which changes deployments, alone and with what is there. notBooted is the program's refusal of other
// hosts.
func change(ctx context.Context, l locking, notBooted string, f func(all []deployment) error) error {
	lock := flock.New(lockPath)
	if l.wait {
		if err := lock.Lock(); err != nil {
			return fmt.Errorf("lock deployments: %w", err)
		}
	} else if free, err := lock.TryLock(); err != nil {
		return fmt.Errorf("lock deployments: %w", err)
	} else if !free {
		return l.busy()
	}
	defer lock.Close()
	all, err := deployments(ctx)
	if err != nil {
		return err
	}
	if booted(all) == nil {
		return words("%s", notBooted)
	}
	return f(all)
}

// phrases are a program's own words around those of what both programs are made of.
type phrases struct{ open, pull, stage string }

func (p phrases) around(phrase string, err error) error {
	if err == nil || phrase == "" {
		return err
	}
	return words("%s: %w", phrase, err)
}

// pullFor pulls an image and tells a failure in a program's words.
func (p puller) pullFor(ctx context.Context, ref reference, said phrases) (pulled, error) {
	done, err := p.pull(ctx, ref)
	var proxy proxyError
	if errors.As(err, &proxy) && proxy.method == "OpenImage" {
		return done, said.around(said.open, err)
	}
	return done, said.around(said.pull, err)
}

// rebaseTo pulls an image and stages it; prepare completes what is to be staged once the image is there.
func rebaseTo(ctx context.Context, p puller, ref reference, said phrases,
	prepare func(done pulled) (target, error)) (pulled, error) {
	done, err := p.pullFor(ctx, ref, said)
	if err != nil {
		return done, err
	}
	next, err := prepare(done)
	if err != nil {
		return done, err
	}
	next.commit = done.commit
	next.origin = "[origin]\ncontainer-image-reference=" + ref.canonical + "\n" + next.origin
	return done, said.around(said.stage, stage(ctx, next))
}
