package upstream_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	ign35 "github.com/coreos/ignition/v2/config/v3_5/types"
	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/bootstrap/phasetest"
	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/machineconfig"
	"dayone.dev/dayone/registry/certs"
)

// patience is for a busy machine.
const patience = 2 * time.Minute

// annotationsFile is where a server tells a node what it has.
const annotationsFile = "/etc/machine-config-daemon/node-annotations.json"

// kubeconfig is what nodes get to join with.
const kubeconfig = `apiVersion: v1
kind: Config
clusters: [{name: local, cluster: {server: "https://api-int.demo.example.com:6443", certificate-authority-data: Y2E=}}]
contexts: [{name: kubelet, context: {cluster: local, user: kubelet}}]
current-context: kubelet
users: [{name: kubelet, user: {token: not-real}}]
`

// accepts are the headers with which clients ask, in the forms that HTTP allows and in some that it does not.
func accepts() []string {
	const media = "application/vnd.coreos.ignition+json"
	list := []string{"", "*/*", media, media + ";", media + "; version=", media + ";version=x", media + ";version=3",
		media + ";version=3.2.0, */*;q=0.1", media + "; version=2.4.0, " + media + "; version=1; q=0.5, */*; q=0.1",
		media + ";version=3.1.0;q=0.1, " + media + ";version=3.4.0;q=0.9", "text/html", "nonsense", ",,", ";",
		media + ";version=3.2.0;version=3.4.0", media + ";version=x;version=3.4.0", media + " ; version=3.3.0",
		media + "; version =3.3.0", media + "; version= 3.3.0", media + ";version=3.3.0 ", media + ";VERSION=3.3.0",
		"Application/Vnd.Coreos.Ignition+Json;version=3.3.0", "x/vnd.coreos.ignition+json;version=3.3.0",
		media + `;version="3.3.0"`, media + ";version=3.3.0;q=x",
		media + ";version=3.3.0;q=0, " + media + ";version=3.1.0;q=0",
		media + ";q=0.5;version=3.1.0;q=0.9, " + media + ";version=3.4.0;q=0.7", media + ";version=v3.3.0",
		media + ";version=3.3.0-rc1", media + ";version=3.3.0+b", media + ";version=3.3.7", media + "/x;version=3.3.0",
		strings.Repeat("a/b,", 20) + media + ";version=3.3.0"}
	for _, v := range []string{"1.0.0", "2.0.0", "2.1.0", "2.2.0", "2.3.0", "2.9.0", "3.1.0", "3.2.0", "3.3.0", "3.4.0",
		"3.5.0", "3.6.0", "3.99.0", "4.0.0", "0.0.0"} {
		list = append(list, media+";version="+v)
	}
	return list
}

// question is one request to both servers.
type question struct{ method, path, accept string }

func questions() []question {
	var list []question
	for _, a := range accepts() {
		list = append(list, question{http.MethodGet, "/config/master", a}, question{http.MethodHead, "/config/master", a})
	}
	for _, path := range []string{"/config/master", "/config/worker", "/config/infra", "/config/arbiter", "/config/none",
		"/config/a/b/master", "/config/", "/config", "/config/master/", "/config/%6daster", "/config//master",
		"/", "/healthz", "/healthz/", "/x", "/config/master?a=b"} {
		for _, method := range []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut,
			http.MethodOptions} {
			list = append(list, question{method, path, ""})
		}
	}
	return list
}

// answer is what decides about a client.
type answer struct {
	status int
	kind   string
	body   []byte
}

// ask sends the path as it stands and follows redirects, as Ignition does.
func ask(t *testing.T, server string, q question) answer {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), q.method, server+q.path, nil)
	require.NoError(t, err)
	if q.accept != "" {
		request.Header.Set("Accept", q.accept)
	}
	client := http.Client{Timeout: patience}
	response, err := client.Do(request)
	require.NoError(t, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return answer{status: response.StatusCode, kind: response.Header.Get("Content-Type"), body: body}
}

