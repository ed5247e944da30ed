package deploy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/opencontainers/go-digest"
)

// Bootc deploys with bootc. Source of commands and JSON: bootc-switch(8), `bootc status --format=json`
// (org.containers.bootc/v1). bootc takes kernel arguments from the image (usr/lib/bootc/kargs.d) and from nowhere else.
type Bootc struct {
	root   string
	run    program
	reboot func(context.Context) error
}

// NewBootc makes the deployer.
func NewBootc(root string) *Bootc {
	return &Bootc{root: root, run: runProgram, reboot: rebootSystem}
}

type bootcHost struct {
	Status struct {
		Staged   *bootcEntry `json:"staged"`
		Booted   *bootcEntry `json:"booted"`
		Rollback *bootcEntry `json:"rollback"`
		Queued   bool        `json:"rollbackQueued"`
	} `json:"status"`
}

type bootcEntry struct {
	Image *struct {
		Image struct {
			Image string `json:"image"`
		} `json:"image"`
		Version string `json:"version"`
		Digest  string `json:"imageDigest"`
	} `json:"image"`
	Incompatible bool `json:"incompatible"`
	OSTree       *struct {
		Stateroot string `json:"stateroot"`
		Checksum  string `json:"checksum"`
		Serial    int    `json:"deploySerial"`
	} `json:"ostree"`
}

// Status reads `bootc status --format=json`.
func (d *Bootc) Status(ctx context.Context) (Status, error) {
	raw, err := d.run(ctx, "bootc", "status", "--format=json")
	if err != nil {
		return Status{}, err
	}
	var host bootcHost
	if err := json.Unmarshal(raw, &host); err != nil {
		return Status{}, fmt.Errorf("read bootc status: %w", err)
	}
	s := Status{Kind: KindBootc, Staged: host.Status.Staged.deployment(), Booted: host.Status.Booted.deployment(),
		Rollback: host.Status.Rollback.deployment()}
	if host.Status.Queued {
		s.Pending, s.Rollback = s.Rollback, nil
	}
	if s.Booted != nil {
		if s.Booted.KernelArguments, err = bootArguments(d.root); err != nil {
			return Status{}, err
		}
	}
	return s, nil
}

func (e *bootcEntry) deployment() *Deployment {
	if e == nil {
		return nil
	}
	d := &Deployment{Incompatible: e.Incompatible}
	if e.OSTree != nil {
		d.ID, d.Commit = fmt.Sprintf("%s/%s.%d", e.OSTree.Stateroot, e.OSTree.Checksum, e.OSTree.Serial), e.OSTree.Checksum
	}
	if e.Image != nil {
		d.Version, d.ManifestDigest = e.Image.Version, digest.Digest(e.Image.Digest)
		if image, err := ParseImage(e.Image.Image.Image); err == nil {
			d.Image = image
		} else {
			d.Image.Digest = d.ManifestDigest // the specification names a tag
		}
	}
	return d
}

// Stage switches to image.
func (d *Bootc) Stage(ctx context.Context, image Image, o StageOptions) error {
	s, err := d.Status(ctx)
	if err != nil {
		return err
	}
	switch {
	case s.Booted == nil:
		return &Fault{Class: ClassNotOSTree, Op: "stage " + image.String(),
			Err: errors.New("bootc manages no booted deployment"), Next: "choose another deployer"}
	case s.Booted.Incompatible:
		return &Fault{Class: ClassConfig, Op: "stage " + image.String(),
			Err:  errors.New("the booted system has layered packages, which bootc cannot carry over"),
			Next: "use the rpm-ostree deployer"}
	case s.Booted.Runs(image):
		if missing := missingArguments(s.Booted.KernelArguments, o.AppendKernelArguments); len(missing) > 0 {
			return &Fault{Class: ClassConfig, Op: "set kernel arguments", Err: fmt.Errorf("bootc cannot add %s",
				strings.Join(missing, " ")),
				Next: "put them into the image, usr/lib/bootc/kargs.d/*.toml"}
		}
	}
	switch {
	case s.Next().Runs(image):
		return nil
	case s.Booted.Runs(image) && s.Staged == nil: // a rollback is queued; a second one takes it back
		return d.swap(ctx)
	}
	_, err = d.run(ctx, "bootc", "switch", "--quiet", image.String())
	return err
}

func missingArguments(now, want []string) []string {
	return slices.DeleteFunc(words(want), func(word string) bool { return slices.Contains(now, word) })
}

// Rollback makes the deployment before the booted one the next boot's; what is staged is discarded by bootc itself.
// Where it is the next boot's already nothing is done.
func (d *Bootc) Rollback(ctx context.Context) error {
	s, err := d.Status(ctx)
	if err != nil {
		return err
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
func (d *Bootc) swap(ctx context.Context) error {
	_, err := d.run(ctx, "bootc", "rollback")
	return err
}

// Reboot asks the init system for a reboot.
func (d *Bootc) Reboot(ctx context.Context) error { return d.reboot(ctx) }
