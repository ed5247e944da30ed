package releasecontroller

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/assets/cluster"
	"dayone.dev/dayone/manifests/render"
)

// Conditions in the ConfigMap, by whose ends the status controller knows them.
const (
	conditionProgressing = "ReleaseProgressing"
	conditionDegraded    = "ReleaseDegraded"
)

// Reasons that more than one place gives.
const (
	reasonFollowed = "AsExpected"
	reasonUnusable = "ReleaseResultUnusable"
	reasonFailed   = "ReleaseRenderFailed"
	reasonBack     = "ReleaseGoesBack"
)

// reconciler has one state, and so one request.
type reconciler struct {
	// client reads MachineConfigs from the cache; live reads past it.
	client client.Client
	live   client.Reader
	logs   func(ctx context.Context, pod, container string) (io.ReadCloser, error)
	events events.EventRecorder
	kinds  []kind
	o      Options
}

// state is what is said of a reconciliation.
type state struct {
	reason, text string
	// moving: something is under way; failing: an admin has to look.
	moving, failing bool
	release         string
	// again is when to look again without an event.
	again time.Duration
}

// Reconcile follows one step, and says how far it is.
func (r *reconciler) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	s, err := r.follow(ctx)
	var bad stateError
	switch {
	case errors.As(err, &bad):
		s.reason, s.text, s.moving, s.failing = bad.reason, bad.text, bad.waiting, !bad.waiting
	case apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err):
		return reconcile.Result{RequeueAfter: time.Second}, nil // somebody wrote meanwhile: the next look sees it
	case err != nil && ctx.Err() == nil:
		s.reason, s.failing = "ReleaseNotWritten", true
		s.text = err.Error() + ": it is tried again; if this stays, run dayone cluster uninstall"
		return reconcile.Result{}, errors.Join(err, r.say(ctx, s))
	case err != nil:
		return reconcile.Result{}, err
	}
	if s.reason == "" {
		return reconcile.Result{RequeueAfter: r.o.Idle}, nil // no cluster whose release is followed
	}
	s.again = cmp.Or(s.again, r.o.Idle)
	return reconcile.Result{RequeueAfter: s.again}, r.say(ctx, s)
}

// follow brings the cluster one step nearer to the state in which it should be.
func (r *reconciler) follow(ctx context.Context) (state, error) {
	controller := &unstructured.Unstructured{}
	controller.SetGroupVersionKind(mcfgv1.GroupVersion.WithKind("ControllerConfig"))
	if err := r.live.Get(ctx, client.ObjectKey{Name: render.ControllerConfigName}, controller); err != nil {
		return state{}, client.IgnoreNotFound(err)
	}
	have, err := r.made(ctx, r.client)
	if err != nil || !slices.ContainsFunc(have, func(m mcfgv1.MachineConfig) bool { return manifests.IsTemplate(&m) }) {
		return state{}, err
	}
	s := state{release: reached(controller, have)}
	rel, err := r.release(ctx)
	if err != nil {
		return s, err
	}
	if s.release, err = r.surely(ctx, s.release, rel, controller); err != nil {
		return s, err
	}
	if older(rel.version, s.release) {
		return s, stateError{reason: reasonBack, text: fmt.Sprintf("the release goes back from %s to %s, which dayone does "+
			"not follow: nodes keep %s; let the cluster-version operator go forward, or run dayone cluster uninstall",
			s.release, rel.version, s.release)}
	}
	in, err := gather(ctx, r.live, r.kinds, rel, controller)
	if err != nil {
		return s, err
	}
	token := controller.GetAnnotations()[manifests.AnnotationRelease]
	done := state{reason: reasonFollowed, text: "nodes are given release " + rel.version, release: rel.version}
	switch {
	case token == "" && s.release == rel.version && equality.Semantic.DeepEqual(in.controller.Object, controller.Object):
		return done, r.adopt(ctx, in, have)
	case token == in.token && all(have, token):
		return done, errors.Join(r.removeJobs(ctx, ""), r.forget(ctx, controller))
	}
	made, err := r.run(ctx, in)
	if err != nil {
		return s, err
	}
	if made == nil {
		s.reason, s.moving, s.again = "ReleaseRendering", true, r.o.Busy
		s.text = fmt.Sprintf("following release %s: Job %s renders with its machine-config-controller", rel.version,
			in.name())
		return s, nil
	}
	if err := r.apply(ctx, in, made, have, s.release); err != nil {
		return s, err
	}
	r.o.Log.WithFields(map[string]any{"release": rel.version, "token": in.token}).Info("release followed")
	if s.release != rel.version {
		about := &mcfgv1.ControllerConfig{ObjectMeta: metav1.ObjectMeta{Name: render.ControllerConfigName,
			UID: in.live.GetUID()}}
		r.events.Eventf(about, nil, corev1.EventTypeNormal, "OperatorVersionChanged", "Follow",
			"MachineConfigs and OS images of release %s take the place of %s's", rel.version, s.release)
	}
	done.again = r.o.Busy // the Job goes when everything is seen to be written
	return done, nil
}

