package optin

import (
	"context"
	"errors"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/assets/cluster"
)

// copier keeps copies of Secrets where builds can use them. It reads Secrets when it needs them and keeps none.
type copier struct {
	client client.Client
	live   client.Reader
}

// keep makes the Secret named to what the one named from is. When there is no such Secret, there is no copy. One of the
// copy's name that dayone did not make stays as it is, and builds use it. pool is written on the copy, to find its
// keeper; it may be empty.
func (c copier) keep(ctx context.Context, from, to types.NamespacedName, pool string) error {
	if there, err := c.there(ctx, from); err != nil || !there {
		return errors.Join(err, c.remove(ctx, to))
	}
	var source corev1.Secret
	err := c.live.Get(ctx, from, &source)
	if apierrors.IsNotFound(err) {
		return c.remove(ctx, to)
	}
	if err != nil {
		return fmt.Errorf("read Secret %s: %w", from, err)
	}
	want := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: to.Name, Namespace: to.Namespace,
			Labels: map[string]string{cluster.LabelManagedBy: cluster.ManagedBy, cluster.LabelPartOf: cluster.ManagedBy}},
		Type: source.Type, Data: source.Data,
	}
	if pool != "" {
		want.Annotations = map[string]string{manifests.LabelTargetPool: pool}
	}
	var have corev1.Secret
	err = c.live.Get(ctx, to, &have)
	switch {
	case apierrors.IsNotFound(err):
		if err := c.client.Create(ctx, want); err != nil {
			return fmt.Errorf("copy Secret %s to %s: %w", from, to, err)
		}
		return nil
	case err != nil:
		return fmt.Errorf("read Secret %s: %w", to, err)
	case !ours(&have):
		return nil // an administrator's own takes the copy's place
	case have.Type != want.Type: // a Secret's type cannot be changed: its deletion brings us here again
		return c.remove(ctx, to)
	case equality.Semantic.DeepEqual(have.Data, want.Data) && contains(have.Annotations, want.Annotations):
		return nil
	}
	have.Data = want.Data
	if have.Annotations == nil {
		have.Annotations = map[string]string{}
	}
	maps.Copy(have.Annotations, want.Annotations)
	if err := c.client.Update(ctx, &have); err != nil {
		return fmt.Errorf("copy Secret %s to %s: %w", from, to, err)
	}
	return nil
}

// remove deletes the copy named to. A Secret of that name that dayone did not make stays.
func (c copier) remove(ctx context.Context, to types.NamespacedName) error {
	have := secretMeta()
	err := c.client.Get(ctx, to, have)
	if apierrors.IsNotFound(err) || (err == nil && !ours(have)) {
		return nil
	}
	if err == nil {
		uid := have.GetUID()
		err = c.client.Delete(ctx, have, client.Preconditions{UID: &uid})
	}
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("remove Secret %s: %w", to, err)
	}
	return nil
}

// there looks into the cache, which has every Secret's metadata: most pools have no copy, and that should cost nothing.
func (c copier) there(ctx context.Context, name types.NamespacedName) (bool, error) {
	err := c.client.Get(ctx, name, secretMeta())
	if client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("read Secret %s: %w", name, err)
	}
	return err == nil, nil
}

func secretMeta() *metav1.PartialObjectMetadata {
	o := &metav1.PartialObjectMetadata{}
	o.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
	return o
}

// ours reports whether dayone made the object: nothing else is changed or deleted.
func ours(o metav1.Object) bool { return o.GetLabels()[cluster.LabelManagedBy] == cluster.ManagedBy }

func contains(have, want map[string]string) bool {
	for k, v := range want {
		if have[k] != v {
			return false
		}
	}
	return true
}
