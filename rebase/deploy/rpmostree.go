package deploy

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/opencontainers/go-digest"
)

// RPMOSTree deploys with rpm-ostree, as MCO does on CoreOS. Source of commands and JSON: rpm-ostree(1), `rpm-ostree
// status --json`.
type RPMOSTree struct {
	root   string
	run    program
	reboot func(context.Context) error
}

// NewRPMOSTree makes the deployer.
func NewRPMOSTree(root string) *RPMOSTree {
	return &RPMOSTree{root: root, run: runProgram, reboot: rebootSystem}
}

type rpmOSTreeStatus struct {
	Deployments []rpmOSTreeDeployment `json:"deployments"`
}

type rpmOSTreeDeployment struct {
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
func (d *RPMOSTree) Status(ctx context.Context) (Status, error) {
	raw, err := d.run(ctx, "rpm-ostree", "status", "--json")
	if err != nil {
		return Status{}, err
	}
	var all rpmOSTreeStatus
	if err := json.Unmarshal(raw, &all); err != nil {
		return Status{}, fmt.Errorf("read rpm-ostree status: %w", err)
	}
	s := Status{Kind: KindRPMOSTree}
	for _, one := range all.Deployments {
		deployment := one.deployment()
		switch {
		case one.Booted:
			if deployment.KernelArguments, err = bootArguments(d.root); err != nil {
				return Status{}, err
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

func (r rpmOSTreeDeployment) deployment() *Deployment {
	d := &Deployment{ID: fmt.Sprintf("%s/%s.%d", r.OSName, r.Checksum, r.Serial), Commit: r.Checksum, Version: r.Version,
		ManifestDigest: digest.Digest(r.Digest)}
	if image, err := ParseImage(imageOfOrigin(r.Reference)); err == nil {
		d.Image = image
	} else {
		d.Image.Digest = d.ManifestDigest // the reference names a tag, or there is none
	}
	return d
}

// Stage rebases and sets kernel arguments; what is there already is left alone, because rpm-ostree refuses to rebase to
// the same reference.
func (d *RPMOSTree) Stage(ctx context.Context, image Image, o StageOptions) error {
	s, err := d.Status(ctx)
	if err != nil {
		return err
	}
	next := s.Next()
	switch {
	case next.Runs(image):
	// only the order is wrong: a rollback that is taken back
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
			if _, err := d.run(ctx, "rpm-ostree", "rebase", "ostree-unverified-registry:"+image.String()); err != nil {
				return err
			}
		}
	}
	var options []string
	remove, add := o.arguments()
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

func words(lines []string) []string { return splitArguments(strings.Join(lines, " ")) }

// Rollback makes the deployment before the booted one the next boot's. Where it is that already nothing is done:
// rpm-ostree would take it for pending, and remove it or undo the rollback.
func (d *RPMOSTree) Rollback(ctx context.Context) error {
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
func (d *RPMOSTree) Reboot(ctx context.Context) error { return d.reboot(ctx) }
