package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"dayone.dev/dayone/hack/baseimage"
	"dayone.dev/dayone/hack/testnode"
	"dayone.dev/dayone/installconfig"
	"dayone.dev/dayone/installconfig/report"
	"dayone.dev/dayone/manifests/assets"
)

// Run is one Day 1 while it happens.
type Run struct {
	Options
	// Dir is the copy of the install directory, State the bootstrap's state directory.
	Dir, State string
	// Base is where the base image is taken from; BaseLayout is it as an OCI layout, for the nodes' disks.
	BaseLayout string
	Lab        *testnode.Lab
	Bootstrap  *Process
	Masters    []*testnode.Node
	sidecar    *installconfig.Sidecar
	started    time.Time
	spans      []Span
}

// Day1 does everything and closes all it made, unless Keep is set. The Report is there from the masters' disks on, even
// when something fails: it names what Keep leaves running.
func Day1(ctx context.Context, o Options) (report *Report, err error) {
	r, err := Prepare(ctx, o)
	if err != nil {
		return nil, err
	}
	defer func() {
		if !r.Keep || report == nil {
			err = errors.Join(err, r.Close(context.WithoutCancel(ctx)))
		}
	}()
	return r.Day1(ctx)
}

// Day1 takes prepared masters through theirs, and looks at each.
func (r *Run) Day1(ctx context.Context) (*Report, error) {
	if err := r.MakeMasters(ctx); err != nil {
		return nil, err
	}
	r.started = time.Now()
	if err := r.StartBootstrap(ctx); err != nil {
		return newReport(r), err
	}
	if err := r.BootMasters(ctx); err != nil {
		return newReport(r), err
	}
	report := newReport(r)
	return report, checkMasters(ctx, r, report)
}

// Prepare copies the install directory, runs dayone prepare and manifests on the copy, finds the base image and makes
// the network. Nothing runs afterwards.
func Prepare(ctx context.Context, o Options) (*Run, error) {
	if err := prerequisites(); err != nil {
		return nil, err
	}
	o, err := o.Complete()
	if err != nil {
		return nil, err
	}
	r := &Run{Options: o, Dir: filepath.Join(o.Work, "cluster"), State: filepath.Join(o.Work, "state")}
	if err := r.installDirectory(ctx); err != nil {
		return nil, err
	}
	if err := r.layersMasters(); err != nil {
		return nil, err
	}
	if err := r.baseImage(ctx); err != nil {
		return nil, err
	}
	prefix, err := prefixFor(r.sidecar.Config.BootstrapRegistry.Host)
	if err != nil {
		return nil, err
	}
	r.View.Line("network %s, bootstrap host %s", prefix, r.sidecar.Config.BootstrapRegistry.Host)
	r.Lab, err = testnode.New(ctx, testnode.Options{Prefix: prefix, LogDir: r.LogDir(), Keep: o.Keep,
		Program: o.NodeProgram})
	return r, err
}

// LogDir has a log per program and node.
func (r *Run) LogDir() string { return filepath.Join(r.Work, "logs") }

func (r *Run) installDirectory(ctx context.Context) error {
	if err := os.MkdirAll(r.LogDir(), 0o700); err != nil {
		return fmt.Errorf("make log directory: %w", err)
	}
	if r.InstallDir == "" {
		if err := writeSample(r.Dir, r.Kind); err != nil {
			return err
		}
	} else {
		if err := os.MkdirAll(r.Dir, 0o700); err != nil {
			return fmt.Errorf("make directory for the install directory: %w", err)
		}
		if err := copyDir(r.InstallDir, r.Dir); err != nil {
			return err
		}
	}
	for _, verb := range []string{"prepare", "manifests"} {
		r.View.Line("dayone %s", verb)
		if err := r.program(ctx, verb, "--dir", r.Dir); err != nil {
			return err
		}
	}
	var err error
	r.sidecar, err = installconfig.ReadSidecar(r.Dir)
	return err
}

// startsKernel are the sample's MachineConfigs that take a start of the kernel: arguments and settings of it.
//
//nolint:gochecknoglobals // a constant in all but type
var startsKernel = []string{"20-master-sysctl.yaml", "40-master-kernel-arguments.yaml"}

// writeSample writes the sample install directory; for nodes that can soft-reboot, without what keeps them from it.
func writeSample(dir string, kind baseimage.Kind) error {
	if err := assets.WriteSample(dir); err != nil || kind != baseimage.Forky && kind != baseimage.ForkyMachine {
		return err
	}
	for _, name := range startsKernel {
		if err := os.Remove(filepath.Join(dir, "openshift", name)); err != nil {
			return fmt.Errorf("leave %s out of the sample: %w", name, err)
		}
	}
	return nil
}

// layersMasters refuses an install directory whose masters would never boot an image of their own: a run would wait for
// it in vain.
func (r *Run) layersMasters() error {
	for _, p := range r.sidecar.Config.Pools {
		if p.Name == "master" && p.BuildAt == installconfig.BuildAtBootstrap {
			return nil
		}
	}
	return report.Finding{File: installconfig.FileName, Path: installconfig.Field + ".pools", Rule: "master-not-layered",
		Message: "no image is built for pool master on the bootstrap host, so its nodes keep their base OS",
		Next:    "name the pool master there, without buildAt: cluster"}
}

