package registry

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/gofrs/flock"
	"github.com/opencontainers/go-digest"
	"github.com/sirupsen/logrus"
	"golang.org/x/net/netutil"

	"dayone.dev/dayone/registry/storage"
	"dayone.dev/dayone/registry/strangers"
)

const (
	// headerTimeout ends a client that does not finish its request header (slowloris).
	headerTimeout = 10 * time.Second
	// idleTimeout ends a kept connection without requests; longer than the pauses of podman and rpm-ostree between layers.
	idleTimeout = 2 * time.Minute
	// maxHeaderBytes holds a long Link or _state query with room.
	maxHeaderBytes = 64 << 10

	lockFile = ".dayone-registry.lock"
)

// Server is one registry. Several may run in one process, each on its own Root.
type Server struct {
	o        Options
	log      *logrus.Entry
	accounts *accounts
	pair     atomic.Pointer[tls.Certificate] // of new connections

	mu      sync.Mutex // guards what Start and Shutdown change
	service *service
	lock    *flock.Flock
	ln      net.Listener
	http    *http.Server
	conns   openConns
	errs    chan error
	served  chan struct{}
	fetches func()       // ends what comes from the upstream
	keep    func()       // ends the housekeeping
	beside  func()       // ends what works beside
	control func() error // ends the maintenance commands
}

// New checks the options. It touches neither disk nor network.
func New(o Options) (*Server, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	o = o.withDefaults()
	acc, err := newAccounts(o.Users)
	if err != nil {
		return nil, err
	}
	o.Users = nil // no password stays in memory longer than needed
	return &Server{o: o, log: o.Log, accounts: acc, errs: make(chan error, 1)}, nil
}

// Start opens Root and serves. It returns when the server accepts connections. After Shutdown the server may be started
// again.
func (s *Server) Start() (err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ln != nil {
		return fmt.Errorf("start registry on %s: it runs already", s.o.Listen)
	}
	if err := prepareRoot(s.o); err != nil {
		return err
	}
	if s.lock, err = lockRoot(s.o.Root, s.o.ReadOnly); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.release())
		}
	}()
	if err := s.openStorage(); err != nil {
		return err
	}
	if s.control, err = serveControl(s.o.Root, s.service); err != nil {
		// a file system without sockets, or no /proc: the images are served all the same
		s.log.WithError(err).Warn("registry takes no maintenance commands while it runs")
		s.control = func() error { return nil }
	}
	if err := s.listen(); err != nil {
		return errors.Join(err, s.control())
	}
	return nil
}

func (s *Server) openStorage() error {
	last, err := readNote[Scrub](s.o.Root, scrubFile)
	if err != nil {
		return err
	}
	svc := &service{root: s.o.Root, realm: s.o.Realm, accounts: s.accounts, readOnly: s.o.ReadOnly,
		maxManifest: s.o.MaxManifestBytes, sparse: s.o.Sparse, pulled: s.o.Pulled, reports: s.o.Reports,
		reportsPath: s.o.ReportsPath, log: s.log,
		house: house{maxBytes: s.o.MaxBytes, minFree: s.o.MinFreeBytes, scrubbed: last}}
	corrupt := logCorrupt(s.log)
	store, err := storage.Open(s.o.Root, storage.Options{MaxBytes: s.o.MaxBytes, MinFreeBytes: s.o.MinFreeBytes,
		ReadOnly: s.o.ReadOnly, UploadIdle: s.o.UploadIdle, MaxUploads: s.o.MaxUploads, Log: s.log,
		Report: func(d digest.Digest, away string) {
			svc.metrics.corrupt.Inc()
			corrupt(d, away)
		}})
	if err != nil {
		return err
	}
	svc.store, svc.metrics = store, newMetrics(store, &svc.house)
	checked, err := store.Check(context.Background()) // it repairs what a crash left, however long it takes
	if err != nil {
		return fmt.Errorf("check registry root: %w", err)
	}
	if len(checked.Repaired)+len(checked.Removed) > 0 {
		s.log.WithFields(logrus.Fields{"repaired": checked.Repaired, "removed": checked.Removed}).
			Warn("registry root was repaired after a crash")
	}
	if s.o.Upstream != nil {
		svc.through, s.fetches = newPullThrough(svc, s.o.Upstream, s.o.CollectEvery)
	}
	s.service = svc
	return nil
}

func logCorrupt(log *logrus.Entry) func(digest.Digest, string) {
	return func(d digest.Digest, away string) {
		log.WithFields(logrus.Fields{"digest": d, "quarantine": away}).
			Error("registry blob is corrupt on disk and is not served, push its image again")
	}
}

