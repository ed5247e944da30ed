package serve

import (
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	ign35 "github.com/coreos/ignition/v2/config/v3_5/types"
	"github.com/sirupsen/logrus"
	logtest "github.com/sirupsen/logrus/hooks/test"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/machineconfig"
	"dayone.dev/dayone/manifests/render"
)

const (
	layeredImage = "registry.example.com/ocp/master-os@sha256:" +
		"1111111111111111111111111111111111111111111111111111111111111111"
	accept35 = ignitionType + ";version=3.5.0"
)

// tree renders a master pool whose MachineConfig has the given storage and writes it to a directory.
func tree(t testing.TB, dir, storage string) {
	t.Helper()
	set, err := manifests.Read([]byte(`apiVersion: machineconfiguration.openshift.io/v1
kind: MachineConfigPool
metadata: {name: master}
spec:
  machineConfigSelector: {matchLabels: {machineconfiguration.openshift.io/role: master}}
---
apiVersion: machineconfiguration.openshift.io/v1
kind: MachineOSConfig
metadata: {name: master, annotations: {machineconfiguration.openshift.io/pre-built-image: "`+layeredImage+`"}}
spec: {machineConfigPool: {name: master}}
---
apiVersion: machineconfiguration.openshift.io/v1
kind: MachineConfig
metadata: {name: 50-a, labels: {machineconfiguration.openshift.io/role: master}}
spec:
  kernelArguments: [quiet]
  config: {ignition: {version: 3.5.0}, `+storage+`}
`), "in.yaml", manifests.ReadOptions{})
	require.NoError(t, err)
	versions := render.Versions{Raw: "v1", Hash: "h", Payload: "1.0.0"}
	render.StandaloneInputs(set, "base", versions)
	set.ControllerConfigs[0].Object.Spec.KubeAPIServerServingCAData = []byte("a certificate authority\n")
	result, err := render.Render(set, render.Options{Versions: versions})
	require.NoError(t, err)
	require.NoError(t, render.Write(dir, set, result))
}

const aFile = `storage: {files: [{path: /etc/a, mode: 420, contents: {source: "data:,a"}}]}`

func kubeconfig(t testing.TB, dir string) string {
	t.Helper()
	file := filepath.Join(dir, "kubeconfig")
	require.NoError(t, os.WriteFile(file, []byte("clusters:\n- name: one\n"), 0o600))
	return file
}

func newServer(t testing.TB, storage string, change func(*Options)) *Server {
	t.Helper()
	dir := t.TempDir()
	tree(t, dir, storage)
	o := Options{BaseDir: dir, Kubeconfig: kubeconfig(t, t.TempDir())}
	if change != nil {
		change(&o)
	}
	s, err := New(o)
	require.NoError(t, err)
	return s
}

func get(t testing.TB, s *Server, path string, header ...string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequest(http.MethodGet, path, nil)
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	s.Handler().ServeHTTP(w, r)
	return w
}

// filesOf returns the decoded files of an answer in 3.5.
func filesOf(t testing.TB, body []byte) map[string]string {
	t.Helper()
	config, err := machineconfig.Parse(body)
	require.NoError(t, err)
	out := map[string]string{}
	for _, f := range config.Storage.Files {
		data, err := machineconfig.Contents(f.Contents)
		require.NoError(t, err)
		out[f.Path] = string(data)
	}
	return out
}

