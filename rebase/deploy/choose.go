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

// chooser finds out what manages a host.
type chooser struct {
	root  string
	run   program
	find  func(name string) (string, error) // exec.LookPath
	plain OSTreeOptions
}

// Choose takes the deployer that want names, or finds out what manages this host: rpm-ostree where it answers (what MCO
// uses), else bootc where it manages the booted deployment, else plain ostree. A system that was not booted by ostree
// is refused.
func Choose(ctx context.Context, want Kind, o OSTreeOptions) (Choice, error) {
	c := chooser{root: o.Root, run: runProgram, find: exec.LookPath, plain: o}
	if c.root == "" {
		c.root = "/"
	}
	return c.choose(ctx, want)
}

func (c chooser) choose(ctx context.Context, want Kind) (Choice, error) {
	if _, err := os.Stat(filepath.Join(c.root, "run/ostree-booted")); err != nil {
		return Choice{}, &Fault{Class: ClassNotOSTree, Op: "choose deployer",
			Err: errors.New("/run/ostree-booted is not there"), Next: "run this on a host that was booted by ostree"}
	}
	const named = "named in the configuration"
	switch want {
	case KindOSTree:
		return c.ostree(named), nil
	case KindRPMOSTree:
		return c.rpmOSTree(named), nil
	case KindBootc:
		return c.bootc(named), nil
	case "":
	default:
		return Choice{}, &Fault{Class: ClassConfig, Op: "choose deployer", Err: fmt.Errorf("%q is none", want),
			Next: "name ostree, rpm-ostree or bootc"}
	}
	if c.has("rpm-ostree") {
		rpm := c.rpmOSTree("rpm-ostree answers on this host")
		if s, err := rpm.Deployer.Status(ctx); err == nil && s.Booted != nil {
			return rpm, nil
		}
	}
	if c.has("bootc") {
		bootc := c.bootc("bootc manages the booted deployment")
		if s, err := bootc.Deployer.Status(ctx); err == nil && s.Booted != nil && !s.Booted.Incompatible {
			return bootc, nil
		}
	}
	if !c.has("ostree") {
		return Choice{}, &Fault{Class: ClassNotOSTree, Op: "choose deployer",
			Err:  errors.New("none of rpm-ostree, bootc and ostree works on this host"),
			Next: "use a disk image that has one of them"}
	}
	return c.ostree("neither rpm-ostree nor bootc manages this host"), nil
}

func (c chooser) has(name string) bool {
	_, err := c.find(name)
	return err == nil
}

func (c chooser) ostree(reason string) Choice {
	return Choice{Kind: KindOSTree, Reason: reason, Deployer: NewOSTree(c.plain)}
}

func (c chooser) rpmOSTree(reason string) Choice {
	return Choice{Kind: KindRPMOSTree, Reason: reason, Deployer: &RPMOSTree{root: c.root, run: c.run,
		reboot: rebootSystem}}
}

func (c chooser) bootc(reason string) Choice {
	return Choice{Kind: KindBootc, Reason: reason, Deployer: &Bootc{root: c.root, run: c.run, reboot: rebootSystem}}
}