func (s *Server) listen() error {
	var config *tls.Config
	if !s.o.InsecureHTTP {
		if err := s.ReloadCertificate(); err != nil {
			return err
		}
		config = s.tlsConfig()
	}
	ln, err := net.Listen("tcp", s.o.Listen)
	if err != nil {
		return fmt.Errorf("listen for registry clients: %w", err)
	}
	s.ln = ln
	s.http = s.newHTTP()
	s.served = make(chan struct{})
	go s.serve(s.http, ln, config, s.served)
	s.keep = keepHouse(s.service, housekeepingPeriod, s.o)
	s.beside = s.workBeside(s.service.store)
	return nil
}

// workBeside lets Options.Beside work until stop is called, which waits for it.
func (s *Server) workBeside(store *storage.Store) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { s.o.Beside(ctx, store) })
	return func() {
		cancel()
		running.Wait()
	}
}

// newHTTP bounds how long clients may keep the server waiting: ReadTimeout ends a request whose body does not come, and
// timedBody puts it off while the body does.
func (s *Server) newHTTP() *http.Server {
	return &http.Server{
		Handler: s.service, ReadHeaderTimeout: headerTimeout, ReadTimeout: stallTimeout, IdleTimeout: idleTimeout,
		MaxHeaderBytes: maxHeaderBytes,
		ErrorLog:       newErrorLog(s.log), ConnState: s.conns.track, ConnContext: strangers.ConnContext,
	}
}

func (s *Server) serve(srv *http.Server, ln net.Listener, config *tls.Config, served chan<- struct{}) {
	defer close(served)
	most := s.o.MaxConnections
	ln = pacedListener{strangers.Listen(netutil.LimitListener(ln, most), most/strangerShare, most/addressShare)}
	if config != nil {
		ln = tls.NewListener(ln, config)
	}
	if err := srv.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
		select {
		case s.errs <- fmt.Errorf("serve registry: %w", err):
		default: // one error is waiting to be read already
		}
	}
}

// Addr is HOST:PORT as the server listens, "" before Start.
func (s *Server) Addr() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ln == nil {
		return ""
	}
	return s.ln.Addr().String()
}

// Addresses are the HOST:PORT forms under which clients reach the running server, as its own certificate names them.
func (s *Server) Addresses() []string {
	o := s.o
	if _, port, err := net.SplitHostPort(s.Addr()); err == nil {
		host, _, _ := net.SplitHostPort(o.Listen) // New has looked at its form
		o.Listen = net.JoinHostPort(host, port)
	}
	return o.Addresses()
}

// Err yields an error when the server stops without Shutdown. It is never closed.
func (s *Server) Err() <-chan error { return s.errs }

// SetUsers replaces the accounts. A user that is left out or has a new password is refused from the next request on.
func (s *Server) SetUsers(users []User) error { return s.accounts.set(users) }

// Shutdown stops accepting, waits for requests under way until ctx ends, then cuts them, and releases Root.
func (s *Server) Shutdown(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.http == nil {
		return nil
	}
	s.beside()
	s.conns.shut()
	defer s.conns.open()
	err := s.http.Shutdown(ctx)
	if err != nil {
		s.conns.cut()
		err = errors.Join(fmt.Errorf("stop registry: %w", err), s.http.Close())
	}
	<-s.served
	s.keep()
	return errors.Join(err, s.control(), s.release())
}

// release undoes what Start did, as far as it came.
func (s *Server) release() error {
	var errs []error
	if s.fetches != nil {
		s.fetches()
	}
	if s.lock != nil {
		errs = append(errs, s.lock.Close())
	}
	s.service, s.lock, s.ln, s.http, s.fetches = nil, nil, nil, nil, nil
	return errors.Join(errs...)
}

var errRootInUse = errors.New("another registry or dayone registry command uses it, stop that first")

// prepareRoot makes the root, or looks whether it is one when nothing may be made.
func prepareRoot(o Options) error {
	if o.ReadOnly {
		return isRoot(o.Root)
	}
	if err := os.MkdirAll(o.Root, 0o700); err != nil {
		return fmt.Errorf("make registry root: %w", err)
	}
	return nil
}

// lockRoot makes sure that one server or maintenance command uses a root: both keep state of it in memory. Servers that
// only read may share it. On a file system that cannot be written to, a root that was never locked needs no lock.
func lockRoot(root string, readOnly bool) (*flock.Flock, error) {
	lock := flock.New(filepath.Join(root, lockFile), flock.SetPermissions(0o600))
	try := lock.TryLock
	if readOnly {
		try = lock.TryRLock
	}
	locked, err := try()
	if readOnly && errors.Is(err, syscall.EROFS) {
		return lock, nil
	}
	if err != nil {
		return nil, fmt.Errorf("lock registry root: %w", err)
	}
	if !locked {
		return nil, fmt.Errorf("lock registry root %s: %w", root, errRootInUse)
	}
	return lock, nil
}
