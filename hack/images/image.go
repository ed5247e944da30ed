package images

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"dayone.dev/dayone/build/appendengine"
	"dayone.dev/dayone/build/basetree"
	"dayone.dev/dayone/build/configlayer"
	"dayone.dev/dayone/build/job"
)

// Options of Push. The zero value makes an image with an empty list of authorities.
type Options struct {
	// Authorities is a PEM file that becomes the image's list of authorities; default none: the cluster gives its own.
	Authorities string
	// Version is the image's label org.opencontainers.image.version; default none.
	Version string
	// Tag is set beside the digest; default none.
	Tag string
}

// labelVersion and labelTitle are of the OCI image specification.
const (
	labelVersion = "org.opencontainers.image.version"
	labelTitle   = "org.opencontainers.image.title"
)

// binaries is where the program lies; it is in PATH.
const binaries = "/usr/bin/"

// epoch is the time of images and files: a build's time would make equal images differ.
func epoch() time.Time { return time.Unix(0, 0).UTC() }

// Push makes the image of a program from its binary and pushes it to repository (host:port/path). It gives the
// reference by digest.
func Push(ctx context.Context, client *appendengine.Client, p Program, binary, repository string, o Options) (string,
	error) {
	architecture, err := inspect(binary)
	if err != nil {
		return "", err
	}
	scratch, err := p.scratch(ctx, client, repository, architecture)
	if err != nil {
		return "", fmt.Errorf("make image of %s: %w", p.Name, err)
	}
	entries, err := p.entries(binary, o.Authorities)
	if err != nil {
		return "", fmt.Errorf("make image of %s: %w", p.Name, err)
	}
	layer, err := configlayer.Pack(entries, &basetree.Tree{}, epoch())
	if err != nil {
		return "", fmt.Errorf("make image of %s: %w", p.Name, err)
	}
	labels := map[string]string{labelTitle: p.Name}
	if o.Version != "" {
		labels[labelVersion] = o.Version
	}
	pushed, err := client.Append(ctx, scratch, repository, o.Tag, appendengine.Change{
		Layers: []appendengine.Layer{{Blob: layer.Gzip(), DiffID: layer.DiffID, CreatedBy: "dayone: " + p.Name}},
		Labels: labels, Created: epoch(),
	})
	if err != nil {
		return "", fmt.Errorf("make image of %s: %w", p.Name, err)
	}
	return repository + "@" + pushed.Ref.DigestStr(), nil
}

// scratch pushes the image that everything begins with: no files, how the program is started.
func (p Program) scratch(ctx context.Context, client *appendengine.Client, repository,
	architecture string) (*appendengine.Image, error) {
	repo, err := name.NewRepository(repository, name.StrictValidation)
	if err != nil {
		return nil, err
	}
	config := &v1.ConfigFile{
		OS: "linux", Architecture: architecture, Created: v1.Time{Time: epoch()}, RootFS: v1.RootFS{Type: "layers"},
		Config: v1.Config{
			User: p.User, Entrypoint: []string{p.Name}, WorkingDir: "/",
			Env: []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
		},
	}
	image, err := mutate.ConfigFile(mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1),
		types.OCIConfigJSON), config)
	if err != nil {
		return nil, err
	}
	digest, err := image.Digest()
	if err != nil {
		return nil, err
	}
	at := repo.Digest(digest.String())
	if err := remote.Write(at, image, client.Options(ctx)...); err != nil {
		return nil, fmt.Errorf("push %s: %w", at, err)
	}
	return client.Read(ctx, at.String(), "linux/"+architecture)
}

// entries are the image's files. Libraries ask for accounts and for temporary directories; nothing else is needed.
func (p Program) entries(binary, authorities string) ([]configlayer.Entry, error) {
	program, err := os.ReadFile(binary)
	if err != nil {
		return nil, fmt.Errorf("read program: %w", err)
	}
	var pem []byte
	if authorities != "" {
		if pem, err = os.ReadFile(authorities); err != nil {
			return nil, fmt.Errorf("read authorities: %w", err)
		}
	}
	file := func(path string, mode int64, content []byte) configlayer.Entry {
		return configlayer.Entry{Path: path, Kind: basetree.Regular, Mode: mode, Content: content}
	}
	directory := func(path string, mode int64) configlayer.Entry {
		return configlayer.Entry{Path: path, Kind: basetree.Directory, Mode: mode}
	}
	entries := []configlayer.Entry{
		file("/etc/group", 0o644, []byte("root:x:0:\nnonroot:x:65532:\n")),
		file("/etc/passwd", 0o644,
			[]byte("root:x:0:0:root:/:/sbin/nologin\nnonroot:x:65532:65532:nonroot:/:/sbin/nologin\n")),
		file("/etc/ssl/certs/ca-certificates.crt", 0o644, pem),
		directory("/tmp", 0o1777),
		file(binaries+p.Name, 0o755, program),
	}
	for _, name := range p.Also { // beside the binary
		also, err := os.ReadFile(filepath.Join(filepath.Dir(binary), name))
		if err != nil {
			return nil, fmt.Errorf("read program: %w", err)
		}
		entries = append(entries, file(binaries+name, 0o755, also))
	}
	return append(entries,
		directory("/var/tmp", 0o1777), // buildah's library puts files here when every layer is in its cache
		directory(job.DirWork, 0o755)), nil
}
