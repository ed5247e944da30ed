package buildcontroller

import (
	"context"
	"errors"
	"fmt"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/build/decide"
	"dayone.dev/dayone/build/poolrequest"
	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/registry/credentials"
)

// imageAccess is the edge to the registries: it reaches the images of builds with the push Secrets that the builds
// name.
type imageAccess struct {
	registries Images
	api        api
	// ca is PEM of CAs beside the cluster's, pullSecret the name of the cluster's.
	ca         []byte
	pullSecret string
}

// errNoAccess means that the push Secret of a build is gone or unusable.
var errNoAccess = errors.New("its push Secret is gone or unusable")

// keyring is what a build needs to reach registries. It is read when a build begins and kept nowhere: Secrets may
// rotate by the hour.
type keyring struct{ pull, push, ca []byte }

// keys reads what a build needs. The error is a problem when a Secret is missing or unusable.
func (a imageAccess) keys(ctx context.Context, config *mcfgv1.MachineOSConfig, repository string) (*keyring, error) {
	pushName := config.Spec.RenderedImagePushSecret.Name
	push, err := a.secret(ctx, pushName, "spec.renderedImagePushSecret")
	if err != nil {
		return nil, err
	}
	var pull []byte
	if s := config.Spec.BaseImagePullSecret; s != nil {
		pull, err = a.secret(ctx, s.Name, "spec.baseImagePullSecret")
	} else {
		pull, err = a.secret(ctx, a.pullSecret, "the cluster's pull secret")
		if p := problemOf(err); p != nil && p.Reason == reasonSecretMissing { // a cluster without one pulls without
			err = nil
		}
	}
	if err != nil {
		return nil, err
	}
	if _, err := credentials.ForPush(pull, push, repository); err != nil {
		return nil, secretProblem(reasonSecretUnusable, "Secret %s/%s: %s", a.api.namespace, pushName, err)
	}
	cc, err := a.api.controllerConfig(ctx)
	if err != nil {
		return nil, err
	}
	return &keyring{pull: pull, push: push, ca: poolrequest.TrustedCAs(a.ca, cc)}, nil
}

// secret reads registry credentials; user says what names the Secret.
func (a imageAccess) secret(ctx context.Context, name, user string) ([]byte, error) {
	var s corev1.Secret
	err := a.api.live.Get(ctx, client.ObjectKey{Namespace: a.api.namespace, Name: name}, &s)
	if apierrors.IsNotFound(err) {
		return nil, secretProblem(reasonSecretMissing, "there is no Secret %s/%s, which %s names; create it",
			a.api.namespace, name, user)
	}
	if err != nil {
		return nil, wrap(err, "read Secret "+name)
	}
	auth, err := credentials.Canonical(s.Data)
	if err != nil {
		return nil, secretProblem(reasonSecretUnusable, "read registry Secret %s/%s: %s", a.api.namespace, name, err)
	}
	return auth, nil
}

// secretProblem is stalled and checked again all the same: no event announces a Secret.
func secretProblem(reason, format string, args ...any) error {
	return &decide.Problem{Reason: reason, Message: fmt.Sprintf(format, args...), After: retrySecret}
}

// access reaches the registry of a build's image; errNoAccess means that it cannot be reached any more.
func (a imageAccess) access(ctx context.Context, b *mcfgv1.MachineOSBuild) (Access, error) {
	name := b.Annotations[manifests.AnnotationRenderedImagePushSecret]
	if name == "" {
		return Access{}, errNoAccess
	}
	auth, err := a.secret(ctx, name, "a MachineOSBuild")
	if problemOf(err) != nil {
		return Access{}, errNoAccess
	}
	if err != nil {
		return Access{}, err
	}
	cc, err := a.api.controllerConfig(ctx)
	if err != nil {
		return Access{}, err
	}
	return Access{Auth: auth, CA: poolrequest.TrustedCAs(a.ca, cc)}, nil
}

// delete deletes an image or a log of a build.
func (a imageAccess) delete(ctx context.Context, b *mcfgv1.MachineOSBuild, reference string) error {
	access, err := a.access(ctx, b)
	if err != nil {
		return err
	}
	return a.registries.Delete(ctx, reference, access)
}
