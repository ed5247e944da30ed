package registry_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/registry"
	"dayone.dev/dayone/registry/registrytest"
)

// unsized hides the length of a body, so that it is sent chunked.
type unsized struct{ io.Reader }

func TestUploads(t *testing.T) {
	r := registrytest.Start(t)
	data := bytes.Repeat([]byte("0123456789"), 1000)
	d := digest.FromBytes(data)
	start := func(t *testing.T) string {
		t.Helper()
		a := request(t, r, r.Push, http.MethodPost, "/v2/up/load/blobs/uploads/", nil)
		require.Equal(t, http.StatusAccepted, a.status)
		require.NotEmpty(t, a.header.Get("Docker-Upload-Uuid"))
		return a.header.Get("Location")
	}
	there := func(t *testing.T, d digest.Digest) {
		t.Helper()
		a := request(t, r, r.Pull, http.MethodGet, "/v2/up/load/blobs/"+d.String(), nil)
		require.Equal(t, http.StatusOK, a.status)
		assert.Equal(t, d, d.Algorithm().FromBytes(a.body))
		assert.Equal(t, d.String(), a.header.Get("Docker-Content-Digest"))
	}
	t.Run("in one POST", func(t *testing.T) { there(t, pushBlob(t, r, "up/load", []byte("one post"))) })
	t.Run("POST, then PUT with the bytes", func(t *testing.T) {
		a := request(t, r, r.Push, http.MethodPut, start(t)+"?digest="+d.String(), bytes.NewReader(data))
		require.Equal(t, http.StatusCreated, a.status)
		assert.Equal(t, "/v2/up/load/blobs/"+d.String(), a.header.Get("Location"))
		there(t, d)
	})
	t.Run("streamed PATCH without a length", func(t *testing.T) {
		loc := start(t)
		a := request(t, r, r.Push, http.MethodPatch, loc, unsized{strings.NewReader("streamed")}, "Content-Type",
			"application/octet-stream")
		require.Equal(t, http.StatusAccepted, a.status)
		assert.Equal(t, "0-7", a.header.Get("Range"))
		sd := digest.FromString("streamed")
		require.Equal(t, http.StatusCreated, request(t, r, r.Push, http.MethodPut,
			a.header.Get("Location")+"?digest="+sd.String(), nil).status)
		there(t, sd)
	})
	t.Run("chunks in order, with status between, the last in the PUT", func(t *testing.T) {
		loc := start(t)
		a := request(t, r, r.Push, http.MethodPatch, loc, bytes.NewReader(data[:4000]), "Content-Range", "0-3999")
		require.Equal(t, http.StatusAccepted, a.status)
		a = request(t, r, r.Pull, http.MethodGet, loc, nil)
		require.Equal(t, http.StatusNoContent, a.status)
		assert.Equal(t, "0-3999", a.header.Get("Range"))
		a = request(t, r, r.Push, http.MethodPatch, loc, bytes.NewReader(data[4000:6000]), "Content-Range", "4000-5999")
		require.Equal(t, http.StatusAccepted, a.status)
		a = request(t, r, r.Push, http.MethodPut, loc+"?digest="+d.String(), bytes.NewReader(data[6000:]), "Content-Range",
			"6000-9999")
		require.Equal(t, http.StatusCreated, a.status)
		there(t, d)
	})
	t.Run("a chunk out of order is 416 and the upload goes on", func(t *testing.T) {
		loc := start(t)
		for _, rng := range []string{"1-10", "5000-9999"} {
			a := request(t, r, r.Push, http.MethodPatch, loc, bytes.NewReader(data[:10]), "Content-Range", rng)
			require.Equal(t, http.StatusRequestedRangeNotSatisfiable, a.status)
		}
		require.Equal(t, http.StatusAccepted, request(t, r, r.Push, http.MethodPatch, loc, bytes.NewReader(data[:10]),
			"Content-Range", "0-9").status)
		a := request(t, r, r.Push, http.MethodPatch, loc, bytes.NewReader(data[:10]), "Content-Range", "0-9")
		require.Equal(t, http.StatusRequestedRangeNotSatisfiable, a.status)
		assert.Equal(t, "0-9", a.header.Get("Range"))
	})
	t.Run("a cancelled upload is gone", func(t *testing.T) {
		loc := start(t)
		require.Equal(t, http.StatusNoContent, request(t, r, r.Push, http.MethodDelete, loc, nil).status)
		a := request(t, r, r.Push, http.MethodPatch, loc, bytes.NewReader(data))
		assert.Equal(t, http.StatusNotFound, a.status)
		assert.Equal(t, "BLOB_UPLOAD_UNKNOWN", a.code(t))
	})
	t.Run("a restart in the middle loses nothing", func(t *testing.T) {
		loc := start(t)
		require.Equal(t, http.StatusAccepted, request(t, r, r.Push, http.MethodPatch, loc, bytes.NewReader(data[:5000]),
			"Content-Range", "0-4999").status)
		r.Restart(t)
		assert.Equal(t, "0-4999", request(t, r, r.Push, http.MethodGet, loc, nil).header.Get("Range"))
		a := request(t, r, r.Push, http.MethodPut, loc+"?digest="+d.String(), bytes.NewReader(data[5000:]))
		require.Equal(t, http.StatusCreated, a.status)
	})
	t.Run("sha512", func(t *testing.T) {
		s := digest.SHA512.FromBytes(data)
		a := request(t, r, r.Push, http.MethodPut, start(t)+"?digest="+s.String(), bytes.NewReader(data))
		require.Equal(t, http.StatusCreated, a.status)
		there(t, s)
	})
	t.Run("an empty blob", func(t *testing.T) { there(t, pushBlob(t, r, "up/load", nil)) })
}

