package installconfig

import (
	"cmp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"dayone.dev/dayone/installconfig/report"
)

// What the standalone flow does with a field of the installer's.
const (
	// honoured fields work on the nodes.
	honoured = "honoured"
	// read fields tell dayone something and change no node.
	read = "read"
	// refused fields would have no effect on a node, and their author relies on it.
	refused = "refused"
	// notOurs fields are for parts that dayone does not install; dayone names those that are set.
	notOurs = "not ours"
)

// InstallerField is a field of the installer's part of install-config.yaml, or a tree of them.
type InstallerField struct {
	// Path has [] for every entry of a list, and ends in .* for all that lies below.
	Path string
	// Handling (honoured, read, refused, not ours) and Standalone say what the standalone flow does, and how or why.
	Handling, Standalone string
	// OpenShift says what the openshift flow does beside the installer and MCO, which honour every field.
	OpenShift string
	// instead is the next step where the field is refused, harmless the values that ask for nothing.
	instead  string
	harmless []string
}

const (
	noOperators = "no operator of OpenShift runs in the cluster"
	podNetwork  = "whoever installs Kubernetes sets up the pod network, for example kubeadm"
	machines    = "you boot the machines yourself"
)

// InstallerFields are all fields that the installer knows (openshift/installer, pkg/types), in its order.
func InstallerFields() []InstallerField {
	out := []InstallerField{
		{Path: "apiVersion", Handling: read, Standalone: "the form of the file; v1"},
		{Path: "kind", Handling: read, Standalone: "the form of the file"},
		{Path: "metadata.*", Handling: read, Standalone: "`name` is part of the bootstrap host's name in its certificate",
			OpenShift: "`name` as in the standalone flow"},
		{Path: "additionalTrustBundle", Handling: honoured,
			Standalone: "in the nodes' trusted CAs, in builds, and when this host reads the base image",
			OpenShift:  "checked: only certificates; builds trust it as MCO's ControllerConfig says"},
		{Path: "additionalTrustBundlePolicy", Handling: honoured,
			Standalone: "Proxyonly (default): only with a proxy, a warning without one; Always", OpenShift: "checked"},
		{Path: "sshKey", Handling: honoured, Standalone: "the keys of the user core",
			OpenShift: "checked: a public key, and one that FIPS mode takes"},
		{Path: "baseDomain", Handling: read, Standalone: "as metadata.name", OpenShift: "as metadata.name"},
	}
	out = append(out, networkFields()...)
	for _, pool := range []string{"controlPlane", "arbiter", "compute[]"} {
		out = append(out, poolFields(pool)...)
	}
	return append(out, clusterFields()...)
}

func networkFields() []InstallerField {
	const direct = "in the nodes' noProxy"
	return []InstallerField{
		{Path: "networking.machineNetwork[].cidr", Handling: honoured, Standalone: direct,
			OpenShift: "counts for noProxy when the bootstrap host's address is checked"},
		{Path: "networking.serviceNetwork[]", Handling: honoured, Standalone: direct},
		{Path: "networking.clusterNetwork[].cidr", Handling: honoured, Standalone: direct},
		{Path: "networking.*", Handling: notOurs, Standalone: podNetwork},
	}
}

func poolFields(pool string) []InstallerField {
	replicas := machines + ", as many as you like"
	if pool == "controlPlane" {
		replicas = "the hand-over waits for as many nodes"
	}
	return []InstallerField{
		{Path: pool + ".name", Handling: read, Standalone: "the pool that the fields below are for"},
		{Path: pool + ".replicas", Handling: read, Standalone: replicas},
		{Path: pool + ".architecture", Handling: read, Standalone: "checked: that of the bootstrap host, which builds",
			OpenShift: "checked: that of the control plane, where the pool's image is built on the bootstrap host"},
		{Path: pool + ".hyperthreading", Handling: honoured, Standalone: "Disabled: kernel argument nosmt"},
		{Path: pool + ".osImageStream", Handling: refused, Standalone: "`onClusterLayering.baseImage` names the OS image",
			OpenShift: "the installer's; refused for a pool that is built at bootstrap",
			instead:   "remove it, and name the stream's image in baseImage"},
		{Path: pool + ".diskSetup[].*", Handling: refused, Standalone: "dayone writes no disk layout",
			instead: "write the disks and file systems into a MachineConfig in openshift/"},
		{Path: pool + ".*", Handling: notOurs, Standalone: machines},
	}
}

