package statuspage_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/bootstrap"
	"dayone.dev/dayone/bootstrap/statuspage"
)

func TestSocketAndPageTellHowFarItIs(t *testing.T) {
	b := &statuspage.Board{}
	log := logrus.New()
	log.SetOutput(io.Discard)
	log.AddHook(b)
	began := time.Now()
	b.Observe(bootstrap.Event{Total: 3, Index: 0, Record: bootstrap.Record{Name: "build-master", Title: "build <master>", Status: bootstrap.PhaseDone, Started: began, Finished: began.Add(2 * time.Second), Output: json.RawMessage(`{"size":4711}`)}})
	b.Observe(bootstrap.Event{Total: 3, Index: 1, Record: bootstrap.Record{Name: "gate", Title: "gate", Status: bootstrap.PhaseRunning, Started: began}})
	b.Detail("gate", "asks nft")
	log.WithError(errors.New("the cause")).Warn("a warning")

	socket := filepath.Join(t.TempDir(), "s")
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- b.ServeSocket(ctx, socket) }()
	var s statuspage.Status
	require.Eventually(t, func() (ok bool) {
		var err error
		s, err = statuspage.Fetch(t.Context(), socket)
		return err == nil
	}, time.Minute, 10*time.Millisecond)
	cancel()
	require.NoError(t, <-ended)
	require.Len(t, s.Phases, 2)
	assert.Equal(t, 3, s.Total)
	assert.Equal(t, int64(4711), s.Phases[0].Bytes)
	assert.InDelta(t, 2, s.Phases[0].Seconds, 0.01)
	assert.Equal(t, "asks nft", s.Phases[1].Detail)
	require.Len(t, s.Log, 1)
	assert.Contains(t, s.Log[0], "a warning: the cause")

	w := httptest.NewRecorder()
	b.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
	assert.Contains(t, w.Body.String(), "build &lt;master&gt;")
	assert.Contains(t, w.Body.String(), `http-equiv="refresh"`)
	w = httptest.NewRecorder()
	b.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/", nil))
	assert.Equal(t, http.StatusMethodNotAllowed, w.Code)
}
