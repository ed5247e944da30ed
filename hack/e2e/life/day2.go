package life

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/build/machineosbuild"
	"dayone.dev/dayone/hack/e2e"
	"dayone.dev/dayone/hack/e2e/fleet"
	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/rebase/nodestate"
	"dayone.dev/dayone/rebase/target"
)

// containerfile is the workers': a file that a RUN made.
func containerfile(text string) []mcfgv1.MachineOSContainerfile {
	return []mcfgv1.MachineOSContainerfile{{ContainerfileArch: mcfgv1.NoArch, Content: "FROM configs AS final\nRUN echo " +
		text + " > /usr/share/demo-worker.txt\n"}}
}

// sampleText is what the sample's Containerfile of the workers writes.
const sampleText = "workers are built by the cluster"

// followWorkers waits for what the install directory asks for: the MachineOSConfigs of the pools that are not the
// masters' came with the hand-over, and the rest follows from it.
func followWorkers(ctx context.Context, l *life) error {
	for _, pool := range clusterBuilt {
		image, err := newImage(ctx, l, pool, "")
		if err != nil {
			return err
		}
		if err := rolledOut(ctx, l, image, plan{pool: pool, boots: l.booted[pool], reboots: 1, unavailable: 1,
			text: sampleText}); err != nil {
			return err
		}
	}
	return nil
}

// changeContainerfile lets two workers go at a time.
func changeContainerfile(ctx context.Context, l *life) error {
	err := change(ctx, l, &mcfgv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Name: worker}},
		func(p *mcfgv1.MachineConfigPool) {
			p.Spec.MaxUnavailable = new(intstr.FromInt32(2))
		})
	if err != nil {
		return err
	}
	return rollout(ctx, l, plan{pool: worker, reboots: 1, unavailable: 2, text: "two"},
		func() error { return editContainerfile(ctx, l, "two") })
}

func editContainerfile(ctx context.Context, l *life, text string) error {
	return change(ctx, l, &mcfgv1.MachineOSConfig{ObjectMeta: metav1.ObjectMeta{Name: worker}},
		func(c *mcfgv1.MachineOSConfig) {
			c.Spec.Containerfile = containerfile(text)
		})
}

// change patches an object with what differs, whatever others write meanwhile.
func change[T client.Object](ctx context.Context, l *life, o T, how func(T)) error {
	if err := l.client.Get(ctx, client.ObjectKeyFromObject(o), o); err != nil {
		return fmt.Errorf("read %T: %w", o, err)
	}
	was := o.DeepCopyObject().(T)
	how(o)
	if err := l.client.Patch(ctx, o, client.MergeFrom(was)); err != nil {
		return fmt.Errorf("change %T: %w", o, err)
	}
	return nil
}

// plan is what a rollout may do to a pool's nodes: each reboots so often, so many are unavailable at once at most, and
// what the Containerfile wrote is there afterwards.
type plan struct {
	pool string
	// boots are counted from here.
	boots                map[*fleet.Host]int
	reboots, unavailable int
	text                 string
}

// rollout does something that makes a new image of a pool's, and follows it onto the nodes.
func rollout(ctx context.Context, l *life, p plan, do func() error) error {
	p.boots = bootsOf(l, p.pool)
	l.watch.Worst(p.pool)
	before, err := currentImage(ctx, l, p.pool)
	if err != nil {
		return err
	}
	if err := errors.Join(placePods(ctx, l, p.pool), do()); err != nil {
		return err
	}
	image, err := newImage(ctx, l, p.pool, before)
	if err != nil {
		return err
	}
	return rolledOut(ctx, l, image, p)
}

