package serve

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sirupsen/logrus"
	"golang.org/x/net/netutil"
	"golang.org/x/sync/errgroup"
)

// Limits of one connection. The largest request is Ignition's: one header of some hundred bytes; the slowest client is
// a node with a poor link, which has five minutes for a config.
const (
	readHeaderTimeout = 10 * time.Second
	readTimeout       = 30 * time.Second
	writeTimeout      = 5 * time.Minute
	idleTimeout       = 2 * time.Minute
	maxHeaderBytes    = 16 << 10
)

// Server serves configs from a snapshot of the rendered directory and replaces the snapshot when files change.
type Server struct {
	options      Options
	reloading    sync.Mutex // of two reloads the one that read last is the one that stays
	current      atomic.Pointer[snapshot]
	print        atomic.Pointer[string]
	certificate  *certificate
	metrics      *metrics
	files        map[string]localFile
	secure       net.Listener
	insecure     net.Listener
	measurements net.Listener
	unfit        string // why the last poll refused the certificate's files
}

// New checks the options, reads the rendered directory and opens the listeners; Run serves them. A directory that is
// not complete yet is no error: its pools are answered with 404 until they appear, and the log says so. A file in its
// place is one, and so is a named kubeconfig that does not exist.
func New(o Options) (*Server, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	o = o.withDefaults()
	if at, err := os.Stat(o.BaseDir); err == nil && !at.IsDir() {
		return nil, fmt.Errorf("check rendered directory: %s is a file, and a directory is wanted", o.BaseDir)
	}
	if o.Kubeconfig != "" {
		if _, err := os.Stat(o.Kubeconfig); err != nil {
			return nil, fmt.Errorf("find kubeconfig: %w", err)
		}
	}
	s := &Server{options: o, metrics: newMetrics()}
	var err error
	if s.files, err = openFiles(o.Files); err != nil {
		return nil, err
	}
	if o.SecureListen != "" {
		s.certificate = &certificate{certFile: o.CertFile, keyFile: o.KeyFile}
		if err := s.certificate.load(); err != nil {
			s.close()
			return nil, err
		}
	}
	s.Reload()
	if err := s.listen(); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

func (s *Server) listen() error {
	for _, l := range []struct {
		address string
		into    *net.Listener
	}{{s.options.SecureListen, &s.secure}, {s.options.InsecureListen, &s.insecure},
		{s.options.MetricsListen, &s.measurements}} {
		if l.address == "" {
			continue
		}
		listener, err := net.Listen("tcp", l.address)
		if err != nil {
			return fmt.Errorf("listen on %s: %w", l.address, err)
		}
		*l.into = netutil.LimitListener(listener, s.options.MaxConnections)
	}
	return nil
}

// localFile is one of Options.Files. It stays open: a package that is upgraded meanwhile puts another file in its
// place, whose hash nodes were not told.
type localFile struct {
	opened *os.File
	info   fs.FileInfo
}

func openFiles(paths map[string]string) (map[string]localFile, error) {
	files := map[string]localFile{}
	for name, local := range paths {
		f, err := os.Open(local)
		if err != nil {
			closeFiles(files)
			return nil, fmt.Errorf("open file to serve: %w", err)
		}
		info, err := f.Stat()
		files[name] = localFile{f, info}
		if err == nil && !info.Mode().IsRegular() {
			err = fmt.Errorf("%s is not a regular file", local)
		}
		if err != nil {
			closeFiles(files)
			return nil, fmt.Errorf("open file to serve: %w", err)
		}
	}
	return files, nil
}

func closeFiles(files map[string]localFile) {
	for _, f := range files {
		_ = f.opened.Close() // it was only read
	}
}

func (s *Server) close() {
	closeFiles(s.files)
	for _, l := range []net.Listener{s.secure, s.insecure, s.measurements} {
		if l != nil {
			_ = l.Close()
		}
	}
}

// SecureAddr is the HTTPS listener's address with its port, "" without one.
func (s *Server) SecureAddr() string { return address(s.secure) }

// InsecureAddr is the HTTP listener's address with its port, "" without one.
func (s *Server) InsecureAddr() string { return address(s.insecure) }

func address(l net.Listener) string {
	if l == nil {
		return ""
	}
	return l.Addr().String()
}

// Reload reads all files again and swaps the answers at once. A renderer in the same process calls it after writing;
// otherwise the poll notices the change.
func (s *Server) Reload() {
	s.reloading.Lock()
	defer s.reloading.Unlock()
	print := fingerprint(s.options)
	fresh := load(s.options)
	s.print.Store(&print)
	s.current.Store(fresh)
	s.metrics.reloads.Inc()
	if s.options.Source == nil && len(fresh.pools) == 0 {
		s.options.Log.WithFields(logrus.Fields{"directory": s.options.BaseDir, "pools": s.options.Pools}).
			Warn("there is no pool to serve in the directory: the server answers every request for a config with 404, " +
				"which ends Ignition, until dayone render has written one there")
	}
	for name, pool := range fresh.pools {
		log := s.options.Log.WithField("pool", name)
		if pool.err != nil {
			log.WithError(pool.err).Warn("pool cannot be served")
			continue
		}
		if kept := pool.material.kept(); len(kept) > 0 {
			log.WithField("paths", kept).Warn("machineconfig brings files that the server would add; its own are served")
		}
		log.WithField("config", pool.material.config.Name).Info("pool is served")
	}
}

// Run serves until ctx ends, then waits for requests under way, at most for the grace time. It returns nil after a stop
// by ctx.
func (s *Server) Run(ctx context.Context) error {
	defer s.close()
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return s.watch(ctx) })
	handler := s.Handler()
	if s.secure != nil {
		group.Go(func() error { return s.serve(ctx, tls.NewListener(s.secure, s.tlsConfig()), handler) })
	}
	if s.insecure != nil {
		group.Go(func() error { return s.serve(ctx, s.insecure, handler) })
	}
	if s.measurements != nil {
		group.Go(func() error { return s.serve(ctx, s.measurements, s.metrics.handler()) })
	}
	return group.Wait()
}

