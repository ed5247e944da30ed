package firstboot

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/sirupsen/logrus"

	"dayone.dev/dayone/rebase/deploy"
	"dayone.dev/dayone/rebase/deploy/host"
	"dayone.dev/dayone/rebase/deploy/pull"
)

// rebootLimit is how long an orderly shutdown may take before firstboot counts the request as lost and asks again.
const rebootLimit = 10 * time.Minute

// step looks at the node and does what is next. finished means that this boot has nothing more to do here.
func (r *runner) step(ctx context.Context) (config Config, finished bool, err error) {
	if err := r.takeUpRetry(); err != nil {
		return config, false, err
	}
	raw, err := os.ReadFile(filepath.Join(r.o.Root, ConfigPath))
	if err != nil {
		return config, false, badConfig(err)
	}
	if config, err = ParseConfig(raw); err != nil {
		return Config{}, false, badConfig(err)
	}
	config = config.withDefaults()
	w, err := readWanted(r.o.Root, config)
	if err != nil {
		return config, false, err
	}
	if r.record.Image != w.image.String() { // another image: what was counted for the old one says nothing
		r.record.Image, r.record.Reboots, r.record.WentBack = w.image.String(), 0, ""
	}
	r.record.Config = w.config.Name
	if err := r.takeUpPullAuth(); err != nil {
		return config, false, err
	}
	choice, err := r.o.Choose(ctx, r.o.Root, config.Deployer, r.o.Log)
	if err != nil {
		return config, false, err
	}
	r.record.Deployer, r.record.Reason = choice.Kind, choice.Reason
	status, err := choice.Deployer.Status(ctx)
	if err != nil {
		return config, false, err
	}
	if status.Booted == nil {
		return config, false, &deploy.Fault{Class: deploy.ClassNotOSTree, Op: "look at deployments",
			Err: errors.New("none of them is booted"), Next: "boot an ostree deployment"}
	}
	if err := r.countBoot(status.Booted); err != nil {
		return config, false, err
	}
	finished, err = r.decide(ctx, config, w, choice.Deployer, status)
	return config, finished, err
}

func (r *runner) countBoot(booted *deploy.Deployment) error {
	id, err := r.o.BootID()
	if err != nil {
		return err
	}
	r.record.Booted = booted.Image.String()
	if booted.Image.IsZero() {
		r.record.Booted = booted.Commit
	}
	r.record.sawBoot(id, r.record.Booted, r.o.Now().UTC())
	return r.save()
}

func (r *runner) decide(ctx context.Context, c Config, w wanted, d deploy.Deployer,
	status deploy.Status) (finished bool, err error) {
	log := r.o.Log.WithField("image", w.image.String())
	switch {
	case status.Booted.Runs(w.image) && w.hasKernelArguments(status.Booted):
		return r.verify(ctx, c, w, d)
	case r.record.WentBack != "":
		log.WithFields(logrus.Fields{"booted": r.record.Booted, "cause": r.record.WentBack}).
			Error("this node left the image because it did not become healthy; run dayone-daemon firstboot --retry to try again")
		err := r.enter(StateRolledBack)
		r.record.Message = r.record.WentBack
		return true, errors.Join(err, r.save())
	case r.record.Reboots >= c.MaxReboots:
		return false, &deploy.Fault{Class: deploy.ClassInternal, Op: "boot the image",
			Err:  fmt.Errorf("%d reboots did not lead to it", r.record.Reboots),
			Next: "look at journalctl -b -1 -u ostree-finalize-staged, then run dayone-daemon firstboot --retry"}
	}
	// What is staged may lack the kernel arguments: they are only known once it is booted, so Stage decides; it does
	// nothing twice.
	if next := status.Next(); next == status.Booted || !next.Runs(w.image) {
		if err := r.preflight(ctx, c, w); err != nil {
			return false, err
		}
	}
	if err := r.enter(StateStaging); err != nil {
		return false, err
	}
	options := w.stageOptions()
	if c.PersistNICNames {
		names, err := r.persistNICNames(ctx)
		if err != nil {
			return false, err
		}
		options.AppendKernelArguments = append(options.AppendKernelArguments, names...)
	}
	start := r.o.Now()
	if err := d.Stage(ctx, w.image, options); err != nil {
		return false, err
	}
	if err := r.checkStaged(ctx, w, d); err != nil {
		return false, err
	}
	log.WithField("seconds", r.o.Now().Sub(start).Seconds()).Info("image is staged")
	return r.restart(ctx, c, d)
}

func (r *runner) preflight(ctx context.Context, c Config, w wanted) error {
	if err := w.checkHost(r.o.Root); err != nil {
		return err
	}
	log := r.o.Log.WithFields(logrus.Fields{"image": w.image.String(), "config": w.config.Name})
	r.progress(log, "looking for the image")
	o := pull.Options{Root: r.o.Root}
	if c.SignaturePolicy != "" {
		o.PolicyFile = filepath.Join(r.o.Root, c.SignaturePolicy)
	}
	found, err := pull.Inspect(ctx, "docker://"+w.image.String(), o)
	if err != nil {
		return err
	}
	if err := w.checkLabels(found.Labels); err != nil {
		return err
	}
	r.progress(log.WithFields(logrus.Fields{"source": found.Source, "layers": found.Layers, "mib": found.Bytes >> 20}),
		"image is there and holds this node's config")
	return nil
}

