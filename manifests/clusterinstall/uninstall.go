package clusterinstall

import (
	"context"
	"fmt"
	"slices"

	configv1 "github.com/openshift/api/config/v1"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	appsv1 "k8s.io/api/apps/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/assets/cluster"
)

// Uninstall removes what Install made, and with crds the kinds that it defined with all their objects. It goes
// backwards: first the workloads that would make things anew, then what they made, then the rest.
func Uninstall(ctx context.Context, t Target, crds bool) error {
	return t.within(ctx, func(ctx context.Context) error {
		r, err := readRecord(ctx, t.Client, t.Namespace)
		if err != nil {
			return err
		}
		if r == nil {
			t.say("no installation is noted in namespace %s; what bears dayone's mark is removed", t.Namespace)
			r = &record{}
		}
		if err := endWorkloads(ctx, t); err != nil {
			return err
		}
		if err := removeMade(ctx, t, modeOf(r.Options)); err != nil {
			return err
		}
		if err := removeAll(ctx, t, r.Objects); err != nil {
			return err
		}
		if crds {
			if err := removeCRDs(ctx, t); err != nil {
				return err
			}
		}
		if err := r.TakeOver.giveBack(ctx, t); err != nil {
			return err
		}
		// Last: a run that is interrupted finds the record and goes on.
		if err := remove(ctx, t, entry{"v1", "ConfigMap", t.Namespace, recordName}); err != nil {
			return err
		}
		t.say("dayone is removed")
		return nil
	})
}

// OptedIn lists the MachineOSConfigs, each as NAME (pool POOL).
func OptedIn(ctx context.Context, t Target) (names []string, err error) {
	err = t.within(ctx, func(ctx context.Context) error {
		var configs mcfgv1.MachineOSConfigList
		if err := listKnown(ctx, t.Client, &configs); err != nil {
			return fmt.Errorf("list MachineOSConfigs: %w", err)
		}
		for _, c := range configs.Items {
			names = append(names, c.Name+" (pool "+c.Spec.MachineConfigPool.Name+")")
		}
		return nil
	})
	return names, err
}

// VerifiesImages says that the nodes of an installation take signed images only. Whoever builds after dayone must sign.
func VerifiesImages(ctx context.Context, t Target) (yes bool, err error) {
	err = t.within(ctx, func(ctx context.Context) error {
		policy := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: configv1.GroupVersion.String(),
			Kind: "ClusterImagePolicy"}}
		err := t.Client.Get(ctx, client.ObjectKey{Name: cluster.ImagePolicy}, policy)
		if yes = err == nil; client.IgnoreNotFound(err) != nil && !meta.IsNoMatchError(err) {
			return fmt.Errorf("read ClusterImagePolicy: %w", err)
		}
		return nil
	})
	return yes, err
}

// listKnown lists objects; of a kind that the cluster does not know there are none.
func listKnown(ctx context.Context, c client.Reader, list client.ObjectList) error {
	if err := c.List(ctx, list); client.IgnoreNotFound(err) != nil && !meta.IsNoMatchError(err) {
		return err
	}
	return nil
}

// removeAll goes backwards through what an installation applied.
func removeAll(ctx context.Context, t Target, objects []entry) error {
	for _, e := range slices.Backward(objects) {
		if err := remove(ctx, t, e); err != nil {
			return err
		}
	}
	return nil
}

// remove deletes an object that dayone made. One without dayone's mark belongs to another owner now and stays.
func remove(ctx context.Context, t Target, e entry) error {
	o := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: e.APIVersion, Kind: e.Kind}}
	err := t.Client.Get(ctx, client.ObjectKey{Namespace: e.Namespace, Name: e.Name}, o)
	switch {
	case apierrors.IsNotFound(err) || meta.IsNoMatchError(err):
		return nil
	case err != nil:
		return fmt.Errorf("read %s: %w", e, err)
	case o.GetLabels()[cluster.LabelManagedBy] != cluster.ManagedBy || e.Kind == "Namespace":
		t.say("%s stays: it is not dayone's", e)
		return nil
	}
	uid := o.GetUID()
	if err := t.Client.Delete(ctx, o, client.Preconditions{UID: &uid}); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete %s: %w", e, err)
	}
	t.say("%s removed", e)
	return nil
}

// endWorkloads deletes the controllers, waits until their pods are gone, and ends the agents.
func endWorkloads(ctx context.Context, t Target) error {
	for _, w := range []client.Object{
		&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: cluster.Controller}},
		&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: cluster.Builder}},
		&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: cluster.FormerBuilder}},
		&appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: cluster.ConfigServer}},
	} {
		key := client.ObjectKey{Namespace: t.Namespace, Name: w.GetName()}
		err := t.Client.Get(ctx, key, w)
		if apierrors.IsNotFound(err) || (err == nil && w.GetLabels()[cluster.LabelManagedBy] != cluster.ManagedBy) {
			continue
		}
		uid := w.GetUID()
		if err == nil {
			err = t.Client.Delete(ctx, w, client.Preconditions{UID: &uid},
				client.PropagationPolicy(metav1.DeletePropagationForeground))
		}
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("delete %T %s: %w", w, key, err)
		}
		if err := t.await(ctx, key.String(), func(ctx context.Context) (bool, string, error) {
			err := t.Client.Get(ctx, key, w)
			return apierrors.IsNotFound(err), "has not ended yet", client.IgnoreNotFound(err)
		}); err != nil {
			return err
		}
	}
	return endAgents(ctx, t)
}

// endAgents takes from the agents the right to write on nodes, so that none writes anew what is removed, and deletes
// them. It does not wait until their pods are gone: that of a node that is off stays until the node is back.
func endAgents(ctx context.Context, t Target) error {
	for _, e := range []entry{{rbacv1.SchemeGroupVersion.String(), "ClusterRoleBinding", "", cluster.Daemon},
		{appsv1.SchemeGroupVersion.String(), "DaemonSet", t.Namespace, cluster.Daemon}} {
		if err := remove(ctx, t, e); err != nil {
			return err
		}
	}
	return nil
}

// releaseBuilds takes off MachineOSBuilds what only the builder would: who deletes one later would wait for ever. Their
// images stay.
func releaseBuilds(ctx context.Context, t Target) error {
	var builds mcfgv1.MachineOSBuildList
	if err := listKnown(ctx, t.Client, &builds); err != nil {
		return fmt.Errorf("list MachineOSBuilds: %w", err)
	}
	for i := range builds.Items {
		b := &builds.Items[i]
		old := b.DeepCopy()
		if controllerutil.RemoveFinalizer(b, manifests.FinalizerMachineOSBuild) {
			if err := t.Client.Patch(ctx, b, client.MergeFrom(old)); client.IgnoreNotFound(err) != nil {
				return fmt.Errorf("remove the finalizer of MachineOSBuild %s: %w", b.Name, err)
			}
		}
	}
	return nil
}

// removeCRDs removes the kinds that are dayone's.
func removeCRDs(ctx context.Context, t Target) error {
	crds, err := cluster.CRDs()
	if err != nil {
		return err
	}
	for _, crd := range crds {
		err := remove(ctx, t, entry{"apiextensions.k8s.io/v1", "CustomResourceDefinition", "", crd.Name})
		if err != nil {
			return err
		}
	}
	return nil
}
