package patch

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"

	v36 "github.com/coreos/ignition/v2/config/v3_6"
	ign "github.com/coreos/ignition/v2/config/v3_6/types"
	"github.com/google/renameio/v2"

	"dayone.dev/dayone/installconfig"
	"dayone.dev/dayone/installconfig/report"
	"dayone.dev/dayone/manifests/machineconfig"
)

const (
	// maxAdded bounds what is added, in bytes: vSphere, Nutanix and KVM hand the whole file to the machine.
	maxAdded = 100 << 10
	// backupEnd ends the name of the file as it was, below installconfig.SidecarDir.
	backupEnd = ".orig"
)

// Result says what was done.
type Result struct {
	// Changed is false when the file was already so.
	Changed bool `json:"changed"`
	// Added is how many bytes the file grew by.
	Added int `json:"added"`
	// Digest identifies the additions.
	Digest string `json:"digest"`
}

// file is an installer's Ignition config.
type file struct{ dir, name string }

func (f file) path() string { return filepath.Join(f.dir, f.name) }

// target is the file of an install directory that additions are for.
func (a Additions) target(dir string) file {
	return file{dir, cmp.Or(a.Target, installconfig.BootstrapIgnition)}
}

// Apply adds a to its target in an install directory. Equal additions change nothing; others replace those of an
// earlier call. The file changes in one step.
func Apply(dir string, a Additions) (Result, error) {
	f := a.target(dir)
	if err := check(f); err != nil {
		return Result{}, err
	}
	raw, err := read(f, "run "+f.create()+" first")
	if err != nil {
		return Result{}, err
	}
	original, earlier, err := unpatched(f, raw)
	if err != nil {
		return Result{}, err
	}
	m, err := a.marker(original)
	if err != nil {
		return Result{}, err
	}
	out, err := patched(f, original, a, m)
	if err != nil {
		return Result{}, err
	}
	result := Result{Added: len(out) - len(original), Digest: m.Digest}
	if result.Added > maxAdded {
		return result, f.refuse("bootstrap-ign-size",
			"make the Containerfiles smaller, for example with COPY --from an image of their own",
			"the additions are %d bytes, and some platforms take no more than %d", result.Added, maxAdded)
	}
	if earlier != nil && earlier.Digest == m.Digest && sum(raw) == sum(out) {
		return result, nil
	}
	// The copy first: a crash in between leaves a file that was never patched.
	if err := os.MkdirAll(filepath.Join(dir, installconfig.SidecarDir), 0o700); err != nil {
		return result, fmt.Errorf("keep %s as it was: %w", f.name, err)
	}
	if err := renameio.WriteFile(f.backup(), original, 0o600); err != nil {
		return result, fmt.Errorf("keep %s as it was: %w", f.name, err)
	}
	result.Changed = true
	return result, replace(f, out)
}

// Remove undoes Apply on the file of this name: byte for byte when it has not changed since, else whatever Apply added
// is taken out.
func Remove(dir, name string) (Result, error) {
	f := file{dir, name}
	raw, err := read(f, "there is nothing to remove then; name another install directory with --dir")
	if err != nil {
		return Result{}, err
	}
	original, m, err := unpatched(f, raw)
	if err != nil || m == nil {
		return Result{}, err
	}
	if err := replace(f, original); err != nil {
		return Result{}, err
	}
	err = os.Remove(f.backup())
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return Result{Changed: true, Added: len(original) - len(raw), Digest: m.Digest}, err
}

func (f file) backup() string {
	return filepath.Join(f.dir, installconfig.SidecarDir, f.name+backupEnd)
}

// read takes what to do where the file is not there.
func read(f file, next string) ([]byte, error) {
	raw, err := os.ReadFile(f.path())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, f.refuse("bootstrap-ign-missing", next, "there is none in the install directory")
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", f.name, err)
	}
	return raw, nil
}

// unpatched gives the file without what an earlier Apply added, and that one's marker, nil where there was none.
func unpatched(f file, raw []byte) ([]byte, *marker, error) {
	c, err := parse(f, raw)
	if err != nil {
		return nil, nil, err
	}
	m, err := markerOf(f, c)
	if err != nil || m == nil {
		return raw, nil, err
	}
	kept, err := os.ReadFile(f.backup())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, nil, fmt.Errorf("read %s as it was: %w", f.name, err)
	}
	m.takeFrom(&c)
	if err == nil && sum(kept) == m.Original {
		was, err := parse(f, kept)
		if err == nil && reflect.DeepEqual(plain(was), plain(c)) {
			return kept, m, nil
		}
	}
	out, err := machineconfig.Encode(c)
	return out, m, err
}

// plain is a config as JSON without anything empty, for comparing.
func plain(c ign.Config) any {
	raw, err := machineconfig.Encode(c)
	if err != nil {
		return err
	}
	return generic(raw)
}

