package buildlog

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"dayone.dev/dayone/build/appendengine"
	"dayone.dev/dayone/manifests"
)

// artifactType is the type of a log's manifest. Its configuration has the same type, by which registries without
// referrers index it (OCI distribution specification, referrers tag schema).
const artifactType = "application/vnd.dayone.build.log.v1"

// Annotations of a log's manifest beside org.opencontainers.image.created.
const (
	// annotationBuild names the MachineOSBuild.
	annotationBuild = manifests.DayonePrefix + "machine-os-build"
	// annotationPool names the pool.
	annotationPool = manifests.DayonePrefix + "pool"
	// annotationOutcome is Succeeded or Failed.
	annotationOutcome = manifests.DayonePrefix + "outcome"

	annotationCreated = "org.opencontainers.image.created"
	annotationTitle   = "org.opencontainers.image.title"
)

const (
	// MaxSize bounds a log, in bytes; what is longer loses its middle before it is kept.
	MaxSize = 8 << 20
	// fileName is what clients of artifacts call the text.
	fileName = "build.log"
	// tagPrefix begins the tag of a log, so that it is never taken for an image's.
	tagPrefix = "log-"
	tagDigits = 40
)

// Log is a kept log.
type Log struct {
	// Build, Pool and Outcome say what it is the log of.
	Build, Pool, Outcome string
	// Image is the digest of the image that the build made, empty for a failed one.
	Image string
	// Created is when the build ended.
	Created time.Time
	// Text is UTF-8, without secrets.
	Text []byte
}

// ErrNotFound means that the registry has no log of the build.
var ErrNotFound = errors.New("there is no log of this build in the registry")

// tagOf is the tag under which a build's log is kept. The controller deletes the log with the build.
func tagOf(machineOSBuild string) string {
	sum := sha256.Sum256([]byte(machineOSBuild))
	return tagPrefix + hex.EncodeToString(sum[:])[:tagDigits]
}

// manifest is an OCI image manifest with subject and artifactType (OCI image specification 1.1).
type manifest struct {
	SchemaVersion int               `json:"schemaVersion"`
	MediaType     types.MediaType   `json:"mediaType"`
	ArtifactType  string            `json:"artifactType"`
	Config        v1.Descriptor     `json:"config"`
	Layers        []v1.Descriptor   `json:"layers"`
	Subject       *v1.Descriptor    `json:"subject,omitempty"`
	Annotations   map[string]string `json:"annotations,omitempty"`
}

// rawManifest can be pushed.
type rawManifest []byte

func (m rawManifest) RawManifest() ([]byte, error)        { return m, nil }
func (m rawManifest) MediaType() (types.MediaType, error) { return types.OCIManifestSchema1, nil }

// Push keeps a log in repository (host:port/path) and gives its reference by digest. A log of the same build is
// replaced.
func Push(ctx context.Context, client *appendengine.Client, repository string, l Log) (string, error) {
	repo, err := name.NewRepository(repository, name.StrictValidation)
	if err != nil {
		return "", fmt.Errorf("keep build log: %w", err)
	}
	options := client.Options(ctx)
	m := manifest{
		SchemaVersion: 2, MediaType: types.OCIManifestSchema1, ArtifactType: artifactType,
		Annotations: map[string]string{
			annotationBuild: l.Build, annotationPool: l.Pool, annotationOutcome: l.Outcome,
			annotationCreated: l.Created.UTC().Format(time.RFC3339),
		},
	}
	if l.Image != "" {
		if m.Subject, err = remote.Head(repo.Digest(l.Image), options...); err != nil {
			return "", fmt.Errorf("keep build log beside %s@%s: %w", repo, l.Image, err)
		}
		m.Subject = &v1.Descriptor{MediaType: m.Subject.MediaType, Size: m.Subject.Size, Digest: m.Subject.Digest}
	}
	text := static.NewLayer(bounded(l.Text), "text/plain")
	empty := static.NewLayer([]byte("{}"), artifactType)
	for _, blob := range []v1.Layer{empty, text} {
		if err := remote.WriteLayer(repo, blob, options...); err != nil {
			return "", fmt.Errorf("keep build log in %s: %w", repo, err)
		}
	}
	config, configErr := partial.Descriptor(empty)
	layer, layerErr := partial.Descriptor(text)
	if err := errors.Join(configErr, layerErr); err != nil {
		return "", fmt.Errorf("describe build log: %w", err)
	}
	layer.Annotations = map[string]string{annotationTitle: fileName}
	m.Config, m.Layers = *config, []v1.Descriptor{*layer}
	raw, err := json.Marshal(m)
	if err != nil {
		return "", fmt.Errorf("encode manifest of build log: %w", err)
	}
	if err := remote.Put(repo.Tag(tagOf(l.Build)), rawManifest(raw), options...); err != nil {
		return "", fmt.Errorf("keep build log in %s: %w", repo, err)
	}
	sum := sha256.Sum256(raw)
	return repo.Digest("sha256:" + hex.EncodeToString(sum[:])).String(), nil
}

