package installconfig

import (
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"dayone.dev/dayone/installconfig/report"
)

// choice is a field with a closed set of values (openshift/installer, pkg/types and pkg/types/validation).
type choice struct {
	path   string
	node   *yaml.Node
	values []string
}

// choices refuses values that a field does not have.
func choices(f installerFile, rep *report.Report) {
	top := func(values []string, path ...string) choice {
		return choice{strings.Join(path, "."), f.node(path...), values}
	}
	publish := []string{"External", "Internal"}
	list := []choice{
		top([]string{"v1", "v1beta3", "v1beta4"}, "apiVersion"),
		top([]string{"InstallConfig"}, "kind"),
		top(append(publish, "Mixed"), "publish"),
		top(publish, "operatorPublishingStrategy", "ingress"),
		top(publish, "operatorPublishingStrategy", "apiserver"),
		top([]string{"None", "AllNodes"}, "cpuPartitioningMode"),
		top([]string{"Mint", "Passthrough", "Manual"}, "credentialsMode"),
		top([]string{"Default", "TechPreviewNoUpgrade", "DevPreviewNoUpgrade", "CustomNoUpgrade", "OKD"}, "featureSet"),
	}
	for _, g := range f.groups() {
		list = append(list, choice{g.path + ".architecture", child(g.node, "architecture"),
			[]string{"amd64", "arm64", "ppc64le", "s390x"}},
			choice{g.path + ".hyperthreading", child(g.node, "hyperthreading"), []string{"Enabled", "Disabled"}})
	}
	for _, c := range list {
		if c.node == nil || c.node.Value == "" || slices.Contains(c.values, c.node.Value) {
			continue
		}
		f.doubt(f.at(c.node, c.path, "value", report.DidYouMean(c.node.Value, c.values,
			"write "+strings.Join(c.values, " or "))), rep, fmt.Sprintf("unknown value %q", c.node.Value))
	}
	set := f.node("capabilities", "baselineCapabilitySet")
	if set != nil && set.Value != "" && !capabilitySet.MatchString(set.Value) {
		rep.Errorf(f.at(set, "capabilities.baselineCapabilitySet", "value",
			"write None, vCurrent or a version such as v4.20"), "unknown value %q", set.Value)
	}
}

