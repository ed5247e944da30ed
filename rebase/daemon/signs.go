package daemon

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/sirupsen/logrus"

	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/rebase/nodedisk"
	"dayone.dev/dayone/rebase/nodestate"
)

const (
	// loginsPath is where the agent keeps the place in the host's journal up to which it has told of logins.
	loginsPath = "/var/lib/dayone/daemon/logins"
	// maxCursor bounds that place, in bytes; journald's has about 150.
	maxCursor = 1 << 10
	// loginsPause is before the journal is followed again when that ended.
	loginsPause = time.Minute
)

// HostJournal is the journal of the host's system; hostjournal.Journal is one.
type HostJournal interface {
	// FinalizeFailure is why the staged deployment was not finalized at the end of the boot before; empty: it was, or
	// there was none.
	FinalizeFailure(ctx context.Context) (string, error)
	// Logins calls found for each session that begins after a place in the journal, until ctx ends.
	Logins(ctx context.Context, after string, found func(cursor string)) error
}

// signs are what the host's journal says and others read on the node.
type signs struct {
	journal HostJournal // nil: nothing is read
	path    string
	log     *logrus.Entry
	bell    bell
	// finalize is why the last finalization failed; read tells that it has been asked for.
	finalize string
	read     bool

	mu sync.Mutex
	// login is the place of the last login that is not on the node yet; empty: there is none.
	login string
}

func newSigns(o Options, b bell) *signs {
	return &signs{journal: o.HostJournal, path: filepath.Join(o.Root, loginsPath), log: o.Log, bell: b}
}

// follow notes logins until ctx ends.
func (s *signs) follow(ctx context.Context) {
	for s.journal != nil && ctx.Err() == nil {
		raw, err := os.ReadFile(s.path)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			s.log.WithError(err).Warn("cannot read up to which login the node's annotation tells")
		}
		err = s.journal.Logins(ctx, strings.TrimSpace(string(raw[:min(len(raw), maxCursor)])), s.loggedIn)
		if ctx.Err() != nil {
			return
		}
		if errors.Is(err, exec.ErrNotFound) { // a host without systemd
			s.log.WithError(err).Info("logins are not seen")
			return
		}
		s.log.WithError(err).Warn("cannot follow logins: once more in a minute")
		if err := os.Remove(s.path); err != nil && !errors.Is(err, fs.ErrNotExist) { // it may be no place of this journal
			s.log.WithError(err).Warn("cannot forget the place in the journal")
		}
		select {
		case <-ctx.Done():
		case <-time.After(loginsPause):
		}
	}
}

func (s *signs) loggedIn(cursor string) {
	s.mu.Lock()
	s.login = cursor
	s.mu.Unlock()
	s.bell.ring()
}

// show brings what the host's journal says onto the node. It is for others: what fails is logged and tried again.
func (s *signs) show(ctx context.Context, e *edges, n node) {
	if s.journal == nil || n.away {
		return
	}
	if err := errors.Join(s.showFinalize(ctx, e, n), s.showLogins(ctx, e, n)); err != nil {
		s.log.WithError(err).Warn("cannot show what the host's journal says")
	}
}

// showFinalize looks once for each process: a boot has one finalization before it.
func (s *signs) showFinalize(ctx context.Context, e *edges, n node) error {
	if s.read {
		return nil
	}
	said, err := s.journal.FinalizeFailure(ctx)
	if err != nil {
		s.read = true // the journal's programs are not there
		return err
	}
	var r nodestate.Record
	r.SetReason(said)
	if r.Reason != "" && r.Reason != n.object.Annotations[manifests.AnnotationFinalizeFailure] {
		e.events.tell(ctx, n, occasion{reason: "FailedFinalization", warning: true, message: r.Reason})
	}
	words := map[string]string{manifests.AnnotationFinalizeFailure: r.Reason}
	if err := e.record.say(ctx, n.object.Annotations, words); err != nil {
		return err
	}
	s.finalize, s.read = r.Reason, true
	return nil
}

// showLogins marks a node that somebody has logged in to. Whoever takes the mark off sees the next login.
func (s *signs) showLogins(ctx context.Context, e *edges, n node) error {
	s.mu.Lock()
	cursor := s.login
	s.mu.Unlock()
	if cursor == "" {
		return nil
	}
	words := map[string]string{manifests.AnnotationSSH: manifests.SSHAccessed}
	if err := e.record.say(ctx, n.object.Annotations, words); err != nil {
		return err
	}
	if err := nodedisk.WriteFile(s.path, []byte(cursor), 0o600); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.login == cursor {
		s.login = ""
	}
	return nil
}

// cause adds to a failure of a boot why the deployment for it was not finalized, if that is known.
func (s *signs) cause(err error) error {
	if s.finalize == "" {
		return err
	}
	return fmt.Errorf("%w; ostree has said at the last shutdown: %s", err, s.finalize)
}
