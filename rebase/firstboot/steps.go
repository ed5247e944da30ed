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
	"dayone.dev/dayone/rebase/softreboot"
)

// rebootLimit is how long an orderly shutdown may take before firstboot counts the request as lost and asks again.
const rebootLimit = 10 * time.Minute

// attempt is what is known of the node when an attempt begins.
type attempt struct {
	o        Options
	config   Config
	wanted   wanted
	deployer deploy.Deployer
	status   deploy.Status
}

// step is one step of Day 1 on the node. finished: this boot has nothing more to do.
type step func(ctx context.Context, a attempt, j *journal) (finished bool, err error)

// steps are Day 1 on the node, in order; each tells by the node's state whether it has something to do.
var steps = [...]step{ //nolint:gochecknoglobals // a constant in all but type
	verify,        // the wanted image runs: wait until it is healthy, note that the node has converged
	stayReverted,  // the node left the image: stay on the OS before it
	limitReboots,  // too many reboots did not reach the image
	preflight,     // the image can be pulled, is signed, boots here and holds this node's config
	stage,         // make it the next boot's deployment
	rebootIntoNew, // the one reboot
}

// attemptOnce observes the node and takes the steps. The config is what was read, also when a step fails.
func attemptOnce(ctx context.Context, o Options, j *journal) (Config, error) {
	a, err := observe(ctx, o, j)
	if err != nil {
		return a.config, err
	}
	for _, step := range steps {
		if finished, err := step(ctx, a, j); finished || err != nil {
			return a.config, err
		}
	}
	return a.config, nil
}

// observe reads what the node must have and what it has.
func observe(ctx context.Context, o Options, j *journal) (a attempt, err error) {
	a.o = o
	if err := honourRetry(o.Root, j); err != nil {
		return a, err
	}
	raw, err := os.ReadFile(filepath.Join(o.Root, ConfigPath))
	if err != nil {
		return a, badConfig(err)
	}
	if a.config, err = parseConfig(raw); err != nil {
		return attempt{}, badConfig(err)
	}
	a.config = a.config.withDefaults()
	j.reporter.registry = a.config.Registry
	if a.wanted, err = readWanted(o.Root, a.config); err != nil {
		return a, err
	}
	if j.Image != a.wanted.image.String() { // another image: the counts of the old one do not apply
		j.Image, j.Reboots, j.WentBack = a.wanted.image.String(), 0, ""
	}
	j.Config = a.wanted.config.Name
	if err := mergePullAuth(o.Root, j); err != nil {
		return a, err
	}
	if err := userspaceOf(o).Mend(ctx); err != nil { // before anything is read from ostree
		return a, err
	}
	choice, err := o.Choose(ctx, o.Root, a.config.Deployer, o.Log)
	if err != nil {
		return a, err
	}
	a.deployer = choice.Deployer
	j.Deployer, j.Reason = choice.Kind, choice.Reason
	if a.status, err = a.deployer.Status(ctx); err != nil {
		return a, err
	}
	if a.status.Booted == nil {
		return a, &deploy.Fault{Class: deploy.ClassNotOSTree, Op: "read deployments",
			Err: errors.New("none of them is booted"), Next: "boot an ostree deployment"}
	}
	id, err := o.BootID()
	if err != nil {
		return a, err
	}
	j.sawBoot(id, a.status.Booted)
	if err := sawWatch(a, j); err != nil {
		return a, err
	}
	if j.State == StateStarting {
		return a, j.tell()
	}
	return a, j.save()
}

// honourRetry forgets reboots and a return to the boot image when an admin has asked for that.
func honourRetry(root string, j *journal) error {
	request := filepath.Join(root, retryPath)
	if _, err := os.Stat(request); err != nil {
		return nil //nolint:nilerr // no request, or a state directory whose loss the next save reports
	}
	j.Reboots, j.WentBack = 0, ""
	if err := j.save(); err != nil {
		return err
	}
	return os.Remove(request)
}

