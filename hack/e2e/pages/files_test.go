package pages

import (
	"crypto/sha512"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/bcrypt"

	"dayone.dev/dayone/hack/baseimage"
	"dayone.dev/dayone/registry"
	"dayone.dev/dayone/registry/certs"
)

const (
	// password is that of the sample's Secrets, for accounts demo-push and demo-pull.
	password = "not-a-real-password"
	// installer plays openshift-install: what it makes of an install directory, as far as dayone looks at it.
	installer = `dir=${@: -1}
ignition='{"ignition":{"version":"3.2.0"},"storage":{"files":[{"path":"/usr/local/bin/bootstrap-in-place.sh","contents":{"source":"data:,"}}]},"systemd":{"units":[{"name":"progress.service"},{"name":"bootkube.service"},{"name":"install-to-disk.service"},{"name":"agent.service"}]}}'
case "$1 $2" in
"create manifests") mkdir -p $dir/manifests $dir/openshift; rm $dir/install-config.yaml ;;
"create ignition-configs")
	for f in master worker; do echo '{"ignition":{"version":"3.2.0"}}' >$dir/$f.ign; done
	echo "$ignition" >$dir/bootstrap.ign; rm -r $dir/manifests $dir/openshift ;;
"create single-node-ignition-config")
	echo "$ignition" >$dir/bootstrap-in-place-for-live-iso.ign; rm -r $dir/manifests $dir/openshift ;;
"agent create") rm -r $dir/install-config.yaml $dir/openshift; echo "$ignition" >$dir/agent.x86_64.iso ;;
*) exit 64 ;;
esac`
)

// startRegistry runs registry.example.com, with a base image and an image in two versions.
func (w *world) startRegistry() {
	w.Helper()
	var users strings.Builder
	for name, role := range map[string]registry.Role{"demo-push": registry.RolePush, "demo-pull": registry.RolePull} {
		hash, err := bcrypt.GenerateFromPassword([]byte(password), bcrypt.MinCost)
		require.NoError(w, err)
		fmt.Fprintf(&users, "%s:%s:%s\n", name, hash, role)
	}
	w.write(filepath.Join(w.home, "users"), users.String())
	hosted := filepath.Join(w.home, "hosted")
	s := w.start("dayone registry serve --root " + hosted + " --listen " + registryAddress + ":443 --host " +
		registryName + " --users " + filepath.Join(w.home, "users"))
	s.says(`(?m)^192\.0\.2\.20:443$`)
	w.trust(w.read(filepath.Join(hosted, "tls/ca.crt")))
	w.authFile(filepath.Join(w.home, ".docker/config.json"), "demo-push")
	for tag, kind := range map[string]baseimage.Kind{"ocp/base-os:1": baseimage.Shell, "os/worker:v1": baseimage.Shell,
		"os/worker:v2": baseimage.Tiny} {
		w.digests[tag] = w.must("dayone registry copy oci:" + w.layouts[kind] + " " + registryName + "/" + tag)
	}
}

// image copies a base image to where a page has it, with a reference if the page names one.
func image(at string) func(w *world) {
	return func(w *world) {
		w.Helper()
		dir, _, _ := strings.Cut(at, ":")
		w.must("rm -rf " + dir + "; mkdir -p $(dirname " + dir + "); dayone registry copy oci:" +
			w.layouts[baseimage.Shell] + " oci:" + at)
	}
}

// all does one after the other.
func all(steps ...func(w *world)) func(w *world) {
	return func(w *world) {
		w.Helper()
		for _, step := range steps {
			step(w)
		}
	}
}

// has runs a line that gives the reader what he has before.
func has(line string) func(w *world) {
	return func(w *world) {
		w.Helper()
		w.must(line)
	}
}

// authFile writes the credentials of registry.example.com.
func (w *world) authFile(name, account string) {
	w.Helper()
	u := registry.User{Name: account, Password: password}
	require.NoError(w, os.MkdirAll(filepath.Dir(w.file(name)), 0o700))
	require.NoError(w, u.WriteAuthFile(w.file(name), registryName))
}

// credentials are the user's files of the pages.
func credentials(w *world) {
	w.Helper()
	w.authFile("push-secret.json", "demo-push")
	w.authFile("pull-secret.json", "demo-pull")
	w.authFile("auth.json", "demo-pull")
	w.write("ca.crt", w.read(filepath.Join(w.home, "trusted.pem")))
}

// digest is that of a tag of registry.example.com.
func (w *world) digest(tag string) string {
	w.Helper()
	require.NotEmpty(w, w.digests[tag], tag)
	return w.digests[tag]
}

// digestOf fills in the digest of a tag.
func digestOf(tag string) func(w *world) []string {
	return func(w *world) []string {
		w.Helper()
		d := w.digest(tag)
		return []string{"sha256:DIGEST", d, "sha256:HEX", d, "sha256:…", d}
	}
}

// get asks a server with a certificate of an authority for an answer.
func (w *world) get(s *server, url, ca string, status int, header ...string) {
	w.Helper()
	s.until(func() bool { _, err := os.Stat(w.file(ca)); return err == nil }, ca)
	pool := x509.NewCertPool()
	require.True(w, pool.AppendCertsFromPEM([]byte(w.read(ca))))
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true,
		TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}}}
	var last string
	s.until(func() bool {
		q, err := http.NewRequestWithContext(w.Context(), http.MethodGet, url, nil)
		require.NoError(w, err)
		for i := 0; i < len(header); i += 2 {
			q.Header.Set(header[i], header[i+1])
		}
		answer, err := client.Do(q)
		if err != nil {
			last = err.Error()
			return false
		}
		last = answer.Status
		return assert.NoError(w, answer.Body.Close()) && answer.StatusCode == status
	}, url+": "+last)
}

// serverCertificate makes server.crt and server.key of the bootstrap host, and its authority's certificate.
func serverCertificate(w *world) {
	w.Helper()
	ca, err := certs.NewCA(certs.CAOptions{})
	require.NoError(w, err)
	pair, err := ca.ServerCertificate([]string{bootstrapHost}, certs.ServerOptions{})
	require.NoError(w, err)
	require.NoError(w, certs.WriteKeyPair(pair, w.file("server.crt"), w.file("server.key")))
	w.write("server-ca.crt", string(ca.CertificatePEM()))
}

// kubeconfig names a cluster that nobody asks.
const kubeconfig = `apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "https://api.lab.example.com:6443"}}]
contexts: [{name: c, context: {cluster: c, user: u}}]
users: [{name: u, user: {token: t}}]
current-context: c
`

// sum512 is the checksum of a file.
func (w *world) sum512(name string) string {
	sum := sha512.Sum512([]byte(w.read(name)))
	return hex.EncodeToString(sum[:])
}
