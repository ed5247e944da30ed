package pages

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/hack/baseimage"
)

// chapter is what is done in one directory, in its order.
type chapter struct {
	name string
	// goesOn: in the directory of the one before.
	goesOn bool
	before func(w *world)
	acts   []act
	after  func(w *world)
}

// chapters are all that readers do.
func chapters() []chapter {
	return []chapter{
		{name: "for scripts", acts: []act{
			{page: "docs/users/scripting.md", begins: "dayone sample"},
			{page: "docs/users/scripting.md", begins: "dayone prepare", hows: []how{{code: 3}},
				before: func(w *world) { w.change("cluster/install-config.yaml", "  flow:", "  flwo:") }},
		}},
		{name: "getting started", acts: []act{
			{page: "docs/users/getting-started.md", begins: "dayone sample"},
			{page: "docs/users/getting-started.md", begins: "dayone build lint"},
			{page: "docs/users/getting-started.md", begins: "dayone manifests"},
			{page: "docs/users/getting-started.md", begins: "dayone plan"},
			{page: "docs/users/getting-started.md", begins: "sudo dayone build"},
			{page: "docs/users/containerfile.md", begins: "dayone build lint",
				before: has("cp cluster/.dayone/layering/worker.yaml . || cp cluster/layering/worker.yaml .")},
		}},
		checkoutChapter(), registryChapter(), imagesChapter(), renderChapter(), openshiftChapter(), day1Chapter(),
		clusterChapter(), modesChapter(),
	}
}

// registryChapter is a registry on the bootstrap host.
func registryChapter() chapter {
	const page = "docs/operators/registry.md"
	answers := func(address, ca string) func(w *world, s *server) {
		return func(w *world, s *server) { w.get(s, "https://"+address+"/v2/", ca, 401) }
	}
	pull := func(w *world, s *server) {
		answers(bootstrapHost+":5000", "/var/lib/cache/tls/ca.crt")(w, s)
		w.must("dayone registry copy " + bootstrapHost + ":5000/os/worker:v1 oci:pulled --src-ca " +
			"/var/lib/cache/tls/ca.crt --src-authfile /var/lib/cache/accounts/pull-auth.json")
	}
	fill := func(w *world, s *server) {
		answers(bootstrapHost+":5000", "/var/lib/registry/tls/ca.crt")(w, s)
		w.must("dayone registry copy oci:base " + bootstrapHost + ":5000/os/base:v1 --dest-ca /var/lib/registry/tls/ca.crt " +
			"--dest-authfile /var/lib/registry/accounts/push-auth.json")
	}
	return chapter{name: "a registry", before: all(image("base"), credentials), acts: []act{
		{command: "registry serve", hows: []how{{begins: "dayone registry serve --root /var/lib/registry", serves: fill},
			{begins: "dayone registry serve --root /var/lib/cache", serves: pull}}},
		{command: "registry copy", hows: []how{{says: "sha256:[0-9a-f]{64}"}}},
		{command: "registry ls", hows: []how{{says: "os/base"}}},
		{command: "registry du", hows: []how{{says: `"total"`}}},
		{command: "registry status", before: keepsServing, after: func(w *world) { w.registry.ends(0) }},
		{command: "registry verify"},
		{command: "registry gc"},
		{command: "registry rm", hows: []how{{fill: digestOf("os/worker:v1")}}},
		{command: "registry node-config"},
		{page: page, begins: "dayone registry serve --root /var/lib/dayone/registry", before: image("/srv/base:v1"),
			hows: []how{{begins: "dayone registry serve", stays: true,
				serves: answers("192.168.77.1:5000", "/var/lib/dayone/registry/tls/ca.crt")}}},
		{page: page, begins: "dayone registry serve --root /var/lib/dayone/cache", hows: []how{
			{serves: answers("192.168.77.1:5000", "/var/lib/dayone/cache/tls/ca.crt")}}},
		{page: "docs/operators/registry-backup.md", begins: "dayone registry verify --root ROOT  ",
			before: has("cp -a /var/lib/dayone/registry ROOT")},
		{page: "docs/operators/registry-backup.md", begins: "rsync"},
		{page: "docs/operators/registry-backup.md", begins: "dayone registry verify --root ROOT --repair-from"},
		{page: "docs/operators/registry-in-cluster.md", begins: "dayone registry node-config --registry " +
			planeRegistry + ":22626 --to registry-files$"},
	}}
}

