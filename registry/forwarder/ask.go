package forwarder

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"time"

	"dayone.dev/dayone/registry/peers"
)

// question is what a client wants to know, as peers are asked.
type question struct {
	method, repository string
	// path with its query.
	path   string
	header http.Header
}

// send asks one peer and turns every answer but those in good into an error.
func (f *Forwarder) send(ctx context.Context, s source, p peers.Peer, q question, good ...int) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, q.method, "https://"+p.Address+q.path, nil)
	if err != nil {
		return nil, err
	}
	maps.Copy(req.Header, q.header)
	req.Header.Set("User-Agent", "dayone-forwarder")
	account, err := s.account(q.repository)
	if err != nil {
		return nil, err
	}
	switch {
	case account.RegistryToken != "":
		req.Header.Set("Authorization", "Bearer "+account.RegistryToken)
	case account.Username != "":
		req.SetBasicAuth(account.Username, account.Password)
	}
	resp, err := s.client.Do(req)
	if err != nil {
		return nil, plain(err)
	}
	if slices.Contains(good, resp.StatusCode) {
		return resp, nil
	}
	_ = resp.Body.Close() // it was not read
	return nil, refusal(resp)
}

// refusal says what an answer means that is not the one that was asked for.
func refusal(resp *http.Response) error {
	switch resp.StatusCode {
	case http.StatusNotFound:
		return errLost
	case http.StatusTooManyRequests:
		return busyError{resp.Status, retryAfter(resp.Header, time.Now())}
	case http.StatusServiceUnavailable:
		if resp.Header.Get("Retry-After") != "" {
			return busyError{resp.Status, retryAfter(resp.Header, time.Now())}
		}
	case http.StatusUnauthorized, http.StatusForbidden:
		return fmt.Errorf("%s: check the account for it in the node's credentials", resp.Status)
	}
	return errors.New(resp.Status)
}

// attempt lets one peer do its part of an answer and reports how many bytes came of it. A nil error: all is done.
type attempt func(ctx context.Context, s source, p peers.Peer) (bytes int64, err error)

// ask lets the peers try one after the other, in the node's order, until one has done it. It goes on with another round
// as long as a round brings at least a piece, and waits for busy peers. The error is a *noAnswer, a final one, or the
// client's end.
func (f *Forwarder) ask(ctx context.Context, try attempt) error {
	deadline := time.Now().Add(f.sources.limits.patience)
	for {
		bytes, failed, err := f.round(ctx, try)
		if err != nil || failed == nil {
			return err
		}
		if bytes >= pieceSize {
			deadline = time.Now().Add(f.sources.limits.patience)
			continue
		}
		pause := min(max(failed.busy, minBusy), maxBusy)
		if failed.busy == 0 || time.Now().Add(pause).After(deadline) {
			return failed
		}
		if err := sleep(ctx, pause+rand.N(pause)/2); err != nil { //nolint:gosec // it spreads load
			return err
		}
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

// round asks each peer once. Neither failed nor err: one has done it.
func (f *Forwarder) round(ctx context.Context, try attempt) (bytes int64, failed *noAnswer, err error) {
	failed = &noAnswer{}
	s, err := f.sources.look()
	if len(s.list.Peers) == 0 {
		failed.last = err
		return 0, failed, nil
	}
	for _, p := range s.list.Order(f.o.Node, time.Now(), f.state.health()) {
		began := time.Now()
		n, err := try(ctx, s, p)
		bytes += n
		if err != nil && ctx.Err() != nil { // the client is gone, which says nothing about the peer
			return bytes, nil, ctx.Err()
		}
		f.state.note(p, outcome{bytes: n, took: time.Since(began), err: err})
		var end final
		if err == nil || errors.As(err, &end) {
			return bytes, nil, err
		}
		failed.add(p, err)
		f.o.Log.WithField("peer", p.Name).WithError(err).Debug("peer has no answer")
	}
	return bytes, failed, nil
}

func (e *noAnswer) add(p peers.Peer, err error) {
	e.asked = append(e.asked, asked{p.Name, p.Address, err.Error()})
	var busy busyError
	switch {
	case errors.Is(err, errLost):
		e.lost = true
	case errors.As(err, &busy):
		if pause := max(busy.after, minBusy); e.busy == 0 || pause < e.busy {
			e.busy = pause
		}
	}
	e.last = fmt.Errorf("%s: %w", p.Name, err)
}
