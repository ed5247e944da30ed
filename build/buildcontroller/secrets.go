package buildcontroller

import (
	"bytes"
	"context"
	"fmt"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/build/decide"
	"dayone.dev/dayone/manifests/render"
	"dayone.dev/dayone/registry/credentials"
)

// keyring is what a build needs to reach registries. It is read when a build begins and kept nowhere: Secrets may
// rotate by the hour.
type keyring struct{ pull, push, ca []byte }

// secrets reads what the build needs. A Secret that is missing or unusable is named.
func (x *run) secrets(ctx context.Context) (*keyring, *decide.Problem, error) {
	k := &keyring{}
	push, blocked, err := x.secret(ctx, x.config.Spec.RenderedImagePushSecret.Name, "spec.renderedImagePushSecret")
	if err != nil || blocked != nil {
		return nil, blocked, err
	}
	k.push = push
	if s := x.config.Spec.BaseImagePullSecret; s != nil {
		k.pull, blocked, err = x.secret(ctx, s.Name, "spec.baseImagePullSecret")
	} else {
		k.pull, blocked, err = x.secret(ctx, x.o.PullSecret, "the cluster's pull secret")
		if blocked != nil && blocked.Reason == ReasonSecretMissing { // a cluster without one pulls without
			blocked = nil
		}
	}
	if err != nil || blocked != nil {
		return nil, blocked, err
	}
	if _, err := credentials.ForPush(k.pull, k.push, x.wanted.repository); err != nil {
		return nil, &decide.Problem{Reason: ReasonSecretUnusable, Message: fmt.Sprintf("Secret %s/%s: %s", x.o.Namespace,
			x.config.Spec.RenderedImagePushSecret.Name, err)}, nil
	}
	k.ca, err = x.authorities(ctx)
	return k, nil, err
}

func (r *Reconciler) secret(ctx context.Context, name, from string) ([]byte, *decide.Problem, error) {
	var s corev1.Secret
	err := r.live.Get(ctx, client.ObjectKey{Namespace: r.o.Namespace, Name: name}, &s)
	if apierrors.IsNotFound(err) {
		return nil, &decide.Problem{Reason: ReasonSecretMissing,
			Message: fmt.Sprintf("there is no Secret %s/%s, which %s names; make it", r.o.Namespace, name, from)}, nil
	}
	if err != nil {
		return nil, nil, fmt.Errorf("read Secret %s: %w", name, err)
	}
	auth, err := credentials.Canonical(s.Data)
	if err != nil {
		return nil, &decide.Problem{Reason: ReasonSecretUnusable,
			Message: fmt.Sprintf("read registry Secret %s/%s: %s", r.o.Namespace, name, err)}, nil
	}
	return auth, nil, nil
}

// authorities sign the certificates of registries.
func (r *Reconciler) authorities(ctx context.Context) ([]byte, error) {
	var cc mcfgv1.ControllerConfig
	if err := r.client.Get(ctx, client.ObjectKey{Name: render.ControllerConfigName},
		&cc); client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("read ControllerConfig: %w", err)
	}
	parts := [][]byte{r.o.RegistryCA, cc.Spec.AdditionalTrustBundle}
	for _, b := range append(cc.Spec.ImageRegistryBundleData, cc.Spec.ImageRegistryBundleUserData...) {
		parts = append(parts, b.Data)
	}
	var all [][]byte
	for _, p := range parts {
		if p = bytes.TrimSpace(p); len(p) > 0 {
			all = append(all, p)
		}
	}
	return bytes.Join(all, []byte("\n")), nil
}

// access reaches the registry of a build's image with the push Secret that the build names. It is false when that
// Secret is gone.
func (r *Reconciler) access(ctx context.Context, pushSecret string) (Access, bool, error) {
	if pushSecret == "" {
		return Access{}, false, nil
	}
	auth, blocked, err := r.secret(ctx, pushSecret, "a MachineOSBuild")
	if err != nil || blocked != nil {
		return Access{}, false, err
	}
	ca, err := r.authorities(ctx)
	return Access{Auth: auth, CA: ca}, true, err
}
