package buildcontroller

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/build/sign"
	"dayone.dev/dayone/installconfig"
	"dayone.dev/dayone/manifests/assets/cluster"
	"dayone.dev/dayone/registry/transfer"
)

// signingMemory is the key that was read last.
type signingMemory struct {
	sync.Mutex
	version string
	key     *sign.Key
}

// signingKey reads the key that signs; nil when the cluster has none. The pod that builds gets the public part alone.
func (x scope) signingKey(ctx context.Context) (*sign.Key, error) {
	if x.o.Signer == nil {
		return nil, nil
	}
	var s corev1.Secret
	err := x.api.live.Get(ctx, client.ObjectKey{Namespace: x.o.Namespace, Name: cluster.SigningKey}, &s)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, wrap(err, "read Secret "+cluster.SigningKey)
	}
	m := &x.memory.signing
	m.Lock()
	defer m.Unlock()
	version := string(s.UID) + "/" + s.ResourceVersion
	if m.version == version {
		return m.key, nil
	}
	key, err := sign.Parse(s.Data[sign.KeyFile], s.Data[sign.PassphraseFile])
	if err != nil {
		return nil, fmt.Errorf("read Secret %s/%s: %w", x.o.Namespace, cluster.SigningKey, err)
	}
	m.version, m.key = version, key
	return key, nil
}

// signed signs the image of a build whose Job has ended. held says why that has to wait.
func (x scope) signed(ctx context.Context, b *mcfgv1.MachineOSBuild, digest string) (held string, err error) {
	key, err := x.signingKey(ctx)
	if err != nil || key == nil {
		return "", err
	}
	access, err := x.images.access(ctx, b)
	if errors.Is(err, errNoAccess) {
		return "the image cannot be signed: " + err.Error(), nil
	}
	if err != nil {
		return "", err
	}
	reference := installconfig.Repository(string(b.Spec.RenderedImagePushSpec)) + "@" + digest
	if err := x.o.Signer.Sign(ctx, reference, key, access); err != nil {
		if ctx.Err() != nil {
			return "", ctx.Err()
		}
		x.log.WithError(err).WithField("machineosbuild", b.Name).Warn("image is not signed yet")
		return fmt.Sprintf("the image cannot be signed: %v", err), nil
	}
	x.log.WithField("machineosbuild", b.Name).WithField("image", reference).WithField("key", key.Public.Fingerprint()).
		Info("image is signed")
	return "", nil
}

// Sign adds the key's signature.
func (r Registries) Sign(ctx context.Context, reference string, key *sign.Key, access Access) (err error) {
	dir, err := os.MkdirTemp("", "sign-")
	if err != nil {
		return fmt.Errorf("make directory for credentials: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	at := transfer.Endpoint{Reference: reference}
	for _, f := range []struct {
		name    string
		content []byte
		use     *string
	}{{"auth.json", access.Auth, &at.AuthFile}, {"ca.crt", access.CA, &at.CAFile}} {
		if len(f.content) == 0 {
			continue
		}
		*f.use = filepath.Join(dir, f.name)
		if err := os.WriteFile(*f.use, f.content, 0o600); err != nil {
			return fmt.Errorf("write credentials: %w", err)
		}
	}
	_, err = key.Sign(ctx, sign.Image{Endpoint: at, Repository: installconfig.Repository(reference)})
	return err
}
