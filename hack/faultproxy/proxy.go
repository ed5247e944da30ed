package faultproxy

import (
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
)

// Fault answers a request in place of the registry; false leaves it to the registry.
type Fault = func(w http.ResponseWriter, r *http.Request) bool

// Proxy answers as the registry behind it does until a test spoils it.
type Proxy struct {
	next http.Handler

	mu    sync.Mutex
	fault Fault
}

// New has a registry of this process behind it.
func New(next http.Handler) *Proxy { return &Proxy{next: next} }

// To has the registry at a URL behind it, as via reaches it.
func To(registry string, via http.RoundTripper) (*Proxy, error) {
	target, err := url.Parse(registry)
	if err != nil {
		return nil, err
	}
	p := httputil.NewSingleHostReverseProxy(target)
	p.Transport = via
	p.ErrorLog = log.New(io.Discard, "", 0) // a client that gives up is no news
	return New(p), nil
}

// Spoil sets the fault that each request meets from now on; nil heals.
func (p *Proxy) Spoil(f Fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fault = f
}

func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	fault := p.fault
	p.mu.Unlock()
	if fault != nil && fault(w, r) {
		return
	}
	p.next.ServeHTTP(w, r)
}

// answer is what the registry says.
func (p *Proxy) answer(r *http.Request) *httptest.ResponseRecorder {
	rec := httptest.NewRecorder()
	p.next.ServeHTTP(rec, r)
	return rec
}

// On keeps a fault to requests that read what has part in its path, as "/manifests/" or "/blobs/".
func On(part string, f Fault) Fault {
	return func(w http.ResponseWriter, r *http.Request) bool {
		return strings.Contains(r.URL.Path, part) && f(w, r)
	}
}

// First ends a fault after n requests: On("/blobs/", First(2, Cut)) spoils two blobs.
func First(n int32, f Fault) Fault {
	var seen atomic.Int32
	return func(w http.ResponseWriter, r *http.Request) bool { return seen.Add(1) <= n && f(w, r) }
}

// After lets n requests through before a fault strikes.
func After(n int32, f Fault) Fault {
	var seen atomic.Int32
	return func(w http.ResponseWriter, r *http.Request) bool { return seen.Add(1) > n && f(w, r) }
}
