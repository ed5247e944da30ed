package daemon

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"time"
)

const (
	// kubeletInterval and kubeletLimit are how often kubelet is asked and how long it may take. Source: MCO,
	// pkg/daemon/daemon.go.
	kubeletInterval = 30 * time.Second
	kubeletLimit    = 30 * time.Second
)

// kubeletWatch asks kubelet whether it is well.
type kubeletWatch struct {
	url      string // empty: it is not asked
	interval time.Duration
}

// run counts what it says until ctx ends.
func (w kubeletWatch) run(ctx context.Context, m *metrics) {
	if w.url == "" {
		return
	}
	client := &http.Client{Timeout: kubeletLimit}
	failures := 0
	tick := time.NewTicker(w.interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if failures++; kubeletHealthy(ctx, client, w.url) == nil {
			failures = 0
		}
		m.kubelet(failures)
	}
}

func kubeletHealthy(ctx context.Context, client *http.Client, url string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return fmt.Errorf("ask kubelet: %w", err)
	}
	answer, err := client.Do(request)
	if err != nil {
		return fmt.Errorf("ask kubelet: %w", err)
	}
	defer answer.Body.Close()
	const most = 4 << 10
	if _, err := io.Copy(io.Discard, io.LimitReader(answer.Body, most)); err != nil {
		return fmt.Errorf("ask kubelet: %w", err)
	}
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("ask kubelet: %s", answer.Status)
	}
	return nil
}
