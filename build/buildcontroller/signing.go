package buildcontroller

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/build"
	"dayone.dev/dayone/build/sign"
	"dayone.dev/dayone/installconfig"
	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/assets/cluster"
	"dayone.dev/dayone/registry/credentials"
	"dayone.dev/dayone/registry/transfer"
)

// signingMemory is the key that was read last.
type signingMemory struct {
	sync.Mutex
	version string
	signing
}

// signing is what the cluster's Secret says: the key that signs, nil when there is none, and the policy of base images.
type signing struct {
	key        *sign.Key
	basePolicy []byte
}

// signing reads the Secret. The pod that builds gets the public part of the key alone.
func (x scope) signing(ctx context.Context) (signing, error) {
	if x.o.Signer == nil {
		return signing{}, nil
	}
	var s corev1.Secret
	err := x.api.live.Get(ctx, client.ObjectKey{Namespace: x.o.Namespace, Name: cluster.SigningKey}, &s)
	if apierrors.IsNotFound(err) {
		return signing{}, nil
	}
	if err != nil {
		return signing{}, wrap(err, "read Secret "+cluster.SigningKey)
	}
	m := &x.memory.signing
	m.Lock()
	defer m.Unlock()
	version := string(s.UID) + "/" + s.ResourceVersion
	if m.version == version {
		return m.signing, nil
	}
	key, err := sign.Parse(s.Data[sign.KeyFile], s.Data[sign.PassphraseFile])
	if err != nil {
		return signing{}, fmt.Errorf("read Secret %s/%s: %w", x.o.Namespace, cluster.SigningKey, err)
	}
	m.version, m.signing = version, signing{key, s.Data[sign.BasePolicyFile]}
	return m.signing, nil
}

// origin says from what a build made its image; nil where something else is wanted by now, so that another build
// follows. What a pod says of itself does not count.
func (x scope) origin(ctx context.Context, o observation, b *mcfgv1.MachineOSBuild, basePolicy []byte) (
	*sign.Provenance, error) {
	d, err := findDesired(ctx, x, o)
	if err != nil || d.problem != nil || d.address != b.Annotations[manifests.AnnotationBuildAddress] {
		return nil, err
	}
	request := d.request
	request.Options.BasePolicy = basePolicy
	if request.Config, err = x.api.renderedConfig(ctx, d.rendered); err != nil {
		return nil, err
	}
	began := b.CreationTimestamp
	if b.Status.BuildStart != nil {
		began = *b.Status.BuildStart
	}
	p, err := build.Provenance(request, build.Made{Place: build.DefaultPlace + "/cluster",
		Began: began.Time, Finished: x.now})
	if err != nil {
		return nil, fmt.Errorf("make provenance of MachineOSBuild %s: %w", b.Name, err)
	}
	return &p, nil
}

// signed signs the image of a build whose Job has ended. held says why that has to wait.
func (x scope) signed(ctx context.Context, o observation, b *mcfgv1.MachineOSBuild, digest string) (held string,
	err error) {
	s, err := x.signing(ctx)
	if err != nil || s.key == nil {
		return "", err
	}
	access, err := x.images.access(ctx, b)
	if errors.Is(err, errNoAccess) {
		return "the image cannot be signed: " + err.Error(), nil
	}
	if err != nil {
		return "", err
	}
	from, err := x.origin(ctx, o, b, s.basePolicy)
	if err != nil {
		return "", err
	}
	reference := installconfig.Repository(string(b.Spec.RenderedImagePushSpec)) + "@" + digest
	err = x.o.Signer.Sign(ctx, reference, s.key, from, access)
	if errors.Is(err, errNoProvenance) {
		x.log.WithError(err).WithField("machineosbuild", b.Name).Warn("image has no provenance")
		err = nil
	}
	if err != nil {
		if ctx.Err() != nil {
			return "", ctx.Err()
		}
		x.log.WithError(err).WithField("machineosbuild", b.Name).Warn("image is not signed yet")
		return fmt.Sprintf("the image cannot be signed: %v", err), nil
	}
	x.log.WithField("machineosbuild", b.Name).WithField("image", reference).WithField("key", s.key.Public.Fingerprint()).
		Info("image is signed")
	return "", nil
}

// Sign adds the key's signature, and what the image was made from.
func (r Registries) Sign(ctx context.Context, reference string, key *sign.Key, from *sign.Provenance,
	access Access) (err error) {
	dir, err := os.MkdirTemp("", "sign-")
	if err != nil {
		return fmt.Errorf("make directory for credentials: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	at := transfer.Endpoint{Reference: reference}
	if at.AuthFile, err = credentials.File(dir, "auth.json", access.Auth); err != nil {
		return err
	}
	if at.CAFile, err = credentials.File(dir, "ca.crt", access.CA); err != nil {
		return err
	}
	image := sign.Image{Endpoint: at, Repository: installconfig.Repository(reference)}
	err = attest(ctx, image, key, from)
	if errors.Is(err, transfer.ErrUnavailable) || ctx.Err() != nil {
		return err
	}
	_, failed := key.Sign(ctx, image)
	if failed == nil && err != nil {
		return fmt.Errorf("%w: %w", errNoProvenance, err)
	}
	return failed
}

// errNoProvenance says that an image is signed, and that its registry takes no documents beside images.
var errNoProvenance = errors.New("the registry does not take what the image was made from")

// attest attaches what an image was made from, unless that is there, with the bill of materials that the pod attached.
func attest(ctx context.Context, image sign.Image, key *sign.Key, from *sign.Provenance) error {
	if from == nil {
		return nil
	}
	_, err := sign.ReadProvenance(ctx, image, key.Public)
	if !errors.Is(err, transfer.ErrNotAllowed) {
		return err
	}
	boms, err := transfer.Documents(ctx, image.Endpoint, build.SPDXType)
	if err != nil {
		return err
	}
	p := *from
	for _, bom := range boms {
		p.RunDetails.Byproducts = append(p.RunDetails.Byproducts, build.BillOfMaterials(bom))
	}
	return key.Attest(ctx, image, p)
}
