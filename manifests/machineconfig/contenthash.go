package machineconfig

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
)

// defaultKernelType is what an absent kernelType means (API: machineconfiguration/v1 MachineConfigSpec.KernelType).
const defaultKernelType = "default"

// hashedContent is what of a MachineConfig reaches a node's files and kernel. The image references are left out: the
// image that is built from a config cannot be named in what it is built from.
type hashedContent struct {
	Config          any      `json:"config"`
	KernelArguments []string `json:"kernelArguments"`
	KernelType      string   `json:"kernelType"`
	Extensions      []string `json:"extensions"`
	FIPS            bool     `json:"fips"`
}

// ContentHash is the identity of a rendered config's content: "sha256:" and the hex digest of its canonical JSON. The
// Ignition config counts as data (key order, white space, null members do not matter; list order does), absent kernel
// type and "default" are the same, and osImageURL and baseOSExtensionsContainerImage do not count. The builder labels
// an image with it and the node compares that label with the config of its target. It fails when the Ignition
// config is not one JSON object.
func ContentHash(spec mcfgv1.MachineConfigSpec) (string, error) {
	config, err := canonicalConfig(spec.Config.Raw)
	if err != nil {
		return "", fmt.Errorf("hash Ignition config: %w", err)
	}
	content := hashedContent{
		Config:          config,
		KernelArguments: append([]string{}, spec.KernelArguments...),
		KernelType:      cmp.Or(spec.KernelType, defaultKernelType),
		Extensions:      append([]string{}, spec.Extensions...),
		FIPS:            spec.FIPS,
	}
	raw, err := json.Marshal(content)
	if err != nil {
		return "", fmt.Errorf("encode content of config: %w", err)
	}
	sum := sha256.Sum256(raw)
	return "sha256:" + hex.EncodeToString(sum[:]), nil
}

// canonicalConfig decodes an Ignition config so that encoding it again gives one form; an empty config is the empty
// object.
func canonicalConfig(raw []byte) (map[string]any, error) {
	if len(bytes.TrimSpace(raw)) == 0 {
		return map[string]any{}, nil
	}
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber() // numbers stay as they are written: a mode must not pass through a float
	var config map[string]any
	if err := decoder.Decode(&config); err != nil {
		return nil, err
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("more than one JSON value")
	}
	if config == nil {
		return map[string]any{}, nil
	}
	dropNull(config)
	return config, nil
}

// dropNull removes members that are null: a Go program writes an unset optional field either way.
func dropNull(value any) {
	switch v := value.(type) {
	case map[string]any:
		for key, member := range v {
			if member == nil {
				delete(v, key)
				continue
			}
			dropNull(member)
		}
	case []any:
		for _, member := range v {
			dropNull(member)
		}
	}
}