// reached is the release of which nodes may have something. Nothing is rendered of one that is still being written.
func reached(controller *unstructured.Unstructured, have []mcfgv1.MachineConfig) string {
	a := controller.GetAnnotations()
	if before := a[manifests.AnnotationReleaseBefore]; before != "" && !all(have, a[manifests.AnnotationRelease]) {
		return before
	}
	return a[manifests.AnnotationReleaseImageVersion]
}

// all says whether MCO's MachineConfigs were all made for a state.
func all(have []mcfgv1.MachineConfig, token string) bool {
	return !slices.ContainsFunc(have, func(m mcfgv1.MachineConfig) bool {
		return m.Annotations[manifests.AnnotationRelease] != token
	})
}

// surely looks at the MachineConfigs themselves before a release may go back: the cache may be late, and the rest of
// what it shows half written be written and rendered.
func (r *reconciler) surely(ctx context.Context, have string, rel release,
	controller *unstructured.Unstructured) (string, error) {
	if !older(rel.version, controller.GetAnnotations()[manifests.AnnotationReleaseImageVersion]) {
		return have, nil
	}
	live, err := r.made(ctx, r.live)
	return reached(controller, live), err
}

// forget ends the note of the release before, when everything of the present one is written.
func (r *reconciler) forget(ctx context.Context, controller *unstructured.Unstructured) error {
	want := controller.DeepCopy()
	annotations := want.GetAnnotations()
	if _, noted := annotations[manifests.AnnotationReleaseBefore]; !noted {
		return nil
	}
	delete(annotations, manifests.AnnotationReleaseBefore)
	want.SetAnnotations(annotations)
	if err := r.client.Patch(ctx, want, client.MergeFromWithOptions(controller, client.MergeFromWithOptimisticLock{}),
		client.FieldOwner(prefix)); err != nil {
		return fmt.Errorf("write ControllerConfig: %w", err)
	}
	return nil
}

// made are the MachineConfigs that MCO's program has made.
func (r *reconciler) made(ctx context.Context, from client.Reader) ([]mcfgv1.MachineConfig, error) {
	var list mcfgv1.MachineConfigList
	if err := from.List(ctx, &list); err != nil {
		return nil, fmt.Errorf("list MachineConfigs: %w", err)
	}
	return slices.DeleteFunc(list.Items, func(m mcfgv1.MachineConfig) bool {
		return m.DeletionTimestamp != nil || !manifests.MadeByOperator(&m)
	}), nil
}

// release reads the ConfigMaps of the release.
func (r *reconciler) release(ctx context.Context) (release, error) {
	var images, osImages corev1.ConfigMap
	for name, to := range map[string]*corev1.ConfigMap{imagesName: &images, osImagesName: &osImages} {
		err := r.live.Get(ctx, client.ObjectKey{Namespace: cluster.DefaultNamespace, Name: name}, to)
		if apierrors.IsNotFound(err) {
			return release{}, malformed("there is no ConfigMap %s", name)
		}
		if err != nil {
			return release{}, fmt.Errorf("read ConfigMap %s: %w", name, err)
		}
	}
	return parseRelease(&images, &osImages)
}

// say writes the conditions when they change.
func (r *reconciler) say(ctx context.Context, s state) error {
	key := client.ObjectKey{Namespace: r.o.Namespace, Name: prefix}
	var have corev1.ConfigMap
	if err := r.live.Get(ctx, key, &have); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("read ConfigMap %s: %w", prefix, err)
	}
	var conditions []metav1.Condition
	if json.Unmarshal([]byte(have.Data[cluster.StatusConditions]), &conditions) != nil {
		conditions = nil // what is none is written anew
	}
	changed := false
	for kind, is := range map[string]bool{conditionProgressing: s.moving, conditionDegraded: s.failing} {
		c := metav1.Condition{Type: kind, Status: metav1.ConditionFalse, Reason: reasonFollowed,
			LastTransitionTime: metav1.NewTime(r.o.Now())}
		if is {
			c.Status, c.Reason, c.Message = metav1.ConditionTrue, s.reason, s.text
		} else if !s.moving && !s.failing {
			c.Message = s.text
		}
		changed = meta.SetStatusCondition(&conditions, c) || changed
	}
	if !changed && have.Data["release"] == s.release {
		return nil
	}
	slices.SortFunc(conditions, func(a, b metav1.Condition) int { return strings.Compare(b.Type, a.Type) })
	raw, err := json.MarshalIndent(conditions, "", " ")
	if err != nil {
		return fmt.Errorf("encode conditions: %w", err)
	}
	o := applycorev1.ConfigMap(prefix, r.o.Namespace).WithLabels(labels()).
		WithData(map[string]string{cluster.StatusConditions: string(raw), "release": s.release})
	if err := r.client.Apply(ctx, o, client.FieldOwner(prefix), client.ForceOwnership); err != nil {
		return fmt.Errorf("apply ConfigMap %s: %w", prefix, err)
	}
	return nil
}