// imagesChapter is about images in a registry.
func imagesChapter() chapter {
	worker := digestOf("os/worker:v1")
	return chapter{name: "images", before: all(image("os-image"), image("/srv/worker"), credentials), acts: []act{
		{command: "sbom", hows: []how{{begins: "dayone sbom registry", fill: worker}}},
		{page: "docs/users/image-contents.md", begins: "dayone sbom", hows: []how{{begins: "dayone sbom registry",
			fill: worker}}},
		{command: "diff", hows: []how{{says: "; files: "}}},
		{page: "docs/users/image-contents.md", begins: "dayone diff", hows: []how{{says: "; files: "}}},
		{command: "keygen"},
		{command: "sign", hows: []how{{fill: worker}}},
		{command: "verify", begins: "dayone verify registry.example.com/os/worker", hows: []how{
			{fill: worker, says: `"ok": true`}}},
		{page: "docs/operators/signing.md", begins: "dayone sign", before: has("cp keys/* . && dayone registry copy " +
			"registry.example.com/os/worker:v1 registry.example.com/os/worker:latest"),
			hows: []how{{begins: "dayone sign", fill: worker}}},
	}}
}

// releaseImages makes the images of a release, which are this one here.
func releaseImages(w *world) {
	w.Helper()
	for _, name := range []string{"dayone-controller", "machine-os-builder", "dayone-daemon"} {
		w.must("dayone registry copy oci:" + w.layouts[baseimage.Shell] + " oci:images:" + name)
	}
}

// renderChapter is rendering without a bootstrap.
func renderChapter() chapter {
	config := func(dir string) string { return dir + "/machine-configs/rendered-master-HASH.yaml" }
	hashes := func(w *world) []string {
		var pairs []string
		for _, dir := range []string{"rendered", "changed"} {
			pairs = append(pairs, config(dir), w.glob(dir+"/machine-configs/rendered-master-*.yaml"))
		}
		return pairs
	}
	serves := func(port string) func(w *world, s *server) {
		return func(w *world, s *server) {
			w.get(s, "https://"+bootstrapHost+":"+port+"/config/master", "server-ca.crt", 200, "Accept",
				"application/vnd.coreos.ignition+json;version=3.5.0", "User-Agent", "Ignition/2.20.0")
		}
	}
	const page = "docs/users/rendering.md"
	return chapter{name: "rendering", before: all(renderInput("manifests", "0.0.1-snapshot", `""`),
		renderInput("IN", "RELEASE", "RAW"), serverCertificate), acts: []act{
		{command: "render"},
		{command: "render diff", hows: []how{{code: 1, fill: hashes, says: "data:,2|\\+2"}}, before: has(
			"cp -r manifests manifests2; sed -i s/data:,1/data:,2/ manifests2/*; " +
				"dayone render --manifest-dir manifests2 --dest-dir changed")},
		{command: "serve", hows: []how{{serves: serves("22623")}},
			before: func(w *world) { w.write("admin.kubeconfig", kubeconfig) }},
		{page: "docs/operators/config-server.md", begins: "dayone serve", hows: []how{{serves: serves("22623"),
			fill: func(*world) []string {
				return []string{"DIR", "rendered", "ADDR", bootstrapHost, "CRT", "server.crt", "KEY", "server.key", "FILE",
					"admin.kubeconfig"}
			}}}},
		{page: page, begins: "dayone render --manifest-dir IN"},
		{page: page, begins: "dayone render diff", before: has("cp OUT/machine-configs/rendered-*.yaml A; cp A B; " +
			"mkdir DUMP; cp OUT/machine-*/*.yaml DUMP; cp -r OUT DIR")},
	}}
}

