package buildcontroller

import (
	"context"
	"fmt"
	"sync"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/build/job"
	"dayone.dev/dayone/build/poolrequest"
	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/render"
)

// api is the edge to the API: it reads and writes objects and decides nothing.
type api struct {
	// client reads from the cache, live from the API server.
	client    client.Client
	live      client.Reader
	namespace string
	// osImages are the osImageURLs of rendered configs by name, whose content never changes.
	osImages *sync.Map
}

func newAPI(c client.Client, live client.Reader, namespace string) api {
	return api{client: c, live: live, namespace: namespace, osImages: &sync.Map{}}
}

func (c api) reader(live bool) client.Reader {
	if live {
		return c.live
	}
	return c.client
}

// observe reads the MachineOSConfig of this name, its pool and its builds, from the API server or from the cache.
func (c api) observe(ctx context.Context, name string, live bool) (observation, error) {
	var o observation
	from := c.reader(live)
	config, poolName := &mcfgv1.MachineOSConfig{}, name
	switch err := from.Get(ctx, client.ObjectKey{Name: name}, config); {
	case err == nil:
		o.config, poolName = config, config.Spec.MachineConfigPool.Name
	case client.IgnoreNotFound(err) != nil:
		return o, fmt.Errorf("read MachineOSConfig: %w", err)
	}
	pool := &mcfgv1.MachineConfigPool{}
	switch err := from.Get(ctx, client.ObjectKey{Name: poolName}, pool); {
	case err == nil:
		o.pool = pool
	case client.IgnoreNotFound(err) != nil:
		return o, fmt.Errorf("read MachineConfigPool: %w", err)
	}
	var err error
	o.builds, err = c.buildsOf(ctx, name, live)
	return o, err
}

// buildsOf lists the builds of a MachineOSConfig. The cache finds them by index, the API server by label.
func (c api) buildsOf(ctx context.Context, config string, live bool) ([]*mcfgv1.MachineOSBuild, error) {
	var by client.ListOption = client.MatchingFields{indexOwner: config}
	if live {
		by = client.MatchingLabels{manifests.LabelMachineOSConfig: manifests.LabelValue(config)}
	}
	var list mcfgv1.MachineOSBuildList
	if err := c.reader(live).List(ctx, &list, by); err != nil {
		return nil, fmt.Errorf("list MachineOSBuilds: %w", err)
	}
	var builds []*mcfgv1.MachineOSBuild
	for i := range list.Items {
		if b := &list.Items[i]; b.Spec.MachineOSConfig.Name == config {
			builds = append(builds, b)
		}
	}
	return builds, nil
}

// renderedConfig reads a rendered config from the API server: the cache does not hold them.
func (c api) renderedConfig(ctx context.Context, name string) (*mcfgv1.MachineConfig, error) {
	var config mcfgv1.MachineConfig
	if err := c.live.Get(ctx, client.ObjectKey{Name: name}, &config); err != nil {
		return nil, wrap(err, "read rendered config "+name)
	}
	c.osImages.Store(name, config.Spec.OSImageURL)
	return &config, nil
}

// osImage is the osImageURL of a rendered config; empty when the rendered config does not exist.
func (c api) osImage(ctx context.Context, rendered string) (string, error) {
	if image, ok := c.osImages.Load(rendered); ok {
		return fmt.Sprint(image), nil
	}
	config, err := c.renderedConfig(ctx, rendered)
	if err != nil {
		return "", client.IgnoreNotFound(err)
	}
	return config.Spec.OSImageURL, nil
}

// controllerConfig reads the ControllerConfig; it is empty when there is none.
func (c api) controllerConfig(ctx context.Context) (*mcfgv1.ControllerConfig, error) {
	var cc mcfgv1.ControllerConfig
	err := c.client.Get(ctx, client.ObjectKey{Name: render.ControllerConfigName}, &cc)
	return &cc, wrap(client.IgnoreNotFound(err), "read ControllerConfig")
}

