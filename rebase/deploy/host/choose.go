package host

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/sirupsen/logrus"

	"dayone.dev/dayone/rebase/deploy"
	"dayone.dev/dayone/rebase/deploy/bootc"
	"dayone.dev/dayone/rebase/deploy/ostree"
	"dayone.dev/dayone/rebase/deploy/program"
	"dayone.dev/dayone/rebase/deploy/rpmostree"
)

// Choice is a deployer and why it was chosen.
type Choice struct {
	Kind     deploy.Kind
	Reason   string
	Deployer deploy.Deployer
}

// chooser finds out what manages a host.
type chooser struct {
	root string
	run  program.Runner
	find func(name string) (string, error) // exec.LookPath
	log  *logrus.Entry
}

// Choose takes the deployer that want names, or finds out what manages the host at root: rpm-ostree where it answers
// (what MCO uses), else bootc where it manages the booted deployment, else plain ostree. On a host that bootc booted
// from a composefs image only bootc can deploy. A system that neither booted is refused. log gets what the plain
// deployer does; nil: no log.
func Choose(ctx context.Context, root string, want deploy.Kind, log *logrus.Entry) (Choice, error) {
	return chooser{root: root, run: program.Run, find: exec.LookPath, log: log}.choose(ctx, want)
}

func (c chooser) choose(ctx context.Context, want deploy.Kind) (Choice, error) {
	if deploy.ComposefsBooted(c.root) {
		return c.composefs(ctx, want)
	}
	if _, err := os.Stat(filepath.Join(c.root, "run/ostree-booted")); err != nil {
		return Choice{}, &deploy.Fault{Class: deploy.ClassNotOSTree, Op: "choose deployer",
			Err:  errors.New("/run/ostree-booted is not there, and the kernel's command line has no composefs="),
			Next: "run this on a host that was booted by ostree or bootc"}
	}
	const named = "named in the configuration"
	switch want {
	case deploy.KindOSTree:
		return c.ostree(named), nil
	case deploy.KindRPMOSTree:
		return c.rpmOSTree(named), nil
	case deploy.KindBootc:
		return c.bootc(named), nil
	case "":
	default:
		return Choice{}, &deploy.Fault{Class: deploy.ClassConfig, Op: "choose deployer", Err: fmt.Errorf("%q is none", want),
			Next: "name ostree, rpm-ostree or bootc"}
	}
	if c.has("rpm-ostree") {
		rpm := c.rpmOSTree("rpm-ostree answers on this host")
		if s, err := rpm.Deployer.Status(ctx); err == nil && s.Booted != nil {
			return rpm, nil
		}
	}
	if c.has("bootc") {
		bc := c.bootc("bootc manages the booted deployment")
		if s, err := bc.Deployer.Status(ctx); err == nil && s.Booted != nil && !s.Booted.Incompatible {
			return bc, nil
		}
	}
	if !c.has("ostree") {
		return Choice{}, &deploy.Fault{Class: deploy.ClassNotOSTree, Op: "choose deployer",
			Err:  errors.New("none of rpm-ostree, bootc and ostree works on this host"),
			Next: "use a disk image that has one of them"}
	}
	return c.ostree("neither rpm-ostree nor bootc manages this host"), nil
}

// composefs chooses on a host without an ostree deployment: bootc alone deploys there.
func (c chooser) composefs(ctx context.Context, want deploy.Kind) (Choice, error) {
	if want != "" && want != deploy.KindBootc {
		return Choice{}, &deploy.Fault{Class: deploy.ClassConfig, Op: "choose deployer",
			Err:  fmt.Errorf("%s cannot deploy on this host, which bootc booted from a composefs image", want),
			Next: "name bootc, or leave the deployer out"}
	}
	bc := c.bootc("bootc booted this host from a composefs image")
	s, err := bc.Deployer.Status(ctx)
	if err == nil && s.Booted == nil {
		err = errors.New("bootc manages no booted deployment")
	}
	if err != nil {
		return Choice{}, &deploy.Fault{Class: deploy.ClassNotOSTree, Op: "choose deployer",
			Err: fmt.Errorf("read deployments of a composefs host: %w", err), Next: "look at bootc status on the node"}
	}
	return bc, nil
}

func (c chooser) has(name string) bool {
	_, err := c.find(name)
	return err == nil
}

func (c chooser) ostree(reason string) Choice {
	return Choice{Kind: deploy.KindOSTree, Reason: reason, Deployer: ostree.New(ostree.Options{Root: c.root, Log: c.log})}
}

func (c chooser) rpmOSTree(reason string) Choice {
	return Choice{Kind: deploy.KindRPMOSTree, Reason: reason, Deployer: rpmostree.New(c.root, c.run)}
}

func (c chooser) bootc(reason string) Choice {
	return Choice{Kind: deploy.KindBootc, Reason: reason, Deployer: bootc.New(c.root, c.run)}
}