func clusterFields() []InstallerField {
	const mirrored = "mirrors in the nodes' registries.conf, an ImageDigestMirrorSet in the cluster, and for images " +
		"that this host reads by digest: the base image, and those that a Containerfile names"
	return []InstallerField{
		{Path: "platform.none", Handling: read, Standalone: machines},
		{Path: "platform.*", Handling: notOurs, Standalone: "dayone makes no machines, addresses or load balancers"},
		{Path: "pullSecret", Handling: honoured,
			Standalone: "credentials of the nodes (image pulls of the agent and the kubelet), and of this host for the " +
				"base image and for images that a Containerfile names",
			OpenShift: "checked: JSON, auth in base64; the final registry should be in it"},
		{Path: "proxy.httpProxy", Handling: honoured,
			Standalone: "environment of all services of the nodes, of builds, of this host"},
		{Path: "proxy.httpsProxy", Handling: honoured, Standalone: "as httpProxy"},
		{Path: "proxy.noProxy", Handling: honoured,
			Standalone: "with the cluster's names and networks; must hold the bootstrap host",
			OpenShift:  "checked: must hold the bootstrap host (by prepare where one is named, else before the build)"},
		{Path: "imageContentSources[].*", Handling: honoured, Standalone: mirrored,
			OpenShift: "checked: not beside the new name"},
		{Path: "imageDigestSources[].*", Handling: honoured, Standalone: mirrored},
		{Path: "publish", Handling: notOurs, Standalone: noOperators},
		{Path: "operatorPublishingStrategy.*", Handling: notOurs, Standalone: noOperators},
		{Path: "fips", Handling: honoured,
			Standalone: "a node that does not run in FIPS mode refuses its config; its disk image must be booted with fips=1",
			OpenShift:  "sshKey is checked for it"},
		{Path: "cpuPartitioningMode", Handling: refused, Standalone: "it needs OpenShift's kubelet and operators",
			instead: "remove it, and set the kubelet's reserved CPUs in a KubeletConfig", harmless: []string{"None"}},
		{Path: "credentialsMode", Handling: notOurs, Standalone: noOperators},
		{Path: "bootstrapInPlace.*", Handling: refused, Standalone: "dayone installs no disk",
			OpenShift: "with `registry.type: cluster` the images go onto that disk",
			instead:   "remove it, and install the disk with coreos-installer"},
		{Path: "capabilities.*", Handling: notOurs, Standalone: noOperators},
		{Path: "featureSet", Handling: notOurs, Standalone: "write a FeatureGate into openshift/; " + noOperators},
		{Path: "featureGates[]", Handling: notOurs, Standalone: "as featureSet"},
		{Path: "osImageStream", Handling: refused, Standalone: "`onClusterLayering.baseImage` names the OS image",
			instead: "remove it, and name the stream's image in baseImage"},
	}
}

// fieldFor is the row of a path: the exact one, else the tree that it lies in; nil for a path that nobody knows.
func fieldFor(rows []InstallerField, path string) *InstallerField {
	var best *InstallerField
	for i, row := range rows {
		if row.Path == path {
			return &rows[i]
		}
		tree, isTree := strings.CutSuffix(row.Path, ".*")
		if isTree && strings.HasPrefix(path+".", tree+".") && (best == nil || len(row.Path) > len(best.Path)) {
			best = &rows[i]
		}
	}
	return best
}

// knownFields refuses fields that have no effect, and names those that are not ours.
func knownFields(f installerFile, rep *report.Report) {
	rows, others := InstallerFields(), []string{}
	var first *yaml.Node
	leaves(f.root, "", func(n *yaml.Node, path string) {
		row := fieldFor(rows, path)
		switch {
		case path == Field || strings.HasPrefix(path, Field+"."):
		case row == nil: // form says so
		case empty(n) || slices.Contains(row.harmless, n.Value):
		case row.Handling == refused:
			rep.Errorf(f.at(n, path, "not-honoured", row.instead), "the standalone flow cannot do that: %s", row.Standalone)
		case row.Handling == notOurs:
			others = append(others, path)
			first = cmp.Or(first, n)
		}
	})
	if slices.Sort(others); len(others) > 0 {
		rep.Warnf(f.at(first, "", "not-ours", "docs/users/install-config.md says whose they are"),
			"no node gets anything from these fields: %s", strings.Join(slices.Compact(others), ", "))
	}
}

// leaves visits the scalars and the empty lists and mappings of a tree, each with its path.
func leaves(n *yaml.Node, path string, visit func(n *yaml.Node, path string)) {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if len(n.Content) == 0 {
		visit(n, path)
		return
	}
	for i := range n.Content {
		switch {
		case n.Kind == yaml.SequenceNode:
			leaves(n.Content[i], path+"[]", visit)
		case i%2 == 0:
			leaves(n.Content[i+1], strings.TrimPrefix(path+"."+n.Content[i].Value, "."), visit)
		}
	}
}

// empty says that a field asks for nothing.
func empty(n *yaml.Node) bool {
	return n.Kind != yaml.ScalarNode || n.ShortTag() == "!!null" || n.Value == "" || n.Value == "false"
}
