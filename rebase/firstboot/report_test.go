package firstboot

import (
	"encoding/json"
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/registry/credentials"
)

// reportingNode is a root with what Ignition wrote for pulls from a registry.
func reportingNode(t *testing.T, registry string, ca []byte) string {
	t.Helper()
	root := t.TempDir()
	auth, err := credentials.Encode(credentials.Account{Username: "dayone-node", Password: "canary-password"}, registry)
	require.NoError(t, err)
	for path, content := range map[string][]byte{PullAuthPath: auth, certsDir + "/" + registry + "/ca.crt": ca} {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(root, path)), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(root, path), content, 0o600))
	}
	return root
}

func TestReportTellsTheRecord(t *testing.T) {
	var got []Report
	answer := http.StatusNoContent
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, password, _ := r.BasicAuth()
		assert.Equal(t, []string{"dayone-node", "canary-password", ReportPath}, []string{user, password, r.URL.Path})
		raw, err := io.ReadAll(r.Body)
		assert.NoError(t, err)
		report, err := ParseReport(raw)
		assert.NoError(t, err, string(raw))
		got = append(got, report)
		w.WriteHeader(answer)
	}))
	defer server.Close()
	registry := strings.TrimPrefix(server.URL, "https://")
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	now := time.Now()
	r := reporter{root: reportingNode(t, registry, ca), registry: registry, now: func() time.Time { return now }}
	image := "registry.example.com/ocp/master-os@sha256:" + strings.Repeat("0", 64)
	rec := Record{State: StateWaiting, Image: image, Config: "rendered-master-1", Class: "RegistryError", Attempts: 2,
		Boots:   []Boot{{}, {Soft: true}},
		Message: "get https://me:secret@h/v2\nwith canary-password " + strings.Repeat("ü", 2000)}
	require.NoError(t, r.send(rec))
	require.Len(t, got, 1)
	assert.NotContains(t, got[0].Message, "canary-password")
	assert.NotContains(t, got[0].Message, "me:secret")
	assert.Equal(t, []any{StateWaiting, image, 2, 1, 2}, []any{got[0].State, got[0].Image, got[0].Boots,
		got[0].SoftReboots, got[0].Attempts})

	answer = http.StatusInternalServerError
	require.ErrorContains(t, r.send(rec), "500")
	answer = http.StatusNoContent
	require.NoError(t, r.send(rec))
	assert.Len(t, got, 2, "a host that does not take reports is left alone for a while")
	now = now.Add(reportPause)
	require.NoError(t, r.send(rec))
	assert.Len(t, got, 3)

	require.NoError(t, os.Remove(filepath.Join(r.root, PullAuthPath)))
	require.NoError(t, r.send(rec))
	assert.Len(t, got, 3, "after the hand-over the credential is gone, and there is nobody to tell")
}

// TestSilentHostHoldsUpABoundedTime uses a host that takes connections and never answers.
func TestSilentHostHoldsUpABoundedTime(t *testing.T) {
	release := make(chan struct{})
	server := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-release }))
	defer server.Close()
	defer close(release)
	registry := strings.TrimPrefix(server.URL, "https://")
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	r := reporter{root: reportingNode(t, registry, ca), registry: registry, now: time.Now}
	require.ErrorContains(t, r.send(Record{State: StateStaging}), "deadline exceeded")
	require.NoError(t, r.send(Record{State: StateStaging}), "the next one does not wait")
}

func FuzzParseReport(f *testing.F) {
	f.Add([]byte(`{"version":1,"node":"a","state":"Staging","message":"x"}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		r, err := ParseReport(raw)
		if err != nil {
			return
		}
		assert.LessOrEqual(t, len(r.Message), maxMessage)
		_, err = json.Marshal(r)
		require.NoError(t, err)
	})
}
