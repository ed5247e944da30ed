package faultproxy_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/hack/faultproxy"
)

// said is what a client got of an answer.
type said struct {
	status int
	body   string
	err    error
}

func ask(t *testing.T, method, url string, limit time.Duration) said {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, url, nil)
	require.NoError(t, err)
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		return said{err: err}
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, 8<<20))
	return said{status: response.StatusCode, body: string(body), err: err}
}

func TestFaults(t *testing.T) {
	const good = "the answer"
	registry := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, good)
	}))
	t.Cleanup(registry.Close)
	p, err := faultproxy.To(registry.URL, http.DefaultTransport)
	require.NoError(t, err)
	server := httptest.NewServer(p)
	t.Cleanup(server.Close)
	const blob, soon, late = "/v2/a/blobs/b", 50 * time.Millisecond, time.Minute
	cases := []struct {
		name  string
		fault faultproxy.Fault
		path  string
		limit time.Duration
		want  said
	}{
		{"none", nil, blob, late, said{200, good, nil}},
		{"status", faultproxy.Status(503), blob, late, said{503, "", nil}},
		{"of manifests only", faultproxy.On("/manifests/", faultproxy.Status(503)), blob, late, said{200, good, nil}},
		{"text", faultproxy.Text("portal"), blob, late, said{200, "portal", nil}},
		{"silent", faultproxy.Silent, blob, soon, said{err: context.DeadlineExceeded}},
		{"cut", faultproxy.On("/blobs/", faultproxy.Cut), blob, late, said{err: io.EOF}},
		{"endless", faultproxy.Endless, blob, late, said{200, string(make([]byte, 8<<20)), nil}},
		{"changed", p.Changed(bytes.ToUpper), blob, late, said{200, "THE ANSWER", nil}},
		{"dying", p.Dying(500), blob, late, said{200, "the a", io.ErrUnexpectedEOF}},
		{"stopping", p.Stopping(500), blob, soon, said{200, "the a", context.DeadlineExceeded}},
		{"slow", p.Slow(3, time.Millisecond), blob, late, said{200, good, nil}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			p.Spoil(c.fault)
			got := ask(t, http.MethodGet, server.URL+c.path, c.limit)
			if c.want.err != nil {
				require.ErrorIs(t, got.err, c.want.err)
				got.err = c.want.err
			}
			assert.Equal(t, c.want, got)
		})
	}
	p.Spoil(faultproxy.Elsewhere)
	assert.ErrorContains(t, ask(t, http.MethodGet, server.URL+blob, late).err, "redirects")
	p.Spoil(nil)
	assert.Equal(t, said{200, good, nil}, ask(t, http.MethodGet, server.URL+blob, late), "it is healed")
}

func TestHowOftenAFaultStrikes(t *testing.T) {
	p := faultproxy.New(http.NotFoundHandler())
	statuses := func(f faultproxy.Fault) (out []int) {
		p.Spoil(f)
		for range 3 {
			w := httptest.NewRecorder()
			p.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
			out = append(out, w.Code)
		}
		return out
	}
	assert.Equal(t, []int{503, 503, 404}, statuses(faultproxy.First(2, faultproxy.Status(503))))
	assert.Equal(t, []int{404, 404, 503}, statuses(faultproxy.After(2, faultproxy.Status(503))))
	assert.Equal(t, []int{503, 404, 404}, statuses(faultproxy.First(1, faultproxy.Status(503))))
}

// A request that writes reaches the registry as it is.
func TestWritesAreLeftAlone(t *testing.T) {
	p := faultproxy.New(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, err := io.Copy(w, r.Body)
		assert.NoError(t, errors.Join(err, r.Body.Close()))
	}))
	p.Spoil(p.Changed(bytes.ToUpper))
	w := httptest.NewRecorder()
	p.ServeHTTP(w, httptest.NewRequest(http.MethodPut, "/", bytes.NewBufferString("sent")))
	assert.Equal(t, "sent", w.Body.String())
}
