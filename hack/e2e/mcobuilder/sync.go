package mcobuilder

import (
	"context"
	"errors"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/build/machineosbuild"
	"dayone.dev/dayone/manifests"
)

// seeBuilds acts on builds that have ended since the last step.
func (b *Builder) seeBuilds(ctx context.Context) error {
	var list mcfgv1.MachineOSBuildList
	if err := b.Client.List(ctx, &list); err != nil {
		return err
	}
	var all []error
	for i := range list.Items {
		m := &list.Items[i]
		key, state := string(m.UID), machineosbuild.StateOf(m)
		if b.states[key] == state {
			continue
		}
		if err := b.ended(ctx, m, state); err != nil {
			all = append(all, err)
			continue
		}
		b.states[key] = state
	}
	return errors.Join(all...)
}

// ended takes the image of a successful build for its pool, and says on the pool whether its current build failed.
func (b *Builder) ended(ctx context.Context, m *mcfgv1.MachineOSBuild, state machineosbuild.State) error {
	if state != machineosbuild.Succeeded && state != machineosbuild.Failed {
		return nil
	}
	var c mcfgv1.MachineOSConfig
	if err := b.Client.Get(ctx, client.ObjectKey{Name: m.Spec.MachineOSConfig.Name}, &c); err != nil {
		return client.IgnoreNotFound(err)
	}
	if err := b.degrade(ctx, &c); err != nil || state == machineosbuild.Failed {
		return err
	}
	return b.report(ctx, &c, m)
}

// degrade writes ImageBuildDegraded of a pool by the build that its MachineOSConfig names.
func (b *Builder) degrade(ctx context.Context, c *mcfgv1.MachineOSConfig) error {
	m, err := b.build(ctx, c.Annotations[manifests.AnnotationCurrentBuild])
	if err != nil || m == nil {
		return err
	}
	var p mcfgv1.MachineConfigPool
	if err := b.Client.Get(ctx, client.ObjectKey{Name: c.Spec.MachineConfigPool.Name}, &p); err != nil {
		return err
	}
	condition := mcfgv1.MachineConfigPoolCondition{Type: mcfgv1.MachineConfigPoolImageBuildDegraded,
		Status: corev1.ConditionFalse, Reason: "BuildSuccess", LastTransitionTime: metav1.Now()}
	if machineosbuild.StateOf(m) == machineosbuild.Failed {
		condition.Status, condition.Reason = corev1.ConditionTrue, "BuildFailed"
		condition.Message = "Failed to build OS image for pool " + p.Name + " (MachineOSBuild: " + m.Name + ")"
	}
	others := p.Status.Conditions[:0]
	for _, o := range p.Status.Conditions {
		if o.Type != condition.Type {
			others = append(others, o)
		}
	}
	p.Status.Conditions = append(others, condition)
	return b.Client.Status().Update(ctx, &p)
}

// report points the MachineOSConfig to a build, and to its image when it has one.
func (b *Builder) report(ctx context.Context, c *mcfgv1.MachineOSConfig, m *mcfgv1.MachineOSBuild) error {
	var live mcfgv1.MachineOSConfig
	if err := b.Client.Get(ctx, client.ObjectKeyFromObject(c), &live); err != nil {
		return err
	}
	_, asks := live.Annotations[manifests.AnnotationRebuild]
	if asks || live.Annotations[manifests.AnnotationCurrentBuild] != m.Name {
		delete(live.Annotations, manifests.AnnotationRebuild)
		metav1.SetMetaDataAnnotation(&live.ObjectMeta, manifests.AnnotationCurrentBuild, m.Name)
		if err := b.Client.Update(ctx, &live); err != nil {
			return err
		}
	}
	image := m.Status.DigestedImagePushSpec
	named := live.Status.MachineOSBuild != nil && live.Status.MachineOSBuild.Name == m.Name
	if image == "" || named && live.Status.CurrentImagePullSpec == image {
		return nil
	}
	live.Status.CurrentImagePullSpec, live.Status.ObservedGeneration = image, live.Generation
	live.Status.MachineOSBuild = &mcfgv1.ObjectReference{Group: mcfgv1.GroupName, Resource: "machineosbuilds",
		Name: m.Name}
	return b.Client.Status().Update(ctx, &live)
}

