package registry_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/registry"
	"dayone.dev/dayone/registry/registrytest"
	"dayone.dev/dayone/registry/storage"
)

// pushReferrer pushes a manifest that refers to a subject and returns its digest.
func pushReferrer(t testing.TB, r *registrytest.Registry, repo string, subject digest.Digest, artifactType,
	note string) digest.Digest {
	t.Helper()
	pushBlob(t, r, repo, []byte("{}"))
	body, err := json.Marshal(v1.Manifest{MediaType: ociManifest, ArtifactType: artifactType,
		Config:      v1.Descriptor{MediaType: "application/vnd.oci.empty.v1+json", Digest: digest.FromString("{}"), Size: 2},
		Layers:      []v1.Descriptor{},
		Subject:     &v1.Descriptor{MediaType: ociManifest, Digest: subject, Size: 1},
		Annotations: map[string]string{"note": note}})
	require.NoError(t, err)
	body = []byte(strings.Replace(string(body), `"schemaVersion":0`, `"schemaVersion":2`, 1))
	d := digest.FromBytes(body)
	a := pushManifest(t, r, repo, d.String(), body)
	require.Equal(t, http.StatusCreated, a.status, "%s", a.body)
	require.Equal(t, subject.String(), a.header.Get("Oci-Subject"))
	return d
}

// referrersPages follows Link to the end and returns what was listed and the size of the largest answer.
func referrersPages(t testing.TB, r *registrytest.Registry, path string) (found []digest.Digest, largest, pages int) {
	t.Helper()
	for path != "" {
		a := request(t, r, r.Pull, http.MethodGet, path, nil)
		require.Equal(t, http.StatusOK, a.status, "%s", a.body)
		require.Equal(t, v1.MediaTypeImageIndex, a.header.Get("Content-Type"))
		var index v1.Index
		require.NoError(t, json.Unmarshal(a.body, &index))
		for _, m := range index.Manifests {
			found = append(found, m.Digest)
		}
		largest, pages = max(largest, len(a.body)), pages+1
		path, _, _ = strings.Cut(strings.TrimPrefix(a.header.Get("Link"), "<"), ">")
	}
	return found, largest, pages
}

func pushImage(t testing.TB, r *registrytest.Registry, repo, tag, layer string) digest.Digest {
	t.Helper()
	pushBlob(t, r, repo, []byte(layer))
	body := manifestOf(pushBlob(t, r, repo, []byte("{}")), 2, []byte(layer))
	require.Equal(t, http.StatusCreated, pushManifest(t, r, repo, tag, body).status)
	return digest.FromBytes(body)
}

func TestReferrersPages(t *testing.T) {
	const most = 16 << 10
	r := registrytest.Start(t, func(o *registry.Options) { o.MaxManifestBytes = most })
	image := pushImage(t, r, "a/b", "v1", "layer")
	var all, signatures []digest.Digest
	for i := range 40 {
		kind := "example/sbom"
		if i%4 == 0 {
			kind = "example/signature"
		}
		// what JSON escapes is larger in the answer than in the manifest
		d := pushReferrer(t, r, "a/b", image, kind, fmt.Sprint(i)+strings.Repeat("<", 300))
		if all = append(all, d); i%4 == 0 {
			signatures = append(signatures, d)
		}
	}
	large := pushReferrer(t, r, "a/b", image, "example/large", strings.Repeat("x", most-1000))
	all = append(all, large)

	found, largest, pages := referrersPages(t, r, "/v2/a/b/referrers/"+image.String())
	assert.ElementsMatch(t, all, found)
	assert.LessOrEqual(t, largest, most)
	assert.Greater(t, pages, 3)
	found, largest, pages = referrersPages(t, r, "/v2/a/b/referrers/"+image.String()+"?artifactType=example/signature")
	assert.ElementsMatch(t, signatures, found)
	assert.LessOrEqual(t, largest, most)
	assert.Greater(t, pages, 1)
	found, _, pages = referrersPages(t, r, "/v2/a/b/referrers/"+digest.FromString("nobody").String())
	assert.Empty(t, found)
	assert.Equal(t, 1, pages)
}

