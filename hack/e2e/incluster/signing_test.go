package incluster_test

import (
	"os"
	"path/filepath"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dayone.dev/dayone/build"
	"dayone.dev/dayone/build/sign"
	"dayone.dev/dayone/installconfig"
	"dayone.dev/dayone/manifests/assets/cluster"
	"dayone.dev/dayone/registry/transfer"
)

// signingKey gives the cluster a key, as the hand-over does.
func (w *world) signingKey() *sign.Key {
	w.t.Helper()
	dir := w.t.TempDir()
	key, err := sign.LoadOrCreate(dir)
	require.NoError(w.t, err)
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.DefaultNamespace, Name: cluster.SigningKey},
		Data: map[string][]byte{}}
	for _, file := range []string{sign.KeyFile, sign.PassphraseFile, sign.PublicFile} {
		s.Data[file], err = os.ReadFile(filepath.Join(dir, file))
		require.NoError(w.t, err)
	}
	w.create(s)
	return key
}

// vouched looks for the signature, the bill of materials that the pod attached, and the controller's provenance.
func (w *world) vouched(key *sign.Key, reference string) {
	w.t.Helper()
	at := sign.Image{Repository: installconfig.Repository(reference), Endpoint: transfer.Endpoint{
		Reference: w.here(reference), CAFile: w.reg.CAFile, AuthFile: w.reg.PullAuthFile}}
	require.NoError(w.t, sign.Verify(w.t.Context(), at, key.Public))
	boms, err := transfer.Documents(w.t.Context(), at.Endpoint, build.SPDXType)
	require.NoError(w.t, err)
	require.Len(w.t, boms, 1)
	p, err := sign.ReadProvenance(w.t.Context(), at, key.Public)
	require.NoError(w.t, err)
	assert.Equal(w.t, build.DefaultPlace+"/cluster", p.RunDetails.Builder.ID)
	assert.Equal(w.t, []sign.Dependency{build.BillOfMaterials(boms[0])}, p.RunDetails.Byproducts)
	base := p.BuildDefinition.ResolvedDependencies[0]
	assert.Equal(w.t, "docker://"+w.base, base.URI)
	assert.Equal(w.t, "false", base.Annotations[sign.AnnotationVerified], "no policy is about it")
}
