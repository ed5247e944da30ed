package gather

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"sort"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"dayone.dev/dayone/bootstrap/handover"
	"dayone.dev/dayone/bootstrap/journal"
	"dayone.dev/dayone/bootstrap/nodes"
)

// hostGatherer gathers one host into an archive.
type hostGatherer struct {
	Options
	archive *archive
}

// Places of a bundle. The first three are openshift-install's own; analyze reads all.
const (
	dirServices = "bootstrap/services"
	dirJournals = "bootstrap/journals"
	dirNetwork  = "bootstrap/network"
	dirDayone   = "bootstrap/dayone"
	dirRendered = "rendered-assets/dayone"
	dirAssets   = "rendered-assets/openshift"
)

// hostStatus is what a state directory cannot say of itself.
type hostStatus struct {
	// Gathered is the time of the bundle.
	Gathered string `json:"gathered"`
	// Running says that a dayone bootstrap worked in the state directory at that time.
	Running bool `json:"running"`
	// DiskFree and DiskTotal are of the file system of the state directory, in bytes.
	DiskFree  uint64 `json:"diskFree,omitempty"`
	DiskTotal uint64 `json:"diskTotal,omitempty"`
	// RegistryBytes is what the embedded registry takes, in bytes.
	RegistryBytes int64 `json:"registryBytes,omitempty"`
}

// state gathers the journal and how the last run ended.
func (h *hostGatherer) state(context.Context) error {
	status := hostStatus{Gathered: h.Now().UTC().Format(time.RFC3339Nano)}
	running, err := journal.Running(h.StateDir)
	if err != nil {
		h.archive.note("state of the bootstrap: %v", err)
	}
	status.Running = running
	var disk unix.Statfs_t
	if err := unix.Statfs(h.StateDir, &disk); err == nil {
		block := uint64(disk.Bsize) //nolint:gosec // sizes are positive
		status.DiskFree, status.DiskTotal = disk.Bavail*block, disk.Blocks*block
	}
	status.RegistryBytes = bytesBelow(filepath.Join(h.StateDir, "registry"))
	raw, err := json.MarshalIndent(status, "", "  ")
	if err != nil {
		return fmt.Errorf("encode status: %w", err)
	}
	return errors.Join(h.archive.add(path.Join(dirDayone, "status.json"), raw),
		h.file(filepath.Join(h.StateDir, journal.File), path.Join(dirDayone, journal.File)),
		h.file(filepath.Join(h.StateDir, nodes.File), path.Join(dirDayone, nodes.File)),
		h.file(filepath.Join(h.StateDir, journal.OutcomeFile), path.Join(dirDayone, journal.OutcomeFile)),
		h.file(filepath.Join(h.StateDir, handover.MarkFile), path.Join(dirDayone, handover.MarkFile)))
}

// bytesBelow adds up the files of a tree.
func bytesBelow(dir string) int64 {
	var sum int64
	// A tree that changes while it is walked gives what was seen.
	_ = filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if err == nil && e.Type().IsRegular() {
			if info, err := e.Info(); err == nil {
				sum += info.Size()
			}
		}
		return nil
	})
	return sum
}

// records gathers the service records, as the installer's own script does: dayone's are among them.
func (h *hostGatherer) records(context.Context) error {
	return h.tree(h.Root+"/var/log/openshift", dirServices, func(string) bool { return true })
}

// buildLogs gathers the full logs of image builds.
func (h *hostGatherer) buildLogs(context.Context) error {
	return h.tree(filepath.Join(h.StateDir, "build"), path.Join(dirDayone, "build-logs"),
		func(name string) bool { return strings.HasSuffix(name, ".log") })
}

// installDir gathers what the user wrote and what dayone generated, without Secrets.
func (h *hostGatherer) installDir(context.Context) error {
	if h.InstallDir == "" {
		return nil
	}
	var errs []error
	for _, sub := range []string{"openshift", "manifests", "layering", ".dayone"} {
		errs = append(errs, h.tree(filepath.Join(h.InstallDir, sub), path.Join(dirAssets, sub), func(name string) bool {
			lower := strings.ToLower(name)
			return !strings.Contains(lower, "secret") && !strings.Contains(lower, "kubeconfig") &&
				!strings.Contains(lower, "password") &&
				!strings.HasSuffix(lower, ".key") && !strings.HasSuffix(lower, "auth.json")
		}))
	}
	return errors.Join(append(errs, h.file(filepath.Join(h.InstallDir, "install-config.yaml"),
		path.Join(dirAssets, "install-config.yaml")))...)
}

// tree gathers the regular files of a directory; links are not followed. Objects that hold content are redacted by what
// they are.
func (h *hostGatherer) tree(dir, to string, take func(name string) bool) error {
	var names []string
	err := filepath.WalkDir(dir, func(file string, e fs.DirEntry, err error) error {
		switch {
		case err != nil && errors.Is(err, fs.ErrNotExist):
			return nil
		case err != nil:
			h.archive.note("%s: %v", file, err)
			return nil
		case e.IsDir() && e.Name() == path.Base(InstallerDir):
			return filepath.SkipDir // a copy of what this bundle has anyway
		case e.Type().IsRegular() && take(e.Name()) && len(names) < maxFiles:
			names = append(names, file)
		}
		return nil
	})
	if err != nil {
		h.archive.note("%s: %v", dir, err)
	}
	sort.Strings(names)
	for _, file := range names {
		inside, err := filepath.Rel(dir, file)
		if err != nil {
			continue // cannot be: it was found below dir
		}
		if err := h.file(file, path.Join(to, filepath.ToSlash(inside))); err != nil {
			return err
		}
	}
	return nil
}

// file gathers one file: of a log that is too long its end.
func (h *hostGatherer) file(from, to string) error {
	f, err := os.Open(from)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		h.archive.note("%s: %v", from, err)
		return nil
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		h.archive.note("%s: not a regular file", from)
		return nil
	}
	head := ""
	if info.Size() > h.MaxFile {
		if !strings.HasSuffix(from, ".log") && !strings.HasSuffix(from, ".txt") {
			h.archive.note("%s: left out: %d bytes are more than %d", from, info.Size(), h.MaxFile)
			return nil
		}
		if _, err := f.Seek(-h.MaxFile, io.SeekEnd); err != nil {
			h.archive.note("%s: %v", from, err)
			return nil
		}
		head = fmt.Sprintf("[the first %d bytes are left out]\n", info.Size()-h.MaxFile)
	}
	raw, err := io.ReadAll(io.LimitReader(f, h.MaxFile))
	if err != nil {
		h.archive.note("%s: %v", from, err)
	}
	return h.archive.add(to, append([]byte(head), redact(to, raw, h.mask())...))
}
