package ostree

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/opencontainers/go-digest"

	"dayone.dev/dayone/rebase/deploy"
	"dayone.dev/dayone/rebase/deploy/pull"
)

// originKey is where ostree-ext keeps the image of a deployment. Source: ostree-ext, container/deploy.rs
// (ORIGIN_CONTAINER).
const originKey = "container-image-reference"

// statusLine reads the first line of each deployment in `ostree admin status`; the same from 2022.7 to 2025.2:
// a star for the booted one, the stateroot, the commit with its serial, then marks in brackets.
var statusLine = regexp.MustCompile(`^([* ]) (\S+) ([0-9a-f]{64})\.(\d+)((?: ?\([^)]*\))*)\s*$`)

type statusEntry struct {
	booted               bool
	stateroot            string
	commit               string
	serial               string
	staged, pending, old bool
	next                 bool // prepared for a soft reboot
}

func (e statusEntry) id() string { return e.stateroot + "/" + e.commit + "." + e.serial }

func parseStatus(text string) []statusEntry {
	var all []statusEntry
	for _, line := range strings.Split(text, "\n") {
		m := statusLine.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		all = append(all, statusEntry{booted: m[1] == "*", stateroot: m[2], commit: m[3], serial: m[4],
			staged: strings.Contains(m[5], "(staged)"), pending: strings.Contains(m[5], "(pending)"),
			old: strings.Contains(m[5], "(rollback)"), next: strings.Contains(m[5], "(soft-reboot)")})
	}
	return all
}

// Status reads `ostree admin status`, the origin files and the commits' metadata.
func (d *Deployer) Status(ctx context.Context) (deploy.Status, error) {
	entries, err := d.entries(ctx)
	if err != nil {
		return deploy.Status{}, err
	}
	return d.statusOf(entries)
}

func (d *Deployer) statusOf(entries []statusEntry) (deploy.Status, error) {
	arguments, err := d.bootEntries()
	if err != nil {
		return deploy.Status{}, err
	}
	s := deploy.Status{Kind: deploy.KindOSTree}
	for _, e := range entries {
		deployment, err := d.describe(e)
		if err != nil {
			return deploy.Status{}, err
		}
		for _, b := range arguments {
			if b.deployment == d.deploymentDir(e) {
				deployment.KernelArguments = deploy.WithoutOSTree(b.options)
			}
		}
		switch {
		case e.booted:
			s.Booted = deployment
		case e.staged:
			s.Staged = deployment
		case e.pending:
			s.Pending = deployment
		case e.old, s.Booted != nil && s.Rollback == nil:
			s.Rollback = deployment
		}
	}
	return s, nil
}

func (d *Deployer) entries(ctx context.Context) ([]statusEntry, error) {
	text, err := d.admin(ctx, "status")
	if err != nil {
		return nil, err
	}
	return parseStatus(text), nil
}

func (d *Deployer) describe(e statusEntry) (*deploy.Deployment, error) {
	metadata, err := d.store.Metadata(e.commit)
	if err != nil {
		return nil, err
	}
	manifestDigest := digest.Digest(metadata[pull.MetaManifestDigest])
	image, err := readOrigin(d.deploymentDir(e) + ".origin")
	if err != nil {
		return nil, err
	}
	if image.IsZero() {
		image.Digest = manifestDigest
	}
	return &deploy.Deployment{ID: e.id(), Commit: e.commit, Image: image, ManifestDigest: manifestDigest,
		Version: metadata["version"]}, nil
}

// deploymentDir is where a deployment is checked out, with links resolved when it is there.
func (d *Deployer) deploymentDir(e statusEntry) string {
	dir := filepath.Join(d.root, "ostree/deploy", e.stateroot, "deploy", e.commit+"."+e.serial)
	if real, err := filepath.EvalSymlinks(dir); err == nil {
		return real
	}
	return dir
}

// readOrigin gives the image that a deployment's origin file names; zero when it names none by digest.
func readOrigin(path string) (deploy.Image, error) {
	raw, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return deploy.Image{}, nil
	}
	if err != nil {
		return deploy.Image{}, fmt.Errorf("read origin: %w", err)
	}
	for _, line := range strings.Split(string(raw), "\n") {
		value, ok := strings.CutPrefix(strings.TrimSpace(line), originKey+"=")
		if !ok {
			continue
		}
		if image, err := deploy.ImageOfOrigin(strings.TrimSpace(value)); err == nil {
			return image, nil
		}
	}
	return deploy.Image{}, nil
}
