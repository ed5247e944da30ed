package serve

import (
	"encoding/json"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// parityDir is a collection of rendered trees with what MCO's server answers. It lies beside a checkout that has one.
func parityDir(t *testing.T) string {
	t.Helper()
	dir, err := os.Getwd()
	require.NoError(t, err)
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			break
		}
		parent := filepath.Dir(dir)
		require.NotEqual(t, dir, parent, "no go.mod above the package")
		dir = parent
	}
	found := filepath.Join(filepath.Dir(dir), "shared", "parity", "ignition-server")
	if _, err := os.Stat(filepath.Join(found, "want.json")); err != nil {
		t.Skipf("no parity collection beside the checkout: %s", err)
	}
	return found
}

type wantedTree struct {
	Tree     string
	Certs    []string
	Starts   *bool
	Requests []struct {
		Method, Path string
		Accept       *string
		Want         struct {
			Status          *int
			ContentType     *string
			IgnitionVersion string
			Files           []string
		}
	}
}

// TestParityWithMCOsServer compares status, type, version and the order of files of every answer. Two trees are configs
// that MCO cannot serve and this server can: see TestConfigsThatMCOCannotServe.
func TestParityWithMCOsServer(t *testing.T) {
	dir := parityDir(t)
	raw, err := os.ReadFile(filepath.Join(dir, "want.json"))
	require.NoError(t, err)
	var want struct{ Trees []wantedTree }
	require.NoError(t, json.Unmarshal(raw, &want))
	require.NotEmpty(t, want.Trees)
	for _, tree := range want.Trees {
		t.Run(tree.Tree, func(t *testing.T) {
			base := filepath.Join(dir, "trees", tree.Tree)
			o := Options{BaseDir: base, Kubeconfig: filepath.Join(base, "kubeconfig"), BootstrapCerts: map[string]string{}}
			for _, c := range tree.Certs {
				host, file, _ := strings.Cut(c, "=")
				o.BootstrapCerts[host] = filepath.Join(base, file)
			}
			s, err := New(o)
			if tree.Starts != nil && !*tree.Starts {
				require.Error(t, err)
				return
			}
			require.NoError(t, err)
			if tree.Tree == "append-overwritten" || tree.Tree == "own-kubeconfig" {
				assert.Equal(t, 200, get(t, s, "/config/master", "Accept", accept35).Code)
				return
			}
			for _, request := range tree.Requests {
				r := httptest.NewRequest(request.Method, request.Path, nil)
				if request.Accept != nil {
					r.Header.Set("Accept", *request.Accept)
				}
				w := httptest.NewRecorder()
				s.Handler().ServeHTTP(w, r)
				at := request.Method + " " + request.Path + " " + r.Header.Get("Accept")
				if request.Want.Status == nil {
					assert.Equal(t, 500, w.Code, at)
					continue
				}
				require.Equal(t, *request.Want.Status, w.Code, at)
				if request.Want.ContentType == nil {
					assert.Empty(t, w.Header().Get("Content-Type"), at)
					continue
				}
				assert.Equal(t, *request.Want.ContentType, w.Header().Get("Content-Type"), at)
				var got struct {
					Ignition struct{ Version string }
					Storage  struct{ Files []struct{ Path string } }
				}
				if request.Method == "HEAD" {
					continue // no body to compare
				}
				require.NoError(t, json.Unmarshal(w.Body.Bytes(), &got), at)
				assert.Equal(t, request.Want.IgnitionVersion, got.Ignition.Version, at)
				var files []string
				for _, f := range got.Storage.Files {
					files = append(files, f.Path)
				}
				assert.Equal(t, request.Want.Files, files, at)
			}
		})
	}
}
