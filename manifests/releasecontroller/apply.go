package releasecontroller

import (
	"context"
	"fmt"
	"maps"
	"slices"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/render"
)

// apply brings a result to the cluster. The ControllerConfig comes first: from then on its token is another than that
// of the MachineConfigs, and nothing is rendered until the last of them is written. Until then nodes have before.
func (r *reconciler) apply(ctx context.Context, in inputs, made *result, have []mcfgv1.MachineConfig,
	before string) error {
	var all []*mcfgv1.MachineConfig
	for _, role := range slices.Sorted(maps.Keys(made.Configs)) {
		list, err := spread(role, ofRole(have, role), made.Configs[role])
		if err != nil {
			return stateError{reason: reasonUnusable, text: err.Error() + "; see issue tracker, or run dayone cluster uninstall"}
		}
		all = append(all, list...)
	}
	all = append(all, rest(have, made.Configs)...)
	if err := r.writeController(ctx, in, made, before); err != nil {
		return err
	}
	if err := r.writeStreams(ctx, in, made); err != nil {
		return err
	}
	for _, m := range all {
		metav1.SetMetaDataAnnotation(&m.ObjectMeta, manifests.AnnotationGeneratedByController, made.hash())
		if err := r.writeConfig(ctx, in, m, have); err != nil {
			return err
		}
	}
	return nil
}

// ofRole are copies of what is made of templates and of settings whose results are in the program's, for a role.
func ofRole(have []mcfgv1.MachineConfig, role string) (out []*mcfgv1.MachineConfig) {
	for i := range have {
		if have[i].Labels[manifests.LabelRole] == role && followed(&have[i]) {
			out = append(out, have[i].DeepCopy())
		}
	}
	return out
}

// rest are copies of MachineConfigs whose content stays: what a bootstrap controller does not make, and roles that are
// no pool's any more.
func rest(have []mcfgv1.MachineConfig, made map[string]*mcfgv1.MachineConfig) (out []*mcfgv1.MachineConfig) {
	for i := range have {
		if made[have[i].Labels[manifests.LabelRole]] == nil || !followed(&have[i]) {
			out = append(out, have[i].DeepCopy())
		}
	}
	return out
}

// followed says whether a bootstrap controller makes what the MachineConfig holds: by its owner's kind (MCO,
// pkg/controller/bootstrap). Some have no owner.
func followed(m *mcfgv1.MachineConfig) bool {
	return !slices.ContainsFunc(m.OwnerReferences, func(o metav1.OwnerReference) bool {
		return !slices.Contains([]string{"ControllerConfig", "KubeletConfig", "ContainerRuntimeConfig", "Image",
			"FeatureGate", "Node"}, o.Kind)
	})
}

// writeController writes images, versions and token at once.
func (r *reconciler) writeController(ctx context.Context, in inputs, made *result, before string) error {
	live := in.live.DeepCopy()
	want := in.controller.DeepCopy()
	annotations := want.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[manifests.AnnotationGeneratedByVersion] = made.Raw
	annotations[manifests.AnnotationReleaseImageVersion] = in.release.version
	if annotations[manifests.AnnotationRelease] != in.token {
		annotations[manifests.AnnotationReleaseBefore] = before
	}
	annotations[manifests.AnnotationRelease] = in.token
	want.SetAnnotations(annotations)
	for field, image := range map[string]string{"baseOSContainerImage": made.OS,
		"baseOSExtensionsContainerImage": made.Extensions} {
		if err := unstructured.SetNestedField(want.Object, image, "spec", field); err != nil {
			return fmt.Errorf("change ControllerConfig: %w", err)
		}
	}
	if equality.Semantic.DeepEqual(live.Object, want.Object) {
		return nil
	}
	if err := r.client.Patch(ctx, want, client.MergeFromWithOptions(live, client.MergeFromWithOptimisticLock{}),
		client.FieldOwner(prefix)); err != nil {
		return fmt.Errorf("write ControllerConfig: %w", err)
	}
	return nil
}

// writeStreams writes the images of the OS image streams that pools take: they are what their pools' results name.
func (r *reconciler) writeStreams(ctx context.Context, in inputs, made *result) error {
	if in.streams == nil {
		return nil
	}
	var live mcfgv1.OSImageStream
	if err := r.live.Get(ctx, client.ObjectKeyFromObject(in.streams), &live); err != nil {
		return fmt.Errorf("read OSImageStream: %w", err)
	}
	want := live.DeepCopy()
	set := func(name, os, extensions string) {
		if s := render.FindStream(want, name); s != nil && os != "" {
			s.OSImage, s.OSExtensionsImage = mcfgv1.ImageDigestFormat(os), mcfgv1.ImageDigestFormat(extensions)
		}
	}
	set("", made.OS, made.Extensions)
	for name, pool := range in.pools {
		stream, _, _ := unstructured.NestedString(pool.Object, "spec", "osImageStream", "name")
		if m := made.Configs[name]; m != nil && stream != "" {
			set(stream, m.Spec.OSImageURL, m.Spec.BaseOSExtensionsContainerImage)
		}
	}
	if equality.Semantic.DeepEqual(live.Status, want.Status) {
		return nil
	}
	if err := r.client.Status().Patch(ctx, want, client.MergeFromWithOptions(&live, client.MergeFromWithOptimisticLock{}),
		client.FieldOwner(prefix)); err != nil {
		return fmt.Errorf("write status of OSImageStream: %w", err)
	}
	return nil
}

// writeConfig writes one MachineConfig with the token; one that is missing is made.
func (r *reconciler) writeConfig(ctx context.Context, in inputs, m *mcfgv1.MachineConfig,
	have []mcfgv1.MachineConfig) error {
	metav1.SetMetaDataAnnotation(&m.ObjectMeta, manifests.AnnotationRelease, in.token)
	i := slices.IndexFunc(have, func(h mcfgv1.MachineConfig) bool { return h.Name == m.Name })
	if i < 0 {
		if err := r.client.Create(ctx, m, client.FieldOwner(prefix)); err != nil {
			return fmt.Errorf("create MachineConfig %s: %w", m.Name, err)
		}
		return nil
	}
	if equality.Semantic.DeepEqual(&have[i], m) {
		return nil
	}
	if err := r.client.Patch(ctx, m, client.MergeFromWithOptions(&have[i], client.MergeFromWithOptimisticLock{}),
		client.FieldOwner(prefix)); err != nil {
		return fmt.Errorf("write MachineConfig %s: %w", m.Name, err)
	}
	return nil
}

// adopt takes what MCO has left for the present state: its MachineConfigs first, so that an interruption is seen by the
// ControllerConfig, which has no token yet.
func (r *reconciler) adopt(ctx context.Context, in inputs, have []mcfgv1.MachineConfig) error {
	for i := range have {
		if err := r.writeConfig(ctx, in, have[i].DeepCopy(), have); err != nil {
			return err
		}
	}
	want := in.live.DeepCopy()
	annotations := want.GetAnnotations()
	annotations[manifests.AnnotationRelease] = in.token
	want.SetAnnotations(annotations)
	if err := r.client.Patch(ctx, want, client.MergeFromWithOptions(in.live, client.MergeFromWithOptimisticLock{}),
		client.FieldOwner(prefix)); err != nil {
		return fmt.Errorf("write ControllerConfig: %w", err)
	}
	return nil
}
