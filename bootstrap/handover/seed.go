package handover

import (
	"context"
	"fmt"
	"strconv"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/build/decide"
	"dayone.dev/dayone/build/machineosbuild"
	"dayone.dev/dayone/installconfig"
	"dayone.dev/dayone/manifests"
)

// reasonSeeded is the condition's in the shipped contract (MCO, pkg/controller/build/constants/constants.go).
const reasonSeeded = "PreBuiltImageSeeded"

// seed opts a pool in. With an image that was built on the bootstrap host the cluster finds a build that has succeeded:
// the controllers have nothing left to decide. The unmodified operator makes that build itself, from the annotation.
func (w writer) seed(ctx context.Context, o client.Object) error {
	wanted, ok := o.(*mcfgv1.MachineOSConfig)
	if !ok {
		return fatal{fmt.Errorf("%s is no MachineOSConfig", o.GetName())}
	}
	pool := w.o.Plan.pool(wanted.Spec.MachineConfigPool.Name)
	config := wanted.DeepCopy()
	config.Status = mcfgv1.MachineOSConfigStatus{}
	if pool.Image == "" {
		return w.apply(ctx, config)
	}
	metav1.SetMetaDataAnnotation(&config.ObjectMeta, manifests.AnnotationPreBuiltImage, pool.Image)
	have, err := w.machineOSConfig(ctx, config.Name)
	if err != nil {
		return err
	}
	if w.o.Plan.Controllers == MCO {
		return w.applyUnlessSeeded(ctx, config, have, pool)
	}
	if have == nil {
		// The build is its property, so it comes first. No controller builds yet: the pool is not there, or the annotation
		// says what its image is.
		if err := w.apply(ctx, config); err != nil {
			return err
		}
		if have, err = w.machineOSConfig(ctx, config.Name); err != nil {
			return err
		}
		if have == nil {
			return fmt.Errorf("MachineOSConfig %s is gone again", config.Name)
		}
	}
	build, err := w.build(ctx, have, pool)
	if err != nil {
		return err
	}
	if err := w.applyUnlessSeeded(ctx, config, have, pool); err != nil {
		return err
	}
	return w.settle(ctx, config.Name, build, pool)
}

// applyUnlessSeeded leaves the annotation away once the image is taken over: the controllers have removed it.
func (w writer) applyUnlessSeeded(ctx context.Context, config, have *mcfgv1.MachineOSConfig, pool Pool) error {
	if have != nil && taken(have, pool.Image) {
		delete(config.Annotations, manifests.AnnotationPreBuiltImage)
	}
	return w.apply(ctx, config)
}

// taken tells whether the cluster has made the image the pool's.
func taken(c *mcfgv1.MachineOSConfig, image string) bool {
	return string(c.Status.CurrentImagePullSpec) == image && meta.IsStatusConditionTrue(c.Status.Conditions,
		manifests.ConditionSeeded)
}

func (w writer) machineOSConfig(ctx context.Context, name string) (*mcfgv1.MachineOSConfig, error) {
	c := &mcfgv1.MachineOSConfig{}
	err := w.cluster.Get(ctx, client.ObjectKey{Name: name}, c)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read MachineOSConfig %s: %w", name, err)
	}
	return c, nil
}

// maxAttempts bounds the search for a free name: a builder that fails as often has stopped long before.
const maxAttempts = 64

// build makes the MachineOSBuild that stands for the build on the bootstrap host, and finds it again. A terminal build
// with another image keeps its name: the next attempt's is taken.
func (w writer) build(ctx context.Context, config *mcfgv1.MachineOSConfig, pool Pool) (*mcfgv1.MachineOSBuild, error) {
	for attempt := range maxAttempts {
		b := &mcfgv1.MachineOSBuild{}
		name := machineosbuild.AttemptName(config.Name, pool.Address, attempt)
		err := w.cluster.Get(ctx, client.ObjectKey{Name: name}, b)
		if apierrors.IsNotFound(err) {
			b = synthesise(config, pool, attempt)
			if err = w.cluster.Create(ctx, b, client.FieldOwner(manager)); err == nil {
				w.o.Log.WithField("machineosbuild", b.Name).WithField("image", pool.Image).
					Info("build of the bootstrap host is handed over")
			}
		}
		if err != nil {
			return nil, fmt.Errorf("make MachineOSBuild %s: %w", name, err)
		}
		switch state := machineosbuild.StateOf(b); {
		case state == machineosbuild.Succeeded && string(b.Status.DigestedImagePushSpec) == pool.Image:
			return b, nil
		case state == machineosbuild.Initial && b.DeletionTimestamp == nil:
			return b, w.succeed(ctx, b, pool)
		case b.DeletionTimestamp != nil:
			return nil, waitsFor{fmt.Sprintf("MachineOSBuild %s is being deleted", name)}
		}
	}
	return nil, fatal{fmt.Errorf(
		"hand over the build of pool %s: %d MachineOSBuilds of its content failed in the cluster: delete them", pool.Name,
		maxAttempts)}
}

