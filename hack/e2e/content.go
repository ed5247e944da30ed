package e2e

import (
	"archive/tar"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sort"
	"strconv"
	"strings"

	ign35 "github.com/coreos/ignition/v2/config/v3_5/types"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"

	"dayone.dev/dayone/build"
	"dayone.dev/dayone/manifests/machineconfig"
)

// wantFile is a file that must be in a node.
type wantFile struct {
	sha256 string
	// mode is -1 where it does not count.
	mode int64
}

// rendered checks the rendered config's files and units inside the node: content, mode, and that ostree sees those
// below /etc as unmodified, so that a later image can change them.
func (c inspector) rendered(config *mcfgv1.MachineConfig) {
	parsed, err := machineconfig.ParseRendered(config.Spec.Config.Raw)
	if err != nil {
		c.add("rendered config", false, "%v", err)
		return
	}
	want := map[string]wantFile{}
	for _, f := range parsed.Storage.Files {
		content, err := machineconfig.Contents(f.Contents)
		if err != nil {
			c.add("rendered config", false, "%s: %v", f.Path, err)
			continue
		}
		mode := int64(0o644)
		if f.Mode != nil {
			mode = int64(*f.Mode)
		}
		want[f.Path] = wantFile{sha256: hashOf(content), mode: mode}
	}
	files := len(want)
	for _, u := range parsed.Systemd.Units {
		dir := "/etc/systemd/system/"
		if u.Contents != nil && *u.Contents != "" {
			want[dir+u.Name] = wantFile{sha256: hashOf([]byte(*u.Contents)), mode: 0o644}
		}
		for _, d := range u.Dropins {
			if d.Contents != nil {
				want[dir+u.Name+".d/"+d.Name] = wantFile{sha256: hashOf([]byte(*d.Contents)), mode: 0o644}
			}
		}
	}
	c.present(fmt.Sprintf("%d files and %d unit files of the rendered config", files, len(want)-files), want)
	c.unmodified(want)
	c.enabled(parsed.Systemd.Units)
}

// enabled looks for the links by which systemd starts the config's enabled units.
func (c inspector) enabled(units []ign35.Unit) {
	var names, bad []string
	for _, u := range units {
		if u.Enabled == nil || !*u.Enabled {
			continue
		}
		names = append(names, u.Name)
		r, err := c.node.Exec(c.ctx, "sh", "-c",
			`ls /etc/systemd/system/*.wants/"$1" /etc/systemd/system/*.requires/"$1" 2>/dev/null | grep -q .`, "sh", u.Name)
		if err != nil || r.ExitCode != 0 {
			bad = append(bad, u.Name)
		}
	}
	if len(bad) > 0 {
		c.add("enabled units", false, "no link for %s", strings.Join(bad, ", "))
		return
	}
	c.add("enabled units", true, "%s", strings.Join(names, ", "))
}

func (c inspector) containerfile(layered map[string]wantFile) {
	c.present(fmt.Sprintf("%d files that the Containerfile made", len(layered)), layered)
}

// present compares files in the node with what they must be, all by one command.
func (c inspector) present(what string, want map[string]wantFile) {
	if len(want) == 0 {
		return
	}
	paths := sortedKeys(want)
	out, err := c.node.Output(c.ctx, append([]string{"sh", "-c",
		`for f; do stat -c %a "$f" && sha256sum < "$f" || echo missing; done`, "sh"}, paths...)...)
	if err != nil {
		c.add(what, false, "%v", err)
		return
	}
	lines := strings.Split(out, "\n")
	var bad []string
	for _, p := range paths {
		if len(lines) < 2 || lines[0] == "missing" {
			bad = append(bad, p+" is missing")
			lines = lines[min(1, len(lines)):]
			continue
		}
		mode, _ := strconv.ParseInt(lines[0], 8, 64)
		sum, _, _ := strings.Cut(lines[1], " ")
		lines = lines[2:]
		if w := want[p]; sum != w.sha256 || w.mode >= 0 && w.mode != mode {
			bad = append(bad, fmt.Sprintf("%s differs (mode %o)", p, mode))
		}
	}
	c.add(what, len(bad) == 0, "%s", strings.Join(bad, ", "))
}

// unmodified asks ostree which files of /etc differ from the image's.
func (c inspector) unmodified(want map[string]wantFile) {
	const what = "ostree sees them as unmodified in /etc"
	out, err := c.node.Output(c.ctx, "ostree", "admin", "config-diff")
	if err != nil {
		c.add(what, false, "%v", err)
		return
	}
	var bad []string
	for _, line := range strings.Split(out, "\n") {
		if fields := strings.Fields(line); len(fields) == 2 {
			if _, ours := want["/etc/"+fields[1]]; ours {
				bad = append(bad, line)
			}
		}
	}
	c.add(what, len(bad) == 0, "%s", strings.Join(bad, ", "))
}

// layeredFiles lists the regular files in the layers that the Containerfile made, read from the embedded registry's
// disk.
func layeredFiles(stateDir string, built build.Result) (map[string]wantFile, error) {
	want := map[string]wantFile{}
	for _, l := range built.Layers {
		if l.From != "containerfile" {
			continue
		}
		hexDigest := strings.TrimPrefix(l.Digest, "sha256:")
		blob := filepath.Join(stateDir, "registry", "docker/registry/v2/blobs/sha256", hexDigest[:2], hexDigest, "data")
		if err := addLayer(blob, want); err != nil {
			return nil, fmt.Errorf("read layer %s: %w", l.Digest, err)
		}
	}
	return want, nil
}

func addLayer(blob string, want map[string]wantFile) error {
	f, err := os.Open(blob)
	if err != nil {
		return err
	}
	defer f.Close()
	plain, err := gzip.NewReader(f)
	if err != nil {
		return err
	}
	for tr := tar.NewReader(plain); ; {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		path := "/" + strings.Trim(h.Name, "/")
		base := filepath.Base(path)
		if after, ok := strings.CutPrefix(base, ".wh."); ok {
			delete(want, filepath.Join(filepath.Dir(path), after))
			continue
		}
		if h.Typeflag != tar.TypeReg || !(strings.HasPrefix(path, "/usr/") || strings.HasPrefix(path, "/etc/")) {
			continue
		}
		sum := sha256.New()
		if _, err := io.Copy(sum, tr); err != nil {
			return err
		}
		want[path] = wantFile{sha256: hex.EncodeToString(sum.Sum(nil)), mode: h.Mode & 0o7777}
	}
}

func hashOf(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

func sortedKeys(m map[string]wantFile) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	return keys
}