// bounded takes the middle out of what is too long.
func bounded(text []byte) []byte {
	if len(text) <= MaxSize {
		return text
	}
	const gap = "\n… the middle of this log is not kept …\n"
	half := (MaxSize - len(gap)) / 2
	out := append([]byte(nil), text[:half]...)
	return append(append(out, gap...), text[len(text)-half:]...)
}

// Read finds the log of a build: by the build's tag, else, where that has gone or the image was copied elsewhere, among
// what refers to the image. image is the digest and may be empty. ErrNotFound means that neither has it.
func Read(ctx context.Context, client *appendengine.Client, repository, machineOSBuild, image string) (*Log, error) {
	repo, err := name.NewRepository(repository, name.StrictValidation)
	if err != nil {
		return nil, fmt.Errorf("find build log: %w", err)
	}
	l, err := read(ctx, client, repo.Tag(tagOf(machineOSBuild)))
	if appendengine.StatusOf(err) != http.StatusNotFound || image == "" {
		return l, found(err)
	}
	index, err := remote.Referrers(repo.Digest(image),
		append(client.Options(ctx), remote.WithFilter("artifactType", artifactType))...)
	if err != nil {
		return nil, fmt.Errorf("find build log of %s@%s: %w", repo, image, err)
	}
	list, err := index.IndexManifest()
	if err != nil {
		return nil, fmt.Errorf("find build log of %s@%s: %w", repo, image, err)
	}
	var any *Log
	for _, d := range list.Manifests {
		l, err := read(ctx, client, repo.Digest(d.Digest.String()))
		if err != nil {
			return nil, found(err)
		}
		if l.Build == machineOSBuild {
			return l, nil
		}
		any = l
	}
	if any == nil { // another build's log of the same image says how it was made, too
		return nil, ErrNotFound
	}
	return any, nil
}

// found makes "no such manifest" this package's own error.
func found(err error) error {
	if appendengine.StatusOf(err) == http.StatusNotFound {
		return ErrNotFound
	}
	return err
}

func read(ctx context.Context, client *appendengine.Client, ref name.Reference) (*Log, error) {
	options := client.Options(ctx)
	d, err := remote.Get(ref, options...)
	if err != nil {
		return nil, fmt.Errorf("read build log %s: %w", ref, err)
	}
	var m manifest
	if err := json.Unmarshal(d.Manifest, &m); err != nil {
		return nil, fmt.Errorf("read build log %s: %w", ref, err)
	}
	if m.ArtifactType != artifactType || len(m.Layers) != 1 {
		return nil, fmt.Errorf("read build log %s: it is a %s and no build log", ref, m.ArtifactType)
	}
	layer, err := remote.Layer(ref.Context().Digest(m.Layers[0].Digest.String()), options...)
	if err != nil {
		return nil, fmt.Errorf("read build log %s: %w", ref, err)
	}
	body, err := layer.Compressed()
	if err != nil {
		return nil, fmt.Errorf("read build log %s: %w", ref, err)
	}
	defer body.Close()
	l := &Log{Build: m.Annotations[annotationBuild], Pool: m.Annotations[annotationPool],
		Outcome: m.Annotations[annotationOutcome]}
	if m.Subject != nil {
		l.Image = m.Subject.Digest.String()
	}
	if at, err := time.Parse(time.RFC3339, m.Annotations[annotationCreated]); err == nil {
		l.Created = at
	}
	if l.Text, err = io.ReadAll(io.LimitReader(body, MaxSize)); err != nil {
		return nil, fmt.Errorf("read build log %s: %w", ref, err)
	}
	return l, nil
}
