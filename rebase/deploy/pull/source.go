package pull

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/containers/image/v5/docker"
	"github.com/containers/image/v5/docker/reference"
	"github.com/containers/image/v5/manifest"
	"github.com/containers/image/v5/oci/layout"
	"github.com/containers/image/v5/pkg/blobinfocache/none"
	"github.com/containers/image/v5/pkg/sysregistriesv2"
	"github.com/containers/image/v5/types"
	"github.com/opencontainers/go-digest"
	imgspecv1 "github.com/opencontainers/image-spec/specs-go/v1"

	"dayone.dev/dayone/rebase/deploy"
	"dayone.dev/dayone/registry/places"
)

// maxConfigSize bounds the image configuration kept in memory; 4 MiB as the registry client's own limit for manifests.
const maxConfigSize = 4 << 20

// authFiles are looked up in this order and the first that exists counts, as in ostree-ext (bootc and rpm-ostree read
// the same).
var authFiles = [...]string{"/run/ostree/auth.json", "/etc/ostree/auth.json", "/usr/lib/ostree/auth.json"}

// candidate is one place that may have an image.
type candidate struct {
	name   string // for people: host/path@sha256:… or oci:DIR
	digest digest.Digest
	ref    types.ImageReference
	sys    *types.SystemContext
}

// fetched is what is known about an image without its layers.
type fetched struct {
	source         types.ImageSource
	manifestRaw    []byte
	manifestDigest digest.Digest
	layers         []types.BlobInfo
	configRaw      []byte
	config         imgspecv1.Image
	encapsulated   int // layers that make up the ostree commit; 0: all layers are plain
}

// candidates lists the places that may have source: the mirrors of registries.conf(.d) in their order, then the
// registry itself.
func candidates(source string, o Options) ([]candidate, error) {
	sys, err := systemContext(o)
	if err != nil {
		return nil, err
	}
	if dir, ok := strings.CutPrefix(source, "oci:"); ok {
		ref, err := layout.ParseReference(dir)
		if err != nil {
			return nil, fmt.Errorf("read image reference %q: %w", source, err)
		}
		return []candidate{{name: source, ref: ref, sys: sys}}, nil
	}
	image, err := deploy.ParseImage(source)
	if err != nil {
		return nil, err
	}
	named, err := reference.ParseNamed(image.String())
	if err != nil {
		return nil, fmt.Errorf("read image reference %q: %w", source, err)
	}
	sysregistriesv2.InvalidateCache() // the drop-ins may have been written since the last try
	registry, err := sysregistriesv2.FindRegistry(sys, named.Name())
	if err != nil {
		return nil, fmt.Errorf("read registries.conf: %w", err)
	}
	pulls := []sysregistriesv2.PullSource{{Reference: named}}
	if registry != nil {
		if pulls, err = registry.PullSourcesFromReference(named); err != nil {
			return nil, fmt.Errorf("apply registries.conf to %q: %w", source, err)
		}
		if pulls, err = places.Unblocked(sys, registry.Prefix, pulls); err != nil {
			return nil, err
		}
	}
	var all []candidate
	for _, pull := range pulls {
		ref, err := docker.NewReference(pull.Reference)
		if err != nil {
			return nil, fmt.Errorf("read image reference %q: %w", pull.Reference, err)
		}
		// registries.conf has been applied: the client must not apply it again to each of its results.
		direct := *sys
		direct.SystemRegistriesConfPath, direct.SystemRegistriesConfDirPath = os.DevNull, "/nonexistent/registries.conf.d"
		if pull.Endpoint.Insecure {
			direct.DockerInsecureSkipTLSVerify = types.OptionalBoolTrue
		}
		all = append(all, candidate{name: pull.Reference.String(), digest: image.Digest, ref: ref, sys: &direct})
	}
	return all, nil
}

// tryEach asks the candidates for source one after the other until one succeeds.
func tryEach[T any](ctx context.Context, source string, o Options, try func(candidate) (T, error)) (T, error) {
	var none T
	all, err := candidates(source, o)
	if err != nil {
		return none, &deploy.Fault{Class: deploy.ClassConfig, Op: "find image " + source, Err: err}
	}
	if i := slices.IndexFunc(all, func(c candidate) bool { return c.name == o.First }); i > 0 {
		first := all[i]
		all = slices.Insert(slices.Delete(all, i, i+1), 0, first)
	}
	var failures []error
	for _, c := range all {
		done, err := try(c)
		if err == nil {
			return done, nil
		}
		failures = append(failures, err)
		if !worthAnotherRegistry(deploy.ClassOf(err)) || ctx.Err() != nil {
			break
		}
		o.Log.WithError(err).WithField("source", c.name).Debug("image is not available from this source")
	}
	return none, firstOf(failures)
}

// firstOf gives the failures of all sources with the class of the first: the mirror configured for this image tells
// more than the registry behind it, which may not exist yet.
func firstOf(failures []error) error {
	if len(failures) == 1 {
		return failures[0]
	}
	var f *deploy.Fault
	if !errors.As(failures[0], &f) {
		return errors.Join(failures...)
	}
	text := failures[0].Error()
	for _, other := range failures[1:] {
		text += "; also: " + other.Error()
	}
	return &deploy.Fault{Class: f.Class, Op: "fetch image", Err: joined{text, failures}}
}

type joined struct {
	text string
	errs []error
}

func (j joined) Error() string   { return j.text }
func (j joined) Unwrap() []error { return j.errs }

func worthAnotherRegistry(c deploy.Class) bool {
	switch c {
	case deploy.ClassUnreachable, deploy.ClassUnauthorized, deploy.ClassForbidden, deploy.ClassNotFound,
		deploy.ClassRegistry, deploy.ClassUntrusted, deploy.ClassExpired, deploy.ClassCorrupted, deploy.ClassUnsigned:
		return true
	default:
		return false
	}
}