func TestUploadAccounts(t *testing.T) {
	other, err := registry.NewUser("other", registry.RolePush)
	require.NoError(t, err)
	r := registrytest.Start(t, func(o *registry.Options) { o.Users = append(o.Users, other); o.MaxUploads = 2 })
	a := request(t, r, r.Push, http.MethodPost, "/v2/up/load/blobs/uploads/", nil)
	require.Equal(t, http.StatusAccepted, a.status)
	loc := a.header.Get("Location")
	assert.Equal(t, "0--1", request(t, r, r.Pull, http.MethodGet, loc, nil).header.Get("Range"), "no byte was received")
	for _, method := range []string{http.MethodPatch, http.MethodPut, http.MethodDelete} {
		a = request(t, r, other, method, loc, strings.NewReader("x"))
		assert.Equal(t, http.StatusNotFound, a.status, method)
		assert.Equal(t, "BLOB_UPLOAD_UNKNOWN", a.code(t))
	}
	a = request(t, r, r.Push, http.MethodPatch, loc, strings.NewReader("x"))
	require.Equal(t, http.StatusAccepted, a.status)
	assert.Equal(t, "0-0", a.header.Get("Range"), "one byte was received")

	require.Equal(t, http.StatusAccepted, request(t, r, r.Push, http.MethodPost, "/v2/a/b/blobs/uploads/", nil).status)
	a = request(t, r, r.Push, http.MethodPost, "/v2/a/b/blobs/uploads/", nil)
	assert.Equal(t, http.StatusTooManyRequests, a.status)
	assert.Equal(t, "TOOMANYREQUESTS", a.code(t))
	require.Equal(t, http.StatusAccepted, request(t, r, other, http.MethodPost, "/v2/a/b/blobs/uploads/", nil).status)
	require.Equal(t, http.StatusNoContent, request(t, r, r.Push, http.MethodDelete, loc, nil).status)
	pushBlob(t, r, "a/b", []byte("room again"))
}

