package deploy

import (
	"context"

	"github.com/opencontainers/go-digest"
)

// Kind names a deployer.
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
	// Status reads what is booted, what the next boot will take and what it can revert to.
	Status(ctx context.Context) (Status, error)
	// Stage makes image the next boot's deployment without touching the running one. Staging what is staged already does
	// nothing. Callers call host.CheckStaged afterwards.
	Stage(ctx context.Context, image Image, o StageOptions) error
	// Reboot asks for an orderly reboot and returns when it has been asked for.
	Reboot(ctx context.Context) error
}

// Fetcher brings an image into the node's store before it is needed: nothing is staged, and the next boot stays what it
// was.
type Fetcher interface {
	// Fetch brings the image. Cancelled or killed, it leaves nothing that a later Fetch or Stage has to clear away, and
	// both go on from what has come.
	Fetch(ctx context.Context, image Image, o FetchOptions) error
	// Forget drops the image, or what has come of it, unless a deployment was made from it. That nothing is there is no
	// error.
	Forget(ctx context.Context, image Image) error
}

// FetchOptions tune Fetch; the zero value sets no bound.
type FetchOptions struct {
	// BytesPerSecond bounds what arrives of layers; 0: no bound. A deployer that leaves the transfer to another
	// program cannot bound it.
	BytesPerSecond int64
	// Transfer counts what arrives; nil: no count.
	Transfer *Transfer
}

// Rollbacker reverts to the deployment before the booted one, with the next reboot.
type Rollbacker interface {
	Rollback(ctx context.Context) error
}

// Unstager withdraws what is staged, so that the next boot takes what it would have taken without. Nothing staged is no
// error.
type Unstager interface {
	Unstage(ctx context.Context) error
}

// SoftRebooter takes the staged deployment by a soft reboot: userspace starts anew in it, hardware and kernel run on.
// Whether that is right for the two deployments is the caller's to decide (rebase/softreboot). A Reboot withdraws what
// is prepared.
type SoftRebooter interface {
	// PrepareSoft lets the next soft reboot take the staged deployment; a plain `systemctl reboot` may be one from then
	// on. A failure says what the deployer's program says, and leaves nothing prepared.
	PrepareSoft(ctx context.Context) error
	// SoftReboot asks for it, after PrepareSoft, and returns when it has been asked for.
	SoftReboot(ctx context.Context) error
	// CancelSoft withdraws what is prepared; that nothing is prepared is no error.
	CancelSoft(ctx context.Context) error
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
	ID              string        // STATEROOT/COMMIT.N, or Commit where Composefs is set
	Commit          string        // of composefs: the fs-verity digest of its image
	Image           Image         // as its origin names it; zero for a deployment that came from no image
	ManifestDigest  digest.Digest // as it was imported
	Version         string
	KernelArguments []string // nil when they are not known yet
	Incompatible    bool     // bootc: has changes that bootc cannot carry (layered packages)
	Composefs       bool     // bootc: no ostree deployment; its tree is an image, not a directory
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
