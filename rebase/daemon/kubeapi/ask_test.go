package kubeapi_test

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"dayone.dev/dayone/rebase/daemon/kubeapi"
)

// proxy accepts every connection and drops as many as it is told to at once; the others it passes on. It is what stands
// before an API whose servers come and go.
type proxy struct {
	net.Listener
	drop, accepted atomic.Int32
}

func (p *proxy) run(to string) {
	for {
		in, err := p.Accept()
		if err != nil {
			return
		}
		p.accepted.Add(1)
		if p.drop.Add(-1) >= 0 {
			_ = in.Close()
			continue
		}
		go func() {
			defer in.Close()
			out, err := net.Dial("tcp", to)
			if err != nil {
				return
			}
			defer out.Close()
			go func() {
				_, _ = io.Copy(out, in)
				_ = out.Close()
			}()
			_, _ = io.Copy(in, out)
		}()
	}
}

// behind serves what answer says, with TLS, behind a proxy, and gives a client that comes through it.
func behind(t *testing.T, answer http.HandlerFunc) (*proxy, *kubeapi.Client) {
	t.Helper()
	server := httptest.NewTLSServer(answer)
	t.Cleanup(server.Close)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p := &proxy{Listener: l}
	go p.run(strings.TrimPrefix(server.URL, "https://"))
	t.Cleanup(func() { assert.NoError(t, l.Close()) })
	c, err := kubeapi.New(&rest.Config{Host: "https://" + l.Addr().
		String(), TLSClientConfig: rest.TLSClientConfig{Insecure: true}}, "n1", nil)
	require.NoError(t, err)
	return p, c
}

func node(rw http.ResponseWriter, r *http.Request) {
	if r.URL.Path != "/api/v1/nodes/n1" || !strings.Contains(r.Header.Get("Accept"), "as=PartialObjectMetadata") {
		rw.WriteHeader(http.StatusNotFound)
		return
	}
	rw.Header().Set("Content-Type", "application/json")
	// the client sees
	_ = json.NewEncoder(rw).Encode(metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "n1"}})
}

func TestARequestWhoseConnectionIsDroppedIsMadeAgain(t *testing.T) {
	p, c := behind(t, node)
	p.drop.Store(3)
	n, err := c.Node(t.Context())
	require.NoError(t, err)
	assert.Equal(t, "n1", n.Name)
	assert.EqualValues(t, 4, p.accepted.Load())
	_, err = c.PatchNode(t.Context(), []byte(`{}`))
	require.NoError(t, err)
	assert.EqualValues(t, 4, p.accepted.Load(), "the connection stays")
}

func TestAnAPIThatDropsEveryConnectionIsGivenUpSoon(t *testing.T) {
	p, c := behind(t, node)
	p.drop.Store(1 << 20)
	_, err := c.Node(t.Context())
	require.Error(t, err)
	require.NotErrorIs(t, err, context.DeadlineExceeded)
	assert.EqualValues(t, 5, p.accepted.Load())
}

func TestARefusalIsAnAnswer(t *testing.T) {
	asked := atomic.Int32{}
	_, c := behind(t, func(rw http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		rw.WriteHeader(http.StatusForbidden)
	})
	_, err := c.Node(t.Context())
	require.ErrorContains(t, err, "read node n1")
	assert.EqualValues(t, 1, asked.Load())
}

func TestAServerThatAsksForPatienceGetsIt(t *testing.T) {
	asked := atomic.Int32{}
	_, c := behind(t, func(rw http.ResponseWriter, r *http.Request) {
		if asked.Add(1) == 1 {
			rw.Header().Set("Retry-After", "1")
			rw.WriteHeader(http.StatusTooManyRequests)
			return
		}
		node(rw, r)
	})
	_, err := c.Node(t.Context())
	require.NoError(t, err)
	assert.EqualValues(t, 2, asked.Load())
}
