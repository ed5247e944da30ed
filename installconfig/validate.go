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
	// dnsName is a DNS-1123 label, the form of a pool's name.
	dnsName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`)
	// repository is host[:port] with at most one namespace level: the pool's name is the last part.
	repository = regexp.MustCompile(`^([a-zA-Z0-9-]+\.)+[a-zA-Z0-9-]+(:[0-9]{2,5})?(/[a-z0-9]([a-z0-9._-]*[a-z0-9])?)?$`)
)

// locator turns a path such as pools[1].name into a place in the user's file.
type locator struct {
	file string
	root *yaml.Node
}

func newLocator(file string, field *yaml.Node) locator { return locator{file: file, root: field} }

func (l locator) at(rule, next string, path ...any) report.Finding {
	f := report.Finding{File: l.file, Rule: rule, Next: next, Line: l.root.Line, Column: l.root.Column}
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

func validate(c *Config, at locator, rep *report.Report) {
	switch c.Flow {
	case "", FlowStandalone, FlowOpenShift:
	default:
		rep.Errorf(at.at("flow", "write standalone or openshift", "flow"), "unknown flow %q", c.Flow)
	}
	if filepath.IsAbs(c.LayeringDir) || strings.HasPrefix(filepath.Clean(c.LayeringDir), "..") {
		rep.Errorf(at.at("inside-directory", "give a path inside the install directory", "layeringDir"), "%q leaves the install directory", c.LayeringDir)
	}
	switch c.LayeringDir {
	case "manifests", "openshift":
		rep.Errorf(at.at("layering-dir", "keep MachineOSConfigs in a directory of their own", "layeringDir"), "the installer reads %q itself", c.LayeringDir)
	}
	validateHosts(c, at, rep)
	if len(c.Pools) == 0 {
		rep.Errorf(at.at("pools", "name the MachineConfigPools to layer, for example master and worker", "pools"), "no pool is named")
	}
	seen := map[string]bool{}
	for i, p := range c.Pools {
		if !dnsName.MatchString(p.Name) || len(p.Name) > 253 {
			rep.Errorf(at.at("pool-name", "use the MachineConfigPool's name", "pools", i, "name"), "%q is no pool name", p.Name)
		}
		if seen[p.Name] {
			rep.Errorf(at.at("pool-twice", "keep one entry", "pools", i, "name"), "pool %q is named twice", p.Name)
		}
		seen[p.Name] = true
		validatePool(c, i, at, rep)
	}
	if c.Build.Timeout < 0 {
		rep.Errorf(at.at("positive", "write a duration such as 30m", "build", "timeout"), "the time limit is negative")
	}
}

func validateHosts(c *Config, at locator, rep *report.Report) {
	if h := c.BootstrapRegistry.Host; !validHost(h) {
		rep.Errorf(at.at("dotted-host", "use the bootstrap host's IPv4 address or full DNS name", "bootstrapRegistry", "host"),
			"%q is neither an IPv4 address nor a DNS name with a dot", h)
	}
	if h := c.ConfigServer.Host; h != "" && !validHost(h) {
		rep.Errorf(at.at("dotted-host", "use an IPv4 address or full DNS name", "configServer", "host"), "%q is neither an IPv4 address nor a DNS name with a dot", h)
	}
	ports := []struct {
		path string
		port int
	}{{"bootstrapRegistry", c.BootstrapRegistry.Port}, {"configServer", c.ConfigServer.Port}}
	for _, p := range ports {
		// Two digits at least: the API's image reference form allows ports of two to five digits.
		if p.port != 0 && (p.port < 10 || p.port > 65535) {
			rep.Errorf(at.at("port", "give a port between 10 and 65535", p.path, "port"), "%d is no port that an image reference may hold", p.port)
		}
	}
}

func validHost(h string) bool {
	if a, err := netip.ParseAddr(h); err == nil {
		return a.Is4()
	}
	return dottedHost.MatchString(h) && len(h) <= 253
}

func validatePool(c *Config, i int, at locator, rep *report.Report) {
	p := c.Pools[i]
	switch p.BuildAt {
	case "", BuildAtBootstrap, BuildAtCluster:
	default:
		rep.Errorf(at.at("build-at", "write bootstrap or cluster", "pools", i, "buildAt"), "unknown place %q", p.BuildAt)
	}
	if !p.Generated() {
		return
	}
	if p.Containerfile != "" && p.ContainerfilePath != "" {
		rep.Errorf(at.at("one-containerfile", "keep one of them", "pools", i, "containerfilePath"), "containerfile and containerfilePath are both given")
	}
	if n := len([]rune(p.Containerfile)); n > MaxContainerfile {
		rep.Errorf(at.at("containerfile-length", "move files into an image and COPY --from it", "pools", i, "containerfile"), "%d characters; the API allows %d", n, MaxContainerfile)
	}
	if path := p.ContainerfilePath; path != "" && (filepath.IsAbs(path) || strings.HasPrefix(filepath.Clean(path), "..")) {
		rep.Errorf(at.at("inside-directory", "give a path inside the install directory", "pools", i, "containerfilePath"), "%q leaves the install directory", path)
	}
	if !repository.MatchString(c.Registry.Repository) {
		rep.Errorf(at.at("registry-repository", "write host[:port][/namespace], for example registry.example.com/ocp", "registry", "repository"),
			"pool %q has a Containerfile, so a MachineOSConfig is generated, and %q does not say where its image goes", p.Name, c.Registry.Repository)
	}
	if c.Registry.PushSecret == "" {
		rep.Errorf(at.at("push-secret", "name a kubernetes.io/dockerconfigjson Secret of the layering directory", "registry", "pushSecret"),
			"pool %q has a Containerfile, so a MachineOSConfig is generated, and no push secret is named", p.Name)
	}
}
