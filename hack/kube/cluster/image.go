package cluster

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"dayone.dev/dayone/registry/credentials"
	"dayone.dev/dayone/registry/transfer"
)

// Image is a small image of files of this machine, for example of one static program.
type Image struct {
	// Repository without the registry, for example tools/builder.
	Repository string
	// Files of this machine by their path in the image. Those that may be executed here may be executed there.
	Files map[string]string
	// Links are symbolic links, target by path.
	Links map[string]string
	// Dirs are further directories; those named tmp get mode 1777.
	Dirs []string
	// Entrypoint is the program and its first arguments.
	Entrypoint []string
	// Env are NAME=value; default a PATH.
	Env []string
	// Labels of the image.
	Labels map[string]string
}

// target is a repository and how it is reached.
type target struct {
	address, caFile, authFile string
}

// push writes the image and gives its digest. Equal files give an equal digest.
func (i Image) push(ctx context.Context, to target) (string, error) {
	img, err := i.build()
	if err != nil {
		return "", fmt.Errorf("build image %s: %w", i.Repository, err)
	}
	ref, err := name.ParseReference(to.address+"/"+i.Repository+":latest", name.StrictValidation)
	if err != nil {
		return "", err
	}
	auth, err := to.auth()
	if err != nil {
		return "", err
	}
	transport, err := to.transport()
	if err != nil {
		return "", err
	}
	defer transport.CloseIdleConnections()
	if err := remote.Write(ref, img, remote.WithContext(ctx), remote.WithAuth(auth),
		remote.WithTransport(transport)); err != nil {
		return "", fmt.Errorf("push image %s: %w", i.Repository, err)
	}
	digest, err := img.Digest()
	return digest.String(), err
}

func (t target) transport() (*http.Transport, error) {
	ca, err := os.ReadFile(t.caFile)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(ca) {
		return nil, errors.New("read the registry's authority: no certificate in it")
	}
	return &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}}, nil
}

func (t target) auth() (authn.Authenticator, error) {
	accounts, err := credentials.Read(t.authFile)
	if err != nil {
		return nil, err
	}
	registry, err := name.NewRegistry(t.address)
	if err != nil {
		return nil, err
	}
	return transfer.Keychain(accounts).Resolve(registry)
}

func (i Image) build() (v1.Image, error) {
	raw, err := i.layer()
	if err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(raw)), nil },
		tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, err
	}
	img := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	if img, err = mutate.AppendLayers(img, layer); err != nil {
		return nil, err
	}
	config, err := img.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.Architecture, config.OS = runtime.GOARCH, "linux"
	config.Config.Entrypoint, config.Config.Env, config.Config.Labels = i.Entrypoint, i.Env, i.Labels
	if config.Config.Env == nil {
		config.Config.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
	}
	return mutate.ConfigFile(img, config)
}

// layer is the image's only layer: directories, links and files in the order of their names, all of them root's.
func (i Image) layer() ([]byte, error) {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, dir := range i.directories() {
		mode := int64(0o755)
		if path.Base(dir) == "tmp" {
			mode = 0o1777
		}
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: dir + "/", Mode: mode,
			ModTime: epoch()}); err != nil {
			return nil, err
		}
	}
	for _, p := range slices.Sorted(maps.Keys(i.Links)) {
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeSymlink, Name: clean(p), Linkname: i.Links[p], Mode: 0o777,
			ModTime: epoch()}); err != nil {
			return nil, err
		}
	}
	for _, p := range slices.Sorted(maps.Keys(i.Files)) {
		if err := addFile(w, clean(p), i.Files[p]); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// directories are Dirs and the parents of all that is in the image, parents first.
func (i Image) directories() []string {
	seen := map[string]bool{}
	add := func(dir string) {
		for ; dir != "."; dir = path.Dir(dir) {
			seen[dir] = true
		}
	}
	for _, d := range i.Dirs {
		add(clean(d))
	}
	for p := range i.Files {
		add(path.Dir(clean(p)))
	}
	for p := range i.Links {
		add(path.Dir(clean(p)))
	}
	return slices.Sorted(maps.Keys(seen))
}

func addFile(w *tar.Writer, p, source string) error {
	f, err := os.Open(source)
	if err != nil {
		return err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return err
	}
	if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: p, Size: st.Size(), Mode: int64(st.Mode().Perm()),
		ModTime: epoch()}); err != nil {
		return err
	}
	_, err = io.Copy(w, f)
	return err
}

func clean(p string) string { return strings.TrimPrefix(path.Clean("/"+p), "/") }

func epoch() time.Time { return time.Unix(0, 0) }