// seed makes a successful build of a pre-built image.
func (b *Builder) seed(ctx context.Context, c *mcfgv1.MachineOSConfig) error {
	var p mcfgv1.MachineConfigPool
	if err := b.Client.Get(ctx, client.ObjectKey{Name: c.Spec.MachineConfigPool.Name}, &p); err != nil {
		return err
	}
	label := map[string]string{manifests.AnnotationPreBuiltImage: "true"}
	m, err := b.build(ctx, Name(c, p.Spec.Configuration.Name))
	if err == nil && m == nil {
		m, err = b.make(ctx, c, p.Spec.Configuration.Name, label)
	}
	if err != nil {
		return err
	}
	if m.Labels[manifests.AnnotationPreBuiltImage] == "" {
		metav1.SetMetaDataLabel(&m.ObjectMeta, manifests.AnnotationPreBuiltImage, "true")
		if err := b.Client.Update(ctx, m); err != nil {
			return err
		}
	}
	m.Status.DigestedImagePushSpec = mcfgv1.ImageDigestFormat(c.Annotations[manifests.AnnotationPreBuiltImage])
	setState(m, machineosbuild.Succeeded, "PreBuiltImageSeeded")
	if err := noted(&b.Refused, "status of MachineOSBuild", b.Client.Status().Update(ctx, m)); err != nil {
		return err
	}
	if err := b.report(ctx, c, m); err != nil {
		return err
	}
	var live mcfgv1.MachineOSConfig
	if err := b.Client.Get(ctx, client.ObjectKeyFromObject(c), &live); err != nil {
		return err
	}
	meta.SetStatusCondition(&live.Status.Conditions, metav1.Condition{Type: manifests.ConditionSeeded,
		Status: metav1.ConditionTrue, Reason: "PreBuiltImageSeeded"})
	return b.Client.Status().Update(ctx, &live)
}

// setState writes the five conditions as MCO does: constants without a cause.
func setState(m *mcfgv1.MachineOSBuild, state machineosbuild.State, reason string) {
	_ = machineosbuild.Move(m, state, machineosbuild.Cause{Reason: reason, Message: "Build Ready"}, time.Now())
}

// syncAll starts what shall be built and is not, and makes what is missing. The node controller's part is here, too: it
// removes the name of a current build that is gone or of another rendered config.
func (b *Builder) syncAll(ctx context.Context) error {
	var list mcfgv1.MachineOSConfigList
	if err := b.Client.List(ctx, &list); err != nil {
		return err
	}
	var all []error
	for i := range list.Items {
		all = append(all, b.sync(ctx, &list.Items[i]))
	}
	return errors.Join(all...)
}

func (b *Builder) sync(ctx context.Context, c *mcfgv1.MachineOSConfig) error {
	var p mcfgv1.MachineConfigPool
	if err := b.Client.Get(ctx, client.ObjectKey{Name: c.Spec.MachineConfigPool.Name}, &p); err != nil {
		return err
	}
	current := c.Annotations[manifests.AnnotationCurrentBuild]
	m, err := b.build(ctx, current)
	if err != nil {
		return err
	}
	switch {
	case current != "" && (m == nil || m.Spec.MachineConfig.Name != p.Spec.Configuration.Name):
		delete(c.Annotations, manifests.AnnotationCurrentBuild)
		return b.Client.Update(ctx, c)
	case m == nil && !seeds(c) && p.Spec.Configuration.Name != "":
		if err := b.createOrReuse(ctx, c, false); err != nil {
			return err
		}
	case seeds(c):
		return nil
	case c.Annotations[manifests.AnnotationPreBuiltImage] != "" && c.Status.CurrentImagePullSpec != "":
		delete(c.Annotations, manifests.AnnotationPreBuiltImage)
		return b.Client.Update(ctx, c)
	}
	builds, err := b.buildsOf(ctx, c)
	if err != nil {
		return err
	}
	for i := range builds {
		if builds[i].Labels[manifests.LabelRenderedMachineConfig] != p.Spec.Configuration.Name {
			continue
		}
		if err := b.syncBuild(ctx, c, &p, &builds[i]); err != nil {
			return err
		}
	}
	return nil
}