// rolledOut waits until a pool's nodes run an image, and holds them against the plan.
func rolledOut(ctx context.Context, l *life, image string, p plan) error {
	to, err := arrived(ctx, l, p.pool, image)
	if err != nil {
		return err
	}
	for _, h := range l.fleet.Of(p.pool) {
		digest, err := e2e.BootedDigest(ctx, h.Node)
		if p.reboots > 0 {
			l.check(h.Node.Name, "booted digest is the built one", err == nil && strings.HasSuffix(to.Image, digest), "%s",
				digest)
		}
		n, err := h.Boots()
		l.check(h.Node.Name, "reboots as planned", err == nil && n-p.boots[h] == p.reboots, "%d", n-p.boots[h])
		got, err := h.Node.Output(ctx, "cat", "/usr/share/demo-worker.txt")
		l.check(h.Node.Name, "what the Containerfile made is there", err == nil && got == p.text, "%s", got)
		checkPod(ctx, l, h, p.reboots > 0)
	}
	worst := l.watch.Worst(p.pool)
	l.check("pool "+p.pool, "never more unavailable than allowed", worst <= p.unavailable, "%d of %d", worst,
		p.unavailable)
	return nil
}

func bootsOf(l *life, pool string) map[*fleet.Host]int {
	out := map[*fleet.Host]int{}
	for _, h := range l.fleet.Of(pool) {
		out[h], _ = h.Boots() // 0 makes the check fail
	}
	return out
}

// currentImage is the image that a pool's MachineOSConfig names; empty when it names none.
func currentImage(ctx context.Context, l *life, pool string) (string, error) {
	mosc := &mcfgv1.MachineOSConfig{}
	if err := l.client.Get(ctx, client.ObjectKey{Name: pool}, mosc); err != nil {
		return "", fmt.Errorf("read MachineOSConfig: %w", err)
	}
	return string(mosc.Status.CurrentImagePullSpec), nil
}

// newImage waits for an image of a pool's that is not the one before.
func newImage(ctx context.Context, l *life, pool, before string) (image string, err error) {
	err = until(ctx, "the image", func() (bool, error) {
		if image, err = currentImage(ctx, l, pool); err != nil {
			return false, err
		}
		return image != "" && image != before, buildFailure(ctx, l, pool)
	})
	if err == nil {
		l.o.View.Line("  built %s", image)
	}
	return image, err
}

// buildFailure says why the last build of a pool failed, if it did.
func buildFailure(ctx context.Context, l *life, pool string) error {
	var builds mcfgv1.MachineOSBuildList
	if err := l.client.List(ctx, &builds); err != nil {
		return err
	}
	for i := range builds.Items {
		b := &builds.Items[i]
		if b.Spec.MachineOSConfig.Name == pool && machineosbuild.StateOf(b) == machineosbuild.Failed {
			return errors.New(machineosbuild.CauseOf(b).Text())
		}
	}
	return nil
}

// arrived waits until every node of a pool has an image and the pool's config.
func arrived(ctx context.Context, l *life, name, image string) (target.Target, error) {
	to := target.Target{Image: image}
	for _, h := range l.fleet.Of(name) {
		if err := until(ctx, h.Node.Name+" to have its target", func() (bool, error) {
			pool := &mcfgv1.MachineConfigPool{}
			if err := l.client.Get(ctx, client.ObjectKey{Name: name}, pool); err != nil {
				return false, err
			}
			to.Config = pool.Spec.Configuration.Name
			return h.Has(ctx, to), errors.New(h.Record(ctx).Reason)
		}); err != nil {
			return to, err
		}
	}
	return to, nil
}

// changeConfig changes a file whose owner says what follows: it is live without a reboot, and in the next boot's image.
func changeConfig(ctx context.Context, l *life) error {
	err := rollout(ctx, l, plan{pool: worker, text: sampleText}, func() error {
		mc, err := appContent(l, "two").MachineConfig(appConfig+"-"+worker, worker)
		if err != nil {
			return err
		}
		return change(ctx, l, &mcfgv1.MachineConfig{ObjectMeta: metav1.ObjectMeta{Name: mc.Name}},
			func(o *mcfgv1.MachineConfig) { o.Spec.Config.Raw = mc.Spec.Config.Raw })
	})
	if err != nil {
		return err
	}
	for _, h := range l.fleet.Of(worker) {
		got, err := h.Node.Output(ctx, "cat", "/etc/app.conf")
		l.check(h.Node.Name, "the file is live", err == nil && got == "two", "%s", got)
		if l.hasSystemd() {
			got, err = h.Node.Output(ctx, "cat", "/run/app")
			l.check(h.Node.Name, "the service was restarted with it", err == nil && got == "app two", "%s", got)
		}
		status, err := h.Node.Output(ctx, "ostree", "admin", "status")
		l.check(h.Node.Name, "its image is staged for the next boot", err == nil && strings.Contains(status, "(staged)"), "")
	}
	return nil
}