func TestMounts(t *testing.T) {
	r := registrytest.Start(t)
	d := pushBlob(t, r, "src/a", []byte("mount me"))
	for _, tc := range []struct {
		name, query string
		status      int
	}{
		{"from the repository that has it", "mount=" + d.String() + "&from=src/a", http.StatusCreated},
		{"from anywhere", "mount=" + d.String(), http.StatusCreated},
		{"from a repository that lacks it is an upload", "mount=" + d.String() + "&from=src/b", http.StatusAccepted},
		{"a blob that is nowhere is an upload", "mount=" + digest.FromString("x").String(), http.StatusAccepted},
		{"a digest that is none", "mount=sha256:xyz&from=src/a", http.StatusBadRequest},
		{"from a name that is none is an upload", "mount=" + d.String() + "&from=../../etc", http.StatusAccepted},
	} {
		t.Run(tc.name, func(t *testing.T) {
			repo := "dst/" + digest.FromString(tc.name).Encoded()[:8]
			a := request(t, r, r.Push, http.MethodPost, "/v2/"+repo+"/blobs/uploads/?"+tc.query, nil)
			require.Equal(t, tc.status, a.status, "%s", a.body)
			got := request(t, r, r.Pull, http.MethodHead, "/v2/"+repo+"/blobs/"+d.String(), nil).status
			if tc.status == http.StatusCreated {
				assert.Equal(t, http.StatusOK, got)
			} else {
				assert.Equal(t, http.StatusNotFound, got)
			}
		})
	}
}

func TestBlobRangesAndETag(t *testing.T) {
	r := registrytest.Start(t)
	d := pushBlob(t, r, "ra/nge", []byte("0123456789"))
	path := "/v2/ra/nge/blobs/" + d.String()
	a := request(t, r, r.Pull, http.MethodGet, path, nil, "Range", "bytes=2-5")
	assert.Equal(t, http.StatusPartialContent, a.status)
	assert.Equal(t, "2345", string(a.body))
	assert.Equal(t, "bytes 2-5/10", a.header.Get("Content-Range"))
	a = request(t, r, r.Pull, http.MethodGet, path, nil, "Range", "bytes=7-")
	assert.Equal(t, "789", string(a.body))
	assert.Equal(t, http.StatusRequestedRangeNotSatisfiable, request(t, r, r.Pull, http.MethodGet, path, nil, "Range",
		"bytes=20-").status)
	assert.Equal(t, http.StatusNotModified, request(t, r, r.Pull, http.MethodGet, path, nil, "If-None-Match",
		`"`+d.String()+`"`).status)
	a = request(t, r, r.Pull, http.MethodHead, path, nil)
	assert.Equal(t, "10", a.header.Get("Content-Length"))
	assert.Equal(t, "bytes", a.header.Get("Accept-Ranges"))
}

func TestManifestsAndTags(t *testing.T) {
	r := registrytest.Start(t)
	layer := pushBlob(t, r, "ma/ni", []byte("layer"))
	cfg := pushBlob(t, r, "ma/ni", []byte("{}"))
	body := manifestOf(cfg, 2, []byte("layer"))
	d, d512 := digest.FromBytes(body), digest.SHA512.FromBytes(body)
	a := pushManifest(t, r, "ma/ni", "v1", body)
	require.Equal(t, http.StatusCreated, a.status, "%s", a.body)
	assert.Equal(t, "/v2/ma/ni/manifests/"+d.String(), a.header.Get("Location"))
	require.Equal(t, http.StatusCreated, pushManifest(t, r, "ma/ni", d512.String(), body).status)
	for ref, want := range map[string]digest.Digest{"v1": d, d.String(): d, d512.String(): d512} {
		a := request(t, r, r.Pull, http.MethodGet, "/v2/ma/ni/manifests/"+ref, nil)
		require.Equal(t, http.StatusOK, a.status)
		assert.Equal(t, body, a.body)
		assert.Equal(t, want.String(), a.header.Get("Docker-Content-Digest"))
		assert.Equal(t, ociManifest, a.header.Get("Content-Type"))
		h := request(t, r, r.Pull, http.MethodHead, "/v2/ma/ni/manifests/"+ref, nil)
		assert.Equal(t, itoa(len(body)), h.header.Get("Content-Length"))
		n := request(t, r, r.Pull, http.MethodGet, "/v2/ma/ni/manifests/"+ref, nil, "If-None-Match", a.header.Get("Etag"))
		assert.Equal(t, http.StatusNotModified, n.status)
	}
	for _, tag := range []string{"a", "b", "c", "latest"} {
		require.Equal(t, http.StatusCreated, pushManifest(t, r, "ma/ni", tag, body).status)
	}
	list := func(q string) (string, string) {
		a := request(t, r, r.Pull, http.MethodGet, "/v2/ma/ni/tags/list"+q, nil)
		require.Equal(t, http.StatusOK, a.status)
		return string(a.body), a.header.Get("Link")
	}
	for _, tc := range [][3]string{
		{"", `{"name":"ma/ni","tags":["a","b","c","latest","v1"]}`, ""},
		{"?n=2", `{"name":"ma/ni","tags":["a","b"]}`, `</v2/ma/ni/tags/list?last=b&n=2>; rel="next"`},
		{"?n=2&last=c", `{"name":"ma/ni","tags":["latest","v1"]}`, ""},
		{"?n=0", `{"name":"ma/ni","tags":[]}`, ""},
		{"?last=bb", `{"name":"ma/ni","tags":["c","latest","v1"]}`, ""},
	} {
		got, link := list(tc[0])
		assert.JSONEq(t, tc[1], got, tc[0])
		assert.Equal(t, tc[2], link, tc[0])
	}
	require.Equal(t, http.StatusAccepted, request(t, r, r.Push, http.MethodDelete, "/v2/ma/ni/manifests/a", nil).status)
	assert.Equal(t, http.StatusNotFound, request(t, r, r.Pull, http.MethodGet, "/v2/ma/ni/manifests/a", nil).status)
	require.Equal(t, http.StatusAccepted, request(t, r, r.Push, http.MethodDelete, "/v2/ma/ni/manifests/"+d.String(), nil).
		status)
	got, _ := list("")
	assert.JSONEq(t, `{"name":"ma/ni","tags":[]}`, got)
	assert.Equal(t, http.StatusNotFound, request(t, r, r.Pull, http.MethodGet, "/v2/ma/ni/manifests/"+d.String(), nil).
		status)
	require.Equal(t, http.StatusAccepted, request(t, r, r.Push, http.MethodDelete, "/v2/ma/ni/blobs/"+layer.String(), nil).
		status)
	assert.Equal(t, http.StatusNotFound, request(t, r, r.Pull, http.MethodHead, "/v2/ma/ni/blobs/"+layer.String(), nil).
		status)
	a = request(t, r, r.Pull, http.MethodGet, "/v2/_catalog", nil)
	assert.JSONEq(t, `{"repositories":["ma/ni"]}`, string(a.body))
}

