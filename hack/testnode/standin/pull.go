package standin

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/containers/image/v5/docker"
	"github.com/containers/image/v5/image"
	"github.com/containers/image/v5/manifest"
	"github.com/containers/image/v5/pkg/blobinfocache/none"
	"github.com/containers/image/v5/signature"
	"github.com/containers/image/v5/types"
	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ispec "github.com/opencontainers/image-spec/specs-go/v1"

	"dayone.dev/dayone/rebase/deploy"
	"dayone.dev/dayone/rebase/deploy/pull"
)

const policyPath = "/etc/containers/policy.json"

// proxyError is how what `skopeo experimental-image-proxy` says reaches the user.
type proxyError struct {
	method string
	err    error
}

func (e proxyError) Error() string {
	return fmt.Sprintf("failed to invoke method %s: %v", e.method, e.err)
}

func (e proxyError) Unwrap() error { return e.err }

// pulled is an image in the repository.
type pulled struct {
	commit  string
	digest  string
	version string
}

// puller fetches as ostree-ext does: the same files, in the same order, with the same refusals. The import is the plain
// one.
type puller struct {
	out          host
	unprivileged bool // rpm-ostree's fetcher is not root
}

func (p puller) pull(ctx context.Context, r reference) (done pulled, err error) {
	if r.signed && insecureDefault() {
		return done, errors.New("containers-policy.json specifies a default of `insecureAcceptAnything`; refusing usage")
	}
	sys, err := p.systemContext()
	if err != nil {
		return done, proxyError{"OpenImage", err}
	}
	src, raw, mime, err := open(ctx, sys, r.image)
	if err != nil {
		return done, proxyError{"OpenImage", err}
	}
	defer func() { err = errors.Join(err, src.Close()) }()
	m, err := manifest.FromBlob(raw, mime)
	if err != nil {
		return done, proxyError{"GetManifest", err}
	}
	dir, err := os.MkdirTemp("/run", "standin-pull-") // a tmpfs: nothing of it outlives a power cut
	if err != nil {
		return done, fmt.Errorf("make directory: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	l := blobDir{dir}
	if err := l.begin(raw, mime); err != nil {
		return done, err
	}
	if err := l.fetch(ctx, src, m.ConfigInfo()); err != nil {
		return done, err
	}
	config, err := l.config(m.ConfigInfo().Digest)
	if err != nil {
		return done, err
	}
	if err := requireBootable(config); err != nil {
		return done, err
	}
	if err := p.fetchLayers(ctx, l, src, m.LayerInfos()); err != nil {
		return done, err
	}
	// A kernel that is not there is libostree's to find.
	imported, err := pull.Import(ctx, repoPath, "oci:"+dir, pull.Options{As: "docker://" + r.image,
		AllowUnbootable: true})
	if err != nil {
		var f *deploy.Fault
		switch {
		// found before anything is written; the real programs run into it
		case errors.As(err, &f) && f.Class == deploy.ClassDiskFull:
			err = words("Failed to commit tar: No space left on device (os error 28)")
		case f != nil && f.Err != nil:
			err = f.Err // its advice is not the real program's
		}
		return done, words("Importing: %w", err)
	}
	return pulled{commit: imported.Commit, digest: imported.ManifestDigest.String(),
		version: config.Config.Labels["version"]}, nil
}

// resolve asks the registry what a reference names now.
func (p puller) resolve(ctx context.Context, r reference) (d string, err error) {
	sys, err := p.systemContext()
	if err != nil {
		return "", proxyError{"OpenImage", err}
	}
	src, raw, _, err := open(ctx, sys, r.image)
	if err != nil {
		return "", proxyError{"OpenImage", err}
	}
	return digest.FromBytes(raw).String(), src.Close()
}

func (p puller) fetchLayers(ctx context.Context, l blobDir, src types.ImageSource, layers []manifest.LayerInfo) error {
	refs, err := ostree(ctx, "refs", "--repo="+repoPath)
	if err != nil {
		return err
	}
	for _, layer := range layers {
		// Source of the name: ostree-ext, which escapes the colon.
		if strings.Contains(refs, "ostree/container/blob/sha256_3A_"+layer.Digest.Encoded()) {
			continue
		}
		p.out.say("Fetching layer %s (%d bytes)", layer.Digest.String()[:19], layer.Size)
		if err := l.fetch(ctx, src, layer.BlobInfo); err != nil {
			return words("Importing: %w", err)
		}
		if err := l.validatePaths(layer.Digest); err != nil {
			return words("Importing: %w", err)
		}
	}
	return nil
}

// systemContext is what the image proxy is started with.
func (p puller) systemContext() (*types.SystemContext, error) {
	if p.unprivileged {
		if err := worldReadable("/etc/containers"); err != nil {
			return nil, err
		}
	}
	sys := &types.SystemContext{ArchitectureChoice: runtime.GOARCH, OSChoice: "linux", SignaturePolicyPath: policyPath}
	// The first file that exists counts, whole; a person's ~/.docker never does.
	for _, path := range []string{"/run/ostree/auth.json", "/etc/ostree/auth.json", "/usr/lib/ostree/auth.json"} {
		if _, err := os.Stat(path); err == nil {
			sys.AuthFilePath = path
			return sys, nil
		}
	}
	sys.DockerAuthConfig = &types.DockerAuthConfig{}
	return sys, nil
}

// worldReadable refuses what a fetcher without privileges could not open.
func worldReadable(dir string) error {
	return filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		want := fs.FileMode(0o004)
		if d.IsDir() {
			want = 0o005
		}
		if d.Type()&fs.ModeSymlink == 0 && info.Mode().Perm()&want != want {
			return fmt.Errorf("open %s: permission denied", path)
		}
		return nil
	})
}