func TestNegotiation(t *testing.T) {
	for _, c := range []struct{ accept, want string }{
		{"", "2.2.0"},
		{"*/*", "2.2.0"},
		{ignitionType, "2.2.0"},
		{ignitionType + ";version=1", "2.2.0"},
		{ignitionType + ";version=3.0.0", "3.0.0"},
		{ignitionType + ";version=3.4.0", "3.4.0"},
		{ignitionType + ";version=3.4.7", "3.4.0"},
		{ignitionType + ";version=3.99.0", "3.5.0"},
		{ignitionType + ";version=2.4.0", "2.2.0"},
		{ignitionType + ";version=2.1.0", ""},
		{ignitionType + ";version=4.0.0", ""},
		{ignitionType + `;version="3.3.0"`, "2.2.0"},
		{"*/*, " + ignitionType + ";q=0.1; version=3.3.0", "3.3.0"},
		{ignitionType + ";version=3.1.0;q=0.5, " + ignitionType + ";version=3.2.0;q=0.9", "3.2.0"},
		{ignitionType + ";version=9.0.0;q=0.9, " + ignitionType + ";version=3.4.0;q=0.5", ""},
		{strings.Repeat(ignitionType+";version=x,", 100) + ignitionType + ";version=3.4.0", "3.4.0"},
		{ignitionType + ";version=3.2.0;version=3.4.0", "3.2.0"},
		{ignitionType + ";version=x;version=3.4.0", "3.4.0"},
		{ignitionType + ";version =3.3.0", "2.2.0"},
		{ignitionType + ";version= 3.3.0", "2.2.0"},
		{ignitionType + " ; version=3.3.0 ", "3.3.0"},
		{"x/" + ignitionSubtype + ";version=3.3.0", "3.3.0"},
		{ignitionSubtype + ";version=3.3.0", "2.2.0"},
		{ignitionType + ";q=0.5;version=3.1.0;q=0.9, " + ignitionType + ";version=3.4.0;q=0.7", "3.4.0"},
	} {
		got, err := negotiate(c.accept)
		if c.want == "" {
			require.Error(t, err, c.accept)
			continue
		}
		require.NoError(t, err, c.accept)
		assert.Equal(t, c.want, got, c.accept)
	}
}

func TestLayeredNodeAnnotations(t *testing.T) {
	s := newServer(t, aFile, nil)
	w := get(t, s, "/config/master", "Accept", accept35)
	require.Equal(t, http.StatusOK, w.Code)
	assert.Equal(t, "application/json", w.Header().Get("Content-Type"))
	files := filesOf(t, w.Body.Bytes())
	var annotations map[string]string
	require.NoError(t, json.Unmarshal([]byte(files[pathNodeAnnotations]), &annotations))
	assert.Equal(t, layeredImage, annotations[manifests.AnnotationCurrentImage])
	assert.Equal(t, layeredImage, annotations[manifests.AnnotationDesiredImage])
	assert.Equal(t, manifests.StateDone, annotations[manifests.AnnotationState])
	assert.Equal(t, "a certificate authority\n", files[pathKubeletCA])
	assert.Contains(t, files[pathEncapsulated], layeredImage)
	assert.Contains(t, files[pathEncapsulated], `"kernelArguments":["quiet"]`)
	assert.Contains(t, files[pathKubeconfig], "clusters")
}

func TestEveryVersionFrom30(t *testing.T) {
	s := newServer(t, aFile, nil)
	for _, version := range versions() {
		w := get(t, s, "/config/master", "Accept", ignitionType+";version="+version)
		require.Equal(t, http.StatusOK, w.Code, version)
		assert.Contains(t, w.Body.String(), `"version":"`+version+`"`)
	}
}

func TestOldVersionRefusedWithReason(t *testing.T) {
	s := newServer(t, `storage: {filesystems: [{device: /dev/vdb, path: /var/x, format: xfs, mountOptions: [noatime]}]}`,
		nil)
	w := get(t, s, "/config/master", "Accept", ignitionType+";version=3.0.0")
	assert.Equal(t, http.StatusBadRequest, w.Code)
	assert.Contains(t, w.Header().Get(reasonHeader), "mountOptions")
	assert.Empty(t, w.Body.String())
	assert.Equal(t, http.StatusOK, get(t, s, "/config/master", "Accept", ignitionType+";version=3.1.0").Code)
	assert.Equal(t, http.StatusBadRequest, get(t, s, "/config/master", "Accept", ignitionType+";version=4.0.0").Code)
}

