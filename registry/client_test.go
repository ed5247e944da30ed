package registry_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/registry"
	"dayone.dev/dayone/registry/registrytest"
)

// answer is a response that was read to its end.
type answer struct {
	status int
	header http.Header
	body   []byte
}

// code is the first error code of an error body.
func (a answer) code(t testing.TB) string {
	t.Helper()
	var e struct{ Errors []struct{ Code string } }
	require.NoError(t, json.Unmarshal(a.body, &e), "%s", a.body)
	require.NotEmpty(t, e.Errors)
	return e.Errors[0].Code
}

func request(t testing.TB, r *registrytest.Registry, u registry.User, method, path string, body io.Reader,
	header ...string) answer {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, r.URL()+path, body)
	require.NoError(t, err)
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	req.SetBasicAuth(u.Name, u.Password)
	resp, err := r.Transport(t).RoundTrip(req)
	require.NoError(t, err)
	b, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	return answer{resp.StatusCode, resp.Header, b}
}

// pushBlob pushes in one request and returns the digest.
func pushBlob(t testing.TB, r *registrytest.Registry, repo string, data []byte) digest.Digest {
	t.Helper()
	d := digest.FromBytes(data)
	a := request(t, r, r.Push, http.MethodPost, "/v2/"+repo+"/blobs/uploads/?digest="+d.String(), bytes.NewReader(data))
	require.Equal(t, http.StatusCreated, a.status, "%s", a.body)
	return d
}

const ociManifest = "application/vnd.oci.image.manifest.v1+json"

// manifestOf is an OCI manifest with a configuration and layers, all of which are in the repository already.
func manifestOf(config digest.Digest, size int, layers ...[]byte) []byte {
	var b strings.Builder
	b.WriteString(`{"schemaVersion":2,"mediaType":"` + ociManifest +
		`","config":{"mediaType":"application/vnd.oci.image.config.v1+json","digest":"` +
		config.String() + `","size":` + itoa(size) + `},"layers":[`)
	for i, l := range layers {
		if i > 0 {
			b.WriteString(",")
		}
		b.WriteString(`{"mediaType":"application/vnd.oci.image.layer.v1.tar","digest":"` + digest.FromBytes(l).String() + `","size":` +
			itoa(len(l)) + `}`)
	}
	b.WriteString(`]}`)
	return []byte(b.String())
}

func itoa(n int) string {
	b, err := json.Marshal(n)
	if err != nil {
		return "0"
	}
	return string(b)
}

func pushManifest(t testing.TB, r *registrytest.Registry, repo, ref string, body []byte) answer {
	t.Helper()
	return request(t, r, r.Push, http.MethodPut, "/v2/"+repo+"/manifests/"+ref, bytes.NewReader(body), "Content-Type",
		ociManifest)
}
