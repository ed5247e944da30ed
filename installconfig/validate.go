package installconfig

import (
	"fmt"
	"net/netip"
	"net/url"
	"path/filepath"
	"regexp"
	"strings"
	"time"

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

// inside refuses a path that leaves the install directory. An empty one is not set.
func inside(file string, at locator, rep *report.Report, path ...any) bool {
	if file == "" || filepath.IsLocal(file) {
		return true
	}
	rep.Errorf(at.at("inside-directory", "write a path inside the install directory", path...),
		"%q leaves the install directory", file)
	return false
}

// validateLayeringDir wants a directory of its own inside the install directory.
func validateLayeringDir(dir string, at locator, rep *report.Report) {
	if dir == "" {
		return // the default
	}
	clean := filepath.Clean(dir)
	first, _, _ := strings.Cut(filepath.ToSlash(clean), "/")
	switch {
	case !inside(dir, at, rep, "layeringDir"):
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
		if loopback(h.host) {
			rep.Errorf(at.at("loopback-host", h.next, h.key, "host"),
				"%q means each node itself, and nodes must reach the bootstrap host", h.host)
		} else if why := Unreachable(h.host); why != "" && validHost(h.host) {
			rep.Errorf(at.at("unreachable", h.next, h.key, "host"), "no node reaches %s: %s", h.host, why)
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

// loopback says that a host name or address leads every machine to itself (RFC 6761, section 6.3).
func loopback(host string) bool {
	if a, err := netip.ParseAddr(host); err == nil {
		return a.IsLoopback()
	}
	host = strings.ToLower(host)
	return strings.HasSuffix(host, ".localhost") || host == "localhost.localdomain"
}

// minBuildTimeout is less than any build takes: what is below it is a slip such as 30ms for 30m.
const minBuildTimeout = time.Second

// Bounds of the build's numbers: below minBuildDisk no layer fits, more than maxAttempts do not help.
const (
	minBuildDisk = 1 << 20
	maxAttempts  = 20
)

// validateAfterBuild checks the limits and what happens when they are reached.
func validateAfterBuild(c *Config, at locator, rep *report.Report) {
	if t := c.Build.Timeout.Duration(); t < minBuildTimeout && at.set("build", "timeout") {
		rep.Errorf(at.at("positive", "write a duration such as 30m, or leave the key out", "build", "timeout"),
			"no image can be built within %s", t)
	}
	if n := c.Build.Disk; n < minBuildDisk && at.set("build", "disk") {
		rep.Errorf(at.at("positive", "write a size such as 8Gi, or leave the key out", "build", "disk"),
			"no image can be built within %d bytes", n)
	}
	if n := c.Build.Attempts; (n < 1 || n > maxAttempts) && at.set("build", "attempts") {
		rep.Errorf(at.at("attempts", "write a number from 1 to 20, or leave the key out", "build", "attempts"),
			"%d attempts cannot be made", n)
	}
	switch c.OnFailure {
	case "", OnFailureFail, OnFailureFallback:
	default:
		rep.Errorf(at.at("on-failure", "write fail or fallback", "onFailure"), "unknown policy %q", c.OnFailure)
	}
	switch c.FieldValidation {
	case "", FieldValidationStrict, FieldValidationWarn:
	default:
		rep.Errorf(at.at("field-validation", "write strict or warn", "fieldValidation"), "unknown policy %q",
			c.FieldValidation)
	}
	switch c.HandOver.Policy {
	case "", HandOverWait, HandOverSkip, HandOverDeadline:
	default:
		rep.Errorf(at.at("hand-over", "write wait, skip or deadline", "handOver", "policy"), "unknown policy %q",
			c.HandOver.Policy)
	}
	if set := at.set("handOver", "deadline"); set && c.HandOver.Policy != HandOverDeadline {
		rep.Errorf(at.at("hand-over", "add policy: deadline, or remove the deadline", "handOver", "deadline"),
			"a deadline is for the policy deadline only")
	} else if d := c.HandOver.Deadline.Duration(); set && d < minBuildTimeout {
		rep.Errorf(at.at("positive", "write a duration such as 20m, or leave the key out", "handOver", "deadline"),
			"no image can be copied within %s", d)
	}
	validateRegistry(c.Registry, at, rep)
	validateRegistryType(c, at, rep)
	validateLogSpool(c.LogSpool, at, rep)
	inside(c.SignaturePolicyFile, at, rep, "signaturePolicyFile")
	validateSigning(c.Signing, at, rep)
}

// validateSigning refuses a key without its passphrase, and files outside the install directory.
func validateSigning(s Signing, at locator, rep *report.Report) {
	if (s.KeyFile == "") != (s.PassphraseFile == "") {
		rep.Errorf(at.at("key-and-passphrase", "set keyFile and passphraseFile, or neither", "signing"),
			"a signing key and its passphrase belong together, and one of them is missing")
	}
	for _, f := range []struct{ key, name, end string }{{"keyFile", s.KeyFile, ".key"},
		{"passphraseFile", s.PassphraseFile, ".passphrase"}} {
		if f.name != "" && !strings.HasSuffix(f.name, f.end) {
			rep.Errorf(at.at("secret-name", "rename the file: by the end of its name log bundles know that it is a secret",
				"signing", f.key), "%q does not end in %s", f.name, f.end)
		}
		inside(f.name, at, rep, "signing", f.key)
	}
	inside(s.BaseImagePolicy, at, rep, "signing", "baseImagePolicy")
	for i, file := range s.PublicKeyFiles {
		inside(file, at, rep, "signing", "publicKeyFiles", i)
	}
}

// validateRegistry refuses two sources for one Secret and files outside the install directory.
func validateRegistry(r Registry, at locator, rep *report.Report) {
	for _, pair := range []struct{ secret, secretKey, file, fileKey string }{
		{r.PushSecret, "pushSecret", r.PushAuthFile, "pushAuthFile"},
		{r.BaseImagePullSecret, "baseImagePullSecret", r.BaseImagePullAuthFile, "baseImagePullAuthFile"},
	} {
		if pair.secret != "" && pair.file != "" {
			rep.Errorf(at.at("one-secret", "keep one of them", "registry", pair.fileKey),
				"%s and %s are both set: which credentials are meant?", pair.secretKey, pair.fileKey)
		}
	}
	inside(r.PushAuthFile, at, rep, "registry", "pushAuthFile")
	inside(r.BaseImagePullAuthFile, at, rep, "registry", "baseImagePullAuthFile")
	inside(r.CAFile, at, rep, "registry", "caFile")
}

// validateFlow checks what depends on the flow, which the directory decides where the user did not.
func validateFlow(c *Config, at locator, rep *report.Report) {
	if c.Flow == FlowStandalone {
		if c.BootstrapRegistry.Host == "" {
			rep.Errorf(at.at("dotted-host", "use the bootstrap host's IPv4 address or full DNS name", "bootstrapRegistry",
				"host"),
				"the standalone flow needs the name by which nodes reach the bootstrap host")
		}
		if c.OnFailure == OnFailureFallback {
			rep.Errorf(at.at("on-failure", "write fail, or leave the key out", "onFailure"),
				"fallback is for the openshift flow: run a standalone bootstrap again after the fault is corrected")
		}
		return
	}
	if c.BaseImage != "" {
		rep.Errorf(at.at("base-image", "remove it, or write flow: standalone", "baseImage"),
			"in the openshift flow the release decides which OS image is the base")
	}
	if at.set("configServer") {
		rep.Errorf(at.at("config-server", "remove it, or write flow: standalone", "configServer"),
			"in the openshift flow the installer's own Machine Config Server serves the nodes")
	}
	if c.SignaturePolicyFile != "" {
		rep.Errorf(at.at("signature-policy",
			"set /etc/containers/policy.json with a MachineConfig, or write flow: standalone", "signaturePolicyFile"),
			"in the openshift flow nodes pull by their own policy")
	}
}

func validatePool(c *Config, i int, at locator, rep *report.Report) {
	p := c.Pools[i]
	switch p.BuildAt {
	case "", BuildAtBootstrap, BuildAtCluster:
	default:
		rep.Errorf(at.at("build-at", "write bootstrap or cluster", "pools", i, "buildAt"), "unknown place %q", p.BuildAt)
	}
	if !p.Generated() {
		if p.PushSpec != "" {
			rep.Errorf(at.at("push-spec-unused", "write it into the pool's MachineOSConfig, or give the pool a containerfile",
				"pools", i, "pushSpec"),
				"pushSpec is for generated MachineOSConfigs, and pool %q has no containerfile", p.Name)
		}
		return
	}
	if p.Containerfile != "" && p.ContainerfilePath != "" {
		rep.Errorf(at.at("one-containerfile", "keep one of them", "pools", i, "containerfilePath"),
			"containerfile and containerfilePath are both set")
	}
	if n := len([]rune(p.Containerfile)); n > MaxContainerfile {
		rep.Errorf(at.at("containerfile-length", "move files into an image and COPY --from it", "pools", i, "containerfile"),
			"%d characters; the API allows %d", n, MaxContainerfile)
	}
	inside(p.ContainerfilePath, at, rep, "pools", i, "containerfilePath")
	if c.registryType() == RegistryCluster {
		return // its name and its accounts are dayone's
	}
	if p.PushSpec == "" && !repository.MatchString(c.Registry.Repository) {
		rep.Errorf(at.at("registry-repository", "write host[:port][/namespace], for example registry.example.com/ocp",
			"registry", "repository"),
			"pool %q has a Containerfile, so a MachineOSConfig is generated, and %q does not say where its image goes", p.Name,
			c.Registry.Repository)
	}
	if c.Registry.PushSecret == "" && c.Registry.PushAuthFile == "" {
		rep.Errorf(at.at("push-secret",
			"name a kubernetes.io/dockerconfigjson Secret of the layering directory, or give pushAuthFile", "registry",
			"pushSecret"),
			"pool %q has a Containerfile, so a MachineOSConfig is generated, and no push secret is named", p.Name)
	}
}

// Bounds of LogSpool.Every: gathering takes about a second, and what is older than an hour tells little.
const (
	minSpoolEvery = 10 * time.Second
	maxSpoolEvery = time.Hour
)

// tokenEnd is the end of a token file's name, by which log bundles know what to leave out.
const tokenEnd = ".token"

func validateLogSpool(s LogSpool, at locator, rep *report.Report) {
	if !at.set("logSpool") {
		return
	}
	u, err := url.Parse(s.URL)
	switch {
	case s.URL == "":
		rep.Errorf(at.at("log-spool-url", "write https://HOST:PORT, as dayone gather --receive prints it", "logSpool", "url"),
			"nothing says where log bundles go")
	case err != nil || u.Scheme != "https" || u.Hostname() == "":
		rep.Errorf(at.at("log-spool-url", "write https://HOST:PORT: a log bundle tells much of a cluster", "logSpool", "url"),
			"%q is not an HTTPS address", s.URL)
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		rep.Errorf(at.at("log-spool-url", "write https://HOST:PORT/PATH, and credentials into tokenFile", "logSpool", "url"),
			"the address has more than a host and a path")
	case Unreachable(u.Host) != "":
		rep.Errorf(at.at("unreachable", "name another machine: the bundle is for the case that this host vanishes",
			"logSpool", "url"), "%s leads nowhere else: %s", u.Host, Unreachable(u.Host))
	}
	switch f := s.TokenFile; {
	case f == "":
		rep.Errorf(at.at("log-spool-token",
			"name the file with the token that may write there, as dayone gather --receive makes it", "logSpool", "tokenFile"),
			"without a token any client could overwrite the log bundle")
	case !inside(f, at, rep, "logSpool", "tokenFile"):
	case !strings.HasSuffix(f, tokenEnd):
		rep.Errorf(at.at("log-spool-token", "rename it: by that name log bundles leave its content out", "logSpool",
			"tokenFile"), "the name %q does not end in %s", f, tokenEnd)
	}
	inside(s.CAFile, at, rep, "logSpool", "caFile")
	if d := s.Every.Duration(); at.set("logSpool", "every") && (d < minSpoolEvery || d > maxSpoolEvery) {
		rep.Errorf(at.at("log-spool-every", "write a duration between 10s and 1h, or leave the key out", "logSpool", "every"),
			"%s is not a useful time between two bundles", d)
	}
}