// open finds the image, on mirrors too, and asks the policy, as `OpenImage` of the proxy does.
func open(ctx context.Context, sys *types.SystemContext, name string) (_ types.ImageSource, raw []byte, mime string,
	err error) {
	ref, err := docker.ParseReference("//" + name)
	if err != nil {
		return nil, nil, "", err
	}
	policy, err := signature.NewPolicyFromFile(policyPath)
	if err != nil {
		return nil, nil, "", err
	}
	judge, err := signature.NewPolicyContext(policy)
	if err != nil {
		return nil, nil, "", err
	}
	defer func() { err = errors.Join(err, judge.Destroy()) }()
	src, err := ref.NewImageSource(ctx, sys)
	if err != nil {
		return nil, nil, "", err
	}
	raw, mime, err = readManifest(ctx, sys, src, judge)
	if err != nil {
		return nil, nil, "", errors.Join(err, src.Close())
	}
	return src, raw, mime, nil
}

func readManifest(ctx context.Context, sys *types.SystemContext, src types.ImageSource,
	judge *signature.PolicyContext) ([]byte, string, error) {
	top := image.UnparsedInstance(src, nil)
	if ok, err := judge.IsRunningImageAllowed(ctx, top); !ok {
		return nil, "", err
	}
	raw, mime, err := top.Manifest(ctx)
	if err != nil || !manifest.MIMETypeIsMultiImage(mime) {
		return raw, mime, err
	}
	list, err := manifest.ListFromBlob(raw, mime)
	if err != nil {
		return nil, "", err
	}
	instance, err := list.ChooseInstance(sys)
	if err != nil {
		return nil, "", err
	}
	return image.UnparsedInstance(src, &instance).Manifest(ctx)
}

func insecureDefault() bool {
	raw, err := os.ReadFile(policyPath)
	var policy struct {
		Default []struct {
			Type string `json:"type"`
		} `json:"default"`
	}
	return err == nil && json.Unmarshal(raw, &policy) == nil && len(policy.Default) > 0 &&
		policy.Default[0].Type == "insecureAcceptAnything"
}