// MCO's server cannot serve any of these configs.
func TestConfigsThatMCOCannotServe(t *testing.T) {
	t.Run("a file that only appends", func(t *testing.T) {
		s := newServer(t, `storage: {files: [{path: /etc/motd, contents: {source: "data:,x"}}]}`, func(o *Options) {
			onlyAppends(t, o.BaseDir) // dayone's renderer refuses it, so another one has written it
		})
		for _, version := range versions() {
			require.Equal(t, http.StatusOK, get(t, s, "/config/master", "Accept", ignitionType+";version="+version).
				Code, version)
		}
	})
	t.Run("a kubeconfig of its own", func(t *testing.T) {
		s := newServer(t, `storage: {files: [{path: /etc/kubernetes/kubeconfig, contents: {source: "data:,mine"}}]}`, nil)
		w := get(t, s, "/config/master", "Accept", accept35)
		require.Equal(t, http.StatusOK, w.Code)
		assert.Equal(t, "mine", filesOf(t, w.Body.Bytes())[pathKubeconfig])
	})
	t.Run("a file where only the server may write", func(t *testing.T) {
		s := newServer(t,
			`storage: {files: [{path: /etc/machine-config-daemon/node-annotations.json, contents: {source: "data:,mine"}}]}`,
			nil)
		w := get(t, s, "/config/master", "Accept", accept35)
		require.Equal(t, http.StatusOK, w.Code)
		assert.Contains(t, filesOf(t, w.Body.Bytes())[pathNodeAnnotations], "currentConfig")
	})
}

// onlyAppends makes of the contents of a rendered file what is appended to it.
func onlyAppends(t *testing.T, dir string) {
	t.Helper()
	rendered, err := filepath.Glob(filepath.Join(dir, "machine-configs", "rendered-master-*"))
	require.NoError(t, err)
	require.Len(t, rendered, 1)
	raw, err := os.ReadFile(rendered[0])
	require.NoError(t, err)
	contents := "- contents:\n          source: data:,x\n"
	require.Contains(t, string(raw), contents)
	appended := strings.Replace(string(raw), contents, "- append:\n        - source: data:,x\n", 1)
	require.NoError(t, os.WriteFile(rendered[0], []byte(appended), 0o600))
}

func TestAdditions(t *testing.T) {
	file := func(path, text string) ign35.Config {
		return ign35.Config{Storage: ign35.Storage{Files: []ign35.File{{Node: ign35.Node{Path: path},
			FileEmbedded1: ign35.FileEmbedded1{Contents: machineconfig.Escaped([]byte(text))}}}}}
	}
	s := newServer(t, aFile, func(o *Options) {
		o.Additions = map[string]ign35.Config{"": file("/etc/all", "1"), "master": file("/etc/a", "over"),
			"worker": file("/etc/worker", "3")}
	})
	w := get(t, s, "/config/master", "Accept", accept35)
	require.Equal(t, http.StatusOK, w.Code, w.Header().Get(reasonHeader))
	files := filesOf(t, w.Body.Bytes())
	assert.Equal(t, "1", files["/etc/all"])
	assert.Equal(t, "over", files["/etc/a"])
	assert.NotContains(t, files, "/etc/worker")
	assert.NotContains(t, files[pathContent], "/etc/all")
}

func TestPlainAdditionReplacesPackedFile(t *testing.T) {
	s := newServer(t,
		`storage: {files: [{path: /etc/a, contents: {compression: gzip, source: "data:;base64,`+
			`H4sIAAAAAAAAA0tMSgYAwkEkNQMAAAA="}}]}`, func(o *Options) {
			o.Additions = map[string]ign35.Config{"master": {Storage: ign35.Storage{Files: []ign35.File{
				{Node: ign35.Node{Path: "/etc/a"},
					FileEmbedded1: ign35.FileEmbedded1{Contents: machineconfig.Escaped([]byte("plain"))}}}}}}
		})
	w := get(t, s, "/config/master", "Accept", accept35)
	require.Equal(t, http.StatusOK, w.Code)
	assert.Equal(t, "plain", filesOf(t, w.Body.Bytes())["/etc/a"])
}

