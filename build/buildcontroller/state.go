package buildcontroller

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/sirupsen/logrus"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/build/decide"
	"dayone.dev/dayone/build/machineosbuild"
	"dayone.dev/dayone/installconfig"
	"dayone.dev/dayone/manifests"
)

// run is one look at one MachineOSConfig.
type run struct {
	*Reconciler
	name string
	log  *logrus.Entry
	now  time.Time
	// config and pool are nil when they do not exist. They may be written to: they are copies.
	config *mcfgv1.MachineOSConfig
	pool   *mcfgv1.MachineConfigPool
	own    []*mcfgv1.MachineOSBuild
	wanted wanted
	in     decide.Input
	d      decide.Decision
	// gone are builds whose images the registry does not have.
	gone map[string]bool
	// held says why a build does not get on.
	held string
	// keys are read when a build begins.
	keys *keyring
	// after is when to look again; 0 means not without an event.
	after time.Duration
}

// again asks for another look.
func (x *run) again(after time.Duration) {
	if after > 0 && (x.after == 0 || after < x.after) {
		x.after = after
	}
}

// load reads the MachineOSConfig, its pool and its builds, from the cache or live from the API.
func (x *run) load(ctx context.Context, live bool) error {
	from := x.reader(live)
	x.config, x.pool = &mcfgv1.MachineOSConfig{}, nil
	if err := from.Get(ctx, client.ObjectKey{Name: x.name}, x.config); err != nil {
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("read MachineOSConfig: %w", err)
		}
		x.config = nil
	}
	poolName := x.name
	if x.config != nil {
		poolName = x.config.Spec.MachineConfigPool.Name
	}
	pool := &mcfgv1.MachineConfigPool{}
	switch err := from.Get(ctx, client.ObjectKey{Name: poolName}, pool); {
	case err == nil:
		x.pool = pool
	case client.IgnoreNotFound(err) != nil:
		return fmt.Errorf("read MachineConfigPool: %w", err)
	}
	return x.loadBuilds(ctx, live)
}

func (r *Reconciler) reader(live bool) client.Reader {
	if live {
		return r.live
	}
	return r.client
}

func (x *run) loadBuilds(ctx context.Context, live bool) error {
	var list mcfgv1.MachineOSBuildList
	var by client.ListOption = client.MatchingLabels{manifests.LabelMachineOSConfig: machineosbuild.LabelValue(x.name)}
	if !live {
		by = client.MatchingFields{indexOwner: x.name}
	}
	if err := x.reader(live).List(ctx, &list, by); err != nil {
		return fmt.Errorf("list MachineOSBuilds: %w", err)
	}
	running := map[string]bool{}
	x.own = nil
	for i := range list.Items {
		b := &list.Items[i]
		if b.Spec.MachineOSConfig.Name != x.name {
			continue
		}
		x.own = append(x.own, b)
		running[b.Name] = !machineosbuild.StateOf(b).Terminal()
	}
	if live {
		x.slots.keep(x.name, running)
	}
	return nil
}

// known is a build as decisions see it.
func known(b *mcfgv1.MachineOSBuild, gone bool) decide.Known {
	cause := machineosbuild.CauseOf(b)
	k := decide.Known{
		Name: b.Name, Owner: b.Spec.MachineOSConfig.Name, Address: b.Annotations[manifests.AnnotationBuildAddress],
		Repository: installconfig.Repository(string(b.Spec.RenderedImagePushSpec)), State: machineosbuild.StateOf(b),
		Class: cause.Class, Message: cause.Message, Image: string(b.Status.DigestedImagePushSpec), Gone: gone,
		Attempt: number(b, manifests.AnnotationBuildAttempt), Retries: number(b, manifests.AnnotationBuildRetries),
		Forced: b.Annotations[manifests.AnnotationBuildForced] != "", Deleting: b.DeletionTimestamp != nil,
	}
	if b.Status.BuildEnd != nil {
		k.Ended = b.Status.BuildEnd.Time
	}
	return k
}

