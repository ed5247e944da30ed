package rpmostree

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/opencontainers/go-digest"

	"dayone.dev/dayone/rebase/deploy"
	"dayone.dev/dayone/rebase/deploy/program"
)

// Deployer deploys with rpm-ostree, as MCO does on CoreOS. Source of commands and JSON: rpm-ostree(1), `rpm-ostree
// status --json`.
type Deployer struct {
	root string
	run  program.Runner
}

// New makes the deployer of the host at root, which runs programs with run.
func New(root string, run program.Runner) *Deployer { return &Deployer{root: root, run: run} }

type hostStatus struct {
	Deployments []hostDeployment `json:"deployments"`
	// UpdateDriver is null where nothing else drives this host's updates.
	UpdateDriver map[string]any `json:"update-driver"`
}

type hostDeployment struct {
	ID        string `json:"id"`
	OSName    string `json:"osname"`
	Serial    int    `json:"serial"`
	Checksum  string `json:"checksum"`
	Version   string `json:"version"`
	Booted    bool   `json:"booted"`
	Staged    bool   `json:"staged"`
	Reference string `json:"container-image-reference"`
	Digest    string `json:"container-image-reference-digest"`
}

// Status reads `rpm-ostree status --json`, whose list begins with what the next boot takes.
func (d *Deployer) Status(ctx context.Context) (deploy.Status, error) {
	all, err := d.read(ctx)
	if err != nil {
		return deploy.Status{}, err
	}
	return d.status(all)
}

func (d *Deployer) read(ctx context.Context) (all hostStatus, err error) {
	raw, err := d.run(ctx, "rpm-ostree", "status", "--json")
	if err != nil {
		return all, err
	}
	if err := json.Unmarshal(raw, &all); err != nil {
		return all, fmt.Errorf("read rpm-ostree status: %w", err)
	}
	return all, nil
}

func (d *Deployer) status(all hostStatus) (s deploy.Status, err error) {
	s.Kind = deploy.KindRPMOSTree
	for _, one := range all.Deployments {
		deployment := one.deployment()
		switch {
		case one.Booted:
			if deployment.KernelArguments, err = deploy.BootArguments(d.root); err != nil {
				return deploy.Status{}, err
			}
			s.Booted = deployment
		case one.Staged:
			s.Staged = deployment
		case s.Booted == nil:
			s.Pending = deployment
		case s.Rollback == nil:
			s.Rollback = deployment
		}
	}
	return s, nil
}

func (r hostDeployment) deployment() *deploy.Deployment {
	d := &deploy.Deployment{ID: fmt.Sprintf("%s/%s.%d", r.OSName, r.Checksum, r.Serial), Commit: r.Checksum,
		Version: r.Version, ManifestDigest: digest.Digest(r.Digest)}
	if image, err := deploy.ImageOfOrigin(r.Reference); err == nil {
		d.Image = image
	} else {
		d.Image.Digest = d.ManifestDigest // the reference names a tag, or there is none
	}
	return d
}

// rebase is the command line for image. Where an updates driver is registered (Fedora CoreOS: Zincati), rpm-ostree
// leaves rebases to it unless it is told not to; hosts whose rpm-ostree does not know drivers do not know the option.
func (s hostStatus) rebase(image deploy.Image, options ...string) []string {
	if s.UpdateDriver != nil {
		options = append(options, "--bypass-driver")
	}
	return append(append([]string{"rebase"}, options...), "ostree-unverified-registry:"+image.String())
}

// Stage rebases and sets kernel arguments; what is there already is left alone, because rpm-ostree refuses to rebase to
// the same reference.
func (d *Deployer) Stage(ctx context.Context, image deploy.Image, o deploy.StageOptions) error {
	all, err := d.read(ctx)
	if err != nil {
		return err
	}
	s, err := d.status(all)
	if err != nil {
		return err
	}
	next := s.Next()
	switch {
	case next.Runs(image):
	// only the order is wrong: a rollback that is withdrawn
	case s.Booted.Runs(image) && s.Staged == nil && s.Rollback == nil:
		if _, err := d.run(ctx, "rpm-ostree", "rollback"); err != nil {
			return err
		}
	default:
		if s.Staged != nil || s.Pending != nil {
			if _, err := d.run(ctx, "rpm-ostree", "cleanup", "-p"); err != nil {
				return err
			}
		}
		if !s.Booted.Runs(image) {
			if _, err := d.run(ctx, "rpm-ostree", all.rebase(image)...); err != nil {
				return err
			}
		}
	}
	var options []string
	remove, add := o.KernelArguments()
	for _, word := range remove {
		options = append(options, "--delete-if-present="+word)
	}
	for _, word := range add {
		options = append(options, "--append-if-missing="+word)
	}
	if len(options) == 0 {
		return nil
	}
	_, err = d.run(ctx, "rpm-ostree", append([]string{"kargs"}, options...)...)
	return err
}

// Rollback makes the deployment before the booted one the next boot's. Where it is that already nothing is done:
// rpm-ostree would take it for pending, and remove it or undo the rollback.
func (d *Deployer) Rollback(ctx context.Context) error {
	s, err := d.Status(ctx)
	if err != nil {
		return err
	}
	if s.Pending != nil && s.Staged == nil && s.Rollback == nil {
		return nil
	}
	if s.Staged != nil || s.Pending != nil {
		if _, err := d.run(ctx, "rpm-ostree", "cleanup", "-p"); err != nil {
			return err
		}
	}
	_, err = d.run(ctx, "rpm-ostree", "rollback")
	return err
}

// Reboot asks the init system for a reboot.
func (d *Deployer) Reboot(ctx context.Context) error { return program.Reboot(ctx) }

// Fetch lets rpm-ostree download the image. Source: rpm-ostree(1), rebase --download-only.
func (d *Deployer) Fetch(ctx context.Context, image deploy.Image, _ deploy.FetchOptions) error {
	all, err := d.read(ctx)
	if err != nil {
		return err
	}
	s, err := d.status(all)
	if err != nil {
		return err
	}
	for _, have := range []*deploy.Deployment{s.Booted, s.Staged, s.Pending, s.Rollback} {
		if have.Runs(image) {
			return nil // rpm-ostree refuses to rebase to what it has
		}
	}
	_, err = d.run(ctx, "rpm-ostree", all.rebase(image, "--download-only")...)
	return err
}

// Forget does nothing: rpm-ostree drops images that no deployment was made from with its next transaction, and has no
// command for one of them.
func (d *Deployer) Forget(context.Context, deploy.Image) error { return nil }

// Unstage removes the staged deployment. rpm-ostree knows no difference to a pending one; where something is staged
// nothing is pending.
func (d *Deployer) Unstage(ctx context.Context) error {
	s, err := d.Status(ctx)
	if err != nil || s.Staged == nil {
		return err
	}
	_, err = d.run(ctx, "rpm-ostree", "cleanup", "-p")
	return err
}
