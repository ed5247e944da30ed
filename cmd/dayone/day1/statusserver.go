package day1

import (
	"context"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"

	"dayone.dev/dayone/bootstrap/day1"
	"dayone.dev/dayone/bootstrap/gather"
	"dayone.dev/dayone/bootstrap/journal"
	"dayone.dev/dayone/bootstrap/nodes"
	"dayone.dev/dayone/bootstrap/statuspage"
	"dayone.dev/dayone/build"
	"dayone.dev/dayone/installconfig"
)

// statusSocket answers how far it is; systemd makes and removes its directory.
const statusSocket = "/run/dayone/status.sock"

// statusServer shows one run: on statusSocket where its directory is there, and as a page over HTTPS where an address
// is given. A status that cannot be served stops nothing.
type statusServer struct {
	ctx     context.Context //nolint:containedctx // the run's, for what its events start
	options *day1.Options
	board   *statuspage.Collector
	listen  string
	host    string
	begun   sync.Once
}

// serveStatus makes o tell the status server what happens. listen is HOST:PORT; default: what the install directory's
// config says.
func serveStatus(ctx context.Context, o *day1.Options, config installconfig.Config, listen string) (stop func()) {
	ctx, stop = context.WithCancel(ctx)
	s := &statusServer{ctx: ctx, options: o, board: &statuspage.Collector{}, listen: listen,
		host: config.BootstrapRegistry.Host}
	if p := config.StatusPage.Port; listen == "" && p != 0 {
		s.listen = net.JoinHostPort("", strconv.Itoa(p))
	}
	logs := gather.Options{StateDir: o.StateDir, InstallDir: o.Dir}
	s.board.Bundle = func(ctx context.Context, w io.Writer) error { return gather.Host(ctx, logs, w) }
	s.board.Nodes = func() ([]nodes.Row, error) { return nodes.Read(o.StateDir) }
	s.board.Scrub(gather.Scrubber(logs))
	o.Log.Logger.AddHook(s.board)
	observe, progress := o.Observe, o.BuildProgress
	o.Observe = func(e journal.Event) {
		s.board.Observe(e)
		if e.Record.Name == day1.PhaseIdentity && e.Kind == journal.EventRecorded {
			s.begun.Do(func() {
				s.board.Scrub(gather.Scrubber(logs)) // its passwords exist from now on
				go s.page()
			})
		}
		observe(e)
	}
	o.BuildProgress = func(pool string, e build.Event) {
		if e.Output {
			s.board.Output(pool, e.Text)
		} else {
			s.board.Detail(statuspage.BuildPhase+pool, e.Text)
		}
		progress(pool, e)
	}
	if _, err := os.Stat(filepath.Dir(statusSocket)); err == nil {
		go s.warn(func() error { return s.board.ServeSocket(ctx, statusSocket) })
	}
	return stop
}

// page serves HTTPS from the moment on at which there is an authority to sign its certificate.
func (s *statusServer) page() {
	if s.listen == "" {
		return
	}
	s.warn(func() error {
		id, err := statuspage.LoadIdentity(day1.IdentityDir(s.options.StateDir), statuspage.TokenFile, s.host)
		if err != nil {
			return err
		}
		s.options.Log.WithField("address", s.listen).
			WithField("token", filepath.Join(day1.IdentityDir(s.options.StateDir), statuspage.TokenFile)).
			Info("status page is served over HTTPS")
		return s.board.ServeTLS(s.ctx, s.listen, id)
	})
}

func (s *statusServer) warn(serve func() error) {
	if err := serve(); err != nil {
		s.options.Log.WithError(err).Warn("status is not served; dayone status on this host still tells it")
	}
}