// serve runs one listener until ctx ends.
func (s *Server) serve(ctx context.Context, l net.Listener, h http.Handler) error {
	server := &http.Server{
		Handler: h, ReadHeaderTimeout: readHeaderTimeout, ReadTimeout: readTimeout, WriteTimeout: writeTimeout,
		IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeaderBytes,
		TLSNextProto: map[string]func(*http.Server, *tls.Conn, http.Handler){}, // HTTP/1.1 only, as MCO's server
		ErrorLog:     errorLog(s.options.Log),
	}
	stopped := make(chan error, 1)
	go func() {
		<-ctx.Done()
		// The parent is done, so the grace time has a context of its own.
		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.options.Grace)
		defer cancel()
		stopped <- server.Shutdown(grace)
	}()
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve on %s: %w", l.Addr(), err)
	}
	if err := <-stopped; err != nil {
		return fmt.Errorf("stop serving on %s: %w", l.Addr(), err)
	}
	return nil
}

// watch polls the files until ctx ends, and reloads after a change when two polls in a row see the same.
func (s *Server) watch(ctx context.Context) error {
	ticker := time.NewTicker(s.options.PollInterval)
	defer ticker.Stop()
	last := *s.print.Load()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		s.reloadCertificate()
		seen := fingerprint(s.options)
		if seen == last && seen != *s.print.Load() {
			s.Reload()
		}
		last = seen
	}
}

// reloadCertificate runs at each poll; the log says once what is wrong with the files.
func (s *Server) reloadCertificate() {
	if s.certificate == nil {
		return
	}
	err := s.certificate.load()
	if err == nil {
		s.unfit = ""
		return
	}
	if s.unfit != err.Error() {
		s.unfit = err.Error()
		s.options.Log.WithError(err).Warn("certificate not reloaded; the old one stays")
	}
}