// withoutImages takes the node's images out of a config: dayone's server adds them to what the real one tells.
func withoutImages(t *testing.T, body []byte) []byte {
	t.Helper()
	var config map[string]any
	if json.Unmarshal(body, &config) != nil {
		return body
	}
	storage, _ := config["storage"].(map[string]any)
	files, _ := storage["files"].([]any)
	for _, f := range files {
		file, _ := f.(map[string]any)
		contents, _ := file["contents"].(map[string]any)
		if source, ok := contents["source"].(string); ok && file["path"] == annotationsFile {
			raw, err := machineconfig.Contents(ign35.Resource{Source: &source})
			require.NoError(t, err)
			notes := map[string]any{}
			require.NoError(t, json.Unmarshal(raw, &notes))
			delete(notes, manifests.AnnotationCurrentImage)
			delete(notes, manifests.AnnotationDesiredImage)
			contents["source"] = notes
		}
	}
	out, err := json.Marshal(config)
	require.NoError(t, err)
	return out
}

// servers are the real one and dayone's over one directory.
func (m mco) servers(t *testing.T, dest string) (theirs, ours string) {
	t.Helper()
	dir := t.TempDir()
	file := text(t, filepath.Join(dir, "kubeconfig"), kubeconfig)
	ca, err := certs.NewCA(certs.CAOptions{})
	require.NoError(t, err)
	pair, err := ca.ServerCertificate([]string{"localhost"}, certs.ServerOptions{})
	require.NoError(t, err)
	cert, key := filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	require.NoError(t, certs.WriteKeyPair(pair, cert, key))
	// The real server looks for it below its directory.
	registryCA := text(t, filepath.Join(dest, "registry.crt"), authority(t))
	start := func(port int, cmd *exec.Cmd) string {
		var out bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &out
		require.NoError(t, cmd.Start())
		t.Cleanup(func() {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
			if t.Failed() {
				t.Logf("%s:\n%s", cmd.Path, lastLines(out.String()))
			}
		})
		url := fmt.Sprintf("http://127.0.0.1:%d", port)
		require.Eventually(t, func() bool {
			response, err := http.Get(url + "/healthz")
			if err == nil {
				_ = response.Body.Close()
			}
			return err == nil
		}, patience, 50*time.Millisecond, cmd.Path)
		return url
	}
	secure, plain, other := phasetest.FreePort(t), phasetest.FreePort(t), phasetest.FreePort(t)
	at := func(secure, plain int, registryCA string) []string {
		return []string{"--secure-port", fmt.Sprint(secure), "--insecure-port", fmt.Sprint(plain), "--server-basedir", dest,
			"--bootstrap-kubeconfig", file, "--cert", cert, "--key", key,
			"--bootstrap-certs", "registry.example.com:5000=" + registryCA}
	}
	theirs = start(plain, m.command(t, "machine-config-server", append([]string{"bootstrap"},
		at(secure, plain, filepath.Base(registryCA))...)...))
	ours = start(other, exec.CommandContext(t.Context(), run.program(t),
		append([]string{"serve", "--bind", "127.0.0.1"}, at(phasetest.FreePort(t), other, registryCA)...)...))
	return theirs, ours
}

// TestServedConfigs asks the real server and dayone's the same, over what the real controller rendered with layered
// pools.
func TestServedConfigs(t *testing.T) {
	m := run.mco(t)
	asked := 0
	run.record(t, func() string { return fmt.Sprintf("%d requests: status, type and body", asked) })
	b := m.operator(t, arrangement{name: "none", platform: configv1.PlatformStatus{Type: configv1.NonePlatformType}})
	dest, out, err := m.controller(t, b.with(t, users()))
	require.NoError(t, err, out)
	theirs, ours := m.servers(t, dest)
	for _, q := range questions() {
		want, got := ask(t, theirs, q), ask(t, ours, q)
		at := fmt.Sprintf("%s %s %q", q.method, q.path, q.accept)
		assert.Equal(t, want.status, got.status, at)
		if want.status == http.StatusOK && got.status == http.StatusOK {
			assert.Equal(t, want.kind, got.kind, at)
			assert.Equal(t, string(withoutImages(t, want.body)), string(withoutImages(t, got.body)), at)
		}
		asked++
	}
}
