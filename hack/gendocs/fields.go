package main

import (
	"bytes"
	"fmt"
	"strings"

	"dayone.dev/dayone/installconfig"
)

const fieldsHeading = `
## The installer's fields

In the openshift flow openshift-install and MCO honour every field of install-config.yaml; dayone checks some of them
before anything starts. In the standalone flow dayone brings them to the nodes: one MachineConfig a pool,
00-POOL-install-config, which is merged before yours, so yours count where both write a file. It is rendered and
handed over with the others. A field that this flow cannot honour is refused, with the next step. Fields of parts that
dayone does not install are *not ours*: dayone prepare names those that you set. A path that ends in .* stands for all
that lies below.

| field | standalone flow | openshift flow |
|---|---|---|
`

const fieldsTail = `
Good to know:

- A proxy must not stand between the nodes and the bootstrap host: noProxy or networking.machineNetwork must hold its
  address. dayone itself uses the proxy, too, unless the host's environment names one.
- The kubelet reads the pull secret at /var/lib/kubelet/config.json, a link that systemd-tmpfiles makes where the node
  has no file of its own. A changed pull secret is a changed MachineConfig: change it in the cluster's
  00-POOL-install-config.
- CAs need update-ca-trust or update-ca-certificates in the base image. A CA that you remove stays in the node's bundle
  until one of them runs again.
- dayone bootstrap reads install-config.yaml again on each start: keep the file, as prepare has left it.
`

// installerFields writes what happens to the installer's fields.
func installerFields(b *bytes.Buffer) {
	b.WriteString(fieldsHeading)
	for _, f := range installconfig.InstallerFields() {
		other := f.OpenShift
		if other == "" {
			other = "the installer's"
		}
		fmt.Fprintf(b, "| `%s` | %s: %s | %s |\n", f.Path, f.Handling, escape(f.Standalone), escape(other))
	}
	b.WriteString(fieldsTail)
}

func escape(text string) string { return strings.ReplaceAll(text, "|", "\\|") }