func systemContext(o Options) (*types.SystemContext, error) {
	sys := &types.SystemContext{
		RootForImplicitAbsolutePaths: o.Root,
		ArchitectureChoice:           o.Architecture,
		OSChoice:                     "linux",
		DockerRegistryUserAgent:      "dayone",
		AuthFilePath:                 o.AuthFile,
		DockerPerHostCertDirPath:     o.CertsDir,
		RegistriesDirPath:            filepath.Join(o.Root, registriesDir), // never a person's ~/.config
	}
	if o.RegistriesConfDir != "" {
		sys.SystemRegistriesConfDirPath = o.RegistriesConfDir
	}
	if sys.AuthFilePath != "" {
		return sys, nil
	}
	for _, name := range authFiles {
		p := filepath.Join(o.Root, name)
		_, err := os.Stat(p)
		if err == nil {
			sys.AuthFilePath = p
			return sys, nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("look for registry credentials: %w", err)
		}
	}
	sys.DockerAuthConfig = &types.DockerAuthConfig{} // anonymous; never a person's ~/.docker
	return sys, nil
}

// fetch reads manifest and configuration within limit, and checks their digests.
func (c candidate) fetch(ctx context.Context, limit time.Duration) (f *fetched, err error) {
	err = inTime(ctx, limit, func(ctx context.Context) error {
		f, err = c.open(ctx)
		return err
	})
	if err != nil {
		return nil, classify("read image "+c.name, err)
	}
	return f, nil
}

func (c candidate) open(ctx context.Context) (*fetched, error) {
	src, err := c.ref.NewImageSource(ctx, c.sys)
	if err != nil {
		return nil, classify("open image "+c.name, err)
	}
	f, err := c.fetchFrom(ctx, src)
	if err != nil {
		return nil, errors.Join(classify("read image "+c.name, err), src.Close())
	}
	return f, nil
}

func (c candidate) fetchFrom(ctx context.Context, src types.ImageSource) (*fetched, error) {
	raw, mime, err := getManifest(ctx, src, nil, c.digest)
	if err != nil {
		return nil, err
	}
	if manifest.MIMETypeIsMultiImage(mime) {
		list, err := manifest.ListFromBlob(raw, mime)
		if err != nil {
			return nil, fmt.Errorf("read image index: %w", err)
		}
		instance, err := list.ChooseInstance(c.sys)
		if err != nil {
			return nil, &deploy.Fault{Class: deploy.ClassArchitecture,
				Op: "choose image for " + c.sys.ArchitectureChoice, Err: err,
				Next: "push an image for this node's architecture"}
		}
		if raw, mime, err = getManifest(ctx, src, &instance, instance); err != nil {
			return nil, err
		}
	}
	f := &fetched{source: src, manifestRaw: raw, manifestDigest: digest.FromBytes(raw)}
	m, err := manifest.FromBlob(raw, mime)
	if err != nil {
		return nil, fmt.Errorf("read image manifest: %w", err)
	}
	for _, l := range m.LayerInfos() {
		f.layers = append(f.layers, l.BlobInfo)
	}
	if f.configRaw, err = getSmallBlob(ctx, src, m.ConfigInfo()); err != nil {
		return nil, err
	}
	if err := json.Unmarshal(f.configRaw, &f.config); err != nil {
		return nil, fmt.Errorf("read image configuration: %w", err)
	}
	if len(f.config.RootFS.DiffIDs) != len(f.layers) {
		return nil, &deploy.Fault{Class: deploy.ClassCorrupted, Op: "read image configuration", Next: "build the image again",
			Err: fmt.Errorf("%d layers in the manifest, %d in the configuration", len(f.layers), len(f.config.RootFS.DiffIDs))}
	}
	if f.encapsulated, err = encapsulatedLayers(f.config); err != nil {
		return nil, err
	}
	return f, nil
}

func getManifest(ctx context.Context, src types.ImageSource, instance *digest.Digest, want digest.Digest) ([]byte,
	string, error) {
	raw, mime, err := src.GetManifest(ctx, instance)
	if err != nil {
		return nil, "", fmt.Errorf("fetch manifest: %w", err)
	}
	if got := digest.FromBytes(raw); want != "" && got != want {
		return nil, "", corrupted("fetch manifest", want, got, "")
	}
	if mime == "" {
		mime = manifest.GuessMIMEType(raw)
	}
	return raw, mime, nil
}

func getSmallBlob(ctx context.Context, src types.ImageSource, info types.BlobInfo) (raw []byte, err error) {
	blob, _, err := src.GetBlob(ctx, info, none.NoCache)
	if err != nil {
		return nil, fmt.Errorf("fetch image configuration: %w", err)
	}
	defer func() { err = errors.Join(err, blob.Close()) }()
	raw, err = io.ReadAll(io.LimitReader(blob, maxConfigSize+1))
	if err != nil {
		return nil, fmt.Errorf("fetch image configuration: %w", err)
	}
	if len(raw) > maxConfigSize {
		return nil, fmt.Errorf("image configuration is larger than %d bytes", maxConfigSize)
	}
	if got := digest.FromBytes(raw); got != info.Digest {
		return nil, corrupted("fetch image configuration", info.Digest, got, "")
	}
	return raw, nil
}

func corrupted(op string, want, got digest.Digest, detail string) error {
	return &deploy.Fault{Class: deploy.ClassCorrupted, Op: op,
		Err:  fmt.Errorf("content is %s, wanted %s%s", got, want, detail),
		Next: "repair the copy in the registry (push the image again); nothing of it was used"}
}