func TestReferrers(t *testing.T) {
	r := registrytest.Start(t)
	cfg := pushBlob(t, r, "re/fer", []byte("{}"))
	base := manifestOf(cfg, 2)
	subject := digest.FromBytes(base)
	refer := func(kind string) []byte {
		return []byte(`{"schemaVersion":2,"mediaType":"` + ociManifest + `","artifactType":"` + kind +
			`","config":{"mediaType":"application/vnd.oci.empty.v1+json","digest":"` +
			cfg.String() + `","size":2},"layers":[],"subject":{"mediaType":"` + ociManifest + `","digest":"` + subject.String() +
			`","size":1},"annotations":{"k":"` + kind + `"}}`)
	}
	list := func(q string) (map[string]string, answer) {
		a := request(t, r, r.Pull, http.MethodGet, "/v2/re/fer/referrers/"+subject.String()+q, nil)
		require.Equal(t, http.StatusOK, a.status)
		var idx struct {
			MediaType string
			Manifests []struct {
				ArtifactType string
				Annotations  map[string]string
			}
		}
		require.NoError(t, json.Unmarshal(a.body, &idx))
		require.NotNil(t, idx.Manifests)
		out := map[string]string{}
		for _, m := range idx.Manifests {
			out[m.ArtifactType] = m.Annotations["k"]
		}
		return out, a
	}
	got, a := list("")
	assert.Empty(t, got, "a digest that nobody refers to has an empty index")
	assert.Equal(t, "application/vnd.oci.image.index.v1+json", a.header.Get("Content-Type"))
	sig, sbom := refer("example/sig"), refer("example/sbom")
	a = pushManifest(t, r, "re/fer", digest.FromBytes(sig).String(), sig)
	require.Equal(t, http.StatusCreated, a.status, "the subject may come later: %s", a.body)
	assert.Equal(t, subject.String(), a.header.Get("Oci-Subject"))
	require.Equal(t, http.StatusCreated, pushManifest(t, r, "re/fer", "sbom", sbom).status)
	require.Equal(t, http.StatusCreated, pushManifest(t, r, "re/fer", "v1", base).status)
	fallback := strings.Replace(subject.String(), ":", "-", 1)
	require.Equal(t, http.StatusCreated, pushManifest(t, r, "re/fer", fallback, base).
		status, "clients' fallback tags are ordinary tags")
	got, _ = list("")
	assert.Equal(t, map[string]string{"example/sig": "example/sig", "example/sbom": "example/sbom"}, got)
	got, a = list("?artifactType=example/sig")
	assert.Equal(t, map[string]string{"example/sig": "example/sig"}, got)
	assert.Equal(t, "artifactType", a.header.Get("Oci-Filters-Applied"))
	r.Restart(t)
	request(t, r, r.Push, http.MethodDelete, "/v2/re/fer/manifests/"+digest.FromBytes(sig).String(), nil)
	got, _ = list("")
	assert.Equal(t, map[string]string{"example/sbom": "example/sbom"}, got)
}

