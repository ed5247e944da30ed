package registry_test

import (
	"bufio"
	"bytes"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/registry"
	"dayone.dev/dayone/registry/registrytest"
)

// TestRefusedBody: a client that sends a large body gets the answer, by curl without the pause of "Expect", and by one
// that reads nothing before it has sent everything.
func TestRefusedBody(t *testing.T) {
	r := registrytest.Start(t, func(o *registry.Options) { o.InsecureHTTP, o.MaxBytes = true, 1<<20 })
	body := bytes.Repeat([]byte("0123456789abcdef"), 4<<20) // 64 MiB: no buffer of a socket holds it
	file := filepath.Join(t.TempDir(), "body")
	require.NoError(t, os.WriteFile(file, body, 0o600))
	upload := func() string {
		a := request(t, r, r.Push, http.MethodPost, "/v2/a/b/blobs/uploads/", nil)
		require.Equal(t, http.StatusAccepted, a.status)
		return a.header.Get("Location") + "?digest=" + digest.FromBytes(body).String()
	}
	for _, tc := range []struct {
		name string
		path func() string
		user registry.User
		want int
	}{
		{"no room", upload, r.Push, http.StatusInsufficientStorage},
		{"manifest", func() string { return "/v2/a/b/manifests/v1" }, r.Push, http.StatusRequestEntityTooLarge},
		{"account that may not push", func() string { return "/v2/a/b/manifests/v1" }, r.Pull, http.StatusForbidden},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for _, chunked := range []bool{false, true} {
				args := []string{"-sS", "-o", os.DevNull, "-w", "%{http_code}", "-u", tc.user.Name + ":" + tc.user.Password,
					"-H", "Expect:", "-H", "Content-Type: " + ociManifest, "-X", "PUT", "-T", file}
				if chunked {
					args = append(args, "-H", "Transfer-Encoding: chunked")
				}
				path := tc.path()
				if tc.want == http.StatusInsufficientStorage { // the content type is a manifest's
					args = append(args, "-H", "Content-Type: application/octet-stream")
				}
				out, err := exec.Command("curl", append(args, r.URL()+path)...).CombinedOutput()
				require.NoError(t, err, "%s", out)
				assert.Equal(t, itoa(tc.want), string(out))
			}
			conn, err := net.Dial("tcp", r.Addr)
			require.NoError(t, err)
			defer func() { _ = conn.Close() }()
			require.NoError(t, conn.SetDeadline(time.Now().Add(time.Minute)))
			req, err := http.NewRequest(http.MethodPut, r.URL()+tc.path(), nil)
			require.NoError(t, err)
			req.SetBasicAuth(tc.user.Name, tc.user.Password)
			_, err = fmt.Fprintf(conn, "PUT %s HTTP/1.1\r\nHost: %s\r\nAuthorization: %s\r\nContent-Length: %d\r\n\r\n",
				req.URL.RequestURI(), r.Addr, req.Header.Get("Authorization"), len(body))
			require.NoError(t, err)
			_, err = conn.Write(body)
			require.NoError(t, err)
			resp, err := http.ReadResponse(bufio.NewReader(conn), req)
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
			assert.Equal(t, tc.want, resp.StatusCode)
		})
	}
}
