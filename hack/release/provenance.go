package main

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/google/go-containerregistry/pkg/v1/layout"

	"dayone.dev/dayone/build/sign"
)

const (
	// provenanceFile says from what the folder was made; envelopeFile is the same with the key's signature.
	provenanceFile = "provenance.json"
	envelopeFile   = "provenance.intoto.jsonl"
	// buildType says what the parameters mean: docs/users/installing.md.
	buildType = "https://dayone.dev/release/v1"
	// builder is this program.
	builder = "https://dayone.dev/hack/release"
	// modifiedAnnotation is "true" if the sources are not as the commit has them.
	modifiedAnnotation = "dayone.dev/modified"
)

// provenance is SLSA's predicate for a release. It has no times: equal sources give equal bytes.
type provenance struct {
	BuildDefinition struct {
		BuildType            string            `json:"buildType"`
		ExternalParameters   parameters        `json:"externalParameters"`
		ResolvedDependencies []sign.Dependency `json:"resolvedDependencies"`
	} `json:"buildDefinition"`
	RunDetails struct {
		Builder struct {
			ID      string            `json:"id"`
			Version map[string]string `json:"version"`
		} `json:"builder"`
	} `json:"runDetails"`
}

// parameters are those of make release.
type parameters struct {
	Version       string   `json:"version"`
	Registry      string   `json:"registry"`
	Architectures []string `json:"architectures"`
	Darwin        []string `json:"darwin,omitempty"`
}

// commitOf is the commit that is checked out, and whether the checkout differs from it.
func commitOf(ctx context.Context, source string) (commit string, modified bool, err error) {
	out, err := exec.CommandContext(ctx, "git", "-C", source, "rev-parse", "HEAD").Output()
	if err == nil {
		commit = strings.TrimSpace(string(out))
		out, err = exec.CommandContext(ctx, "git", "-C", source, "status", "--porcelain").Output()
	}
	if err != nil {
		return "", false, fmt.Errorf("read the commit (outside of git give --commit): %w", err)
	}
	return commit, len(out) > 0, nil
}

// writeProvenance says from what the folder was made, about all files beside the images and about the images by name.
func writeProvenance(ctx context.Context, o options) error {
	subjects, err := subjectsOf(o)
	if err != nil {
		return fmt.Errorf("write provenance: %w", err)
	}
	var p provenance
	definition := &p.BuildDefinition
	definition.BuildType = buildType
	definition.ExternalParameters = parameters{o.version, o.registry, o.architectures, o.darwin}
	source := sign.Dependency{Name: "source", URI: "git+https://dayone.dev/dayone@" + o.version,
		Digest: map[string]string{"gitCommit": o.commit}}
	if o.modified {
		source.Annotations = map[string]string{modifiedAnnotation: "true"}
	}
	definition.ResolvedDependencies = []sign.Dependency{source}
	for _, name := range []string{"go.mod", "go.sum"} { // they name all modules with their hashes
		sum, err := hashOf(filepath.Join(o.source, name))
		if err != nil {
			return fmt.Errorf("write provenance: %w", err)
		}
		definition.ResolvedDependencies = append(definition.ResolvedDependencies,
			sign.Dependency{Name: name, Digest: sign.Digest("sha256:" + sum)})
	}
	p.RunDetails.Builder.ID, p.RunDetails.Builder.Version = builder, map[string]string{"go": runtime.Version()}
	raw, err := sign.Statement(subjects, p)
	if err == nil {
		err = os.WriteFile(filepath.Join(o.out, provenanceFile), append(raw, '\n'), 0o644)
	}
	if err != nil || o.key == nil {
		return err
	}
	envelope, err := o.key.Envelope(ctx, raw)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(o.out, envelopeFile), append(envelope, '\n'), 0o644)
}

// subjectsOf are the files of the folder, and the images that the layout has by name. Signatures are none: each run
// makes others.
func subjectsOf(o options) (out []sign.Dependency, err error) {
	err = filepath.WalkDir(o.out, func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && d.Name() == imagesDir:
			return fs.SkipDir
		case d.IsDir() || d.Name() == sumsFile:
			return nil
		}
		at, err := filepath.Rel(o.out, name)
		if err != nil {
			return err
		}
		sum, err := hashOf(name)
		out = append(out, sign.Dependency{Name: at, Digest: sign.Digest("sha256:" + sum)})
		return err
	})
	if err != nil {
		return nil, err
	}
	at, err := layout.ImageIndexFromPath(filepath.Join(o.out, imagesDir))
	if err != nil {
		return nil, fmt.Errorf("read images: %w", err)
	}
	index, err := at.IndexManifest()
	if err != nil {
		return nil, fmt.Errorf("read images: %w", err)
	}
	for _, m := range index.Manifests {
		if m.MediaType.IsIndex() {
			out = append(out, sign.Dependency{Name: o.registry + "/" + m.Annotations[refName],
				Digest: sign.Digest(m.Digest.String())})
		}
	}
	return out, nil
}