// syncBuild looks first whether the last image can be reused, and then at the label.
func (b *Builder) syncBuild(ctx context.Context, c *mcfgv1.MachineOSConfig, p *mcfgv1.MachineConfigPool,
	m *mcfgv1.MachineOSBuild) error {
	was, is := p.Status.Configuration.Name, p.Spec.Configuration.Name
	if was != "" && was != is {
		rebuilds, err := b.requiresRebuild(ctx, was, is)
		if err != nil {
			return err
		}
		if !rebuilds {
			if m.Status.DigestedImagePushSpec == "" {
				return b.reuseLast(ctx, c, is)
			}
			return nil
		}
	}
	if m.Labels[manifests.AnnotationPreBuiltImage] == "true" || machineosbuild.StateOf(m) != machineosbuild.Initial ||
		!b.known[string(m.UID)] {
		return nil
	}
	return b.start(ctx, c, m)
}

// start begins a build: other builds go, then come the inputs, then the Job, then the name on the MachineOSConfig.
func (b *Builder) start(ctx context.Context, c *mcfgv1.MachineOSConfig, m *mcfgv1.MachineOSBuild) error {
	if err := b.removeOthers(ctx, c, m); err != nil {
		return err
	}
	labels := map[string]string{manifests.LabelEphemeralBuildObject: "", manifests.LabelOnClusterLayering: "",
		manifests.LabelRenderedMachineConfig: m.Spec.MachineConfig.Name, manifests.LabelMachineOSBuild: m.Name,
		manifests.LabelTargetPool: c.Spec.MachineConfigPool.Name, manifests.LabelMachineOSConfig: c.Name}
	of := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: b.Namespace, Name: name + m.Name, Labels: labels}
	}
	job := &batchv1.Job{ObjectMeta: of("build-"), Spec: batchv1.JobSpec{Template: corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever,
			InitContainers: []corev1.Container{{Name: "image-build", Image: "mco"}},
			Containers:     []corev1.Container{{Name: "create-digest-configmap", Image: "mco"}}}}}}
	job.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(m,
		mcfgv1.GroupVersion.WithKind("MachineOSBuild"))}
	for _, o := range []client.Object{&corev1.ConfigMap{ObjectMeta: of("containerfile-")},
		&corev1.Secret{ObjectMeta: of("final-")}, job} {
		if err := noted(&b.Refused, o.GetName(), client.IgnoreAlreadyExists(b.Client.Create(ctx, o))); err != nil {
			return err
		}
	}
	return b.report(ctx, c, m)
}

// noted notes a write that the API server refuses.
func noted(refused *[]string, what string, err error) error {
	if apierrors.IsInvalid(err) || apierrors.IsForbidden(err) {
		*refused = append(*refused, what+": "+err.Error())
	}
	return err
}

func (b *Builder) removeOthers(ctx context.Context, c *mcfgv1.MachineOSConfig, but *mcfgv1.MachineOSBuild) error {
	builds, err := b.buildsOf(ctx, c)
	if err != nil {
		return err
	}
	for i := range builds {
		if builds[i].Name == but.Name || machineosbuild.StateOf(&builds[i]) == machineosbuild.Succeeded {
			continue
		}
		if err := b.remove(ctx, builds[i].Name); err != nil {
			return err
		}
	}
	return nil
}

func (b *Builder) remove(ctx context.Context, name string) error {
	return client.IgnoreNotFound(b.Client.Delete(ctx, &mcfgv1.MachineOSBuild{ObjectMeta: metav1.ObjectMeta{Name: name}}))
}

// build reads a build; nil when there is none of that name.
func (b *Builder) build(ctx context.Context, name string) (*mcfgv1.MachineOSBuild, error) {
	if name == "" {
		return nil, nil
	}
	var m mcfgv1.MachineOSBuild
	if err := b.Client.Get(ctx, client.ObjectKey{Name: name}, &m); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	return &m, nil
}

func (b *Builder) buildsOf(ctx context.Context, c *mcfgv1.MachineOSConfig) ([]mcfgv1.MachineOSBuild, error) {
	var list mcfgv1.MachineOSBuildList
	err := b.Client.List(ctx, &list, client.MatchingLabels{manifests.LabelMachineOSConfig: c.Name,
		manifests.LabelTargetPool: c.Spec.MachineConfigPool.Name})
	return list.Items, err
}

func (b *Builder) configOf(ctx context.Context, pool string) (*mcfgv1.MachineOSConfig, error) {
	var list mcfgv1.MachineOSConfigList
	if err := b.Client.List(ctx, &list); err != nil {
		return nil, err
	}
	for i := range list.Items {
		if list.Items[i].Spec.MachineConfigPool.Name == pool {
			return &list.Items[i], nil
		}
	}
	return nil, nil
}
