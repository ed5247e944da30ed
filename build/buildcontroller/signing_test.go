package buildcontroller

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/build"
	"dayone.dev/dayone/build/sign"
	"dayone.dev/dayone/manifests/assets/cluster"
	"dayone.dev/dayone/registry/registrytest"
	"dayone.dev/dayone/registry/transfer"
)

// signingSecret is the Secret of a new key.
func signingSecret(t *testing.T) (*corev1.Secret, *sign.Key) {
	t.Helper()
	dir := t.TempDir()
	key, err := sign.LoadOrCreate(dir)
	require.NoError(t, err)
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: cluster.SigningKey},
		Data: map[string][]byte{}}
	for _, file := range []string{sign.KeyFile, sign.PassphraseFile, sign.PublicFile} {
		s.Data[file], err = os.ReadFile(filepath.Join(dir, file))
		require.NoError(t, err)
	}
	return s, key
}

// signerFunc stands in for a signer.
type signerFunc func(reference string, key *sign.Key, from *sign.Provenance) error

func (f signerFunc) Sign(_ context.Context, reference string, key *sign.Key, from *sign.Provenance, _ Access) error {
	return f(reference, key, from)
}

// TestSignedFirst: an image is signed before it is the pool's, and the build pod gets the public key alone.
func TestSignedFirst(t *testing.T) {
	w, _ := newFakeWorld(t)
	secret, key := signingSecret(t)
	w.create(secret)
	failures := 2
	var images []string
	w.signer = signerFunc(func(reference string, k *sign.Key, from *sign.Provenance) error {
		require.NotNil(t, from)
		said := from.BuildDefinition
		assert.Equal(t, "worker", said.ExternalParameters.Pool)
		assert.Equal(t, "false", said.ResolvedDependencies[0].Annotations[sign.AnnotationVerified])
		assert.Equal(t, key.Public, k.Public)
		assert.Empty(t, w.config("worker").Status.CurrentImagePullSpec, "it is not announced before it is signed")
		w.hasNo(t, secret)
		if failures--; failures >= 0 {
			return transfer.ErrUnavailable
		}
		images = append(images, reference)
		return nil
	})
	w.restart()
	w.addPool("worker", "one", plainText)
	w.untilAvailable("worker")
	assert.Equal(t, []string{string(w.config("worker").Status.CurrentImagePullSpec)}, images)
}

// hasNo says that no Job and no input of one has the private key or its passphrase.
func (w *world) hasNo(t *testing.T, secret *corev1.Secret) {
	t.Helper()
	var jobs batchv1.JobList
	var secrets corev1.SecretList
	var configs corev1.ConfigMapList
	for _, list := range []client.ObjectList{&jobs, &secrets, &configs} {
		require.NoError(t, w.client.List(w.ctx(), list, client.InNamespace(namespace)))
	}
	require.NotEmpty(t, jobs.Items)
	for _, s := range secrets.Items {
		if s.Name == secret.Name {
			continue
		}
		for _, value := range s.Data {
			assert.NotContains(t, string(value), strings.TrimSpace(string(secret.Data[sign.PassphraseFile])), s.Name)
			assert.NotContains(t, string(value), "PRIVATE KEY", s.Name)
		}
	}
	raw, err := json.Marshal([]any{jobs, configs})
	require.NoError(t, err)
	assert.NotContains(t, string(raw), strings.TrimSpace(string(secret.Data[sign.PassphraseFile])))
	assert.NotContains(t, string(raw), "PRIVATE KEY")
	assert.NotContains(t, string(raw), secret.Name, "no pod mounts it")
}

// TestNoKey: a cluster without a key builds as before.
func TestNoKey(t *testing.T) {
	w, _ := newFakeWorld(t)
	w.signer = signerFunc(func(string, *sign.Key, *sign.Provenance) error {
		assert.Fail(t, "there is no key")
		return nil
	})
	w.restart()
	w.addPool("worker", "one", plainText)
	w.untilAvailable("worker")
}

func TestRegistriesSign(t *testing.T) {
	reg := registrytest.Start(t)
	img, err := random.Image(1<<10, 1)
	require.NoError(t, err)
	d, err := img.Digest()
	require.NoError(t, err)
	reference := reg.Addr + "/os/worker@" + d.String()
	ref, err := name.ParseReference(reference)
	require.NoError(t, err)
	auth, err := os.ReadFile(reg.PushAuthFile)
	require.NoError(t, err)
	ca, err := os.ReadFile(reg.CAFile)
	require.NoError(t, err)
	access := Access{Auth: auth, CA: ca}
	_, err = Registries{}.reach(t.Context(), "push", reference, access, func(options []remote.Option) error {
		return remote.Write(ref, img, options...)
	})
	require.NoError(t, err)
	secret, _ := signingSecret(t)
	key, err := sign.Parse(secret.Data[sign.KeyFile], secret.Data[sign.PassphraseFile])
	require.NoError(t, err)
	bom := transfer.Document{Type: build.SPDXType, Content: []byte("{}")}
	require.NoError(t, transfer.AttachDocument(t.Context(), transfer.Endpoint{Reference: reference, CAFile: reg.CAFile,
		AuthFile: reg.PushAuthFile}, bom, transfer.Options{}))
	from := &sign.Provenance{RunDetails: sign.Run{Builder: sign.Builder{ID: "here"}}}
	require.NoError(t, Registries{}.Sign(t.Context(), reference, key, from, access))
	at := sign.Image{Repository: reg.Addr + "/os/worker", Endpoint: transfer.Endpoint{Reference: reference,
		CAFile: reg.CAFile, AuthFile: reg.PullAuthFile}}
	require.NoError(t, sign.Verify(t.Context(), at, key.Public))
	require.NoError(t, Registries{}.Sign(t.Context(), reference, key, from, access), "it is repeated after a failure")
	said, err := sign.ReadProvenance(t.Context(), at, key.Public)
	require.NoError(t, err)
	assert.Equal(t, []sign.Dependency{build.BillOfMaterials(bom.Content)}, said.RunDetails.Byproducts)
	all, err := transfer.Documents(t.Context(), at.Endpoint, sign.ProvenanceType)
	require.NoError(t, err)
	assert.Len(t, all, 1)
	require.Error(t, Registries{}.Sign(t.Context(), reference, key, nil, Access{CA: ca}), "without an account")
	_, err = sign.Parse(secret.Data[sign.KeyFile], []byte("wrong"))
	require.ErrorContains(t, err, "passphrase")
}