// requireBootable are the two refusals that both programs share.
func requireBootable(c ispec.Image) error {
	_, bootable := c.Config.Labels["ostree.bootable"]
	_, bootc := c.Config.Labels["containers.bootc"]
	if !bootable && !bootc {
		return words("Target image does not have ostree.bootable label")
	}
	if c.Architecture != runtime.GOARCH {
		return words("Image has architecture %s; expected %s", c.Architecture, runtime.GOARCH)
	}
	return nil
}

// blobDir is an OCI layout that gets the blobs as they come.
type blobDir struct{ dir string }

func (l blobDir) begin(raw []byte, mime string) error {
	if err := os.MkdirAll(filepath.Join(l.dir, "blobs/sha256"), 0o700); err != nil {
		return fmt.Errorf("make layout: %w", err)
	}
	d := ispec.Descriptor{MediaType: mime, Digest: digest.FromBytes(raw), Size: int64(len(raw))}
	index, err := json.Marshal(ispec.Index{Versioned: specs.Versioned{SchemaVersion: 2}, Manifests: []ispec.Descriptor{d}})
	if err != nil {
		return fmt.Errorf("make layout: %w", err)
	}
	for name, content := range map[string][]byte{"index.json": index,
		"oci-layout": []byte(`{"imageLayoutVersion":"1.0.0"}`), "blobs/sha256/" + d.Digest.Encoded(): raw} {
		if err := os.WriteFile(filepath.Join(l.dir, name), content, 0o600); err != nil {
			return fmt.Errorf("make layout: %w", err)
		}
	}
	return nil
}

// fetch stores one blob; the words of its refusals are those of the proxy's FinishPipe.
func (l blobDir) fetch(ctx context.Context, src types.ImageSource, blob types.BlobInfo) (err error) {
	r, _, err := src.GetBlob(ctx, blob, none.NoCache)
	if err != nil {
		return proxyError{"GetBlob", err}
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	var content bytes.Buffer
	if _, err := io.Copy(&content, r); err != nil {
		return proxyError{"FinishPipe", err}
	}
	if digest.FromBytes(content.Bytes()) != blob.Digest {
		return proxyError{"FinishPipe", fmt.Errorf("corrupted blob, expecting %s", blob.Digest)}
	}
	return os.WriteFile(filepath.Join(l.dir, "blobs/sha256", blob.Digest.Encoded()), content.Bytes(), 0o600)
}

// validatePaths refuses what ostree-ext's filter of layers and libostree's import of archives refuse, in their words.
// Sources: ostree-ext, tar/write.rs; libostree, ostree-mutable-tree.c.
func (l blobDir) validatePaths(d digest.Digest) (err error) {
	f, err := os.Open(filepath.Join(l.dir, "blobs/sha256", d.Encoded()))
	if err != nil {
		return fmt.Errorf("read layer: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	z, err := gzip.NewReader(f)
	if err != nil {
		return nil //nolint:nilerr // another compression; what is damaged is libostree's to find
	}
	entries, files := tar.NewReader(z), map[string]bool{}
	for {
		h, err := entries.Next()
		if err != nil {
			return nil //nolint:nilerr // the end, or as above
		}
		if slices.Contains(strings.Split(h.Name, "/"), "..") {
			return words("Invalid path: %s", h.Name)
		}
		name := path.Clean("/" + h.Name)
		files[name] = h.Typeflag != tar.TypeDir
		if parent := path.Dir(name); files[parent] {
			return words("Can't replace file with directory: %s", path.Base(parent))
		}
	}
}

func (l blobDir) config(d digest.Digest) (c ispec.Image, err error) {
	raw, err := os.ReadFile(filepath.Join(l.dir, "blobs/sha256", d.Encoded()))
	if err != nil {
		return c, fmt.Errorf("read image configuration: %w", err)
	}
	if err := json.Unmarshal(raw, &c); err != nil {
		return c, fmt.Errorf("read image configuration: %w", err)
	}
	return c, nil
}
