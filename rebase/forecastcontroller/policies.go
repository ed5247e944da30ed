package forecastcontroller

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	opv1 "github.com/openshift/api/operator/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/assets/cluster"
	"dayone.dev/dayone/manifests/clusterinstall"
	"dayone.dev/dayone/manifests/postconfig"
)

const (
	// policiesName is the ConfigMap that says which owners' rules are published, and which are not.
	policiesName = "dayone-policies"
	keyPolicies  = "policies.json"
	keySummary   = "summary"
	// maxLeftOut bounds what is published of rules that are left out.
	maxLeftOut = 200
)

// policies makes owners' rules entries of the MachineConfiguration.
type policies struct {
	cache   client.Client
	live    client.Client
	store   *store
	events  events.EventRecorder
	metrics *metrics
	o       Options
}

func setupPolicies(mgr ctrl.Manager, r *policies) error {
	one := reconcile.Request{NamespacedName: client.ObjectKey{Name: cluster.MachineConfiguration}}
	toOne := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request {
		return []reconcile.Request{one}
	})
	return ctrl.NewControllerManagedBy(mgr).Named("forecast-policies").WithOptions(options()).
		Watches(&opv1.MachineConfiguration{}, toOne).
		Watches(&mcfgv1.MachineConfigPool{}, toOne, builder.WithPredicates(poolChanged())).
		Watches(&mcfgv1.MachineConfig{}, toOne, builder.WithPredicates(ruleChanged())).
		Complete(r)
}

// ruleChanged keeps out rendered configs, and what is no part of a rule.
func ruleChanged() predicate.Predicate {
	own := func(o client.Object) bool { return !strings.HasPrefix(o.GetName(), renderedPrefix) }
	return predicate.Funcs{
		CreateFunc: func(e event.CreateEvent) bool { return own(e.Object) },
		DeleteFunc: func(e event.DeleteEvent) bool { return own(e.Object) },
		UpdateFunc: func(e event.UpdateEvent) bool {
			return own(e.ObjectNew) && (e.ObjectOld.GetGeneration() != e.ObjectNew.GetGeneration() ||
				!maps.Equal(e.ObjectOld.GetAnnotations(), e.ObjectNew.GetAnnotations()) ||
				!maps.Equal(e.ObjectOld.GetLabels(), e.ObjectNew.GetLabels()))
		},
	}
}

// published is the value of keyPolicies.
type published struct {
	Published []entry   `json:"published"`
	LeftOut   []leftOut `json:"leftOut"`
}

// Reconcile publishes the rules that owners gave.
func (r *policies) Reconcile(ctx context.Context, _ ctrl.Request) (ctrl.Result, error) {
	var pools mcfgv1.MachineConfigPoolList
	var configs mcfgv1.MachineConfigList
	for _, list := range []client.ObjectList{&pools, &configs} {
		if err := r.cache.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
			return ctrl.Result{}, fmt.Errorf("list %T: %w", list, err)
		}
	}
	all := make([]*mcfgv1.MachineConfig, 0, len(configs.Items))
	for i := range configs.Items {
		all = append(all, &configs.Items[i])
	}
	list, left := wanted(pools.Items, all)
	object := &opv1.MachineConfiguration{}
	err := r.live.Get(ctx, client.ObjectKey{Name: cluster.MachineConfiguration}, object) // with the owners of its fields
	switch {
	case apierrors.IsNotFound(err):
		for _, e := range list {
			left = append(left, leftOut{e.Kind, e.Name, e.Origin, "there is no MachineConfiguration cluster yet"})
		}
		return ctrl.Result{RequeueAfter: recheck}, r.report(ctx, nil, published{LeftOut: left})
	case err != nil:
		return ctrl.Result{}, fmt.Errorf("read MachineConfiguration: %w", err)
	}
	ours, others, shared, err := split(object)
	if err != nil {
		return ctrl.Result{}, err
	}
	if shared {
		_, err := clusterinstall.LeaveShared(ctx, r.live, object)
		return ctrl.Result{RequeueAfter: gatherPools}, err
	}
	before, err := r.before(ctx)
	if err != nil {
		return ctrl.Result{}, err
	}
	list = append(list, lasting(before.Published, list, pools.Items, all)...)
	sortEntries(list)
	list, refused := allowed(list, others)
	left = append(left, refused...)
	if !same(object, ours, list) {
		files, units := asAPI(list)
		err := clusterinstall.ApplyPolicies(ctx, r.live, object, files, units)
		if apierrors.HasStatusCause(err, metav1.CauseTypeFieldManagerConflict) || apierrors.IsInvalid(err) {
			for _, e := range list {
				left = append(left, leftOut{e.Kind, e.Name, e.Origin, "MachineConfiguration cluster refused it: " + err.Error()})
			}
			return ctrl.Result{RequeueAfter: recheck}, r.report(ctx, object, published{LeftOut: left})
		}
		if err != nil { // with a conflict, too, where the object has changed meanwhile
			return ctrl.Result{}, fmt.Errorf("write owners' policies: %w", err)
		}
		r.o.Log.WithField("entries", len(list)).Info("owners' policies published")
	}
	return ctrl.Result{RequeueAfter: mend}, r.report(ctx, object, published{Published: list, LeftOut: left})
}

