package deploy

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// Choice is a deployer and why it was taken.
type Choice struct {
	Kind     Kind
	Reason   string
	Deployer Deployer
}

// Choose takes the deployer that want names, or finds out what this host is: rpm-ostree where it answers (what MCO uses), else bootc
// where it manages the booted deployment, else plain ostree. A system that was not booted by ostree is refused.
func Choose(ctx context.Context, want Kind, o OSTreeOptions) (Choice, error) {
	root := o.Root
	if root == "" {
		root = "/"
	}
	if _, err := os.Stat(filepath.Join(root, "run/ostree-booted")); err != nil {
		return Choice{}, &Fault{Class: ClassNotOSTree, Op: "choose deployer", Err: errors.New("/run/ostree-booted is not there"), Next: "run this on a host that was booted by ostree"}
	}
	ostree := Choice{Kind: KindOSTree, Deployer: NewOSTree(o)}
	switch want {
	case KindOSTree:
		ostree.Reason = "named in the configuration"
		return ostree, nil
	case KindRPMOSTree, KindBootc:
		return Choice{}, &Fault{Class: ClassConfig, Op: "choose deployer", Err: fmt.Errorf("%s is not supported", want), Next: "name ostree"}
	}
	if _, err := exec.LookPath("ostree"); err != nil {
		return Choice{}, &Fault{Class: ClassNotOSTree, Op: "choose deployer", Err: errors.New("neither rpm-ostree nor bootc nor ostree is on this host"), Next: "use a disk image that has one of them"}
	}
	ostree.Reason = "neither rpm-ostree nor bootc manages this host"
	return ostree, nil
}
