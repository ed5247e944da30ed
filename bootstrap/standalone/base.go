package standalone

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/google/renameio/v2"

	"dayone.dev/dayone/bootstrap/day1"
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

// baseImage is the base image in the embedded registry.
type baseImage struct {
	// Reference is in the embedded registry, Final the same bytes in the final one; both by digest.
	Reference string `json:"reference"`
	Final     string `json:"final"`
	Digest    string `json:"digest"`
	// Bytes that were copied; 0 when the registry had them.
	Bytes int64 `json:"bytes"`
}

// baseInputs are what the imported base image depends on.
type baseInputs struct {
	Source     string `json:"source"`
	Digest     string `json:"digest"`
	Repository string `json:"repository"`
	Platform   string `json:"platform"`
	// Signatures are copied with it.
	Signatures bool `json:"signatures,omitempty"`
}

func (f flow) baseSource() string {
	if f.BaseSource != "" {
		return f.BaseSource
	}
	return f.host.In.Sidecar.Config.BaseImage
}

func (f flow) baseRepository() string {
	return f.host.In.Sidecar.Config.BaseRepository()
}

// baseInputs are those for a digest of the source.
func (f flow) baseInputs(digest string) baseInputs {
	return baseInputs{Source: f.baseSource(), Digest: digest, Platform: f.Platform, Repository: f.baseRepository(),
		Signatures: day1.JudgesBases(f.host)}
}

// baseEndpoint reaches the base image at its source. Credentials go through files, never through arguments.
func (f flow) baseEndpoint() (transfer.Endpoint, error) {
	e := transfer.Endpoint{Reference: f.baseSource(), CAFile: f.BaseCAFile, AuthFile: f.BaseAuthFile}
	if strings.HasPrefix(e.Reference, "oci:") || strings.HasPrefix(e.Reference, "docker-archive:") {
		return e, nil
	}
	var err error
	if e.RegistriesConf, err = f.host.In.RegistriesConf(); err != nil {
		return e, err
	}
	if bundle := f.host.In.Nodes.TrustBundle; len(bundle) > 0 {
		if e.CAFile, err = f.writeTrust(bundle); err != nil {
			return e, err
		}
	}
	if e.AuthFile != "" {
		return e, nil
	}
	auth, err := f.host.In.BasePull()
	if err == nil && auth != nil {
		e.AuthFile, err = f.WriteBaseAuth(auth)
	}
	return e, err
}

// writeTrust keeps the CAs that the base image's registry may have: install-config.yaml's, and the one of --base-ca.
func (f flow) writeTrust(bundle []byte) (file string, err error) {
	if f.BaseCAFile != "" {
		own, err := os.ReadFile(f.BaseCAFile)
		if err != nil {
			return "", fmt.Errorf("read CA of the base image's registry: %w", err)
		}
		bundle = slices.Concat(bundle, own)
	}
	file = f.Path("base-ca.pem")
	if err := renameio.WriteFile(file, bundle, 0o600); err != nil {
		return "", fmt.Errorf("keep CA of the base image's registry: %w", err)
	}
	return file, nil
}

// inspectBase returns the digest of the base image, and refuses an image that no node could boot. When an earlier run
// has imported the image and the source is gone, the record of that run counts.
func (f flow) inspectBase(ctx context.Context, j *journal.Journal) (string, error) {
	from, err := f.baseEndpoint()
	if err != nil {
		return "", err
	}
	img, err := transfer.Inspect(ctx, from, f.Platform)
	if err != nil {
		if digest, ok := f.importedBefore(j); ok {
			f.Log.WithError(err).Warn("base image cannot be read at its source, the one imported before is used")
			return digest, nil
		}
		return "", fmt.Errorf("read base image %s (%s): %w", from.Reference, forms(from), err)
	}
	at := report.Finding{File: installconfig.FileName, Path: installconfig.Field + ".baseImage"}
	_, isOSTree := img.Labels[labelOSTree]
	_, isBootc := img.Labels[labelBootc]
	if !isOSTree && !isBootc {
		at.Rule, at.Next = "base-not-bootable", "take a bootc or rpm-ostree image; an application image cannot boot"
		at.Message = fmt.Sprintf("%s has neither the label %s nor %s", from.Reference, labelOSTree, labelBootc)
		return "", at
	}
	if got := img.OS + "/" + img.Architecture; got != f.Platform {
		at.Rule, at.Next = "base-platform", "take the image for the nodes' architecture, or give --platform"
		at.Message = fmt.Sprintf("%s is for %s, the nodes are %s", from.Reference, got, f.Platform)
		return "", at
	}
	return img.Digest.String(), nil
}

// forms says how the base image's source may be named.
func forms(from transfer.Endpoint) string {
	if len(from.RegistriesConf) > 0 && !strings.Contains(from.Reference, "@") {
		return "the mirrors of imageDigestSources count for a name with a digest only: NAME@sha256:…"
	}
	return "a registry reference, oci:DIRECTORY or docker-archive:FILE"
}

// importedBefore is the digest of the base that an earlier run imported from the same source under the same name.
func (f flow) importedBefore(j *journal.Journal) (digest string, ok bool) {
	var base baseImage
	if found, err := j.Recorded(phaseBase, &base); !found || err != nil {
		return "", false
	}
	hash, err := journal.HashOf(f.baseInputs(base.Digest))
	return base.Digest, err == nil && hash == j.Find(phaseBase).InputsHash
}

// importBase copies the base image into the embedded registry and from there into the storages of the builds.
func (f flow) importBase(ctx context.Context, run *journal.Run, r *day1.Registry) (baseImage, error) {
	return journal.Do(ctx, run, journal.Step[baseImage]{Name: phaseBase,
		Inputs: func() (any, error) { return f.baseInputs(f.baseDigest), nil },
		Work: func(ctx context.Context) (baseImage, error) {
			from, err := f.baseEndpoint()
			if err != nil {
				return baseImage{}, err
			}
			got, err := r.Import(ctx, from, f.baseRepository(), phaseBase)
			if err != nil {
				return baseImage{}, fmt.Errorf("copy base image into the embedded registry: %w", err)
			}
			day1.TakeIn(ctx, f.host, r, got.Reference)
			return baseImage{Reference: got.Reference, Final: f.baseRepository() + "@" + got.Digest, Digest: got.Digest,
				Bytes: got.Bytes}, nil
		},
		Holds: func(ctx context.Context, base baseImage) error { return r.Holds(ctx, base.Reference) },
	})
}

// copySignatures copies those of the base image once more.
func (f flow) copySignatures(ctx context.Context, r *day1.Registry, image string) error {
	from, err := f.baseEndpoint()
	if err != nil {
		return err
	}
	return r.CopySignatures(ctx, from, image, phaseBase)
}
