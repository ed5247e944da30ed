package mirrors

import (
	"bytes"
	"fmt"

	"github.com/BurntSushi/toml"

	"dayone.dev/dayone/installconfig/report"
	"dayone.dev/dayone/manifests"
)

// Paths of the files (MCO, pkg/controller/container-runtime-config).
const (
	// RegistriesPath has mirrors and what is blocked.
	RegistriesPath = "/etc/containers/registries.conf"
	searchPath     = "/etc/containers/registries.conf.d/01-image-searchRegistries.conf"
	// PolicyPath says whose images nodes take.
	PolicyPath = "/etc/containers/policy.json"
	// AttachmentsPath says where nodes look for the signatures that image policies require.
	AttachmentsPath = "/etc/containers/registries.d/sigstore-registries.yaml"
)

// File is one file for the nodes.
type File struct {
	Path string
	Data []byte
}

// Files returns what the set's mirror sets, image settings and image policies ask for, nothing when they ask for
// nothing. own is the policy.json that nodes have besides, which image policies are merged into; nil: they have none.
// Refused input is in the findings.
func Files(set *manifests.Set, own []byte) ([]File, []report.Finding, error) {
	c := collect(set)
	base := c.readOwn(own)
	if c.report.Err() != nil {
		return nil, c.report.Findings, nil
	}
	var out []File
	for _, f := range []struct {
		path string
		make func(*collected) ([]byte, error)
	}{{RegistriesPath, registriesFile}, {PolicyPath, base.file}, {AttachmentsPath, attachmentsFile},
		{searchPath, searchFile}} {
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