// lasting are entries whose MachineConfig has been deleted while nodes still have what it brought: its removal is the
// last change that the rule is for.
func lasting(before, now []entry, pools []mcfgv1.MachineConfigPool, all []*mcfgv1.MachineConfig) (out []entry) {
	for _, e := range before {
		config := postconfig.OwnerOf(e.Origin)
		exists := slices.ContainsFunc(all, func(mc *mcfgv1.MachineConfig) bool { return mc.Name == config })
		again := slices.ContainsFunc(now, func(n entry) bool { return n.Kind == e.Kind && n.Name == e.Name })
		had := slices.ContainsFunc(pools, func(p mcfgv1.MachineConfigPool) bool {
			return slices.ContainsFunc(p.Status.Configuration.Source,
				func(s corev1.ObjectReference) bool { return s.Name == config })
		})
		if !exists && !again && had {
			out = append(out, e)
		}
	}
	return out
}

// before is what was published last.
func (r *policies) before(ctx context.Context) (p published, err error) {
	data, err := r.store.read(ctx, policiesName, r.o.Now())
	if err != nil || json.Unmarshal([]byte(data[keyPolicies]), &p) != nil {
		return published{}, err // what cannot be read is written anew
	}
	return p, nil
}

// same tells that our entries are these already.
func same(object *opv1.MachineConfiguration, ours owned, list []entry) bool {
	if len(ours.files)+len(ours.units) != len(list) {
		return false
	}
	files, units := asAPI(list)
	have := map[string]any{}
	for _, f := range object.Spec.NodeDisruptionPolicy.Files {
		if ours.files[f.Path] {
			have[kindFile+f.Path] = f.Actions
		}
	}
	for _, u := range object.Spec.NodeDisruptionPolicy.Units {
		if ours.units[string(u.Name)] {
			have[kindUnit+string(u.Name)] = u.Actions
		}
	}
	for _, e := range append(files, units...) {
		m, _ := e.(map[string]any)
		key := kindUnit + fmt.Sprint(m["name"])
		if p, is := m["path"]; is {
			key = kindFile + fmt.Sprint(p)
		}
		var want, is any
		raw, _ := json.Marshal(m["actions"])
		_ = json.Unmarshal(raw, &want)
		raw, _ = json.Marshal(have[key])
		_ = json.Unmarshal(raw, &is)
		if !reflect.DeepEqual(want, is) {
			return false
		}
	}
	return true
}

// report says what is published and what is not. An event is sent when something else is left out.
func (r *policies) report(ctx context.Context, object *opv1.MachineConfiguration, p published) error {
	slices.SortFunc(p.LeftOut, func(a, b leftOut) int {
		return strings.Compare(a.Kind+a.Name+a.Why, b.Kind+b.Name+b.Why)
	})
	r.metrics.published.Set(float64(len(p.Published)))
	r.metrics.leftOut.Set(float64(len(p.LeftOut)))
	said := p.summary()
	p.Published = append([]entry{}, p.Published...)
	p.LeftOut = append([]leftOut{}, p.LeftOut[:min(len(p.LeftOut), maxLeftOut)]...)
	raw, err := json.Marshal(p)
	if err != nil {
		return fmt.Errorf("encode policies: %w", err)
	}
	before, err := r.before(ctx)
	if err != nil {
		return err
	}
	changed, err := r.store.write(ctx, policiesName, map[string]string{keyPolicies: string(raw), keySummary: said},
		r.o.Now())
	if err != nil || !changed || object == nil || len(p.LeftOut) == 0 || slices.Equal(before.LeftOut, p.LeftOut) {
		return err
	}
	r.events.Eventf(object, nil, corev1.EventTypeWarning, "PoliciesLeftOut", "Publish", "%s", cutNote(said))
	return nil
}

// cutNote bounds an event's message. Source: Kubernetes, events.k8s.io/v1.
func cutNote(text string) string {
	const most = 1000
	return strings.ToValidUTF8(text[:min(len(text), most)], "")
}

// summary says it in sentences.
func (p published) summary() string {
	out := fmt.Sprintf("%d rules of owners of MachineConfigs (annotation %s) are in MachineConfiguration %s.\n",
		len(p.Published), manifests.AnnotationOwnPostConfigAction, cluster.MachineConfiguration)
	for i, l := range p.LeftOut {
		if i == maxLeftOut {
			return out + fmt.Sprintf("And %d more are left out.\n", len(p.LeftOut)-i)
		}
		subject := strings.TrimSpace(l.Kind + " " + l.Name)
		if subject == "" {
			out += fmt.Sprintf("Left out: %s.\n", cutNote(l.Why))
			continue
		}
		out += fmt.Sprintf("Left out: %s of %s: %s.\n", subject, l.Origin, cutNote(l.Why))
	}
	return out
}
