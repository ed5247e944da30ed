package installconfig

import (
	"bufio"
	"net/netip"
	"strings"

	"go.yaml.in/yaml/v3"

	"dayone.dev/dayone/installconfig/report"
)

// NodeSettings are the installer's fields that say what every node has beside its image. In the standalone flow dayone
// brings them onto the nodes; in the openshift flow the installer and MCO do.
type NodeSettings struct {
	// PullSecret is pullSecret, in auth.json form; nil without one.
	PullSecret []byte
	// SSHKeys are the lines of sshKey.
	SSHKeys []string
	// TrustBundle is additionalTrustBundle, PEM, where additionalTrustBundlePolicy gives it to the nodes.
	TrustBundle []byte
	// Proxy is proxy, with what must never go through one in No; the zero value is none.
	Proxy Proxy
	// Mirrors are imageDigestSources or imageContentSources.
	Mirrors []MirrorSource
	// FIPS is fips.
	FIPS bool
	// SingleThread are the pools with hyperthreading: Disabled.
	SingleThread []string
}

// Proxy says through which servers requests go.
type Proxy struct {
	// HTTP and HTTPS are URLs; empty: directly.
	HTTP, HTTPS string
	// No lists what is reached directly: hosts, domains, addresses and CIDRs, separated by commas.
	No string
}

// MirrorSource is a registry or repository and where else its images are.
type MirrorSource struct {
	Source  string
	Mirrors []string
	// Never says that the source itself is not asked.
	Never bool
}

// installerRule refuses what is wrong in the installer's part of the file, or will not do what its author expects.
type installerRule func(f installerFile, rep *report.Report)

// installerFile is the installer's part of install-config.yaml, for one layering field.
type installerFile struct {
	root   *yaml.Node
	config *Config
}

// installerRules hold in both flows.
func installerRules() []installerRule {
	return []installerRule{bootstrapInPlace, machinePools, sshKey, pullSecret, trustBundle, proxy, digestSources}
}

// standaloneRules hold where dayone brings the fields onto the nodes.
func standaloneRules() []installerRule {
	return append([]installerRule{knownFields, fipsMode, idleBundle}, formRules()...)
}

// formRules hold in both flows, and also warn.
func formRules() []installerRule {
	return []installerRule{form, choices, names, networkRanges, replicas, onePlatform, featureGates, reachable}
}

// Check judges the installer's part of the file in the openshift flow, where the installer brings it to the nodes; c is
// the layering field.
func (d *Document) Check(c *Config) []report.Finding {
	root, err := rootMapping(d.raw)
	if err != nil {
		return report.Of(err)
	}
	var rep report.Report
	for _, rule := range append(installerRules(), formRules()...) {
		rule(installerFile{root, c}, &rep)
	}
	return rep.Findings
}

// Nodes are the settings of the nodes in the standalone flow. It reports every field that would not work on a node, or
// is not dayone's; c is the layering field, which may come from the sidecar.
func (d *Document) Nodes(c *Config) (NodeSettings, []report.Finding) {
	var rep report.Report
	root, err := rootMapping(d.raw)
	if err != nil {
		return NodeSettings{}, report.Of(err)
	}
	f := installerFile{root, c}
	for _, rule := range append(installerRules(), standaloneRules()...) {
		rule(f, &rep)
	}
	if rep.Err() != nil {
		return NodeSettings{}, rep.Findings
	}
	out := NodeSettings{PullSecret: d.PullSecret(), SSHKeys: lines(f.text("sshKey")), Proxy: nodeProxy(f),
		Mirrors: mirrors(f), FIPS: f.text("fips") == "true"}
	if bundle := f.text("additionalTrustBundle"); trusts(f) && bundle != "" {
		out.TrustBundle = []byte(strings.TrimSpace(bundle) + "\n")
	}
	for _, g := range f.groups() {
		if n := child(g.node, "hyperthreading"); n != nil && n.Value == "Disabled" {
			out.SingleThread = append(out.SingleThread, g.name())
		}
	}
	return out, rep.Findings
}

// text is a scalar's value, "" where it is absent.
func (f installerFile) text(path ...string) string {
	n := f.node(path...)
	if n == nil {
		return ""
	}
	return n.Value
}

func (f installerFile) node(path ...string) *yaml.Node {
	n := f.root
	for _, key := range path {
		n = child(n, key)
	}
	return n
}

// at is the place of a field.
func (f installerFile) at(n *yaml.Node, path, rule, next string) report.Finding {
	if n == nil {
		n = f.root // a missing key has no place of its own
	}
	return report.Finding{File: FileName, Line: n.Line, Column: n.Column, Path: path, Rule: rule, Next: next}
}

// lines are those of a text that say something.
func lines(text string) []string {
	var out []string
	for s := bufio.NewScanner(strings.NewReader(text)); s.Scan(); {
		if line := strings.TrimSpace(s.Text()); line != "" && !strings.HasPrefix(line, "#") {
			out = append(out, line)
		}
	}
	return out
}

// defaultMachineNetwork is the installer's (openshift/installer, pkg/types/defaults).
const defaultMachineNetwork = "10.0.0.0/16"

// networks are the CIDRs of machines, services and pods, as the installer puts them into noProxy.
func (f installerFile) networks() []string {
	var out []string
	for _, key := range []string{"machineNetwork", "serviceNetwork", "clusterNetwork"} {
		n := f.node("networking", key)
		if n == nil {
			continue
		}
		for _, e := range n.Content {
			if cidr := child(e, "cidr"); cidr != nil {
				e = cidr
			}
			if p, err := netip.ParsePrefix(e.Value); err == nil {
				out = append(out, p.String())
			}
		}
	}
	if f.node("networking", "machineNetwork") == nil && f.config.Flow != FlowStandalone {
		out = append(out, defaultMachineNetwork)
	}
	return out
}
