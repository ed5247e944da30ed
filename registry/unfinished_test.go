package registry_test

import (
	"fmt"
	"net/http"
	"os"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/registry"
	"dayone.dev/dayone/registry/registrytest"
)

// uploadsEnv is how many uploads TestUploadsNeverFinished begins.
const uploadsEnv = "DAYONE_TEST_UPLOADS"

// TestUploadsNeverFinished: uploads with a byte each, of one account and of many, hold neither room nor files, and one
// account's do not keep others from pushing.
func TestUploadsNeverFinished(t *testing.T) {
	n := 200
	if v := os.Getenv(uploadsEnv); v != "" {
		var err error
		n, err = strconv.Atoi(v)
		require.NoError(t, err)
	}
	const accounts = 20
	for _, tc := range []struct {
		name string
		of   int // accounts that begin uploads
	}{{"by one account", 1}, {"by many", accounts}} {
		t.Run(tc.name, func(t *testing.T) {
			users := []registry.User{}
			for i := range accounts + 1 {
				u, err := registry.NewUser(fmt.Sprintf("push%d", i), registry.RolePush)
				require.NoError(t, err)
				users = append(users, u)
			}
			most := n / 2 / tc.of
			r := registrytest.Start(t, func(o *registry.Options) {
				o.InsecureHTTP, o.MaxUploads, o.MaxBytes = true, most, 16<<20
				o.Users = append(o.Users, users...)
			})
			files := openFiles(t)
			refused := 0
			for i := range n {
				r.Push = users[i%tc.of]
				status, location := begin(t, r)
				if status == http.StatusTooManyRequests {
					refused++
					continue
				}
				require.Equal(t, http.StatusAccepted, status)
				require.Equal(t, http.StatusAccepted, try(t, r, http.MethodPatch, location, []byte("x")))
			}
			assert.Equal(t, n-most*tc.of, refused)
			assert.InDelta(t, files, openFiles(t), 50, "an upload holds no file")
			s, err := registry.ReadStatus(t.Context(), r.Options.Root)
			require.NoError(t, err)
			assert.Equal(t, most*tc.of, s.Uploads)
			assert.Zero(t, s.ReservedBytes)
			assert.Equal(t, int64(most*tc.of), s.StoredBytes)
			r.Push = users[accounts]
			pushBlob(t, r, "a/b", make([]byte, 8<<20))
		})
	}
}

// begin starts an upload with the client that the other requests of the test use.
func begin(t *testing.T, r *registrytest.Registry) (status int, location string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, r.URL()+"/v2/a/b/blobs/uploads/", nil)
	require.NoError(t, err)
	req.SetBasicAuth(r.Push.Name, r.Push.Password)
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	return resp.StatusCode, resp.Header.Get("Location")
}

func openFiles(t *testing.T) int {
	t.Helper()
	files, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	return len(files)
}