// verify ends first boot when the wanted image runs. An image that does not become healthy is left once.
func verify(ctx context.Context, a attempt, j *journal) (bool, error) {
	w := a.wanted
	if !a.status.Booted.Runs(w.image) || !w.hasKernelArguments(a.status.Booted) {
		return false, nil
	}
	if err := j.enter(StateVerifying); err != nil {
		return false, err
	}
	if err := healthy(ctx, a, j); err != nil {
		if ctx.Err() != nil {
			return false, ctx.Err()
		}
		if j.lastBoot().Soft {
			return rebootHard(ctx, a, j, err)
		}
		return revert(ctx, a, j, err)
	}
	if err := settle(a.o.Root, w, j.lastBoot()); err != nil {
		return false, err
	}
	log := a.o.Log.WithFields(logrus.Fields{"image": w.image.String(), "config": w.config.Name, "boots": j.Counts(),
		"last_boot": j.lastBoot().String()})
	if len(j.Boots) > a.config.ExpectedBoots {
		log.WithField("expected", a.config.ExpectedBoots).Warn("more boots than planned")
	}
	j.Warning = ""
	if running, wanted := kernelRelease(a.o.Root), w.config.Spec.KernelType; !isKernelType(running, wanted) {
		j.Warning = fmt.Sprintf("kernel %s is not of the config's type %s; put that kernel into the image", running, wanted)
		log.WithFields(logrus.Fields{"kernel": running, "kernel_type": wanted}).
			Warn("the image's kernel is not of the config's type; put that kernel into the image")
	}
	log.Info("this node runs its image")
	return true, j.enter(StateDone)
}

// revert returns to the deployment before, once.
func revert(ctx context.Context, a attempt, j *journal, cause error) (bool, error) {
	back, ok := a.deployer.(deploy.Rollbacker)
	if !ok || j.WentBack != "" {
		return false, cause
	}
	if err := back.Rollback(ctx); err != nil {
		return false, errors.Join(cause, err)
	}
	j.WentBack = cause.Error()
	if err := j.enter(StateRebooting); err != nil {
		return false, err
	}
	a.o.Log.WithError(cause).Error("the image is not healthy, reverting to the OS before it")
	return true, reboot(ctx, a.deployer.Reboot)
}

// stayReverted ends first boot on a node that left the image.
func stayReverted(_ context.Context, a attempt, j *journal) (bool, error) {
	if j.WentBack == "" {
		return false, nil
	}
	a.o.Log.WithFields(logrus.Fields{"image": a.wanted.image.String(), "booted": j.Booted, "cause": j.WentBack}).
		Error("this node left the image because it did not become healthy; run dayone-daemon firstboot --retry to try again")
	j.State, j.Class, j.Message, j.Attempts = StateRolledBack, "", j.WentBack, 0
	return true, j.tell()
}

// limitReboots refuses another reboot when several did not reach the image.
func limitReboots(_ context.Context, a attempt, j *journal) (bool, error) {
	if j.Reboots < a.config.MaxReboots {
		return false, nil
	}
	return false, &deploy.Fault{Class: deploy.ClassInternal, Op: "boot the image",
		Err:  fmt.Errorf("%d reboots did not lead to it", j.Reboots),
		Next: "look at journalctl -b -1 -u ostree-finalize-staged, then run dayone-daemon firstboot --retry"}
}

// preflight checks an image that is not staged yet.
func preflight(ctx context.Context, a attempt, j *journal) (bool, error) {
	w, root := a.wanted, a.o.Root
	// What is staged may lack the kernel arguments: they are only known once it is booted, so Stage decides; it does
	// nothing twice.
	if next := a.status.Next(); next != a.status.Booted && next.Runs(w.image) {
		return false, nil
	}
	if err := w.checkHost(root); err != nil {
		return false, err
	}
	log := a.o.Log.WithFields(logrus.Fields{"image": w.image.String(), "config": w.config.Name})
	j.progress(log, "looking for the image")
	policies := pull.Policies(root)
	if a.config.SignaturePolicy != "" {
		policies = pull.Policies(root, a.config.SignaturePolicy)
	}
	found, err := pull.Inspect(ctx, "docker://"+w.image.String(), pull.Options{Root: root, Policies: policies})
	if err != nil {
		return false, err
	}
	if err := w.checkLabels(found.Labels); err != nil {
		return false, err
	}
	j.source, j.Verified = found.Source, found.Verified
	j.progress(log.WithFields(logrus.Fields{"source": found.Source, "layers": found.Layers, "mib": found.Bytes >> 20}),
		"image is there and holds this node's config")
	return false, nil
}