// baseImage makes the base image, or brings the user's to this machine: the nodes' network has no way out.
func (r *Run) baseImage(ctx context.Context) error {
	if r.Base == "" {
		r.View.Begin(fmt.Sprintf("base image %s (made once, then cached)", r.Kind))
		layout, err := baseimage.Ensure(ctx, r.Kind, "")
		r.BaseLayout, r.Base = layout, "oci:"+layout
		r.View.End("base image %s", r.Kind)
		return err
	}
	r.BaseLayout = filepath.Join(r.Work, "base")
	r.View.Begin("base image: copy " + r.Base)
	args := []string{"registry", "copy", r.Base, "oci:" + r.BaseLayout}
	if r.BaseCA != "" {
		args = append(args, "--src-ca", r.BaseCA)
	}
	if r.BaseAuthFile != "" {
		args = append(args, "--src-authfile", r.BaseAuthFile)
	}
	if err := r.program(ctx, args...); err != nil {
		return fmt.Errorf("copy the base image %s to this machine: %w (for a registry of your own, "+
			"set BASE_CA to its CA and BASE_AUTHFILE to its pull secret)", r.Base, err)
	}
	r.View.End("base image: copied %s", r.Base)
	r.Base = "oci:" + r.BaseLayout
	return nil
}

// MakeMasters gives every master a disk with the base OS.
func (r *Run) MakeMasters(ctx context.Context) error {
	r.View.Begin(fmt.Sprintf("%d masters: disks with the base OS", r.Options.Masters))
	for i := range r.Options.Masters {
		n, err := r.Lab.NewNode(ctx, fmt.Sprintf("master-%d", i), testnode.NodeOptions{
			Sysroot: testnode.SysrootOptions{Base: r.BaseLayout, Reference: r.sidecar.Config.BaseRepository(),
				KernelArguments: r.KernelArguments}})
		if err != nil {
			return err
		}
		r.Masters = append(r.Masters, n)
	}
	r.View.End("%d masters: disks with the base OS", r.Options.Masters)
	return nil
}

// BootMasters ignites and boots all masters at once and waits until each runs its image.
func (r *Run) BootMasters(ctx context.Context) error {
	pointer, err := r.Pointer("master")
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, nodeLimit)
	defer cancel()
	r.View.Begin(fmt.Sprintf("%d masters: Ignition, base OS, pull, stage, one reboot", len(r.Masters)))
	spans := make([][]Span, len(r.Masters))
	g, ctx := errgroup.WithContext(ctx)
	for i, n := range r.Masters {
		g.Go(func() error {
			var err error
			spans[i], err = r.bootMaster(ctx, n, pointer)
			return err
		})
	}
	err = g.Wait()
	r.View.End("%d masters: through with their first boot", len(r.Masters))
	for _, s := range spans {
		r.spans = append(r.spans, s...)
	}
	return err
}

// Pointer is the Ignition config that a pool's machines are given from outside.
func (r *Run) Pointer(pool string) ([]byte, error) {
	printed, err := os.ReadFile(r.outputFile())
	if err != nil {
		return nil, fmt.Errorf("read what the bootstrap printed: %w", err)
	}
	for _, line := range strings.Split(string(printed), "\n") {
		if words := strings.Fields(line); len(words) == 3 && words[0] == pool {
			raw, err := os.ReadFile(words[1])
			if err != nil {
				return nil, fmt.Errorf("read pointer config: %w", err)
			}
			return raw, nil
		}
	}
	return nil, fmt.Errorf("the bootstrap printed no pointer config of pool %s: %q", pool, printed)
}

// BootBase makes a machine of a pool that runs the base OS at first, and boots it with the pool's config.
func (r *Run) BootBase(ctx context.Context, name, pool string) (*testnode.Node, error) {
	pointer, err := r.Pointer(pool)
	if err != nil {
		return nil, err
	}
	n, err := r.Lab.NewNode(ctx, name, testnode.NodeOptions{Sysroot: testnode.SysrootOptions{Base: r.BaseLayout,
		Reference: r.sidecar.Config.BaseRepository()}})
	if err != nil {
		return nil, err
	}
	return n, errors.Join(n.Ignite(ctx, pointer), n.Start(ctx), n.WaitBoot(ctx, 1), waitDone(ctx, n))
}

// bootMaster follows one master from Ignition to its second boot.
func (r *Run) bootMaster(ctx context.Context, n *testnode.Node, pointer []byte) ([]Span, error) {
	var spans []Span
	step := func(name string, do func() error) error {
		begin := time.Now()
		err := do()
		spans = append(spans, Span{Who: n.Name, What: name, Start: begin, End: time.Now()})
		if err == nil {
			r.View.Line("%s: %s: done in %.2fs", n.Name, name, time.Since(begin).Seconds())
		}
		return err
	}
	err := step("Ignition", func() error { return n.Ignite(ctx, pointer) })
	if err == nil {
		err = step("first boot, base OS", func() error { return errors.Join(n.Start(ctx), n.WaitBoot(ctx, 1)) })
	}
	if err == nil {
		err = step("pull, stage, reboot", func() error { return waitAgain(ctx, n) })
	}
	if err == nil {
		err = step("verify", func() error { return waitDone(ctx, n) })
	}
	return spans, err
}

// bulky are the parts of the state directory that a finished run has no use for: images and build storage.
var bulky = []string{"registry", "build", "cache", "tmp"}

// Close stops the bootstrap, powers the nodes off and removes what the run made. Of Work, the report, the logs, the
// journal and the rendered configs stay.
func (r *Run) Close(ctx context.Context) error {
	var errs []error
	if r.Bootstrap != nil {
		errs = append(errs, r.Bootstrap.Stop())
	}
	if r.Lab != nil {
		errs = append(errs, r.Lab.Close(ctx))
	}
	for _, part := range bulky {
		errs = append(errs, os.RemoveAll(filepath.Join(r.State, part)))
	}
	return errors.Join(errs...)
}