func markerOf(in file, c ign.Config) (*marker, error) {
	for _, f := range c.Storage.Files {
		if f.Path != markerPath {
			continue
		}
		raw, err := machineconfig.Contents(resource(f.Contents))
		m := &marker{}
		if err == nil {
			err = json.Unmarshal(raw, m)
		}
		if err != nil {
			return nil, fmt.Errorf("read %s in %s: %w", markerPath, in.name, err)
		}
		if m.Version != markerVersion {
			return nil, in.refuse("bootstrap-ign-marker", "undo it with the version of dayone that made it",
				"it was patched by another version of dayone")
		}
		return m, nil
	}
	return nil, nil
}

// patched adds and proves that nothing of the original is lost and that Ignition takes the result.
func patched(f file, original []byte, a Additions, m marker) ([]byte, error) {
	c, err := parse(f, original)
	if err != nil {
		return nil, err
	}
	if err := a.addTo(&c, m); err != nil {
		return nil, err
	}
	out, err := machineconfig.Encode(c)
	if err != nil {
		return nil, err
	}
	if _, found, err := v36.ParseCompatibleVersion(out); err != nil || found.IsFatal() {
		return nil, f.refuse("bootstrap-ign-result", "report this", "Ignition would refuse the result: %s", found.String())
	}
	return out, nil
}

// parse reads any spec from 3.1 to 3.6 into the newest types, which have every older one's fields. The version stays as
// it is. A field that these types do not have would be lost, so that is refused.
func parse(f file, raw []byte) (ign.Config, error) {
	_, found, err := v36.ParseCompatibleVersion(raw)
	if err != nil {
		detail := err.Error()
		if found.IsFatal() {
			detail += ": " + found.String()
		}
		return ign.Config{}, f.refuse("bootstrap-ign", "make it anew with "+f.create(),
			"it is no Ignition config that this version knows: %s", strings.TrimSpace(detail))
	}
	var c ign.Config
	if err := json.Unmarshal(raw, &c); err != nil {
		return c, f.refuse("bootstrap-ign", "make it anew with "+f.create(), "%v", err)
	}
	if c.Ignition.Version == "3.0.0" {
		return c, f.refuse("bootstrap-ign", "take a newer openshift-install",
			"its Ignition spec 3.0.0 has no compressed files")
	}
	again, err := machineconfig.Encode(c)
	if err != nil {
		return c, err
	}
	if !reflect.DeepEqual(generic(raw), generic(again)) {
		return c, f.refuse("bootstrap-ign-fields", "take a newer dayone",
			"it has fields that this version of dayone does not know and would lose")
	}
	return c, nil
}

// generic is JSON without anything empty.
func generic(raw []byte) any {
	var v any
	if err := json.Unmarshal(raw, &v); err != nil {
		return err
	}
	return prune(v)
}

func prune(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for key, value := range v {
			if value = prune(value); value == nil {
				delete(v, key)
			} else {
				v[key] = value
			}
		}
		if len(v) == 0 {
			return nil
		}
		return v
	case []any:
		if len(v) == 0 {
			return nil
		}
		for i := range v {
			v[i] = prune(v[i])
		}
		return v
	}
	return v
}

// replace writes in one step and keeps mode and, where this user may, the owner.
func replace(to file, content []byte) error {
	info, err := os.Stat(to.path())
	if err != nil {
		return fmt.Errorf("write %s: %w", to.name, err)
	}
	f, err := renameio.NewPendingFile(to.path(), renameio.WithStaticPermissions(info.Mode().Perm()))
	if err != nil {
		return fmt.Errorf("write %s: %w", to.name, err)
	}
	defer f.Cleanup() //nolint:errcheck // after the replacement there is nothing to clean up
	if _, err := f.Write(content); err != nil {
		return fmt.Errorf("write %s: %w", to.name, err)
	}
	if owner, ok := info.Sys().(*syscall.Stat_t); ok && os.Geteuid() == 0 {
		if err := f.Chown(int(owner.Uid), int(owner.Gid)); err != nil {
			return fmt.Errorf("write %s: %w", to.name, err)
		}
	}
	if err := f.CloseAtomicallyReplace(); err != nil {
		return fmt.Errorf("write %s: %w", to.name, err)
	}
	return nil
}

// create is the command that makes the file.
func (f file) create() string {
	switch f.name {
	case installconfig.InPlaceIgnition:
		return "openshift-install create single-node-ignition-config --dir " + f.dir
	case installconfig.AgentIgnition:
		return "coreos-installer iso ignition show " + filepath.Join(f.dir, "agent.ARCH.iso") + " > " + f.path()
	}
	return "openshift-install create ignition-configs --dir " + f.dir
}

func (f file) refuse(rule, next, format string, args ...any) error {
	return report.Finding{File: f.name, Rule: rule, Next: next, Message: fmt.Sprintf(format, args...)}
}

func (a Additions) taken(what, name string) error {
	return a.target("").refuse("bootstrap-ign-taken", "remove it, or undo an earlier patch by other means",
		"it has a %s %s already that dayone did not write", what, name)
}

// other refuses a config that does not have what the additions build on.
func (a Additions) other(what string) error {
	return a.target("").refuse("bootstrap-ign-other", "take another openshift-install, or report this with its version",
		"it has no %s: this openshift-install installs in another way than dayone knows", what)
}
