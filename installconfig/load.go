package installconfig

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"reflect"
	"regexp"
	"strconv"

	"go.yaml.in/yaml/v3"

	"dayone.dev/dayone/installconfig/report"
	"dayone.dev/dayone/installconfig/strict"
)

// FileName is the installer's name for its input, in the install directory.
const FileName = "install-config.yaml"

// maxSize bounds install-config.yaml. The installer puts the file into a ConfigMap, which etcd limits to 1.5 MiB.
const maxSize = 3 << 19

// Load reads DIR/install-config.yaml strictly. Everything wrong with the layering field is refused at once, with line
// and column; the rest of the file is the installer's and is only read for the cluster's name and domain.
func Load(dir string) (*Document, error) {
	f, err := os.Open(filepath.Join(dir, FileName))
	if err != nil {
		return nil, fmt.Errorf("open install configuration (is --dir the install directory?): %w", err)
	}
	defer f.Close()
	raw, err := io.ReadAll(io.LimitReader(f, maxSize+1))
	if err != nil {
		return nil, report.Finding{File: FileName, Rule: "unreadable", Message: fmt.Sprintf("the file cannot be read: %v",
			err), Next: "put a readable file there"}
	}
	if len(raw) > maxSize {
		return nil, report.Finding{File: FileName, Rule: "too-large", Message: fmt.Sprintf("larger than %d bytes", maxSize),
			Next: "is this the right file?"}
	}
	return parse(raw)
}

// parse is Load for bytes.
func parse(raw []byte) (*Document, error) {
	if err := RefuseUTF16(raw, FileName, true); err != nil {
		return nil, err
	}
	root, err := rootMapping(raw)
	if err != nil {
		return nil, err
	}
	doc := &Document{raw: raw}
	var rest struct {
		BaseDomain string `yaml:"baseDomain"`
		Metadata   struct {
			Name string `yaml:"name"`
		} `yaml:"metadata"`
		ControlPlane struct {
			Replicas int `yaml:"replicas"`
		} `yaml:"controlPlane"`
		Platform         yaml.Node `yaml:"platform"`
		BootstrapInPlace struct {
			InstallationDisk string `yaml:"installationDisk"`
		} `yaml:"bootstrapInPlace"`
	}
	if err := root.Decode(&rest); err != nil {
		if found := wrongKinds(root); len(found) > 0 {
			return nil, &report.Invalid{Findings: found}
		}
		return nil, report.Finding{File: FileName, Rule: "wrong-type", Message: err.Error(),
			Next: "openshift-install explain installconfig describes the fields"}
	}
	doc.Cluster = Cluster{Name: rest.Metadata.Name, BaseDomain: rest.BaseDomain, ControlPlane: rest.ControlPlane.Replicas,
		InstallationDisk: rest.BootstrapInPlace.InstallationDisk}
	if p := rest.Platform; p.Kind == yaml.MappingNode && len(p.Content) > 0 {
		doc.Cluster.Platform = p.Content[0].Value
		dns := child(child(&p, "aws"), "userProvisionedDNS")
		doc.Cluster.UserProvisionedDNS = dns != nil && dns.Value == "Enabled"
	}
	field := topLevel(root)
	if field == nil {
		return doc, nil
	}
	var rep report.Report
	rep.Add(inFile(strict.Check(field, reflect.TypeFor[Config](), Field, strict.Options{}))...)
	if err := rep.Err(); err != nil {
		return nil, err
	}
	cfg := &Config{}
	if err := field.Decode(cfg); err != nil {
		return nil, report.Finding{File: FileName, Line: field.Line, Path: Field, Rule: "wrong-type", Message: err.Error()}
	}
	locate := locator{root: field}
	validateConfig(cfg, locate, &rep)
	validateInstaller(root, cfg, &rep)
	if err := rep.Err(); err != nil {
		return nil, err
	}
	setDefaults(cfg)
	doc.Config, doc.at = cfg, locate
	return doc, nil
}

// Resolve settles the flow, detected by the install directory where the user named none, and refuses what this flow
// cannot have.
func (d *Document) Resolve(dir string) (*Sidecar, error) {
	c := d.Config
	if c.Flow == "" {
		c.Flow = DetectFlow(dir)
	}
	var rep report.Report
	validateFlow(c, d.at, &rep)
	settleRegistry(c, d.Cluster, d.at, &rep)
	if c.Signing.RequireOnNodes == nil {
		standalone := c.Flow == FlowStandalone
		c.Signing.RequireOnNodes = &standalone
	}
	if err := rep.Err(); err != nil {
		return nil, err
	}
	cluster := d.Cluster
	if c.Flow == FlowOpenShift {
		_, err := os.Stat(filepath.Join(dir, AgentConfig))
		cluster.Agent = err == nil
	}
	return &Sidecar{Cluster: cluster, Config: *c}, nil
}

// inFile names install-config.yaml in findings.
func inFile(list []report.Finding) []report.Finding {
	for i := range list {
		list[i].File = FileName
	}
	return list
}

