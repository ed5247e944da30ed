package installconfig

import (
	"fmt"
	"net/netip"
	"path/filepath"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"

	"dayone.dev/dayone/installconfig/report"
)

// MaxContainerfile is the longest content of a MachineOSConfig's containerFile, in characters
// (openshift/api machineconfiguration/v1 types_machineosconfig.go, MaxLength).
const MaxContainerfile = 4096

var (
	// dottedHost is the host part that the API's image references allow: a name with at least one dot, or an IPv4 address.
	dottedHost = regexp.MustCompile(`^[a-zA-Z0-9]([a-zA-Z0-9-]*[a-zA-Z0-9])?(\.[a-zA-Z0-9]([a-zA-Z0-9-]*[a-zA-Z0-9])?)+$`)
	// allDigits ends in a number, as no DNS name does (RFC 3696, section 2): a mistyped IPv4 address.
	allDigits = regexp.MustCompile(`(^|\.)[0-9]+$`)
	// broadcast is every host of the local network (RFC 919), not one.
	broadcast = netip.AddrFrom4([4]byte{255, 255, 255, 255})
	// dnsName is a DNS-1123 label, the form of a pool's name.
	dnsName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`)
	// repository is host[:port] with at most one namespace level: the pool's name is the last part.
	repository = regexp.MustCompile(`^([a-zA-Z0-9-]+\.)+[a-zA-Z0-9-]+(:[0-9]{2,5})?(/[a-z0-9]([a-z0-9._-]*[a-z0-9])?)?$`)
)

// locator turns a path such as pools[1].name into a place in the user's file.
type locator struct{ root *yaml.Node }

func (l locator) at(rule, next string, path ...any) report.Finding {
	f := report.Finding{File: FileName, Rule: rule, Next: next, Line: l.root.Line, Column: l.root.Column}
	text, n := Field, l.root
	for _, p := range path {
		switch key := p.(type) {
		case string:
			text += "." + key
		case int:
			text += fmt.Sprintf("[%d]", key)
		}
		if n = child(n, p); n != nil {
			f.Line, f.Column = n.Line, n.Column
		}
	}
	f.Path = text
	return f
}

// set says whether the user wrote the key at all: a zero that the user wrote does not ask for the default.
func (l locator) set(path ...string) bool {
	n := l.root
	for _, key := range path {
		n = child(n, key)
	}
	return n != nil
}

func child(n *yaml.Node, step any) *yaml.Node {
	if n == nil {
		return nil
	}
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	switch key := step.(type) {
	case string:
		for i := 0; i+1 < len(n.Content); i += 2 {
			if n.Kind == yaml.MappingNode && n.Content[i].Value == key {
				return n.Content[i+1]
			}
		}
	case int:
		if n.Kind == yaml.SequenceNode && key < len(n.Content) {
			return n.Content[key]
		}
	}
	return nil
}

func validateConfig(c *Config, at locator, rep *report.Report) {
	switch c.Flow {
	case "", FlowStandalone, FlowOpenShift:
	default:
		rep.Errorf(at.at("flow", "write standalone or openshift", "flow"), "unknown flow %q", c.Flow)
	}
	validateLayeringDir(c.LayeringDir, at, rep)
	validateHosts(c, at, rep)
	validatePorts(c, at, rep)
	if len(c.Pools) == 0 {
		rep.Errorf(at.at("pools", "name the MachineConfigPools to layer, for example master and worker", "pools"),
			"no pool is named")
	}
	seen := map[string]bool{}
	for i, p := range c.Pools {
		if !dnsName.MatchString(p.Name) || len(p.Name) > 253 {
			rep.Errorf(at.at("pool-name", "use the MachineConfigPool's name", "pools", i, "name"),
				"%q is not a pool name", p.Name)
		}
		if seen[p.Name] {
			rep.Errorf(at.at("pool-twice", "keep one entry", "pools", i, "name"), "pool %q is named twice", p.Name)
		}
		seen[p.Name] = true
		validatePool(c, i, at, rep)
	}
	validateAfterBuild(c, at, rep)
}

// validateLayeringDir wants a directory of its own inside the install directory.
func validateLayeringDir(dir string, at locator, rep *report.Report) {
	if dir == "" {
		return // the default
	}
	clean := filepath.Clean(dir)
	first, _, _ := strings.Cut(filepath.ToSlash(clean), "/")
	switch {
	case !filepath.IsLocal(dir):
		rep.Errorf(at.at("inside-directory", "write a path inside the install directory", "layeringDir"),
			"%q leaves the install directory", dir)
	case first == "manifests" || first == "openshift":
		rep.Errorf(at.at("layering-dir", "keep MachineOSConfigs in a directory of their own", "layeringDir"),
			"the installer reads %q itself", first)
	case clean == "." || first == SidecarDir:
		rep.Errorf(at.at("layering-dir", "keep MachineOSConfigs in a directory of their own", "layeringDir"),
			"%q holds other files, too", dir)
	}
}

func validateHosts(c *Config, at locator, rep *report.Report) {
	for _, h := range []struct{ key, host, next string }{
		{"bootstrapRegistry", c.BootstrapRegistry.Host, "use the bootstrap host's IPv4 address or full DNS name"},
		{"configServer", c.ConfigServer.Host, "use an IPv4 address or full DNS name"},
	} {
		if at.set(h.key, "host") && !validHost(h.host) && (h.host != "" || h.key == "bootstrapRegistry") {
			rep.Errorf(at.at("dotted-host", h.next, h.key, "host"),
				"%q is neither an IPv4 address nor a DNS name with a dot", h.host)
		}
	}
}

// minImagePort has two digits: the API's image reference form allows ports of two to five digits.
const minImagePort = 10

func validatePorts(c *Config, at locator, rep *report.Report) {
	for _, p := range []struct {
		key       string
		port, min int
	}{
		{"bootstrapRegistry", c.BootstrapRegistry.Port, minImagePort},
		{"configServer", c.ConfigServer.Port, 1},
		{"statusPage", c.StatusPage.Port, 1},
	} {
		if at.set(p.key, "port") && (p.port < p.min || p.port > 65535) {
			rep.Errorf(at.at("port", fmt.Sprintf("use a port between %d and 65535", p.min), p.key, "port"),
				"port %d cannot be used here", p.port)
		}
	}
	filled := *c
	filled.Pools = nil
	setDefaults(&filled)
	if p := filled.StatusPage.Port; p != 0 && (p == filled.BootstrapRegistry.Port || p == filled.ConfigServer.Port) {
		rep.Errorf(at.at("port-twice", "use two different ports", "statusPage", "port"),
			"another service of the bootstrap host has port %d", p)
	}
	if filled.BootstrapRegistry.Port == filled.ConfigServer.Port {
		rep.Errorf(at.at("port-twice", "use two different ports", "bootstrapRegistry", "port"),
			"the embedded registry and the Ignition server run on the same host and cannot both have port %d",
			filled.ConfigServer.Port)
	}
}

func validHost(h string) bool {
	if a, err := netip.ParseAddr(h); err == nil {
		return a.Is4() && !a.IsUnspecified() && !a.IsMulticast() && a != broadcast
	}
	return dottedHost.MatchString(h) && !allDigits.MatchString(h) && len(h) <= 253
}