// failAndRecover cuts one worker off from the masters' registries while an image comes: the node says so, the others go
// on, and it follows when the way is mended.
func failAndRecover(ctx context.Context, l *life) error {
	victim := l.fleet.Of(worker)[0]
	cut := func(cut bool) (err error) {
		for _, n := range l.day1.Masters {
			err = errors.Join(err, victim.Node.Cut(ctx, n, cut))
		}
		return err
	}
	if err := cut(true); err != nil {
		return err
	}
	return rollout(ctx, l, plan{pool: worker, reboots: 1, unavailable: 2, text: "three"}, func() error {
		if err := editContainerfile(ctx, l, "three"); err != nil {
			return err
		}
		reason := ""
		if err := until(ctx, "the node to fail", func() (bool, error) {
			r := victim.Record(ctx)
			reason = r.Reason
			return r.State == nodestate.StateDegraded && !r.Converged() && strings.Contains(reason, "registry"),
				errors.New(reason)
		}); err != nil {
			return err
		}
		l.check(victim.Node.Name, "says why it fails", true, "%s", reason[:min(len(reason), 100)])
		others := slices.DeleteFunc(l.fleet.Of(worker), func(h *fleet.Host) bool { return h == victim })
		for _, h := range others {
			if err := until(ctx, h.Node.Name+" to go on", func() (bool, error) {
				got, err := h.Node.Output(ctx, "cat", "/usr/share/demo-worker.txt")
				return got == "three", err
			}); err != nil {
				return err
			}
		}
		l.check("workers", "the others went on", true, "")
		return cut(false)
	})
}

// optOut deletes the MachineOSConfig: one reboot for each worker, back to the base OS and plain files.
func optOut(ctx context.Context, l *life) error {
	boots := bootsOf(l, worker)
	l.watch.Worst(worker)
	if err := l.client.Delete(ctx, &mcfgv1.MachineOSConfig{ObjectMeta: metav1.ObjectMeta{Name: worker}}); err != nil {
		return fmt.Errorf("opt out: %w", err)
	}
	to, err := arrived(ctx, l, worker, "")
	if err != nil {
		return err
	}
	stock := &mcfgv1.MachineConfig{}
	if err := l.client.Get(ctx, client.ObjectKey{Name: to.Config}, stock); err != nil {
		return fmt.Errorf("read rendered config: %w", err)
	}
	for _, h := range l.fleet.Of(worker) {
		digest, err := e2e.BootedDigest(ctx, h.Node)
		l.check(h.Node.Name, "runs the base OS again", err == nil && strings.HasSuffix(stock.Spec.OSImageURL, digest), "%s",
			digest)
		n, err := h.Boots()
		l.check(h.Node.Name, "reboots as planned", err == nil && n-boots[h] == 1, "%d", n-boots[h])
		got, err := h.Node.Output(ctx, "sh", "-c", "cat /etc/app.conf; ls /usr/share | grep demo || true")
		l.check(h.Node.Name, "has its plain files and nothing of the image", err == nil && strings.TrimSpace(got) == "two",
			"%s", strings.TrimSpace(got))
		_, layered := h.Object(ctx).Annotations[manifests.AnnotationDesiredImage]
		l.check(h.Node.Name, "no annotation of an image", !layered, "")
	}
	worst := l.watch.Worst(worker)
	l.check("pool "+worker, "never more unavailable than allowed", worst <= 2, "%d of 2", worst)
	return nil
}
