package mirrors

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/BurntSushi/toml"

	"dayone.dev/dayone/installconfig/report"
	"dayone.dev/dayone/manifests"
)

// Paths of the files (MCO, pkg/controller/container-runtime-config).
const (
	registriesPath = "/etc/containers/registries.conf"
	policyPath     = "/etc/containers/policy.json"
	searchPath     = "/etc/containers/registries.conf.d/01-image-searchRegistries.conf"
)

// File is one file for the nodes.
type File struct {
	Path string
	Data []byte
}

// Files returns what the set's mirror sets and image settings ask for, nothing when they ask for nothing. Refused input
// is in the findings.
func Files(set *manifests.Set) ([]File, []report.Finding, error) {
	c := collect(set)
	if c.report.Err() != nil {
		return nil, c.report.Findings, nil
	}
	var out []File
	for _, f := range []struct {
		path string
		make func(*collected) ([]byte, error)
	}{{registriesPath, registriesFile}, {policyPath, policyFile}, {searchPath, searchFile}} {
		data, err := f.make(c)
		if err != nil {
			return nil, nil, err
		}
		if data != nil {
			out = append(out, File{Path: f.path, Data: data})
		}
	}
	return out, c.report.Findings, nil
}

// maxAtomic is the number of slashes from which on a scope is none of the atomic transport
// (containers-policy.json(5)); MCO leaves such scopes out.
const maxAtomic = 3

// requirement is one entry of policy.json (containers-policy.json(5)).
type requirement struct {
	Type string `json:"type"`
}

// policyFile restricts what may be pulled; nil when nothing is allowed or blocked by name.
func policyFile(c *collected) ([]byte, error) {
	if c.image == nil {
		return nil, nil
	}
	accept, reject := []requirement{{Type: "insecureAcceptAnything"}}, []requirement{{Type: "reject"}}
	sources := c.image.Object.Spec.RegistrySources
	policy := struct {
		Default    []requirement                       `json:"default"`
		Transports map[string]map[string][]requirement `json:"transports"`
	}{accept, map[string]map[string][]requirement{"docker-daemon": {"": accept}}}
	scopes := map[string][]requirement{}
	for _, s := range c.blocked {
		scopes[s] = reject
	}
	for _, s := range sources.AllowedRegistries {
		policy.Default, scopes[s] = reject, accept
	}
	if c.release != "" {
		scopes[c.release] = accept // its mirror serves it under this name
	}
	if len(scopes) == 0 {
		return nil, nil
	}
	policy.Transports["atomic"], policy.Transports["docker"] = map[string][]requirement{}, scopes
	for s, verdict := range scopes {
		if strings.Count(s, "/") < maxAtomic {
			policy.Transports["atomic"][s] = verdict
		}
	}
	raw, err := json.Marshal(policy)
	if err != nil {
		return nil, fmt.Errorf("write policy.json: %w", err)
	}
	return raw, nil
}

// searchFile sets the registries for names without one; nil when there are none.
func searchFile(c *collected) ([]byte, error) {
	if c.image == nil || len(c.image.Object.Spec.RegistrySources.ContainerRuntimeSearchRegistries) == 0 {
		return nil, nil
	}
	var out bytes.Buffer
	err := toml.NewEncoder(&out).Encode(struct {
		Search     []string `toml:"unqualified-search-registries"`
		ShortNames string   `toml:"short-name-mode"`
	}{c.image.Object.Spec.RegistrySources.ContainerRuntimeSearchRegistries, "permissive"})
	if err != nil {
		return nil, fmt.Errorf("write search registries: %w", err)
	}
	return out.Bytes(), nil
}
