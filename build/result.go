package build

import (
	"time"

	"dayone.dev/dayone/build/configlayer"
	"dayone.dev/dayone/installconfig/report"
)

// Layer is one layer of an image.
type Layer struct {
	Digest string `json:"digest"`
	// Size is the compressed size in bytes.
	Size int64 `json:"size"`
	// From says where it comes from: base, config or containerfile.
	From string `json:"from"`
}

// Step is one part of a build with its time.
type Step struct {
	Name string `json:"name"`
	// Line is the line in the Containerfile, 0 for what is not an instruction.
	Line     int           `json:"line,omitempty"`
	Duration time.Duration `json:"durationNanoseconds"`
	// Cached means that an earlier build's layer was used.
	Cached bool `json:"cached,omitempty"`
}

// Inputs are the digests and hashes that the address is made of, for people who compare two builds.
type Inputs struct {
	Base           string `json:"base"`
	RenderedConfig string `json:"renderedConfig"`
	ConfigHash     string `json:"configHash"`
	Containerfile  string `json:"containerfileSHA256,omitempty"`
	Extensions     string `json:"extensions,omitempty"`
	Platform       string `json:"platform"`
}

// Result is what was built and how. It can be written as JSON.
type Result struct {
	// Digest is the digest of the image's manifest: its identity from here to the booted node.
	Digest string `json:"digest"`
	// Reference is Target@Digest.
	Reference string `json:"reference"`
	// Address is the request's content address and, with Tag, the image's tag.
	Address string `json:"address"`
	// MediaType is the manifest's.
	MediaType string `json:"mediaType"`
	// Engine is the one that made the image.
	Engine Engine `json:"engine"`
	// Reason says why this engine, or why nothing was built.
	Reason string `json:"reason"`
	// Isolation is how the container engine ran RUN: chroot, or oci with the runtime's name; empty when it had nothing to
	// do.
	Isolation string `json:"isolation,omitempty"`
	// IsolationReason says why this isolation.
	IsolationReason string `json:"isolationReason,omitempty"`
	// Reused means that the registry had the image already and nothing was built.
	Reused bool `json:"reused"`
	// Size is the sum of the layers in bytes.
	Size      int64             `json:"size"`
	Layers    []Layer           `json:"layers"`
	Labels    map[string]string `json:"labels"`
	Steps     []Step            `json:"steps"`
	CacheHits int               `json:"cacheHits"`
	Attempts  int               `json:"attempts"`
	// Kernels are the names of the image's kernels below /usr/lib/modules; absent: they are not known.
	Kernels []string `json:"kernels,omitempty"`
	// Placements say what of the config is not in the image as it stands in the config.
	Placements []configlayer.Placement `json:"placements,omitempty"`
	// Warnings are findings that did not stop the build.
	Warnings []report.Finding `json:"warnings,omitempty"`
	Inputs   Inputs           `json:"inputs"`
	// Log is the path of the full log on this host, empty when nothing ran.
	Log      string        `json:"log,omitempty"`
	Duration time.Duration `json:"durationNanoseconds"`
}

// Event is one piece of live progress.
type Event struct {
	// Phase is request, base, config, containerfile, push, seal, check, sbom or sign.
	Phase string `json:"phase"`
	// Step and Of count instructions of the current stage; 0 when unknown.
	Step int `json:"step,omitempty"`
	Of   int `json:"of,omitempty"`
	// Line is the instruction's line in the Containerfile.
	Line int `json:"line,omitempty"`
	// Text is the instruction, or a line of output when Output is set.
	Text   string `json:"text,omitempty"`
	Output bool   `json:"output,omitempty"`
	// Bytes and Total count a transfer; Total 0 means unknown.
	Bytes int64 `json:"bytes,omitempty"`
	Total int64 `json:"total,omitempty"`
}

// Labels of an image's configuration that dayone writes. A node compares LabelConfigHash with its config.
const (
	// LabelAddress holds Request.Address.
	LabelAddress = "dayone.dev/build-address"
	// LabelRenderedConfig holds the name of the rendered config that the image was built from. Another config with the
	// same content reuses the image, so the name is for people and LabelConfigHash is for programs.
	LabelRenderedConfig = "dayone.dev/rendered-config"
	// LabelConfigHash holds machineconfig.ContentHash of that config.
	LabelConfigHash = "dayone.dev/config-hash"
	// LabelPool holds the pool that asked for the image first.
	LabelPool = "dayone.dev/pool"
	// LabelBaseDigest holds the manifest digest of the base image.
	LabelBaseDigest = "dayone.dev/base-digest"
)