func rootMapping(raw []byte) (*yaml.Node, error) {
	dec := yaml.NewDecoder(bytes.NewReader(raw))
	var doc yaml.Node
	if err := dec.Decode(&doc); err != nil {
		if errors.Is(err, io.EOF) {
			return nil, report.Finding{File: FileName, Rule: "empty", Message: "the file is empty",
				Next: "openshift-install create install-config writes one"}
		}
		return nil, malformed(err)
	}
	var more yaml.Node
	if err := dec.Decode(&more); err == nil {
		return nil, report.Finding{File: FileName, Document: 2, Line: more.Line, Rule: "one-document",
			Message: "the file holds more than one YAML document; all but the first would be ignored",
			Next:    "put everything into one document"}
	} else if !errors.Is(err, io.EOF) {
		return nil, malformed(err)
	}
	if len(doc.Content) != 1 || doc.Content[0].Kind != yaml.MappingNode {
		return nil, report.Finding{File: FileName, Line: doc.Line, Rule: "yaml",
			Message: "the file is not a mapping of keys to values"}
	}
	// An anchor that holds itself, and aliases that grow without bound, show only when values are made of the nodes. What
	// is wrong with single values is said later, with the place.
	var values any
	if err := doc.Decode(&values); err != nil && !errors.As(err, new(*yaml.TypeError)) {
		return nil, report.Finding{File: FileName, Rule: "yaml", Message: err.Error(),
			Next: "write the values out instead of the aliases"}
	}
	return doc.Content[0], nil
}

// yamlError is what the library says of text that is no YAML. It leaves out the line when that is the first.
var yamlError = regexp.MustCompile(`^yaml: (?:line ([0-9]+): )?`)

// malformed places an error of the YAML library.
func malformed(err error) report.Finding {
	message := err.Error()
	line := 1
	if m := yamlError.FindStringSubmatch(message); m != nil {
		message = message[len(m[0]):]
		if n, err := strconv.Atoi(m[1]); err == nil {
			line = n
		}
	}
	return report.Finding{File: FileName, Line: line, Rule: "yaml", Message: message,
		Next: "correct the YAML at that line"}
}

func topLevel(root *yaml.Node) *yaml.Node {
	for i := 0; i+1 < len(root.Content); i += 2 {
		if root.Content[i].Value == Field {
			return root.Content[i+1]
		}
	}
	return nil
}

// setDefaults fills what the user left out, except Flow, which needs the directory (see DetectFlow).
func setDefaults(c *Config) {
	c.LayeringDir = cmp.Or(c.LayeringDir, DefaultLayeringDir)
	// layering/ and ./layering are the same directory; what compares paths has one spelling.
	c.LayeringDir = path.Clean(filepath.ToSlash(c.LayeringDir))
	c.BootstrapRegistry.Port = cmp.Or(c.BootstrapRegistry.Port, defaultRegistryPort)
	c.ConfigServer.Host = cmp.Or(c.ConfigServer.Host, c.BootstrapRegistry.Host)
	c.ConfigServer.Port = cmp.Or(c.ConfigServer.Port, defaultConfigPort)
	c.Registry.Type = c.registryType()
	setLimits(c)
	for i := range c.Pools {
		c.Pools[i].BuildAt = c.Pools[i].builtAt()
	}
}

// builtAt is where the pool's first image is built, by default at bootstrap for the nodes of the control plane only.
func (p Pool) builtAt() BuildAt {
	switch {
	case p.BuildAt != "":
		return p.BuildAt
	case p.Name == "master", p.Name == "arbiter":
		return BuildAtBootstrap
	}
	return BuildAtCluster
}

// setLimits fills in how long and how much things may take.
func setLimits(c *Config) {
	if c.Build.Timeout == 0 {
		c.Build.Timeout = Duration(defaultBuildTimeout)
	}
	c.Build.Disk = cmp.Or(c.Build.Disk, defaultBuildDisk)
	c.Build.Attempts = cmp.Or(c.Build.Attempts, defaultAttempts)
	if c.LogSpool.URL != "" && c.LogSpool.Every == 0 {
		c.LogSpool.Every = Duration(defaultSpoolEvery)
	}
	c.OnFailure = cmp.Or(c.OnFailure, OnFailureFail)
	c.HandOver.Policy = cmp.Or(c.HandOver.Policy, HandOverWait)
	if c.HandOver.Policy == HandOverDeadline && c.HandOver.Deadline == 0 {
		c.HandOver.Deadline = Duration(DefaultHandOverDeadline)
	}
}

// defaultAttempts is the first try and two more.
const defaultAttempts = 3

// DetectFlow says which flow a directory belongs to: openshift-install leaves a state file and, after create manifests,
// manifests/cluster-config.yaml.
func DetectFlow(dir string) Flow {
	for _, mark := range []string{".openshift_install_state.json", "manifests/cluster-config.yaml", AgentConfig} {
		if _, err := os.Stat(filepath.Join(dir, mark)); err == nil {
			return FlowOpenShift
		}
	}
	return FlowStandalone
}

// PullSecret is the installer's field pullSecret, from which every node of an openshift-install cluster has its
// credentials; nil without one.
func (d *Document) PullSecret() []byte {
	var file struct {
		PullSecret string `yaml:"pullSecret"`
	}
	if yaml.Unmarshal(d.raw, &file) != nil || file.PullSecret == "" {
		return nil // Parse has refused invalid YAML
	}
	return []byte(file.PullSecret)
}