// stage makes the image the next boot's deployment.
func stage(ctx context.Context, a attempt, j *journal) (bool, error) {
	if err := j.enter(StateStaging); err != nil {
		return false, err
	}
	options := a.wanted.stageOptions()
	options.Source = j.source
	if a.config.PersistNICNames {
		names, err := persistNICNames(ctx, a.o.Root, j)
		if err != nil {
			return false, err
		}
		options.AppendKernelArguments = append(options.AppendKernelArguments, names...)
	}
	start := a.o.Now()
	if err := a.deployer.Stage(ctx, a.wanted.image, options); err != nil {
		return false, err
	}
	if err := checkStaged(ctx, a.o.Root, a.wanted, a.deployer); err != nil {
		return false, err
	}
	a.o.Log.WithFields(logrus.Fields{"image": a.wanted.image.String(), "seconds": a.o.Now().Sub(start).Seconds()}).
		Info("image is staged")
	return false, j.enter(StateStaged)
}

// checkStaged checks what only the staged tree can tell: what would fail at shutdown, and the kernel. A layered image
// must bring the kernel of the config's type, because nothing is installed on a node; without it the staged deployment
// is withdrawn. A base image's kernel only causes a warning, in verify: what manages such nodes later may exchange it,
// as MCO does.
func checkStaged(ctx context.Context, root string, w wanted, d deploy.Deployer) error {
	if err := host.CheckStaged(ctx, root, d); err != nil {
		return err
	}
	kernelType := w.config.Spec.KernelType
	if !w.layered || isKernelType("", kernelType) {
		return nil
	}
	status, err := d.Status(ctx)
	if err != nil {
		return err
	}
	if next := status.Next(); next != nil && next.Composefs {
		return nil // its tree is an image: verify warns after the boot
	}
	kernels, err := host.Kernels(root, status.Next())
	if err != nil {
		return err
	}
	if slices.ContainsFunc(kernels, func(k string) bool { return isKernelType(k, kernelType) }) {
		return nil
	}
	if back, ok := d.(deploy.Unstager); ok {
		if err := back.Unstage(ctx); err != nil {
			return err
		}
	}
	return &deploy.Fault{Class: deploy.ClassUnlike, Op: "check the image's kernel",
		Err:  fmt.Errorf("kernel %s is not of the config's type %s", strings.Join(kernels, ", "), kernelType),
		Next: "put that kernel into the image, or remove kernelType from the config"}
}

// rebootIntoNew asks for the one reboot and waits for it.
func rebootIntoNew(ctx context.Context, a attempt, j *journal) (bool, error) {
	if err := runCommand(ctx, a.config.BeforeReboot, "prepare reboot"); err != nil {
		return false, err
	}
	prepareReboot(ctx, a, j)
	j.Reboots++
	if err := j.enter(StateRebooting); err != nil {
		return false, err
	}
	how := softreboot.Decision{Soft: j.Soft != nil, Why: j.Hard}
	a.o.Log.WithField("reboot", j.Reboots).WithField("how", how.String()).Info("rebooting into the image")
	if j.Soft != nil {
		return true, rebootSoft(ctx, a)
	}
	return true, reboot(ctx, a.deployer.Reboot)
}

// reboot returns when the shutdown ends this program.
func reboot(ctx context.Context, ask func(context.Context) error) error {
	if err := ask(ctx); err != nil {
		return err
	}
	timer := time.NewTimer(rebootLimit)
	defer timer.Stop()
	select {
	case <-ctx.Done(): // the shutdown's SIGTERM
		return nil
	case <-timer.C:
		return &deploy.Fault{Class: deploy.ClassInternal, Op: "reboot",
			Err: fmt.Errorf("nothing happened for %s", rebootLimit), Next: "look at what holds the shutdown, then reboot"}
	}
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
