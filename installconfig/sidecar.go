package installconfig

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/google/renameio/v2"
	"go.yaml.in/yaml/v3"

	"dayone.dev/dayone/installconfig/report"
)

// SidecarDir is dayone's own directory inside the install directory.
const SidecarDir = ".dayone"

// sidecarFile holds what prepare took out of install-config.yaml.
const sidecarFile = "layering.yaml"

// ErrNotPrepared says that the install directory has neither the field nor a sidecar.
var ErrNotPrepared = errors.New("the install directory is not prepared: put " + Field + " into " + FileName +
	" and run dayone prepare")

// Sidecar is the layering field with its defaults and what else later steps need of install-config.yaml, which
// openshift-install deletes.
type Sidecar struct {
	// Cluster names the cluster.
	Cluster Cluster `yaml:"cluster" json:"cluster"`
	// Config is the field with every default written out.
	Config Config `yaml:"onClusterLayering" json:"onClusterLayering"`
}

// SidecarPath is the sidecar's path in an install directory.
func SidecarPath(dir string) string { return filepath.Join(dir, SidecarDir, sidecarFile) }

// Write stores the sidecar, mode 0600 in a directory of mode 0700, replacing an older one in one step.
func (s *Sidecar) Write(dir string) error {
	if err := os.MkdirAll(filepath.Join(dir, SidecarDir), 0o700); err != nil {
		return fmt.Errorf("make directory for the sidecar: %w", err)
	}
	var b bytes.Buffer
	b.WriteString("# Written by dayone prepare from " + FileName + "; run it again instead of editing this file.\n")
	enc := yaml.NewEncoder(&b)
	enc.SetIndent(2)
	if err := errors.Join(enc.Encode(s), enc.Close()); err != nil {
		return fmt.Errorf("encode sidecar: %w", err)
	}
	if err := renameio.WriteFile(SidecarPath(dir), b.Bytes(), 0o600); err != nil {
		return fmt.Errorf("write sidecar: %w", err)
	}
	return nil
}

// ReadSidecar loads what prepare stored. Without one it returns ErrNotPrepared; a damaged one is a finding.
func ReadSidecar(dir string) (*Sidecar, error) {
	raw, err := os.ReadFile(SidecarPath(dir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, ErrNotPrepared
	}
	if err != nil {
		return nil, fmt.Errorf("read sidecar: %w", err)
	}
	s := &Sidecar{}
	dec := yaml.NewDecoder(bytes.NewReader(raw))
	dec.KnownFields(true)
	if err := dec.Decode(s); err != nil {
		return nil, report.Finding{File: SidecarPath(dir), Rule: "yaml", Message: "the file is damaged: " + err.Error(),
			Next: "put " + Field + " into " + FileName + " again, then run dayone prepare: it writes the file anew"}
	}
	setDefaults(&s.Config) // those of keys that an older version did not have
	return s, nil
}

// Prepare loads the field, stores it in the sidecar and takes it out of install-config.yaml. It can be repeated:
// without the field, a directory that already has a sidecar is left as it is.
func Prepare(dir string) (*Sidecar, error) {
	doc, err := Load(dir)
	if err != nil {
		return nil, err
	}
	if doc.Config == nil {
		return ReadSidecar(dir)
	}
	s, err := doc.Resolve(dir)
	if err != nil {
		return nil, err
	}
	stripped, err := doc.stripped()
	if err != nil {
		return nil, err
	}
	// The sidecar first: a crash in between leaves the field in place, and the next run repeats both steps.
	if err := s.Write(dir); err != nil {
		return nil, err
	}
	info, err := os.Stat(filepath.Join(dir, FileName))
	if err != nil {
		return nil, fmt.Errorf("check %s: %w", FileName, err)
	}
	if err := replace(filepath.Join(dir, FileName), stripped, info); err != nil {
		return nil, fmt.Errorf("write %s without the field: %w", FileName, err)
	}
	return s, nil
}

// replace puts content in place of a file in one step and keeps its mode and, where this user may, its owner: prepare
// may run under sudo.
func replace(name string, content []byte, was os.FileInfo) error {
	f, err := renameio.NewPendingFile(name, renameio.WithStaticPermissions(was.Mode().Perm()))
	if err != nil {
		return err
	}
	defer f.Cleanup() //nolint:errcheck // after the replacement there is nothing to clean up
	if _, err := f.Write(content); err != nil {
		return err
	}
	if owner, ok := was.Sys().(*syscall.Stat_t); ok && os.Geteuid() == 0 {
		if err := f.Chown(int(owner.Uid), int(owner.Gid)); err != nil {
			return err
		}
	}
	return f.CloseAtomicallyReplace()
}
