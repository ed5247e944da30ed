package deploy

import (
	"context"

	"github.com/opencontainers/go-digest"
)

// Kind names a way to deploy.
type Kind string

// The three deployers.
const (
	KindOSTree    Kind = "ostree"
	KindRPMOSTree Kind = "rpm-ostree"
	KindBootc     Kind = "bootc"
)

// Deployer brings an image onto the node it runs on. Success of a rebase is what Status says after the reboot, never an
// exit code.
type Deployer interface {
	// Status reads what is booted, what the next boot will take and what there is to go back to.
	Status(ctx context.Context) (Status, error)
	// Stage makes image the next boot's deployment without touching the running one. Staging what is staged already does
	// nothing. Callers call CheckStaged afterwards.
	Stage(ctx context.Context, image Image, o StageOptions) error
	// Reboot asks for an orderly reboot and returns when it has been asked for.
	Reboot(ctx context.Context) error
}

// Rollbacker goes back to the deployment before the booted one, with the next reboot.
type Rollbacker interface {
	Rollback(ctx context.Context) error
}

// Unstager takes back what is staged, so that the next boot takes what it would have taken without. Nothing staged is
// no error.
type Unstager interface {
	Unstage(ctx context.Context) error
}

// StageOptions change what the next boot takes, beside the image.
type StageOptions struct {
	// AppendKernelArguments are added unless the booted deployment has them already, word for word.
	AppendKernelArguments []string
	// DeleteKernelArguments are removed where they are there; what is to be appended as well stays.
	DeleteKernelArguments []string
	// Transfer counts what comes of the image; nil: nobody wants to know.
	Transfer *Transfer
}

// Status is what a node's deployments are. A nil deployment is not there.
type Status struct {
	Kind     Kind
	Booted   *Deployment
	Staged   *Deployment // becomes the default at the next orderly shutdown
	Pending  *Deployment // is the default already
	Rollback *Deployment
}

// Deployment is one bootable tree on the node.
type Deployment struct {
	ID              string // STATEROOT/COMMIT.N
	Commit          string
	Image           Image         // as its origin names it; zero for a deployment that came from no image
	ManifestDigest  digest.Digest // as it was imported
	Version         string
	KernelArguments []string // nil when they are not known yet
	Incompatible    bool     // bootc: has changes that bootc cannot carry (layered packages)
}

// Runs tells whether d was made from image, by digest.
func (d *Deployment) Runs(image Image) bool {
	if d == nil || image.IsZero() {
		return false
	}
	return d.Image.Digest == image.Digest || d.ManifestDigest == image.Digest
}

// Next is the deployment that the next boot takes.
func (s Status) Next() *Deployment {
	switch {
	case s.Staged != nil:
		return s.Staged
	case s.Pending != nil:
		return s.Pending
	default:
		return s.Booted
	}
}
