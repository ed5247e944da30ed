package nodeconf

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/BurntSushi/toml"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"

	"dayone.dev/dayone/installconfig/report"
	"dayone.dev/dayone/manifests"
)

// Paths of CRI-O's drop-ins and of the storage configuration (MCO, pkg/controller/container-runtime-config).
const (
	crioDir     = "/etc/crio/crio.conf.d/01-ctrcfg-"
	storagePath = "/etc/containers/storage.conf"
)

// Smallest limits that leave a node usable (MCO, pkg/controller/container-runtime-config/helpers.go).
const (
	minPidsLimit  = 20
	minLogSizeMax = 8192
)

// Runtime returns the drop-ins of one ContainerRuntimeConfig. What is not supported is refused by name.
func Runtime(item manifests.Item[*mcfgv1.ContainerRuntimeConfig]) ([]File, []report.Finding, error) {
	var bad report.Report
	at := func(field, next string) report.Finding {
		place := item.Origin.At("spec.containerRuntimeConfig"+field, "runtime-field")
		place.Next = next
		return place
	}
	c := item.Object.Spec.ContainerRuntimeConfig
	if c == nil {
		bad.Errorf(at("", "set at least one field, or remove the object"), "is missing")
		return nil, bad.Findings, nil
	}
	checkRuntime(c, at, &bad)
	if bad.Err() != nil {
		return nil, bad.Findings, nil
	}
	settings := map[string]any{}
	if c.LogLevel != "" {
		settings["logLevel"] = map[string]any{"log_level": c.LogLevel}
	}
	if c.PidsLimit != nil {
		settings["pidsLimit"] = map[string]any{"pids_limit": *c.PidsLimit}
	}
	if c.LogSizeMax != nil && !c.LogSizeMax.IsZero() { // CRI-O does not start with 0
		settings["logSizeMax"] = map[string]any{"log_size_max": c.LogSizeMax.Value()}
	}
	if c.DefaultRuntime != "" {
		settings["defaultRuntime"] = map[string]any{"default_runtime": string(c.DefaultRuntime)}
	}
	var out []File
	if c.OverlaySize != nil && c.OverlaySize.Value() > 0 {
		out = append(out, File{storagePath, storageConf(c.OverlaySize.String())})
	}
	for _, name := range []string{"logLevel", "pidsLimit", "logSizeMax", "defaultRuntime"} {
		setting, ok := settings[name]
		if !ok {
			continue
		}
		raw, err := writeTOML(map[string]any{"crio": map[string]any{"runtime": setting}})
		if err != nil {
			return nil, nil, err
		}
		out = append(out, File{crioDir + name, raw})
	}
	return out, bad.Findings, nil
}

func checkRuntime(c *mcfgv1.ContainerRuntimeConfiguration, at func(field, next string) report.Finding,
	bad *report.Report) {
	if c.PidsLimit != nil && *c.PidsLimit != 0 && *c.PidsLimit < minPidsLimit {
		bad.Errorf(at(".pidsLimit", fmt.Sprintf("use at least %d", minPidsLimit)),
			"pidsLimit %d is too small", *c.PidsLimit)
	}
	if c.LogSizeMax != nil && c.LogSizeMax.Value() > 0 && c.LogSizeMax.Value() <= minLogSizeMax {
		bad.Errorf(at(".logSizeMax", fmt.Sprintf("use more than %d bytes, or -1 for no limit", minLogSizeMax)),
			"logSizeMax %s is too small", c.LogSizeMax)
	}
	if c.OverlaySize != nil && c.OverlaySize.Value() < 0 {
		bad.Errorf(at(".overlaySize", "use a positive size"), "overlaySize %s is negative", c.OverlaySize)
	}
	levels := []string{"", "fatal", "panic", "error", "warn", "info", "debug", "trace"}
	if !slices.Contains(levels, c.LogLevel) {
		bad.Errorf(at(".logLevel", "use one of "+fmt.Sprint(levels[1:])), "logLevel %q is not known", c.LogLevel)
	}
	switch c.DefaultRuntime {
	case "", mcfgv1.ContainerRuntimeDefaultRuntimeCrun, mcfgv1.ContainerRuntimeDefaultRuntimeRunc:
	default:
		bad.Errorf(at(".defaultRuntime", "use crun or runc"), "defaultRuntime %q is not known", c.DefaultRuntime)
	}
	for field, used := range map[string]bool{
		"additionalLayerStores": len(c.AdditionalLayerStores) > 0, "additionalImageStores": len(c.AdditionalImageStores) > 0,
		"additionalArtifactStores": len(c.AdditionalArtifactStores) > 0,
	} {
		if used {
			bad.Errorf(at("."+field, "bring storage.conf in a MachineConfig"), "%s is not supported here", field)
		}
	}
}

// storageConf is containers-storage.conf(5) with a quota for each container's layer as the user writes it: MCO's own
// file (templates/common/_base/files/container-storage.yaml) with the size, as MCO writes the two.
func storageConf(size string) []byte {
	return fmt.Appendf(nil, `[storage]
  driver = "overlay"
  runroot = "/run/containers/storage"
  graphroot = "/var/lib/containers/storage"
  [storage.options]
    size = %q
    force_mask = 0
    auto-userns-min-size = 0
    auto-userns-max-size = 0
    [storage.options.overlay]
      skip_mount_home = "true"
    [storage.options.pull_options]
      enable_partial_images = "false"
      ostree_repos = ""
      use_hard_links = "false"
`, size)
}

func writeTOML(value any) ([]byte, error) {
	var b bytes.Buffer
	e := toml.NewEncoder(&b)
	e.Indent = ""
	if err := e.Encode(value); err != nil {
		return nil, fmt.Errorf("write TOML: %w", err)
	}
	return b.Bytes(), nil
}
