package forwarder

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/google/renameio/v2"
	"golang.org/x/net/netutil"

	"dayone.dev/dayone/registry/route"
)

const (
	// filesPoll is how often the files are looked at, and the state is written.
	filesPoll = 2 * time.Second
	// headLimit and idleLimit bound what a client can hold up; stopLimit is how long clients may finish.
	headLimit = 10 * time.Second
	idleLimit = 2 * time.Minute
	stopLimit = 5 * time.Second
	maxHead   = 64 << 10
)

// Forwarder serves a node's clients. Use New.
type Forwarder struct {
	o       Options
	sources *sources
	state   *state
	blobs   chan struct{}
	smalls  chan struct{}
	pieces  sync.Pool // *[2][pieceSize]byte
	login   [sha256.Size]byte
}

// New makes a forwarder; nothing is read yet.
func New(o Options) (*Forwarder, error) {
	o = o.withDefaults()
	if err := o.Validate(); err != nil {
		return nil, err
	}
	return &Forwarder{o: o, sources: &sources{o: o, limits: usual()}, state: &state{peers: map[string]*PeerState{}},
		blobs: make(chan struct{}, maxBlobs), smalls: make(chan struct{}, maxSmalls),
		login: loginSum(o.Account.Username, o.Account.Password)}, nil
}

func loginSum(name, password string) [sha256.Size]byte {
	return sha256.Sum256([]byte(name + ":" + password))
}

// State is how it does.
func (f *Forwarder) State() State {
	s, _ := f.sources.look() // Run says what is wrong with the files
	return f.state.show(s.list, f.o.Node)
}

// Run serves while the peers file names peers, until ctx ends. It needs neither the API nor the control plane. What it
// cannot do, as to listen where another process does, is in the state and tried again.
func (f *Forwarder) Run(ctx context.Context) error {
	var s *server
	defer func() { s.stop() }()
	tick := time.NewTicker(filesPoll)
	defer tick.Stop()
	for told := (Mirror{}); ; {
		var err error
		if s, told, err = f.settle(s, told); err != nil {
			f.o.Log.WithError(err).Warn("the node's registry forwarder")
		}
		f.writeState()
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// settle starts or stops the server as the files want it, and tells what clients need.
func (f *Forwarder) settle(s *server, told Mirror) (*server, Mirror, error) {
	src, err := f.sources.look()
	var want Mirror
	switch {
	case len(src.list.Peers) == 0:
		s.stop()
		s = nil
	case s == nil:
		var startErr error
		s, startErr = f.start()
		err = errors.Join(err, startErr)
	default:
		err = errors.Join(err, s.identity.renew(time.Now()))
	}
	listen := ""
	if s != nil {
		listen = s.addr
		want = Mirror{Registry: src.list.Registry, Address: s.addr, CA: s.identity.ca()}
	}
	f.state.serves(listen, src.list.Registry, err)
	if want != told {
		if tellErr := f.o.Serving(want); tellErr != nil {
			return s, told, errors.Join(err, tellErr)
		}
	}
	return s, want, err
}

// server is a listener and what serves on it.
type server struct {
	http     *http.Server
	addr     string
	identity *identity
	served   chan struct{}
}

func (f *Forwarder) start() (*server, error) {
	l, err := net.Listen("tcp", f.o.Listen)
	if err != nil {
		return nil, fmt.Errorf("listen for this node's pulls: %w: another process has the port, see ss -tlnp", err)
	}
	s := &server{addr: l.Addr().String(), identity: &identity{host: hostOf(l)}, served: make(chan struct{})}
	if err := s.identity.renew(time.Now()); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	s.http = &http.Server{Handler: f.handler(), TLSConfig: s.identity.config(), ReadHeaderTimeout: headLimit,
		IdleTimeout: idleLimit, MaxHeaderBytes: maxHead, ErrorLog: log.New(io.Discard, "", 0)}
	go func() {
		defer close(s.served)
		_ = s.http.ServeTLS(netutil.LimitListener(l, maxConnections), "", "") // it ends with stop
	}()
	return s, nil
}

func hostOf(l net.Listener) string {
	host, _, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		return "localhost"
	}
	return host
}

func (s *server) stop() {
	if s == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), stopLimit)
	defer cancel()
	if s.http.Shutdown(ctx) != nil {
		_ = s.http.Close() // clients ask again
	}
	<-s.served
}

// handler serves the part of the distribution API that pulls.
func (f *Forwarder) handler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rt := route.Parse(r.URL.Path)
		w.Header().Set("Docker-Distribution-Api-Version", "registry/2.0")
		switch {
		case !f.known(r):
			w.Header().Set("Www-Authenticate", `Basic realm="dayone forwarder"`)
			refuse(w, http.StatusUnauthorized, "UNAUTHORIZED",
				"the account of this node's forwarder is wanted: root has it in /run/ostree/auth.json", nil)
		case r.Method != http.MethodGet && r.Method != http.MethodHead:
			refuse(w, http.StatusMethodNotAllowed, "UNSUPPORTED",
				"this is a node's mirror: push to the registry of a control-plane node", nil)
		case rt.End == route.Base:
			base(w)
		case !route.ValidName(rt.Name):
			refuse(w, http.StatusNotFound, "NAME_UNKNOWN", "no such endpoint or repository name", nil)
		case rt.End == route.Blob && r.Method == http.MethodGet:
			blob(f, w, r, rt)
		case rt.End == route.Manifest, rt.End == route.Blob, rt.End == route.Tags, rt.End == route.Referrers:
			small(f, w, r, rt)
		default:
			refuse(w, http.StatusNotFound, "UNSUPPORTED", "no such endpoint", nil)
		}
	})
}

// base answers that the API is here.
func base(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", "2")
	_, _ = io.WriteString(w, "{}") // this fails when the client is gone
}

// known tells whether the client has the node's account.
func (f *Forwarder) known(r *http.Request) bool {
	name, password, ok := r.BasicAuth()
	sum := loginSum(name, password)
	return ok && subtle.ConstantTimeCompare(sum[:], f.login[:]) == 1
}

// writeState writes the state file when the state has changed.
func (f *Forwarder) writeState() {
	if f.o.StateFile == "" {
		return
	}
	raw, err := json.MarshalIndent(f.State(), "", "  ")
	if err != nil {
		f.o.Log.WithError(err).Warn("cannot encode the forwarder's state")
		return
	}
	if have, err := os.ReadFile(f.o.StateFile); err == nil && string(have) == string(raw) {
		return
	}
	err = os.MkdirAll(filepath.Dir(f.o.StateFile), 0o755)
	if err == nil {
		err = renameio.WriteFile(f.o.StateFile, raw, 0o644)
	}
	if err != nil {
		f.o.Log.WithError(err).Warn("cannot write the forwarder's state")
	}
}