func TestPathsAndMethods(t *testing.T) {
	s := newServer(t, aFile, nil)
	for _, c := range []struct {
		path string
		want int
	}{
		{"/config/master", 200}, {"/config/a/b/master", 200}, {"/config/master/", 200}, {"/config/worker", 500},
		{"/config/arbiter", 404}, {"/config/", 500}, {"/config", 500},
		{"/config/..%2f..%2fetc", 500}, {"/", 404}, {"/master", 404}, {"/healthz", 200}, {"/healthz/x", 404},
		{"/files/none", 404},
		{"/metrics", 404},
	} {
		assert.Equal(t, c.want, get(t, s, c.path, "Accept", accept35).Code, c.path)
	}
	for _, path := range []string{"/config/master", "/config", "/healthz", "/none"} {
		r := httptest.NewRequest(http.MethodPost, path, nil)
		w := httptest.NewRecorder()
		s.Handler().ServeHTTP(w, r)
		assert.Equal(t, http.StatusMethodNotAllowed, w.Code, path)
		assert.Equal(t, "0", w.Header().Get("Content-Length"), path)
	}
}

func TestHeadersOfASuccess(t *testing.T) {
	s := newServer(t, aFile, nil)
	full := get(t, s, "/config/master", "Accept", accept35)
	tag := full.Header().Get("Etag")
	require.NotEmpty(t, tag)
	assert.Equal(t, http.StatusNotModified, get(t, s, "/config/master", "Accept", accept35, "If-None-Match", tag).Code)
	packed := get(t, s, "/config/master", "Accept", accept35, "Accept-Encoding", "br, gzip")
	require.Equal(t, "gzip", packed.Header().Get("Content-Encoding"))
	assert.NotEqual(t, tag, packed.Header().Get("Etag"))
	unpack, err := gzip.NewReader(packed.Body)
	require.NoError(t, err)
	plain, err := io.ReadAll(unpack)
	require.NoError(t, err)
	assert.Equal(t, full.Body.Bytes(), plain)
	assert.Empty(t, get(t, s, "/config/master", "Accept", accept35, "Accept-Encoding", "gzip;q=0").Header().
		Get("Content-Encoding"))
	r := httptest.NewRequest(http.MethodHead, "/config/master", nil)
	r.Header.Set("Accept", accept35)
	w := httptest.NewRecorder()
	s.Handler().ServeHTTP(w, r)
	assert.Equal(t, full.Header().Get("Content-Length"), w.Header().Get("Content-Length"))
	assert.Empty(t, w.Body.Bytes())
}

func TestAccessRestrictions(t *testing.T) {
	s := newServer(t, aFile, func(o *Options) {
		o.Token = "secret-token"
		o.AllowedNetworks = []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")} // httptest's client is 192.0.2.1
	})
	assert.Equal(t, http.StatusForbidden, get(t, s, "/config/master").Code)
	assert.Equal(t, http.StatusForbidden, get(t, s, "/config/master", "Authorization", "Bearer other").Code)
	assert.Equal(t, http.StatusOK, get(t, s, "/config/master", "Authorization", "Bearer secret-token").Code)
	r := httptest.NewRequest(http.MethodGet, "/config/master", nil)
	r.RemoteAddr = "198.51.100.7:1"
	r.Header.Set("Authorization", "Bearer secret-token")
	w := httptest.NewRecorder()
	s.Handler().ServeHTTP(w, r)
	assert.Equal(t, http.StatusForbidden, w.Code)
	assert.Equal(t, http.StatusOK, get(t, s, "/healthz").Code)
}