var (
	capabilitySet = regexp.MustCompile(`^(None|vCurrent|v[0-9]+\.[0-9]+)$`)
	// subdomain is a DNS-1123 subdomain, the form of the cluster's name and domain.
	subdomain = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`)
	gate      = regexp.MustCompile(`^[A-Za-z0-9]+=([Tt]rue|[Ff]alse|TRUE|FALSE|[tTfF01])$`)
)

// names refuses names of which no DNS name, certificate or pool can be made.
func names(f installerFile, rep *report.Report) {
	for _, n := range []struct{ path, value, wrong string }{
		{"metadata.name", f.text("metadata", "name"), "no name of a cluster"},
		{"baseDomain", strings.TrimSuffix(f.text("baseDomain"), "."), "no DNS domain"},
	} {
		if n.value != "" && (!subdomain.MatchString(n.value) || len(n.value) > 253) {
			rep.Errorf(f.at(f.node(strings.Split(n.path, ".")...), n.path, "name",
				"write lower-case letters, digits, dashes and dots"), "%q is %s", n.value, n.wrong)
		}
	}
	for i, g := range f.groups() {
		name := g.name()
		want := []string{"master", "arbiter"}
		switch {
		case name == "":
		case i < len(want) && name != want[i]:
			rep.Errorf(f.at(child(g.node, "name"), g.path+".name", "name", "write "+want[i]), "unknown value %q", name)
		case !dnsName.MatchString(name):
			rep.Errorf(f.at(child(g.node, "name"), g.path+".name", "name", "write the name of a pool, for example worker"),
				"%q is not a pool name", name)
		}
	}
}

// networkRanges refuses CIDRs that are none, or that name a host inside of a network (pkg/validate, SubnetCIDR).
func networkRanges(f installerFile, rep *report.Report) {
	for _, key := range []string{"machineNetwork", "serviceNetwork", "clusterNetwork", "clusterNetworks"} {
		list := f.node("networking", key)
		if list == nil || list.Kind != yaml.SequenceNode {
			continue
		}
		for i, e := range list.Content {
			path := "networking." + key + "[" + strconv.Itoa(i) + "]"
			n := e
			if e.Kind == yaml.MappingNode {
				n, path = child(e, "cidr"), path+".cidr"
			}
			if n == nil {
				rep.Errorf(f.at(e, path, "cidr", "write the network, for example 10.0.0.0/16"), "no network is named")
				continue
			}
			if p := f.cidr(n, path, rep); p.IsValid() {
				f.hostPrefix(child(e, "hostPrefix"), p, strings.TrimSuffix(path, ".cidr")+".hostPrefix", rep)
			}
		}
	}
	for _, path := range [][]string{{"machineCIDR"}, {"serviceCIDR"},
		{"ovnKubernetesConfig", "ipv4", "internalJoinSubnet"}} {
		path = append([]string{"networking"}, path...)
		if n := f.node(path...); n != nil && n.Value != "" {
			f.cidr(n, strings.Join(path, "."), rep)
		}
	}
}

func (f installerFile) cidr(n *yaml.Node, path string, rep *report.Report) netip.Prefix {
	p, err := netip.ParsePrefix(n.Value)
	switch {
	case n.Kind != yaml.ScalarNode: // form refuses it
	case err != nil:
		rep.Errorf(f.at(n, path, "cidr", "write an address and the length of its prefix, for example 10.0.0.0/16"),
			"%q is no network", n.Value)
	case p != p.Masked():
		rep.Errorf(f.at(n, path, "cidr", "write "+p.Masked().String()), "%q is a host inside of a network", n.Value)
		return netip.Prefix{}
	}
	return p
}

func (f installerFile) hostPrefix(n *yaml.Node, network netip.Prefix, path string, rep *report.Report) {
	if n == nil {
		return
	}
	length, err := strconv.Atoi(n.Value)
	if err == nil && length != 0 && (length < network.Bits() || length > network.Addr().BitLen()) {
		rep.Errorf(f.at(n, path, "host-prefix", fmt.Sprintf("write a number from %d to %d", network.Bits(),
			network.Addr().BitLen())), "a host's part of %s cannot have a prefix of %d", network, length)
	}
}

// replicas refuses numbers of machines that no cluster has.
func replicas(f installerFile, rep *report.Report) {
	for i, g := range f.groups() {
		n := child(g.node, "replicas")
		if n == nil {
			continue
		}
		count, err := strconv.Atoi(n.Value)
		least := 0
		if i == 0 {
			least = 1 // a control plane
		}
		if err == nil && count < least {
			rep.Errorf(f.at(n, g.path+".replicas", "replicas", fmt.Sprintf("write %d or more", least)),
				"there cannot be %d machines", count)
		}
	}
}

// onePlatform refuses a cluster on two platforms, and an empty one.
func onePlatform(f installerFile, rep *report.Report) {
	n := f.node("platform")
	if n == nil || n.Kind != yaml.MappingNode {
		return
	}
	if count := len(n.Content) / 2; count != 1 {
		rep.Errorf(f.at(n, "platform", "platform", "name one platform, for example none: {}"),
			"a cluster has one platform, and these are %d", count)
	}
}

// featureGates refuses gates that are no setting, and those that the feature set does not let anybody set.
func featureGates(f installerFile, rep *report.Report) {
	list := f.node("featureGates")
	if list == nil || len(list.Content) == 0 {
		return
	}
	if set := f.text("featureSet"); set != "CustomNoUpgrade" {
		rep.Errorf(f.at(list, "featureGates", "feature-gates", "write featureSet: CustomNoUpgrade, or remove featureGates"),
			"the feature set %q lets nobody set gates", set)
	}
	for i, n := range list.Content {
		if n.Kind == yaml.ScalarNode && !gate.MatchString(n.Value) {
			rep.Errorf(f.at(n, "featureGates["+strconv.Itoa(i)+"]", "feature-gates", "write NAME=true or NAME=false"),
				"%q is no feature gate", n.Value)
		}
	}
}

// mirror refuses the address of nobody. A node may have a mirror of its own, so that is a warning.
func (f installerFile) mirror(n *yaml.Node, path string, rep *report.Report) {
	why := Unreachable(n.Value)
	if why == "" {
		return
	}
	at := f.at(n, path, "unreachable", "name the mirror as every node reaches it")
	if MeansItself(n.Value) {
		rep.Warnf(at, "%s is a mirror only where each node has one of its own: %s", n.Value, why)
		return
	}
	rep.Errorf(at, "no node reaches %s: %s", n.Value, why)
}

// reachable judges mirrors and proxies by their addresses.
func reachable(f installerFile, rep *report.Report) {
	for _, key := range sourceKeys() {
		list := f.node(key)
		if list == nil {
			continue
		}
		for i, e := range list.Content {
			mirrors := child(e, "mirrors")
			if mirrors == nil {
				continue
			}
			for j, m := range mirrors.Content {
				f.mirror(m, fmt.Sprintf("%s[%d].mirrors[%d]", key, i, j), rep)
			}
		}
	}
	for _, key := range []string{"httpProxy", "httpsProxy"} {
		n := f.node("proxy", key)
		if n == nil {
			continue
		}
		_, address, _ := strings.Cut(n.Value, "://")
		if why := Unreachable(address[strings.LastIndexByte(address, '@')+1:]); why != "" {
			rep.Warnf(f.at(n, "proxy."+key, "unreachable", "name the proxy as every node reaches it"),
				"the proxy is not reached from nodes: %s", why)
		}
	}
}

// Unreachable says why no other machine reaches a host, HOST[:PORT] or a repository at it; "" where one may.
func Unreachable(place string) string {
	host := hostOf(place)
	a, err := netip.ParseAddr(host)
	switch {
	case MeansItself(place):
		return "it means each machine itself"
	case err != nil:
		return ""
	case a.IsUnspecified():
		return "it is no machine's address"
	case a.IsMulticast(), a == broadcast:
		return "it is the address of many machines"
	case a.IsLinkLocalUnicast():
		return "it is known on one link only"
	}
	return ""
}

// MeansItself says that a host, HOST[:PORT] or a repository at it is on whatever machine asks.
func MeansItself(place string) bool {
	host := hostOf(place)
	return loopback(host) || host == "localhost"
}

// hostOf is the host of HOST[:PORT][/PATH], an IPv6 address without its brackets.
func hostOf(place string) string {
	host, _, _ := strings.Cut(place, "/")
	if name, _, ok := strings.Cut(host, ":"); ok && strings.Count(host, ":") == 1 {
		return name
	}
	if inside, _, ok := strings.Cut(host, "]"); ok {
		return strings.TrimPrefix(inside, "[")
	}
	return host
}

// doubt refuses a name or a value that is not known. In the openshift flow it warns of one that is no slip of a known
// one: a newer installer may know it.
func (f installerFile) doubt(at report.Finding, rep *report.Report, message string) {
	lenient := f.config.FieldValidation == FieldValidationWarn
	switch {
	case lenient || f.config.Flow != FlowStandalone && !report.Suggests(at):
		at.Next += "; openshift-install warns of it, too, if it does not know it"
		rep.Warnf(at, "%s", message)
	default:
		at.Next += "; fieldValidation: warn in " + Field + " makes this a warning"
		rep.Errorf(at, "%s", message)
	}
}