// renderInput is a case of the renderer's own tests, for other versions.
func renderInput(dir, release, raw string) func(w *world) {
	return func(w *world) {
		w.Helper()
		text := w.read(w.source("manifests/render/testdata/a-layered-pool/in/a.yaml"))
		text = strings.Replace(text, "version: 1.0.0", "version: "+release, 1)
		w.write(dir+"/a.yaml", strings.Replace(text, "generated-by-version: v1", "generated-by-version: "+raw, 1))
	}
}

// source is a file of this repository.
func (w *world) source(name string) string {
	w.Helper()
	full, err := filepath.Abs(filepath.Join(root, name))
	require.NoError(w, err)
	return full
}

// keepsServing starts the registry once more, which goes on.
func keepsServing(w *world) {
	w.registry = w.start("dayone registry serve --root /var/lib/registry --listen " + bootstrapHost + ":5000")
	w.registry.says(`:5000`)
}

// ownRegistry is an install-config.yaml without another registry than the masters', for so many of them.
const ownRegistry = `apiVersion: v1
baseDomain: example.com
metadata: {name: demo}
controlPlane: {name: master, replicas: %d}
compute: [{name: worker, replicas: 0}]
platform: {none: {}}
onClusterLayering:
  flow: openshift
  registry: {type: cluster}
  pools:
  - name: master
    containerfile: |
      FROM configs
      COPY --from=registry.example.com/dayone/dayone-registry /usr/bin/dayone-registry /usr/bin/dayone-registry
pullSecret: '{"auths":{"registry.example.com":{"auth":"ZGVtby1wdWxsOm5vdC1hLXJlYWwtcGFzc3dvcmQ="}}}'
`

// openshiftChapter is the way beside openshift-install.
func openshiftChapter() chapter {
	const page = "docs/users/day1-openshift.md"
	fresh := func(more string) func(w *world) {
		return has("rm -rf cluster; dayone sample --dir cluster --flow openshift; " + more)
	}
	program := func(w *world) []string { return []string{"sha256:…", w.digest("os/worker:v1")} }
	masters := func(config string) func(w *world) {
		return func(w *world) { w.write("cluster/install-config.yaml", config) }
	}
	return chapter{name: "openshift", before: has("cp /usr/local/bin/dayone ."), acts: []act{
		{command: "ignition", before: has("dayone sample --dir openshift-cluster --flow openshift; " +
			"dayone prepare --dir openshift-cluster; openshift-install create manifests --dir openshift-cluster; " +
			"dayone manifests --dir openshift-cluster; openshift-install create ignition-configs --dir openshift-cluster"),
			hows: []how{{begins: "dayone ignition --dir openshift-cluster --remove", says: "is as it was"},
				{begins: "dayone ignition", says: "patched",
					fill: func(w *world) []string { return []string{"HEX", w.sum512("dayone")} }}}},
		{page: page, begins: "openshift-install create ignition-configs", before: fresh("true")},
		{page: page, begins: "dayone ignition --dir cluster --program-url", hows: []how{
			{begins: "dayone ignition --dir cluster --program-image", fill: program, says: "patched"},
			{begins: "dayone ignition --dir cluster --program-url", says: "patched"}}},
		{page: page, begins: "openshift-install create single-node", before: all(fresh("rm -r cluster/layering"),
			masters(fmt.Sprintf(ownRegistry, 1)+"bootstrapInPlace: {installationDisk: /dev/sda}\n")),
			hows: []how{{begins: "dayone ignition", fill: program, says: "patched"}}},
		{page: page, begins: "openshift-install agent", before: all(
			fresh("rm -r cluster/layering; touch cluster/agent-config.yaml"), masters(fmt.Sprintf(ownRegistry, 3))),
			hows: []how{{begins: "dayone ignition", fill: program, says: "patched"}}},
	}}
}
