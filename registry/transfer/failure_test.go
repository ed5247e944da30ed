package transfer_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/registry/registrytest"
	"dayone.dev/dayone/registry/transfer"
)

func kinds(err error) []error {
	var out []error
	for _, k := range []error{transfer.ErrNotFound, transfer.ErrUnauthorized, transfer.ErrDenied,
		transfer.ErrUnavailable} {
		if errors.Is(err, k) {
			out = append(out, k)
		}
	}
	return out
}

func TestFailureKinds(t *testing.T) {
	coded := func(code, message string) string {
		return fmt.Sprintf(`{"errors":[{"code":%q,"message":%q}]}`, code, message)
	}
	for _, tc := range []struct {
		name   string
		status int
		body   string
		want   error
	}{
		{"no such manifest", 404, coded("MANIFEST_UNKNOWN", "manifest unknown"), transfer.ErrNotFound},
		{"no such repository", 404, coded("NAME_UNKNOWN", "repository name not known"), transfer.ErrNotFound},
		{"no such artifact, as Harbor says it", 404, coded("NOT_FOUND", "artifact a/b:v1 not found"), transfer.ErrNotFound},
		{"404 of something that is no registry", 404, "<html>", transfer.ErrNotFound},
		{"404 without a body", 404, "", transfer.ErrNotFound},
		{"wrong account", 401, coded("UNAUTHORIZED", "authentication required"), transfer.ErrUnauthorized},
		{"wrong account, no body", 401, "", transfer.ErrUnauthorized},
		{"not allowed", 403, coded("DENIED", "requested access is denied"), transfer.ErrDenied},
		{"not allowed, of a proxy", 403, "Forbidden", transfer.ErrDenied},
		{"too many requests", 429, coded("TOOMANYREQUESTS", "slow down"), transfer.ErrUnavailable},
		{"broken", 500, coded("UNKNOWN", "unknown"), transfer.ErrUnavailable},
		{"away", 503, "", transfer.ErrUnavailable},
		{"bad request", 400, coded("NAME_INVALID", "invalid"), nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/v2/" {
					return
				}
				w.Header().Set("Content-Type", "application/json")
				w.Header().Set("Retry-After", "0") // the library waits for as long as it is told
				w.WriteHeader(tc.status)
				_, _ = w.Write([]byte(tc.body))
			}))
			t.Cleanup(srv.Close)
			_, err := transfer.Inspect(t.Context(), transfer.Endpoint{Reference: strings.TrimPrefix(srv.URL, "http://") +
				"/a/b:v1", Insecure: true}, "")
			require.Error(t, err)
			if tc.want == nil {
				assert.Empty(t, kinds(err), "%v", err)
				return
			}
			assert.Equal(t, []error{tc.want}, kinds(err), "%v", err)
		})
	}
}

func TestFailureKindsOfOurRegistry(t *testing.T) {
	r := registrytest.Start(t)
	inspect := func(e transfer.Endpoint) []error {
		_, err := transfer.Inspect(t.Context(), e, "")
		require.Error(t, err)
		if errors.Is(err, transfer.ErrNotFound) {
			assert.ErrorContains(t, err, "check the repository")
		}
		return kinds(err)
	}
	e := transfer.Endpoint{Reference: r.Addr + "/no/image:v1", CAFile: r.CAFile, AuthFile: r.PullAuthFile}
	assert.Equal(t, []error{transfer.ErrNotFound}, inspect(e))
	e.AuthFile, e.Username, e.Password = "", "pull", "wrong"
	assert.Equal(t, []error{transfer.ErrUnauthorized}, inspect(e))
	assert.Equal(t, []error{transfer.ErrUnavailable}, inspect(transfer.Endpoint{Reference: "127.0.0.1:1/no/image:v1"}))
}