// releaseImage is the OS image that the pool runs before anything is built for it: its OS image stream's, where the
// cluster has an OSImageStream, else the ControllerConfig's. It is empty when that does not have the pool's stream. It
// is read from the API server: a cluster may be without the kind.
func (c api) releaseImage(ctx context.Context, cc *mcfgv1.ControllerConfig,
	pool *mcfgv1.MachineConfigPool) (string, error) {
	var streams mcfgv1.OSImageStream
	err := c.live.Get(ctx, client.ObjectKey{Name: render.OSImageStreamName}, &streams)
	if apierrors.IsNotFound(err) || meta.IsNoMatchError(err) {
		return poolrequest.ReleaseImage(cc, nil, pool, nil), nil
	}
	if err != nil {
		return "", wrap(err, "read OSImageStream")
	}
	var worker mcfgv1.MachineConfigPool
	if err := c.client.Get(ctx, client.ObjectKey{Name: "worker"}, &worker); client.IgnoreNotFound(err) != nil {
		return "", wrap(err, "read MachineConfigPool worker")
	}
	return poolrequest.ReleaseImage(cc, &streams, pool, []*mcfgv1.MachineConfigPool{&worker}), nil
}

// preBuiltComponent is the osImageURL of the MachineConfig that brings a pool's first image into its rendered config;
// empty when there is none.
func (c api) preBuiltComponent(ctx context.Context, pool string) (string, error) {
	var component mcfgv1.MachineConfig
	err := c.live.Get(ctx, client.ObjectKey{Name: manifests.PreBuiltComponentPrefix + pool}, &component)
	return component.Spec.OSImageURL, wrap(client.IgnoreNotFound(err), "read MachineConfig of the pre-built image")
}

// jobNamed reads the Job that has the name of a build's; nil when there is none. It may belong to an earlier build.
func (c api) jobNamed(ctx context.Context, from client.Reader, b *mcfgv1.MachineOSBuild) (*batchv1.Job, error) {
	var j batchv1.Job
	err := from.Get(ctx, client.ObjectKey{Namespace: c.namespace, Name: job.JobName(b.Name)}, &j)
	if err != nil {
		return nil, wrap(client.IgnoreNotFound(err), "read Job of MachineOSBuild "+b.Name)
	}
	return &j, nil
}

// jobOf reads the Job of a build; nil when there is none that the build owns.
func (c api) jobOf(ctx context.Context, from client.Reader, b *mcfgv1.MachineOSBuild) (*batchv1.Job, error) {
	j, err := c.jobNamed(ctx, from, b)
	if err != nil || j == nil || !metav1.IsControlledBy(j, b) {
		return nil, err
	}
	return j, nil
}

// currentJob reads the Job of a build; nil when it has none. The cache may not have the Job yet: before it counts as
// deleted, the API server is asked.
func (c api) currentJob(ctx context.Context, b *mcfgv1.MachineOSBuild) (*batchv1.Job, error) {
	j, err := c.jobOf(ctx, c.client, b)
	if err == nil && j == nil {
		j, err = c.jobOf(ctx, c.live, b)
	}
	return j, err
}

// progress says how far the Job and its pods are; j is nil when the build's Job is gone.
func (c api) progress(ctx context.Context, j *batchv1.Job) (job.Observation, error) {
	if j == nil {
		return job.Observe(nil, nil), nil
	}
	var pods corev1.PodList
	err := c.client.List(ctx, &pods, client.InNamespace(c.namespace), client.MatchingLabels{batchv1.JobNameLabel: j.Name})
	return job.Observe(j, pods.Items), wrap(err, "list pods of Job "+j.Name)
}

// deleteJob deletes the Job of a build with its pods, and a Job of that name without an owner. It gives the name of the
// Job whose deletion begins now; empty: none does.
func (c api) deleteJob(ctx context.Context, b *mcfgv1.MachineOSBuild) (string, error) {
	j, err := c.jobNamed(ctx, c.live, b)
	if err != nil || j == nil || metav1.GetControllerOf(j) != nil && !metav1.IsControlledBy(j, b) {
		return "", err
	}
	err = c.client.Delete(ctx, j, client.PropagationPolicy(metav1.DeletePropagationBackground))
	if err != nil || j.DeletionTimestamp != nil {
		return "", wrap(client.IgnoreNotFound(err), "delete Job of MachineOSBuild "+b.Name)
	}
	return j.Name, nil
}

