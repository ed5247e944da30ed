package main

import (
	"strings"

	"github.com/spf13/cobra"
)

// examples are those of the help pages, by the path of the command. They are in one place so that one test runs them in
// their order, in one directory: the later ones read what the earlier ones wrote.
var examples = []struct{ command, text string }{
	{"version", `dayone version -o json`},
	{"schema", `
dayone schema >install-config.schema.json
dayone schema plan`},
	{"sample", `
dayone sample --dir cluster
dayone sample --dir openshift-cluster --flow openshift`},
	{"prepare", `
dayone prepare --dir cluster
dayone prepare --dir cluster --check-registry`},
	{"manifests", `dayone manifests --dir cluster`},
	{"plan", `
dayone plan --dir cluster
# What would the changed directory do to the cluster that it installed?
dayone plan --dir cluster --from installed --exit-code`},
	{"build", `
dayone build --dir cluster --pool master --base oci:base
dayone build --dir cluster --pool master --push`},
	{"build lint", `dayone build lint cluster/layering/master.yaml`},
	{"bootstrap", `
dayone bootstrap --dir cluster --base oci:base
# As a service of systemd.
dayone bootstrap --dir cluster --print-unit >dayone.service
# Serve until the cluster has everything, then end.
dayone bootstrap --dir cluster --kubeconfig admin.kubeconfig`},
	{"bootstrap hold", `dayone bootstrap hold`},
	{"bootstrap carry", `
dayone bootstrap carry --to /run/dayone-disk \
  --ignition /opt/openshift/master.ign`},
	{"ignition", `
dayone ignition --dir openshift-cluster \
  --program-url https://files.example.com/dayone --program-sha512 HEX
dayone ignition --dir openshift-cluster --remove`},
	{"status", `
dayone status
dayone status --watch --nodes
dayone status --url https://192.0.2.10:9501 --ca ca.crt \
  --token-file status.token -o json`},
	{"handover", `dayone handover --kubeconfig admin.kubeconfig`},
	{"render", `
dayone render --manifest-dir manifests --dest-dir rendered
# Where does each part come from?
dayone render --manifest-dir manifests --explain`},
	{"render diff", `
dayone render diff rendered/machine-configs/rendered-master-HASH.yaml \
  changed/machine-configs/rendered-master-HASH.yaml`},
	{"render parity", `dayone render parity --cluster dump --bootstrap rendered`},
	{"serve", `
dayone serve --server-basedir rendered \
  --bootstrap-kubeconfig admin.kubeconfig \
  --cert server.crt --key server.key`},
	{"gather", `
dayone gather --dir cluster
dayone gather --host core@192.0.2.10
dayone gather --cluster --kubeconfig admin.kubeconfig --out bundles`},
	{"analyze", `
dayone analyze log-bundle-20260102100000.tar.gz
dayone analyze log-bundle-20260102100000.tar.gz --html report.html`},
	{"registry serve", `
dayone registry serve --root /var/lib/registry --listen 192.0.2.10:5000
# Fetch from another registry what this one lacks.
dayone registry serve --root /var/lib/cache --listen 192.0.2.10:5000 \
  --upstream registry.example.com --upstream-authfile pull-secret.json`},
	{"registry copy", `
dayone registry copy oci:base registry.example.com/os/base:v1 \
  --dest-authfile push-secret.json`},
	{"registry ls", `dayone registry ls --root /var/lib/registry`},
	{"registry du", `dayone registry du --root /var/lib/registry -o json`},
	{"registry status", `dayone registry status --root /var/lib/registry`},
	{"registry verify", `dayone registry verify --root /var/lib/registry`},
	{"registry gc", `dayone registry gc --root /var/lib/registry`},
	{"registry rm", `dayone registry rm --root /var/lib/registry os/base@sha256:DIGEST`},
	{"registry node-config", `
dayone registry node-config --registry api-int.lab.example.com:22626 \
  --to registry-files`},
	{"sbom", `
dayone sbom registry.example.com/os/worker@sha256:DIGEST >worker.spdx.json
dayone sbom oci:os-image --format cyclonedx`},
	{"diff", `
dayone diff registry.example.com/os/worker:v1 \
  registry.example.com/os/worker:v2`},
	{"keygen", `dayone keygen keys`},
	{"sign", `
dayone sign registry.example.com/os/worker@sha256:DIGEST \
  --key keys/cosign.key --passphrase-file keys/cosign.passphrase`},
	{"verify", `
dayone verify registry.example.com/os/worker@sha256:DIGEST \
  --key keys/cosign.pub -o json
# Is it what the pool wants, by the cluster's own keys?
dayone verify registry.example.com/ocp/master-os:latest --pool master`},
	{"cluster install", `
dayone cluster install --image registry.example.com/dayone/all@sha256:DIGEST
# What would it apply?
dayone cluster install --dry-run -o yaml \
  --image registry.example.com/dayone/all:v1
# Roll out and build here what the Machine Config Operator did until now.
dayone cluster install --take-over --node-agent \
  --image registry.example.com/dayone/all@sha256:DIGEST`},
	{"cluster upgrade", `
dayone cluster upgrade --image registry.example.com/dayone/all@sha256:DIGEST`},
	{"cluster manifests", `
dayone cluster manifests --kustomize dayone-base \
  --image registry.example.com/dayone/all:v1`},
	{"cluster status", `
dayone cluster status
# Go on, and show what each node does.
dayone cluster status --nodes --watch`},
	{"cluster logs", `
dayone cluster logs worker --follow
dayone cluster logs worker --build worker-HASH`},
	{"cluster plan", `
# What happens next?
dayone cluster plan
# What would these files do, and this deletion?
dayone cluster plan -f 50-app.yaml --delete machineconfig/50-old --exit-code
# The same without a cluster: from must-gather, or kubectl get -o json.
dayone cluster plan --from dump -f 50-app.yaml`},
	{"cluster why", `
dayone cluster why worker-0
dayone cluster why worker -o json`},
	{"cluster policies", `dayone cluster policies --from dump`},
	{"cluster registry status", `dayone cluster registry status`},
	{"cluster registry rotate", `
# An account of the workers has leaked.
dayone cluster registry rotate --pool worker --wait
dayone cluster registry rotate --all`},
	{"cluster registry rotate-ca", `
dayone cluster registry rotate-ca --wait
# The rotation that runs is not to wait for a node that is gone for long.
dayone cluster registry rotate-ca --without worker-7`},
	{"cluster registry add", `
dayone cluster registry add \
  oci:images:dayone-controller dayone/dayone-controller \
  --ca registry-files/ca.crt --authfile registry-files/push-auth.json \
  --pull-authfile registry-files/pull-auth.json`},
	{"cluster registry export", `
dayone cluster registry export --to registry-copy \
  --ca registry-files/ca.crt --authfile registry-files/pull-auth.json`},
	{"cluster file agent-unit", `dayone cluster file agent-unit >dayone-agent.service`},
	{"cluster file kubelet-agent-rights", `
dayone cluster file kubelet-agent-rights | kubectl apply -f -`},
	{"cluster file seccomp-profile", `dayone cluster file seccomp-profile >dayone-build.json`},
	{"cluster uninstall", `dayone cluster uninstall --yes`},
}

// addExamples gives the commands below root their examples. Kubectl's plugin has those of dayone cluster only.
func addExamples(root *cobra.Command, plugin bool) {
	for _, e := range examples {
		path, text := e.command, e.text
		if plugin {
			below, of := strings.CutPrefix(path, "cluster ")
			if !of && path != "version" {
				continue
			}
			path = below
			text = strings.ReplaceAll(strings.ReplaceAll(text, "dayone cluster ", "dayone "), "dayone ", "kubectl dayone ")
		}
		if cmd, _, err := root.Find(strings.Fields(path)); err == nil {
			cmd.Example = "  " + strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n  ")
		}
	}
}
