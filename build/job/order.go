package job

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"

	"dayone.dev/dayone/build"
)

// Directories of the pod, and files in them. The builder finds all its input below DirInput.
const (
	DirInput = "/build"
	// DirWork is scratch space: storage, caches, logs.
	DirWork = "/work"

	// DirConfig has FileOrder and the parts of the rendered config.
	DirConfig = "config"
	FileOrder = "order.json"
	// FilePart begins the names of the parts: gzip, cut into pieces that an object can hold.
	FilePart = "config.gz."
	// DirContainerfile has FileContainerfile.
	DirContainerfile  = "containerfile"
	FileContainerfile = "Containerfile"
	// DirPull and DirPush hold FileAuth, credentials in auth.json form.
	DirPull  = "pull"
	DirPush  = "push"
	FileAuth = ".dockerconfigjson"
	// DirCA holds FileCA, CAs of registries in PEM; it may be absent.
	DirCA  = "ca"
	FileCA = "ca.crt"
	// DirMounts has a directory for each of Order.Mounts.
	DirMounts = "mounts"
)

// Container is the name of the container that builds.
const Container = "build"

// Order is the builder's input. The rendered config, the Containerfile, credentials and CAs are in files
// of their own.
type Order struct {
	// MachineOSBuild is the name of the build, for its log.
	MachineOSBuild string `json:"machineOSBuild"`
	// Request has neither Config, Containerfile, Registry nor paths in its options.
	Request build.Request `json:"request"`
	// Parts is how many pieces of the rendered config there are.
	Parts int `json:"parts"`
	// Mounts are directories that RUN sees.
	Mounts []OrderMount `json:"mounts,omitempty"`
}

// OrderMount is a directory below DirMounts and where RUN sees it. An empty directory is not mounted.
type OrderMount struct {
	Name   string `json:"name"`
	Target string `json:"target"`
}

// pack makes the rendered config small and cuts it into parts of at most limit bytes. Equal configs give equal parts.
func pack(config *mcfgv1.MachineConfig, limit int) ([][]byte, error) {
	raw, err := json.Marshal(config)
	if err != nil {
		return nil, fmt.Errorf("encode rendered config %s: %w", config.Name, err)
	}
	var b bytes.Buffer
	w, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		return nil, fmt.Errorf("compress rendered config %s: %w", config.Name, err)
	}
	if _, err := w.Write(raw); err != nil {
		return nil, fmt.Errorf("compress rendered config %s: %w", config.Name, err)
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("compress rendered config %s: %w", config.Name, err)
	}
	var parts [][]byte
	for rest := b.Bytes(); len(rest) > 0; {
		n := min(limit, len(rest))
		parts, rest = append(parts, rest[:n]), rest[n:]
	}
	return parts, nil
}

// maxConfig bounds what Unpack takes, in bytes: far above what the API server stores, far below what fills a pod.
const maxConfig = 64 << 20

// Unpack puts the parts of a rendered config together again.
func Unpack(parts [][]byte) (*mcfgv1.MachineConfig, error) {
	r, err := gzip.NewReader(bytes.NewReader(bytes.Join(parts, nil)))
	if err != nil {
		return nil, fmt.Errorf("unpack rendered config: %w", err)
	}
	raw, err := io.ReadAll(io.LimitReader(r, maxConfig))
	if err != nil {
		return nil, fmt.Errorf("unpack rendered config: %w", err)
	}
	var config mcfgv1.MachineConfig
	if err := json.Unmarshal(raw, &config); err != nil {
		return nil, fmt.Errorf("decode rendered config: %w", err)
	}
	return &config, nil
}
