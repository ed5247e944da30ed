package registry_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/registry/registrytest"
)

func TestUploadAfterRefusedRange(t *testing.T) {
	r := registrytest.Start(t)
	known := pushBlob(t, r, "a/b", []byte("known"))
	other := digest.FromString("other")
	loc := request(t, r, r.Push, http.MethodPost, "/v2/a/b/blobs/uploads/", nil).header.Get("Location")
	a := request(t, r, r.Push, http.MethodPut, loc+"?digest="+known.String(), strings.NewReader("known"), "Content-Range",
		"7-11")
	require.Equal(t, http.StatusRequestedRangeNotSatisfiable, a.status)
	a = request(t, r, r.Push, http.MethodPatch, loc, strings.NewReader("other"))
	require.Equal(t, http.StatusAccepted, a.status, "%s", a.body)
	a = request(t, r, r.Push, http.MethodPut, loc+"?digest="+other.String(), nil)
	require.Equal(t, http.StatusCreated, a.status, "%s", a.body)
	a = request(t, r, r.Pull, http.MethodGet, "/v2/a/b/blobs/"+other.String(), nil)
	assert.Equal(t, "other", string(a.body))
}
