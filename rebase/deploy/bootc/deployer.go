package bootc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/opencontainers/go-digest"

	"dayone.dev/dayone/rebase/deploy"
	"dayone.dev/dayone/rebase/deploy/program"
)

// Deployer deploys with bootc. Source of commands and JSON: bootc-switch(8), `bootc status --format=json`
// (org.containers.bootc/v1). bootc takes kernel arguments from the image (usr/lib/bootc/kargs.d) and from nowhere else.
type Deployer struct {
	root string
	run  program.Runner
}

// New makes the deployer of the host at root, which runs programs with run.
func New(root string, run program.Runner) *Deployer { return &Deployer{root: root, run: run} }

type hostStatus struct {
	Status struct {
		Staged   *hostEntry `json:"staged"`
		Booted   *hostEntry `json:"booted"`
		Rollback *hostEntry `json:"rollback"`
		Queued   bool       `json:"rollbackQueued"`
	} `json:"status"`
}

type hostEntry struct {
	Image *struct {
		Image struct {
			Image string `json:"image"`
		} `json:"image"`
		Version string `json:"version"`
		Digest  string `json:"imageDigest"`
	} `json:"image"`
	Incompatible bool `json:"incompatible"`
	// DownloadOnly: it is staged, and no shutdown applies it (`bootc upgrade --download-only`).
	DownloadOnly bool `json:"downloadOnly"`
	// SoftRebootCapable is bootc's opinion; it does not look at composefs.
	SoftRebootCapable bool `json:"softRebootCapable"`
	OSTree            *struct {
		Stateroot string `json:"stateroot"`
		Checksum  string `json:"checksum"`
		Serial    int    `json:"deploySerial"`
	} `json:"ostree"`
	Composefs *struct {
		Verity string `json:"verity"`
	} `json:"composefs"`
}

// Status reads `bootc status --format=json`. What is only downloaded is not staged: the next boot does not take it.
func (d *Deployer) Status(ctx context.Context) (deploy.Status, error) {
	s, _, err := d.read(ctx)
	return s, err
}

// read gives what is only downloaded, too.
func (d *Deployer) read(ctx context.Context) (s deploy.Status, downloaded *deploy.Deployment, err error) {
	host, err := d.entries(ctx)
	if err != nil {
		return deploy.Status{}, nil, err
	}
	s = deploy.Status{Kind: deploy.KindBootc, Booted: host.Status.Booted.deployment(),
		Rollback: host.Status.Rollback.deployment()}
	if staged := host.Status.Staged; staged != nil && staged.DownloadOnly {
		downloaded = staged.deployment()
	} else {
		s.Staged = staged.deployment()
	}
	if host.Status.Queued {
		s.Pending, s.Rollback = s.Rollback, nil
	}
	if s.Booted != nil {
		if s.Booted.KernelArguments, err = deploy.BootArguments(d.root); err != nil {
			return deploy.Status{}, nil, err
		}
	}
	return s, downloaded, nil
}

// entries reads what bootc says of its deployments.
func (d *Deployer) entries(ctx context.Context) (s hostStatus, err error) {
	raw, err := d.run(ctx, "bootc", "status", "--format=json")
	if err != nil {
		return s, err
	}
	if err := json.Unmarshal(raw, &s); err != nil {
		return s, fmt.Errorf("read bootc status: %w", err)
	}
	return s, nil
}

func (e *hostEntry) deployment() *deploy.Deployment {
	if e == nil {
		return nil
	}
	d := &deploy.Deployment{Incompatible: e.Incompatible}
	if e.OSTree != nil {
		d.ID, d.Commit = fmt.Sprintf("%s/%s.%d", e.OSTree.Stateroot, e.OSTree.Checksum, e.OSTree.Serial), e.OSTree.Checksum
	}
	if e.Composefs != nil {
		d.ID, d.Commit, d.Composefs = e.Composefs.Verity, e.Composefs.Verity, true
	}
	if e.Image != nil {
		d.Version, d.ManifestDigest = e.Image.Version, digest.Digest(e.Image.Digest)
		if image, err := deploy.ParseImage(e.Image.Image.Image); err == nil {
			d.Image = image
		} else {
			d.Image.Digest = d.ManifestDigest // the specification names a tag
		}
	}
	return d
}