// checkStaged looks at what only the staged tree can tell: what would fail at shutdown, and the kernel. A layered image
// must bring the kernel of the config's type, because nothing is installed on a node; without it the staged deployment
// is taken back. A stock image's kernel is only warned of, in verify: what manages such nodes later may exchange it, as
// MCO does.
func (r *runner) checkStaged(ctx context.Context, w wanted, d deploy.Deployer) error {
	if err := host.CheckStaged(ctx, r.o.Root, d); err != nil {
		return err
	}
	if kernelType := w.config.Spec.KernelType; !w.layered || isKernelType("", kernelType) {
		return nil
	}
	status, err := d.Status(ctx)
	if err != nil {
		return err
	}
	kernels, err := host.Kernels(r.o.Root, status.Next())
	if err != nil {
		return err
	}
	if slices.ContainsFunc(kernels, func(k string) bool { return isKernelType(k, w.config.Spec.KernelType) }) {
		return nil
	}
	if back, ok := d.(deploy.Unstager); ok {
		if err := back.Unstage(ctx); err != nil {
			return err
		}
	}
	return &deploy.Fault{Class: deploy.ClassUnlike, Op: "check the image's kernel",
		Err:  fmt.Errorf("kernel %s is not of the config's type %s", strings.Join(kernels, ", "), w.config.Spec.KernelType),
		Next: "put that kernel into the image, or take kernelType out of the config"}
}

// restart asks for the one reboot and waits for it.
func (r *runner) restart(ctx context.Context, c Config, d deploy.Deployer) (bool, error) {
	if err := runCommand(ctx, c.BeforeReboot, "prepare reboot"); err != nil {
		return false, err
	}
	r.record.Reboots++
	if err := r.enter(StateRebooting); err != nil {
		return false, err
	}
	r.o.Log.WithField("reboot", r.record.Reboots).Info("rebooting into the image")
	return r.reboot(ctx, d)
}

func (r *runner) reboot(ctx context.Context, d deploy.Deployer) (bool, error) {
	if err := d.Reboot(ctx); err != nil {
		return false, err
	}
	timer := time.NewTimer(rebootLimit)
	defer timer.Stop()
	select {
	case <-ctx.Done(): // the shutdown's SIGTERM
		return true, nil
	case <-timer.C:
		return false, &deploy.Fault{Class: deploy.ClassInternal, Op: "reboot", Err: fmt.Errorf("nothing happened for %s",
			rebootLimit), Next: "look at what holds the shutdown, then reboot"}
	}
}

// verify ends first boot: the wanted image runs.
func (r *runner) verify(ctx context.Context, c Config, w wanted, d deploy.Deployer) (bool, error) {
	if err := r.enter(StateVerifying); err != nil {
		return false, err
	}
	if err := r.waitHealthy(ctx, c); err != nil {
		if ctx.Err() != nil {
			return false, ctx.Err()
		}
		return r.goBack(ctx, d, err)
	}
	if err := settle(r.o.Root, w); err != nil {
		return false, err
	}
	log := r.o.Log.WithFields(logrus.Fields{"image": w.image.String(), "config": w.config.Name,
		"boots": len(r.record.Boots)})
	if len(r.record.Boots) > c.ExpectedBoots {
		log.WithField("expected", c.ExpectedBoots).Warn("more boots than planned")
	}
	r.record.Warning = ""
	if running, wanted := kernelRelease(r.o.Root), w.config.Spec.KernelType; !isKernelType(running, wanted) {
		r.record.Warning = fmt.Sprintf("kernel %s is not of the config's type %s; put that kernel into the image", running,
			wanted)
		log.WithFields(logrus.Fields{"kernel": running, "kernel_type": wanted}).
			Warn("the image's kernel is not of the config's type; put that kernel into the image")
	}
	log.Info("this node runs its image")
	return true, r.enter(StateDone)
}

// goBack returns to the deployment before, once.
func (r *runner) goBack(ctx context.Context, d deploy.Deployer, cause error) (bool, error) {
	back, ok := d.(deploy.Rollbacker)
	if !ok || r.record.WentBack != "" {
		return false, cause
	}
	if err := back.Rollback(ctx); err != nil {
		return false, errors.Join(cause, err)
	}
	r.record.WentBack = cause.Error()
	if err := r.enter(StateRebooting); err != nil {
		return false, err
	}
	r.o.Log.WithError(cause).Error("the image is not healthy, going back to the OS before it")
	return r.reboot(ctx, d)
}

func runCommand(ctx context.Context, command []string, op string) error {
	if len(command) == 0 {
		return nil
	}
	out, err := exec.CommandContext(ctx, command[0], command[1:]...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %s: %w: %s", op, strings.Join(command, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}
