package bootstrap

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"

	"dayone.dev/dayone/bootstrap/journal"
	"dayone.dev/dayone/installconfig"
	"dayone.dev/dayone/installconfig/report"
	"dayone.dev/dayone/registry/transfer"
)

// Labels one of which a bootable OS image must carry; bootc and rpm-ostree refuse an image without both.
const (
	labelOSTree = "ostree.bootable"
	labelBootc  = "containers.bootc"
)

// baseResult is the base image in the embedded registry.
type baseResult struct {
	// Reference is in the embedded registry, Final the same bytes in the final one; both by digest.
	Reference string `json:"reference"`
	Final     string `json:"final"`
	Digest    string `json:"digest"`
	// Bytes that were copied; 0 when the registry had them.
	Bytes int64 `json:"bytes"`
}

// baseIdentity is what the base phase depends on.
type baseIdentity struct {
	Source     string `json:"source"`
	Digest     string `json:"digest"`
	Repository string `json:"repository"`
	Platform   string `json:"platform"`
}

func (h *host) baseSource() string {
	if h.BaseSource != "" {
		return h.BaseSource
	}
	return h.in.Sidecar.Config.BaseImage
}

// baseEndpoint reaches the base image at its source. Credentials are handed over in files, never in arguments.
func (h *host) baseEndpoint() (transfer.Endpoint, error) {
	e := transfer.Endpoint{Reference: h.baseSource(), CAFile: h.BaseCAFile, AuthFile: h.BaseAuthFile}
	if e.AuthFile != "" || strings.HasPrefix(e.Reference, "oci:") || strings.HasPrefix(e.Reference, "docker-archive:") {
		return e, nil
	}
	for _, p := range h.in.Pools {
		if p.BasePull != nil {
			e.AuthFile = h.path("base-auth.json")
			return e, writeSecret(e.AuthFile, p.BasePull)
		}
	}
	return e, nil
}

// inspectBase refuses a base image that no node could boot, before anything is started. When an earlier run has taken
// in the image and the source is gone, the record of that run counts.
func (h *host) inspectBase(ctx context.Context, j *journal.Journal) error {
	from, err := h.baseEndpoint()
	if err != nil {
		return err
	}
	img, err := transfer.Inspect(ctx, from, h.Platform)
	if err != nil {
		if h.recall(j) {
			h.Log.WithError(err).Warn("base image cannot be read at its source, the one taken in before is used")
			return nil
		}
		return fmt.Errorf("read base image %s (a registry reference, oci:DIRECTORY or docker-archive:FILE): %w",
			from.Reference, err)
	}
	at := report.Finding{File: installconfig.FileName, Path: installconfig.Field + ".baseImage"}
	_, isOSTree := img.Labels[labelOSTree]
	_, isBootc := img.Labels[labelBootc]
	if !isOSTree && !isBootc {
		at.Rule, at.Next = "base-not-bootable", "take a bootc or rpm-ostree image; an application image cannot boot"
		at.Message = fmt.Sprintf("%s has neither the label %s nor %s", from.Reference, labelOSTree, labelBootc)
		return at
	}
	if got := img.OS + "/" + img.Architecture; got != h.Platform {
		at.Rule, at.Next = "base-platform", "take the image for the nodes' architecture, or give --platform"
		at.Message = fmt.Sprintf("%s is for %s, the nodes are %s", from.Reference, got, h.Platform)
		return at
	}
	h.base.Digest = img.Digest.String()
	return nil
}

// recall takes the base from the journal when an earlier run took it in from the same source under the same name.
func (h *host) recall(j *journal.Journal) bool {
	old := j.Find("base")
	if old == nil || old.Status != journal.StatusDone || json.Unmarshal(old.Output, &h.base) != nil {
		return false
	}
	inputs, err := h.baseInputs()
	if err != nil {
		return false
	}
	hash, err := journal.HashOf(inputs)
	return err == nil && hash == old.InputsHash
}

func (h *host) baseInputs() (any, error) {
	return baseIdentity{Source: h.baseSource(), Digest: h.base.Digest, Platform: h.Platform,
		Repository: installconfig.Repository(h.in.Sidecar.Config.BaseImage)}, nil
}

// baseTag keeps the copied base from being collected as an untagged manifest.
const baseTag = "base"

func (h *host) takeBase(ctx context.Context) (baseResult, error) {
	from, err := h.baseEndpoint()
	if err != nil {
		return baseResult{}, err
	}
	scratch := h.path("tmp")
	if err := os.MkdirAll(scratch, 0o700); err != nil {
		return baseResult{}, fmt.Errorf("make scratch directory: %w", err)
	}
	final := installconfig.Repository(h.in.Sidecar.Config.BaseImage)
	inside := h.inEmbedded(final)
	res, err := transfer.Copy(ctx, from, h.embedded(inside+":"+baseTag), transfer.Options{
		Platform: h.Platform, TempDir: scratch, CacheDir: h.path("cache"), Log: h.Log.WithField("phase", "base")})
	if err != nil {
		return baseResult{}, fmt.Errorf("copy base image into the embedded registry: %w", err)
	}
	return baseResult{Reference: inside + "@" + res.Digest.String(), Final: final + "@" + res.Digest.String(),
		Digest: res.Digest.String(), Bytes: res.Bytes}, nil
}

func (h *host) baseHolds(ctx context.Context, r baseResult) error { return h.holds(ctx, r.Reference) }