// TestReferrersIndexIsMadeAgain is for a store that an earlier version, or distribution's own server, wrote.
func TestReferrersIndexIsMadeAgain(t *testing.T) {
	r := registrytest.Start(t)
	image := pushImage(t, r, "a/b", "v1", "layer")
	want := []digest.Digest{pushReferrer(t, r, "a/b", image, "t", "1"), pushReferrer(t, r, "a/b", image, "t", "2")}
	dir := filepath.Join(r.Options.Root, storage.Subdirectory, "repositories/a/b/_referrers")
	require.DirExists(t, dir)
	r.Stop(t)
	require.NoError(t, os.RemoveAll(dir))
	require.NoError(t, os.Remove(filepath.Join(r.Options.Root, storage.Subdirectory, ".dayone-referrers")))
	r.Restart(t)
	found, _, _ := referrersPages(t, r, "/v2/a/b/referrers/"+image.String())
	assert.ElementsMatch(t, want, found)

	r.Stop(t)
	gone := digest.FromString("killed before its link was made") // an entry without its manifest
	entry := filepath.Join(dir, "sha256", image.Encoded(), gone.Encoded())
	require.NoError(t, os.WriteFile(entry, []byte(`{"digest":"`+gone.String()+`"}`), 0o600))
	r.Restart(t)
	found, _, _ = referrersPages(t, r, "/v2/a/b/referrers/"+image.String())
	assert.ElementsMatch(t, want, found)
	assert.NoFileExists(t, entry)
}

func TestReferrersGoWithTheirImage(t *testing.T) {
	r := registrytest.Start(t)
	image, other := pushImage(t, r, "a/b", "v1", "layer"), pushImage(t, r, "a/b", "v2", "another")
	signature := pushReferrer(t, r, "a/b", image, "example/signature", "")
	ofSignature := pushReferrer(t, r, "a/b", signature, "example/timestamp", "")
	kept := pushReferrer(t, r, "a/b", other, "example/signature", "")
	cosign := "sha256-" + image.Encoded()
	sig := pushImage(t, r, "a/b", cosign+".sig", "signature")
	att := pushImage(t, r, "a/b", cosign+".att", "attestation")
	require.Equal(t, http.StatusCreated, pushManifest(t, r, "a/b", "release-attestation",
		request(t, r, r.Pull, http.MethodGet, "/v2/a/b/manifests/"+att.String(), nil).body).status)
	collect := func() {
		root, err := registry.OpenRoot(t.Context(), r.Options.Root, nil)
		require.NoError(t, err)
		_, err = root.Collect(t.Context(), storage.CollectOptions{Grace: -1})
		require.NoError(t, err)
		require.NoError(t, root.Close())
	}
	status := func(ref string) int {
		return request(t, r, r.Pull, http.MethodGet, "/v2/a/b/manifests/"+ref, nil).status
	}
	collect() // what refers to an image that is there stays
	for _, d := range []digest.Digest{signature, ofSignature, kept, sig, att} {
		require.Equal(t, http.StatusOK, status(d.String()))
	}
	require.Equal(t, http.StatusAccepted,
		request(t, r, r.Push, http.MethodDelete, "/v2/a/b/manifests/"+image.String(), nil).status)
	for _, gone := range []string{image.String(), signature.String(), ofSignature.String(), sig.String(), cosign + ".sig",
		cosign + ".att"} {
		assert.Equal(t, http.StatusNotFound, status(gone), gone)
	}
	for _, there := range []string{other.String(), kept.String(), att.String(), "release-attestation"} {
		assert.Equal(t, http.StatusOK, status(there), there)
	}
	found, _, _ := referrersPages(t, r, "/v2/a/b/referrers/"+image.String())
	assert.Empty(t, found)
	collect()
	assert.Equal(t, http.StatusNotFound,
		request(t, r, r.Pull, http.MethodGet, "/v2/a/b/blobs/"+digest.FromString("signature").String(), nil).status)
}