// synthesise is the build as the cluster's own builder would have made it, with the label of the shipped contract.
func synthesise(config *mcfgv1.MachineOSConfig, pool Pool, attempt int) *mcfgv1.MachineOSBuild {
	annotations := machineosbuild.Annotations(pool.Address, config.Spec.RenderedImagePushSecret.Name)
	annotations[manifests.AnnotationBuildAttempt] = strconv.Itoa(attempt)
	annotations[manifests.AnnotationReusedImage] = pool.Image
	if pool.Ground != "" {
		annotations[manifests.AnnotationBuildGround] = pool.Ground
	}
	if pool.Kernels != "" {
		annotations[manifests.AnnotationKernels] = pool.Kernels
	}
	labels := machineosbuild.Labels(pool.Name, config.Name, pool.Config)
	labels[manifests.AnnotationPreBuiltImage] = "true"
	spec := installconfig.Repository(pool.Image) + ":" + pool.tag()
	return &mcfgv1.MachineOSBuild{
		ObjectMeta: metav1.ObjectMeta{
			Name: machineosbuild.AttemptName(config.Name, pool.Address, attempt), Labels: labels, Annotations: annotations,
			Finalizers: []string{manifests.FinalizerMachineOSBuild},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(config,
				mcfgv1.GroupVersion.WithKind("MachineOSConfig"))},
		},
		Spec: mcfgv1.MachineOSBuildSpec{
			MachineConfig:         mcfgv1.MachineConfigReference{Name: pool.Config},
			MachineOSConfig:       mcfgv1.MachineOSConfigReference{Name: config.Name},
			RenderedImagePushSpec: mcfgv1.ImageTagFormat(spec),
		},
	}
}

// succeed writes the result.
func (w writer) succeed(ctx context.Context, b *mcfgv1.MachineOSBuild, pool Pool) error {
	cause := machineosbuild.Cause{Reason: decide.ReasonPreBuiltImage, Message: "the pool was installed with this image: " +
		pool.Image}
	if err := machineosbuild.Move(b, machineosbuild.Succeeded, cause, w.o.Now()); err != nil {
		return fatal{err}
	}
	b.Status.DigestedImagePushSpec = mcfgv1.ImageDigestFormat(pool.Image)
	if err := w.cluster.Status().Update(ctx, b, client.FieldOwner(manager)); err != nil {
		return fmt.Errorf("write state of MachineOSBuild %s: %w", b.Name, err)
	}
	return nil
}

// settle makes the image the pool's, once. An image that the cluster has built since stays.
func (w writer) settle(ctx context.Context, name string, build *mcfgv1.MachineOSBuild, pool Pool) error {
	config, err := w.machineOSConfig(ctx, name)
	if err != nil || config == nil || taken(config, pool.Image) {
		return err
	}
	if config.Annotations[manifests.AnnotationPreBuiltImage] != pool.Image {
		return nil // the cluster has gone on to other content; what its nodes make of it shows in the agreement
	}
	if config.Annotations[manifests.AnnotationCurrentBuild] != build.Name {
		old := config.DeepCopy()
		metav1.SetMetaDataAnnotation(&config.ObjectMeta, manifests.AnnotationCurrentBuild, build.Name)
		if err := w.cluster.Patch(ctx, config, client.MergeFromWithOptions(old, client.MergeFromWithOptimisticLock{}),
			client.FieldOwner(manager)); err != nil {
			return fmt.Errorf("annotate MachineOSConfig %s: %w", name, err)
		}
	}
	config.Status.CurrentImagePullSpec = mcfgv1.ImageDigestFormat(pool.Image)
	config.Status.MachineOSBuild = &mcfgv1.ObjectReference{Group: mcfgv1.GroupName, Resource: "machineosbuilds",
		Name: build.Name}
	meta.SetStatusCondition(&config.Status.Conditions, metav1.Condition{Type: manifests.ConditionSeeded,
		Status: metav1.ConditionTrue, Reason: reasonSeeded,
		Message: "the image that the pool was installed with is taken over", ObservedGeneration: config.Generation,
		LastTransitionTime: metav1.NewTime(w.o.Now())})
	if err := w.cluster.Status().Update(ctx, config, client.FieldOwner(manager)); err != nil {
		return fmt.Errorf("write status of MachineOSConfig %s: %w", name, err)
	}
	return nil
}