func TestReloadSwapsAnswers(t *testing.T) {
	dir := t.TempDir()
	tree(t, dir, aFile)
	s, err := New(Options{BaseDir: dir})
	require.NoError(t, err)
	first := get(t, s, "/config/master", "Accept", accept35)
	tree(t, dir, `storage: {files: [{path: /etc/b, contents: {source: "data:,b"}}]}`)
	assert.Equal(t, first.Body.String(), get(t, s, "/config/master", "Accept", accept35).Body.String())
	s.Reload()
	assert.Contains(t, get(t, s, "/config/master", "Accept", accept35).Body.String(), "/etc/b")
	require.NoError(t, os.RemoveAll(filepath.Join(dir, render.ConfigsDir)))
	s.Reload()
	assert.Equal(t, http.StatusNotFound, get(t, s, "/config/master", "Accept", accept35).Code)
	require.NoError(t, os.WriteFile(filepath.Join(dir, render.PoolsDir, "master.yaml"), []byte("\t"), 0o600))
	s.Reload()
	assert.Equal(t, http.StatusInternalServerError, get(t, s, "/config/master", "Accept", accept35).Code)
}

func TestStartDemandsWhatIsNamed(t *testing.T) {
	_, err := New(Options{})
	require.ErrorContains(t, err, "BaseDir")
	_, err = New(Options{BaseDir: t.TempDir(), Kubeconfig: "/nowhere"})
	require.ErrorContains(t, err, "kubeconfig")
	_, err = New(Options{BaseDir: t.TempDir(), SecureListen: "127.0.0.1:0"})
	require.ErrorContains(t, err, "CertFile")
	_, err = New(Options{BaseDir: t.TempDir(), Files: map[string]string{"../x": "y"}})
	require.ErrorContains(t, err, "Files")
	_, err = New(Options{BaseDir: kubeconfig(t, t.TempDir())})
	require.ErrorContains(t, err, "a directory is wanted")
}

func TestLateDirectory(t *testing.T) {
	logger, said := logtest.NewNullLogger()
	later := filepath.Join(t.TempDir(), "later")
	s, err := New(Options{BaseDir: later, Log: logrus.NewEntry(logger)})
	require.NoError(t, err)
	require.Len(t, said.AllEntries(), 1)
	assert.Equal(t, logrus.WarnLevel, said.LastEntry().Level)
	assert.Equal(t, later, said.LastEntry().Data["directory"])
	assert.Equal(t, http.StatusNotFound, get(t, s, "/config/master").Code)
	tree(t, later, aFile)
	s.Reload()
	assert.Equal(t, "pool is served", said.LastEntry().Message)
	assert.Equal(t, http.StatusOK, get(t, s, "/config/master").Code)

	said.Reset()
	_, err = New(Options{BaseDir: later, Pools: []string{"worker"}, Log: logrus.NewEntry(logger)})
	require.NoError(t, err)
	require.Len(t, said.AllEntries(), 1, "a directory without a pool that is answered for")
	assert.Contains(t, said.LastEntry().Message, "there is no pool to serve")
}

func TestAnswersShareTheirBody(t *testing.T) {
	allocated := func(size int) float64 {
		s := newServer(t, fmt.Sprintf(`storage: {files: [{path: /etc/a, contents: {source: "data:,%s"}}]}`,
			strings.Repeat("a", size)), nil)
		r := httptest.NewRequest(http.MethodGet, "/config/master", nil)
		r.Header.Set("Accept", accept35)
		h := s.Handler()
		h.ServeHTTP(&nowhere{header: http.Header{}}, r)
		return testing.AllocsPerRun(100, func() { h.ServeHTTP(&nowhere{header: http.Header{}}, r) })
	}
	assert.InDelta(t, allocated(100), allocated(400_000), 1)
}

// nowhere is a response that goes nowhere.
type nowhere struct{ header http.Header }

func (n *nowhere) Header() http.Header         { return n.header }
func (n *nowhere) Write(p []byte) (int, error) { return len(p), nil }
func (n *nowhere) WriteHeader(int)             {}

func FuzzNegotiate(f *testing.F) {
	f.Add(accept35)
	f.Add("*/*;q=0.1, " + accept35 + ";q=x")
	f.Fuzz(func(t *testing.T, accept string) {
		got, err := negotiate(accept)
		if err == nil {
			assert.Contains(t, versions(), got)
		}
	})
}