// number reads a counter; whoever wrote nonsense there starts again at none.
func number(o client.Object, key string) int {
	n, err := strconv.Atoi(o.GetAnnotations()[key])
	if err != nil || n < 0 {
		return 0
	}
	return n
}

// input collects what the decision depends on.
func (x *run) input(ctx context.Context) error {
	x.in = decide.Input{
		Owner: x.name, Address: x.wanted.address, Repository: x.wanted.repository, Problem: x.wanted.problem,
		Current: x.config.Annotations[manifests.AnnotationCurrentBuild], InUse: inUse(x.config, x.own),
		Policy: x.o.Retry, Now: x.now,
	}
	x.in.RebuildAsked, x.in.Accepted = x.asked()
	if seeded := meta.IsStatusConditionTrue(x.config.Status.Conditions, manifests.ConditionSeeded); !seeded {
		x.in.PreBuilt = x.config.Annotations[manifests.AnnotationPreBuiltImage]
	}
	for _, b := range x.own {
		x.in.Own = append(x.in.Own, known(b, x.gone[b.Name]))
	}
	return x.look(ctx)
}

// look adds what other MachineOSConfigs build.
func (x *run) look(ctx context.Context) error {
	active, ended, err := x.activeBuilds(ctx)
	if err != nil {
		return err
	}
	what := content(x.wanted.address, x.wanted.repository)
	var claims []decide.Known
	x.in.Free, claims = x.slots.view(x.name, what, active, ended)
	if x.wanted.problem != nil {
		return nil
	}
	var list mcfgv1.MachineOSBuildList
	if err := x.client.List(ctx, &list, client.MatchingFields{indexContent: what}); err != nil {
		return fmt.Errorf("list MachineOSBuilds of the same content: %w", err)
	}
	x.in.Others = nil
	for i := range list.Items {
		if b := &list.Items[i]; b.Spec.MachineOSConfig.Name != x.name {
			x.in.Others = append(x.in.Others, known(b, false))
		}
	}
	x.in.Others = append(x.in.Others, claims...)
	return nil
}

// activeBuilds are the builds that the cache knows, by whether they run or have ended lately.
func (r *Reconciler) activeBuilds(ctx context.Context) (active, ended map[string]bool, err error) {
	active, ended = map[string]bool{}, map[string]bool{}
	var list mcfgv1.MachineOSBuildList
	if err := r.client.List(ctx, &list, client.MatchingFields{indexActive: "true"},
		client.UnsafeDisableDeepCopy); err != nil {
		return nil, nil, fmt.Errorf("list running MachineOSBuilds: %w", err)
	}
	for i := range list.Items {
		active[list.Items[i].Name] = true
	}
	for _, name := range r.slots.names() {
		var b mcfgv1.MachineOSBuild
		if err := r.client.Get(ctx, client.ObjectKey{Name: name}, &b); err == nil && machineosbuild.StateOf(&b).Terminal() {
			ended[name] = true
		}
	}
	return active, ended, nil
}

// inUse names the build whose image the pool uses.
func inUse(config *mcfgv1.MachineOSConfig, own []*mcfgv1.MachineOSBuild) string {
	ref := config.Status.MachineOSBuild
	if ref == nil || config.Status.CurrentImagePullSpec == "" {
		return ""
	}
	for _, b := range own {
		if b.Name == ref.Name && b.Status.DigestedImagePushSpec == config.Status.CurrentImagePullSpec {
			return b.Name
		}
	}
	return ""
}

// build finds an own build by name.
func (x *run) build(name string) *mcfgv1.MachineOSBuild {
	for _, b := range x.own {
		if b.Name == name {
			return b
		}
	}
	return nil
}

// digestOf is the part behind the @ of a reference.
func digestOf(reference string) string {
	_, digest, _ := strings.Cut(reference, "@")
	return digest
}