func TestErrorCodes(t *testing.T) {
	r := registrytest.Start(t, func(o *registry.Options) { o.MaxManifestBytes = 4096 })
	cfg := pushBlob(t, r, "b/i", []byte("{}"))
	ok := string(manifestOf(cfg, 2))
	missing := digest.FromString("missing")
	with := func(from, to string) string { return strings.Replace(ok, from, to, 1) }
	for _, tc := range []struct {
		name, method, path, body, contentType string
		status                                int
		code                                  string
	}{
		{"name in capitals", "GET", "/v2/A/b/manifests/v1", "", "", 400, "NAME_INVALID"},
		{"name with two dots", "GET", "/v2/a..b/manifests/v1", "", "", 400, "NAME_INVALID"},
		{"name that climbs", "GET", "/v2/%2e%2e/%2e%2e/etc/manifests/v1", "", "", 400, "NAME_INVALID"},
		{"name that is too long", "GET", "/v2/" + strings.Repeat("a", 256) + "/tags/list", "", "", 400, "NAME_INVALID"},
		{"digest that climbs", "GET", "/v2/b/i/blobs/sha256:..%2f..%2fetc", "", "", 404, ""},
		{"unknown blob", "GET", "/v2/b/i/blobs/" + missing.String(), "", "", 404, "BLOB_UNKNOWN"},
		{"blob with a bad digest", "GET", "/v2/b/i/blobs/sha256:00", "", "", 400, "DIGEST_INVALID"},
		{"blob with a digest of another kind", "GET", "/v2/b/i/blobs/md5:00", "", "", 400, "DIGEST_INVALID"},
		{"unknown tag", "GET", "/v2/b/i/manifests/none", "", "", 404, "MANIFEST_UNKNOWN"},
		{"unknown manifest", "GET", "/v2/b/i/manifests/" + missing.String(), "", "", 404, "MANIFEST_UNKNOWN"},
		{"manifest with a bad digest", "GET", "/v2/b/i/manifests/sha256:00", "", "", 400, "DIGEST_INVALID"},
		{"tags of nothing", "GET", "/v2/no/thing/tags/list", "", "", 404, "NAME_UNKNOWN"},
		{"n that is no number", "GET", "/v2/b/i/tags/list?n=x", "", "", 400, "PAGINATION_NUMBER_INVALID"},
		{"referrers of no digest", "GET", "/v2/b/i/referrers/v1", "", "", 400, "DIGEST_INVALID"},
		{"bad tag", "PUT", "/v2/b/i/manifests/-v1", ok, ociManifest, 400, "TAG_INVALID"},
		{"tag that is too long", "PUT", "/v2/b/i/manifests/" + strings.Repeat("a", 129), ok, ociManifest, 400, "TAG_INVALID"},
		{"bad tag parameter", "PUT", "/v2/b/i/manifests/" + digest.FromString(ok).
			String() + "?tag=v1&tag=-v2", ok, ociManifest, 400, "TAG_INVALID"},
		{"101 tag parameters", "PUT", "/v2/b/i/manifests/" + digest.FromString(ok).
			String() + "?tag=v1" + strings.Repeat("&tag=v1", 100), ok, ociManifest, 414, "TAG_INVALID"},
		{"manifest that is no JSON", "PUT", "/v2/b/i/manifests/v1", "{", ociManifest, 400, "MANIFEST_INVALID"},
		{"empty manifest", "PUT", "/v2/b/i/manifests/v1", "", ociManifest, 400, "MANIFEST_INVALID"},
		{"schema 1", "PUT", "/v2/b/i/manifests/v1", with(`"schemaVersion":2`, `"schemaVersion":1`), ociManifest, 400,
			"MANIFEST_INVALID"},
		{"two media types", "PUT", "/v2/b/i/manifests/v1", ok, "application/vnd.oci.image.index.v1+json", 400,
			"MANIFEST_INVALID"},
		{"unknown media type", "PUT", "/v2/b/i/manifests/v1", with(ociManifest, "text/plain"), "text/plain", 400,
			"MANIFEST_INVALID"},
		{"layers and manifests", "PUT", "/v2/b/i/manifests/v1", with(`"layers":[]`, `"layers":[],"manifests":[]`),
			ociManifest, 400, "MANIFEST_INVALID"},
		{"descriptor without digest", "PUT", "/v2/b/i/manifests/v1", with(cfg.String(), ""), ociManifest, 400,
			"MANIFEST_INVALID"},
		{"layers in two cases", "PUT", "/v2/b/i/manifests/v1", with(`"layers":[]`, `"layers":[],"LAYERS":[]`),
			ociManifest, 400, "MANIFEST_INVALID"},
		{"layers twice", "PUT", "/v2/b/i/manifests/v1", with(`"layers":[]`, `"layers":[],"layers":[]`),
			ociManifest, 400, "MANIFEST_INVALID"},
		{"invalid UTF-8", "PUT", "/v2/b/i/manifests/v1", with(`"layers":[]`, `"layers":[],"x":"`+"\xff"+`"`),
			ociManifest, 400, "MANIFEST_INVALID"},
		{"wrong size", "PUT", "/v2/b/i/manifests/v1", with(`"size":2`, `"size":3`), ociManifest, 400, "MANIFEST_INVALID"},
		{"missing blob", "PUT", "/v2/b/i/manifests/v1", with(cfg.String(), missing.String()), ociManifest, 400,
			"MANIFEST_BLOB_UNKNOWN"},
		{"other digest", "PUT", "/v2/b/i/manifests/" + missing.String(), ok, ociManifest, 400, "DIGEST_INVALID"},
		{"huge manifest", "PUT", "/v2/b/i/manifests/v1", ok + strings.Repeat(" ", 4096), ociManifest, 413, "SIZE_INVALID"},
		{"blob with another digest", "POST", "/v2/b/i/blobs/uploads/?digest=" + missing.String(), "x", "", 400,
			"DIGEST_INVALID"},
		{"blob without digest", "PUT", "/v2/b/i/blobs/uploads/00000000-0000-4000-8000-000000000000", "x", "", 404,
			"BLOB_UPLOAD_UNKNOWN"},
		{"upload that climbs", "PATCH", "/v2/b/i/blobs/uploads/..", "x", "", 404, ""},
		{"delete of an unknown manifest", "DELETE", "/v2/b/i/manifests/" + missing.String(), "", "", 404, "MANIFEST_UNKNOWN"},
		{"delete of an unknown tag", "DELETE", "/v2/b/i/manifests/none", "", "", 404, "MANIFEST_UNKNOWN"},
		{"delete of a bad tag", "DELETE", "/v2/b/i/manifests/-x", "", "", 400, "TAG_INVALID"},
		{"delete of an unknown blob", "DELETE", "/v2/b/i/blobs/" + missing.String(), "", "", 404, "BLOB_UNKNOWN"},
		{"method that is none", "POST", "/v2/b/i/manifests/v1", "", "", 405, "UNSUPPORTED"},
		{"path that is none", "GET", "/v2/b/i/nothing", "", "", 404, "UNSUPPORTED"},
		{"path outside the API", "GET", "/etc/passwd", "", "", 404, "UNSUPPORTED"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var header []string
			if tc.contentType != "" {
				header = []string{"Content-Type", tc.contentType}
			}
			a := request(t, r, r.Push, tc.method, tc.path, strings.NewReader(tc.body), header...)
			require.Equal(t, tc.status, a.status, "%s", a.body)
			if tc.code != "" {
				assert.Equal(t, tc.code, a.code(t))
			}
		})
	}
}