// Stage switches to image.
func (d *Deployer) Stage(ctx context.Context, image deploy.Image, o deploy.StageOptions) error {
	s, downloaded, err := d.read(ctx)
	if err != nil {
		return err
	}
	switch {
	case s.Booted == nil:
		return &deploy.Fault{Class: deploy.ClassNotOSTree, Op: "stage " + image.String(),
			Err: errors.New("bootc manages no booted deployment"), Next: "choose another deployer"}
	case s.Booted.Incompatible:
		return &deploy.Fault{Class: deploy.ClassConfig, Op: "stage " + image.String(),
			Err:  errors.New("the booted system has layered packages, which bootc cannot carry over"),
			Next: "use the rpm-ostree deployer"}
	case s.Booted.Runs(image):
		if missing := deploy.LacksKernelArguments(s.Booted.KernelArguments, o.AppendKernelArguments); len(missing) > 0 {
			return &deploy.Fault{Class: deploy.ClassConfig, Op: "set kernel arguments", Err: fmt.Errorf("bootc cannot add %s",
				strings.Join(missing, " ")),
				Next: "put them into the image, usr/lib/bootc/kargs.d/*.toml"}
		}
	}
	switch {
	case s.Next().Runs(image):
		return nil
	case downloaded.Runs(image): // a switch to it would say that nothing has changed
		_, err = d.run(ctx, "bootc", "upgrade", "--from-downloaded")
		return err
	case s.Booted.Runs(image) && s.Staged == nil: // a rollback is queued; a second one withdraws it
		return d.swap(ctx)
	}
	_, err = d.run(ctx, "bootc", "switch", "--quiet", image.String())
	return err
}

// Rollback makes the deployment before the booted one the next boot's; what is staged is discarded by bootc itself,
// with composefs by this. Where it is the next boot's already nothing is done.
func (d *Deployer) Rollback(ctx context.Context) error {
	s, err := d.Status(ctx)
	if err != nil {
		return err
	}
	if s.Staged != nil && s.Staged.Composefs {
		if err := d.drop(ctx, s.Staged); err != nil {
			return err
		}
		s.Staged = nil
	}
	if s.Pending != nil {
		if s.Staged == nil {
			return nil
		}
		if err := d.swap(ctx); err != nil { // discards what is staged, and brings the order back
			return err
		}
	}
	return d.swap(ctx)
}

// swap is what `bootc rollback` does: each call turns the boot order around.
func (d *Deployer) swap(ctx context.Context) error {
	_, err := d.run(ctx, "bootc", "rollback")
	return err
}

// Reboot asks the init system for a reboot.
func (d *Deployer) Reboot(ctx context.Context) error { return program.Reboot(ctx) }

// Unstage undeploys the staged deployment. Without composefs the ostree program does it: bootc has no command for it
// but a rollback, which turns the boot order around, and ostree's sysroot is what bootc works on, too.
func (d *Deployer) Unstage(ctx context.Context) error {
	s, err := d.Status(ctx)
	if err != nil || s.Staged == nil {
		return err
	}
	if s.Staged.Composefs {
		return d.drop(ctx, s.Staged)
	}
	_, err = d.run(ctx, "ostree", "admin", "undeploy", "0") // what is staged is always the first
	return err
}

// drop deletes a deployment of composefs. The command is hidden in bootc's help, and there is none beside it.
func (d *Deployer) drop(ctx context.Context, deployment *deploy.Deployment) error {
	_, err := d.run(ctx, "bootc", "delete-deployment", deployment.ID)
	return err
}
