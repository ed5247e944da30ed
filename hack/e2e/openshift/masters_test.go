package openshift_test

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"dayone.dev/dayone/manifests/machineconfig"
	"dayone.dev/dayone/registry/credentials"
)

// ownPort is where the masters' registries listen.
const ownPort = "22626"

// masterAddress is that of a master, on the host beside the bootstrap node; the first has the host's own.
func (w *world) masterAddress(i int) string {
	return strings.TrimSuffix(w.host, "1") + fmt.Sprint(i+1)
}

// keepsItself turns the story's install directory into one that names no registry: the masters keep the images.
func (w *world) keepsItself(dir string) {
	t := w.t
	for _, file := range []string{"master.yaml", "worker.yaml"} {
		require.NoError(t, os.Remove(filepath.Join(dir, "layering", file)))
	}
	replace := func(file string, pairs ...string) {
		raw, err := os.ReadFile(filepath.Join(dir, file))
		require.NoError(t, err)
		text := strings.NewReplacer(pairs...).Replace(string(raw))
		require.NotEqual(t, string(raw), text, file)
		require.NoError(t, os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600))
	}
	replace("layering/infra.yaml", "registry.example.com", ownRegistry, "os-push", "dayone-registry-push",
		"  baseImagePullSecret:\n    name: base-pull\n", "")
	replace("install-config.yaml", "  - name: master\n  - name: worker\n", `  - name: master
    containerfile: |
      FROM configs
      COPY --from=`+w.mco+` /usr/bin/dayone-registry /usr/bin/dayone-registry
      RUN echo built > /usr/share/demo-built-by-run.txt
  - name: worker
    containerfile: |
      FROM configs
      RUN test -s /etc/yum.repos.d/a.repo && echo workers are built by the cluster > /usr/share/demo-worker.txt
`)
}

// inMaster gives what a master has when it has booted: the files of the config that MCO has rendered, below dir, and
// the program that its image, an OCI layout, brings.
func (w *world) inMaster(image, dir string) (program string) {
	t := w.t
	raw, err := w.sh("cat /etc/mcs/bootstrap/machine-configs/" + w.rendered() + ".yaml")
	require.NoError(t, err)
	var rendered mcfgv1.MachineConfig
	require.NoError(t, yaml.Unmarshal([]byte(raw), &rendered))
	config, err := machineconfig.ParseRendered(rendered.Spec.Config.Raw)
	require.NoError(t, err)
	units := 0
	for _, u := range config.Systemd.Units {
		if u.Name == "dayone-registry.service" && u.Enabled != nil && *u.Enabled {
			units++
		}
	}
	require.Equal(t, 1, units)
	for _, f := range config.Storage.Files {
		if !strings.HasPrefix(f.Path, "/etc/dayone/") && !strings.HasPrefix(f.Path, "/etc/containers/") {
			continue
		}
		content, err := machineconfig.Contents(f.Contents)
		require.NoError(t, err)
		require.NoError(t, os.MkdirAll(filepath.Join(dir, path.Dir(f.Path)), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(dir, f.Path), content, fs.FileMode(*f.Mode)))
	}
	program = filepath.Join(dir, "dayone-registry")
	w.extract(image, "usr/bin/dayone-registry", program)
	return program
}

// extract takes a program out of an image.
func (w *world) extract(image, name, to string) {
	t := w.t
	index, err := layout.ImageIndexFromPath(image)
	require.NoError(t, err)
	manifest, err := index.IndexManifest()
	require.NoError(t, err)
	require.Len(t, manifest.Manifests, 1)
	img, err := index.Image(manifest.Manifests[0].Digest)
	require.NoError(t, err)
	content := mutate.Extract(img)
	defer content.Close() //nolint:errcheck // it was read
	for files := tar.NewReader(content); ; {
		h, err := files.Next()
		require.False(t, errors.Is(err, io.EOF), "%s is not in the image", name)
		require.NoError(t, err)
		if strings.TrimPrefix(h.Name, "/") != name {
			continue
		}
		out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY, 0o755)
		require.NoError(t, err)
		_, err = io.Copy(out, files)
		require.NoError(t, errors.Join(err, out.Close()))
		return
	}
}

// besides is how many masters there are beside the bootstrap node.
func (w *world) besides() int {
	if w.agent { // it becomes the last one
		return masters - 1
	}
	return masters
}

// mastersHaveAddresses lets the masters be ready at their addresses, and the registries' program be on them.
func (w *world) mastersHaveAddresses() (program, etc string) {
	t, dir := w.t, w.t.TempDir()
	program = w.inMaster(w.pulled, dir)
	for i := range w.besides() {
		if i > 0 {
			out, err := w.lab.Network.Command(t.Context(), "ip", "address", "add", w.masterAddress(i)+"/24", "dev",
				"br0").CombinedOutput()
			require.NoError(t, err, string(out))
		}
		w.operator.Address(t, fmt.Sprintf("master-%d", i), w.masterAddress(i))
	}
	return program, filepath.Join(dir, "etc/dayone/registry")
}

// startMaster starts a master's registry as its unit does, with nothing in it.
func (w *world) startMaster(i int, program, etc string) {
	t, dir := w.t, filepath.Join(w.t.TempDir(), "master")
	// it is killed in the end: it keeps what it has answered
	w.keeps(w.lab.Network.Command(t.Context(), program, "--listen="+w.masterAddress(i)+":"+ownPort,
		"--host="+strings.TrimSuffix(ownRegistry, ":"+ownPort), "--config="+etc, "--root="+filepath.Join(dir, "registry"),
		"--state="+filepath.Join(dir, "replica"), "--peers="+filepath.Join(dir, "peers.json"),
		"--node="+fmt.Sprintf("master-%d", i), "--min-free=0"))
}

// mastersHold pulls the masters' image from each master's registry, as a node with the cluster's pull secret does; the
// embedded registry has let nobody in any more.
func (w *world) mastersHold(image, etc string) {
	t := w.t
	name, digest, _ := strings.Cut(image, "@")
	auth, err := os.ReadFile(filepath.Join(etc, "pull-auth.json"))
	require.NoError(t, err)
	accounts, err := credentials.Parse(auth)
	require.NoError(t, err)
	account, found, err := accounts.Find(ownRegistry)
	require.NoError(t, err)
	require.True(t, found)
	for i := range w.besides() {
		dir, at := t.TempDir(), w.masterAddress(i)+":"+ownPort
		auth, err := credentials.Encode(account, at)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(dir, "auth.json"), auth, 0o600))
		out, err := w.lab.Network.Command(t.Context(), w.bin, "registry", "copy",
			"docker://"+at+strings.TrimPrefix(name, ownRegistry)+"@"+digest, "oci:"+filepath.Join(dir, "image"),
			"--src-ca", filepath.Join(etc, "ca.crt"), "--src-authfile", filepath.Join(dir, "auth.json")).CombinedOutput()
		assert.NoError(t, err, "master-%d: %s", i, out)
	}
}