// deleteInputs deletes the objects that a build reads, of these kinds.
func (c api) deleteInputs(ctx context.Context, b *mcfgv1.MachineOSBuild, kinds ...string) error {
	for _, kind := range kinds {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind(kind + "List"))
		if err := c.live.List(ctx, list, client.InNamespace(c.namespace),
			client.MatchingLabels{manifests.LabelMachineOSBuild: manifests.LabelValue(b.Name)},
			client.HasLabels{manifests.LabelEphemeralBuildObject}); err != nil {
			return fmt.Errorf("list inputs of MachineOSBuild %s: %w", b.Name, err)
		}
		for i := range list.Items {
			o := &list.Items[i]
			// Names follow from the content: a later build of this name may have its inputs here already.
			if owner := metav1.GetControllerOf(o); owner != nil && owner.UID != b.UID {
				continue
			}
			o.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind(kind))
			if err := c.client.Delete(ctx, o); client.IgnoreNotFound(err) != nil {
				return fmt.Errorf("delete %s %s: %w", kind, o.Name, err)
			}
		}
	}
	return nil
}

// deleteBuild begins the deletion of a build. A build that is nil or being deleted already needs nothing.
func (c api) deleteBuild(ctx context.Context, b *mcfgv1.MachineOSBuild) error {
	if b == nil || b.DeletionTimestamp != nil {
		return nil
	}
	return wrap(client.IgnoreNotFound(c.client.Delete(ctx, b)), "delete MachineOSBuild "+b.Name)
}

// createBuild creates a build, or reads the one of its name. created says which.
func (c api) createBuild(ctx context.Context, b *mcfgv1.MachineOSBuild) (_ *mcfgv1.MachineOSBuild, created bool,
	err error) {
	err = c.client.Create(ctx, b)
	if !apierrors.IsAlreadyExists(err) {
		if err != nil {
			return nil, false, fmt.Errorf("create MachineOSBuild %s: %w", b.Name, err)
		}
		return b, true, nil
	}
	var there mcfgv1.MachineOSBuild
	if err := c.live.Get(ctx, client.ObjectKeyFromObject(b), &there); err != nil {
		return nil, false, fmt.Errorf("read MachineOSBuild %s: %w", b.Name, err)
	}
	return &there, false, nil
}

// writeInput creates an input of a build, or writes over the one that an earlier build of this name left. old is empty
// and of the same type.
func (c api) writeInput(ctx context.Context, input, old client.Object) error {
	err := c.client.Create(ctx, input)
	if apierrors.IsAlreadyExists(err) {
		if err = c.live.Get(ctx, client.ObjectKeyFromObject(input), old); err == nil {
			input.SetResourceVersion(old.GetResourceVersion())
			err = c.client.Update(ctx, input)
		}
	}
	return wrap(err, "write "+input.GetName())
}

// wrap says what failed; without an error there is nothing to say.
func wrap(err error, what string) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", what, err)
}

// patched writes what change makes of an object and returns the written copy. It writes nothing when nothing changes,
// and fails when another writer was first.
func patched[T client.Object](ctx context.Context, c api, o T, change func(T)) (T, error) {
	return patchedBy(o, change, func(next client.Object, p client.Patch) error {
		return c.client.Patch(ctx, next, p)
	})
}

// patchedStatus does as patched with the object's status.
func patchedStatus[T client.Object](ctx context.Context, c api, o T, change func(T)) (T, error) {
	return patchedBy(o, change, func(next client.Object, p client.Patch) error {
		return c.client.Status().Patch(ctx, next, p)
	})
}

func patchedBy[T client.Object](o T, change func(T), write func(client.Object, client.Patch) error) (T, error) {
	next, ok := o.DeepCopyObject().(T)
	if !ok {
		return o, fmt.Errorf("copy %s: the copy has another type", o.GetName())
	}
	if change(next); equality.Semantic.DeepEqual(o, next) {
		return o, nil
	}
	if err := write(next, client.MergeFromWithOptions(o, client.MergeFromWithOptimisticLock{})); err != nil {
		return o, fmt.Errorf("patch %s: %w", o.GetName(), err)
	}
	return next, nil
}
