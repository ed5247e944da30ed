package day1

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/sirupsen/logrus"
	"golang.org/x/sys/unix"

	"dayone.dev/dayone/bootstrap/journal"
	"dayone.dev/dayone/installconfig/report"
)

const (
	// scratchDir holds copies of images and of credentials while they are needed, below the state directory.
	scratchDir = "tmp"
	// othersWrite and othersAccess are permission bits of group and others.
	othersWrite, othersAccess fs.FileMode = 0o022, 0o077
)

// OpenState makes a state directory or checks one that is there, and locks it. It refuses one that another user owns or
// may write to, because whoever can write there decides what the nodes run; one on a network file system; and a copy of
// another host's. It closes what others may read only, and
// empties the scratch directory of a killed process; done removes that of this one and drops the lock.
func OpenState(o Options) (done func(), err error) {
	if err := os.MkdirAll(o.StateDir, 0o700); err != nil {
		return nil, fmt.Errorf("make state directory: %w", err)
	}
	if unix.Access(o.StateDir, unix.W_OK) == unix.EROFS {
		return nil, report.Finding{Severity: report.Error, File: o.StateDir, Rule: "state-read-only",
			Message: "its file system is mounted read-only: neither the journal nor images can be kept",
			Next:    "mount it for writing (mount -o remount,rw), or give another --state-dir"}
	}
	var fileSystem unix.Statfs_t
	if err := unix.Statfs(o.StateDir, &fileSystem); err != nil {
		return nil, fmt.Errorf("look at the state directory's file system: %w", err)
	}
	if err := errors.Join(checkPlace(o.StateDir, int64(fileSystem.Type)), checkState(o.StateDir)); err != nil {
		return nil, err
	}
	unlock, err := journal.Lock(o.StateDir)
	if err != nil {
		return nil, err
	}
	if err := belongToHost(o.StateDir, machineIDFile); err != nil {
		unlock()
		return nil, err
	}
	removeScratch(o.StateDir, o.Log)
	if err := os.MkdirAll(filepath.Join(o.StateDir, scratchDir), 0o700); err != nil {
		unlock()
		return nil, fmt.Errorf("make scratch directory: %w", err)
	}
	return func() {
		removeScratch(o.StateDir, o.Log)
		unlock()
	}, nil
}

// removeScratch removes what copies left. It may hold credentials.
func removeScratch(stateDir string, log *logrus.Entry) {
	if err := os.RemoveAll(filepath.Join(stateDir, scratchDir)); err != nil {
		log.WithError(err).Warn("scratch files are left in the state directory")
	}
}

// checkState checks the directories and files that decide what nodes run and whom they trust.
func checkState(stateDir string) error {
	places := []string{stateDir, IdentityDir(stateDir), filepath.Join(stateDir, journal.File)}
	files, err := os.ReadDir(IdentityDir(stateDir))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("read identity directory: %w", err)
	}
	for _, f := range files {
		if !strings.HasSuffix(f.Name(), ".crt") { // certificates are public
			places = append(places, filepath.Join(IdentityDir(stateDir), f.Name()))
		}
	}
	for _, place := range places {
		if err := keepPrivate(place); err != nil {
			return err
		}
	}
	return nil
}

// keepPrivate refuses what another user owns or may write to. It takes the permission to read from others.
func keepPrivate(place string) error {
	info, err := os.Stat(place)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("check the state directory: %w", err)
	}
	finding := report.Finding{Severity: report.Error, File: place, Rule: "state-owner"}
	me := os.Geteuid()
	if owner, ok := info.Sys().(*syscall.Stat_t); ok && int(owner.Uid) != me {
		finding.Message = fmt.Sprintf("the user with number %d owns it, and dayone runs as %d: its owner could choose what "+
			"the nodes run", owner.Uid, me)
		finding.Next = fmt.Sprintf("check what is in it, then give it to the user of dayone (chown -R %d), or give another "+
			"--state-dir", me)
		return finding
	}
	if mode := info.Mode().Perm(); mode&othersWrite != 0 {
		finding.Message = fmt.Sprintf("other users may write to it (mode %04o): they could choose what the nodes run", mode)
		finding.Next = "check what is in it, then close it (chmod go= " + place + "), or give another --state-dir"
		return finding
	}
	if mode := info.Mode().Perm(); mode&othersAccess != 0 {
		if err := os.Chmod(place, mode&^othersAccess); err != nil {
			return fmt.Errorf("close the state directory to other users: %w", err)
		}
	}
	return nil
}
