package transfer

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/containers/image/v5/docker"
	dockerarchive "github.com/containers/image/v5/docker/archive"
	"github.com/containers/image/v5/docker/reference"
	ocilayout "github.com/containers/image/v5/oci/layout"
	"github.com/containers/image/v5/types"
	"github.com/opencontainers/go-digest"

	"dayone.dev/dayone/registry/credentials"
)

// Endpoint is an image's place and how to reach it. Nothing of the host's container configuration is read: no
// registries.conf, certs.d, policy.json or auth file beside those named here.
type Endpoint struct {
	// Reference is docker://HOST/REPOSITORY[:TAG|@DIGEST] (docker:// may be left out), oci:DIRECTORY[:REF] or
	// docker-archive:FILE[:REF].
	Reference string
	// CAFile is a PEM file with the registry's CA; "" trusts the system's CAs.
	CAFile string
	// AuthFile is a pull secret (auth.json); Username and Password take precedence. With none the registry is asked
	// anonymously.
	AuthFile           string
	Username, Password string
	// Insecure allows plain HTTP and skips the check of certificates: for a registry on loopback.
	Insecure bool
	// RegistriesConf is the content of a registries.conf whose mirrors are asked first; nil asks none.
	RegistriesConf []byte
}

// digested is the image of an endpoint that names it by digest, in a registry.
func (e Endpoint) digested() (reference.Named, digest.Digest, error) {
	ref, err := e.parse()
	if err != nil {
		return nil, "", err
	}
	named, ok := ref.DockerReference().(reference.Digested)
	if !ok || ref.Transport().Name() != "docker" {
		return nil, "", fmt.Errorf("image %s: name it by digest in a registry, HOST/REPOSITORY@sha256:…", e.Reference)
	}
	return ref.DockerReference(), named.Digest(), nil
}

// UseAccountOf takes the account of a pull secret, whatever registry its first entry names: registries that share their
// accounts need no entry for each of their addresses. "" takes none.
func (e *Endpoint) UseAccountOf(file string) error {
	if file == "" {
		return nil
	}
	accounts, err := credentials.Read(file)
	if err != nil {
		return err
	}
	hosts := slices.Sorted(maps.Keys(accounts))
	if len(hosts) == 0 {
		return fmt.Errorf("read credentials %s: there is no account", file)
	}
	account, _, err := accounts.Find(hosts[0])
	if err != nil {
		return err
	}
	e.Username, e.Password = account.Username, account.Password
	return nil
}

// parse recognises the transport. transports/alltransports would do it and link containers/storage.
func (e Endpoint) parse() (types.ImageReference, error) {
	name := e.Reference
	switch {
	case strings.HasPrefix(name, "oci:"):
		return wrapParse(ocilayout.ParseReference(strings.TrimPrefix(name, "oci:")))
	case strings.HasPrefix(name, "docker-archive:"):
		return wrapParse(dockerarchive.ParseReference(strings.TrimPrefix(name, "docker-archive:")))
	}
	name = strings.TrimPrefix(name, "docker://")
	if i := strings.IndexAny(name, ":/"); i > 0 && name[i] == ':' && !strings.Contains(name, "/") &&
		!strings.Contains(name, ".") {
		return nil, fmt.Errorf(
			"parse image %q: the transport is not known, use docker://HOST/REPOSITORY, oci:DIRECTORY or docker-archive:FILE",
			e.Reference)
	}
	named, err := reference.ParseNormalizedNamed(name)
	if err != nil {
		return nil, fmt.Errorf("parse image %q: %w", e.Reference, err)
	}
	if !strings.HasPrefix(name, reference.Domain(named)+"/") {
		missing := "registry"
		if strings.Contains(name, ".") && !strings.Contains(name, "/") {
			missing = "repository"
		}
		return nil, fmt.Errorf("parse image %q: the %s is missing, write HOST/REPOSITORY", e.Reference, missing)
	}
	// a tag beside a digest says nothing and is refused by the transport
	if digested, ok := named.(reference.Digested); ok {
		if named, err = reference.WithDigest(reference.TrimNamed(named), digested.Digest()); err != nil {
			return nil, fmt.Errorf("parse image %q: %w", e.Reference, err)
		}
	}
	ref, err := docker.NewReference(reference.TagNameOnly(named))
	if err != nil {
		return nil, fmt.Errorf("parse image %q: %w", e.Reference, err)
	}
	return ref, nil
}

func wrapParse(ref types.ImageReference, err error) (types.ImageReference, error) {
	if err != nil {
		return nil, fmt.Errorf("parse image: %w", err)
	}
	return ref, nil
}

// scratch is a directory with the empty configuration files that keep containers/image from reading the host's.
type scratch struct{ dir string }

func newScratch(parent string) (*scratch, error) {
	dir, err := os.MkdirTemp(parent, "transfer-")
	if err != nil {
		return nil, fmt.Errorf("make temporary directory: %w", err)
	}
	s := &scratch{dir: dir}
	err = errors.Join(
		os.WriteFile(s.path("registries.conf"), nil, 0o600),
		os.WriteFile(s.path("auth.json"), []byte(`{"auths":{}}`), 0o600),
		os.Mkdir(s.path("empty"), 0o700),
		os.Mkdir(s.path(signatureDir), 0o700),
	)
	if err == nil {
		err = os.WriteFile(s.path(signatureDir+"/default.yaml"), []byte(attachments), 0o600)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("write temporary configuration: %w", err), s.remove())
	}
	return s, nil
}

// In signatureDir is a containers-registries.d(5) by which signatures are where cosign keeps them, and nowhere else.
const (
	signatureDir = "registries.d"
	attachments  = "default-docker: {use-sigstore-attachments: true}\n"
)

func (s *scratch) path(name string) string { return filepath.Join(s.dir, name) }

func (s *scratch) remove() error {
	if err := os.RemoveAll(s.dir); err != nil {
		return fmt.Errorf("remove temporary directory: %w", err)
	}
	return nil
}

// system turns the endpoint into what containers/image asks for. role keeps the CA directories of source and
// destination apart.
func (s *scratch) system(e Endpoint, role, cacheDir string) (*types.SystemContext, error) {
	c := &types.SystemContext{
		SystemRegistriesConfPath: s.path("registries.conf"), SystemRegistriesConfDirPath: s.path("empty"),
		UserShortNameAliasConfPath: s.path("registries.conf"), RegistriesDirPath: s.path(signatureDir),
		DockerPerHostCertDirPath: s.path("empty"), AuthFilePath: s.path("auth.json"),
		BlobInfoCacheDir: cacheDir, BigFilesTemporaryDir: s.dir, DockerDisableV1Ping: true,
		DockerRegistryUserAgent: "dayone",
	}
	if cacheDir == "" {
		c.BlobInfoCacheDir = s.dir
	}
	if len(e.RegistriesConf) > 0 {
		c.SystemRegistriesConfPath = s.path("registries-" + role + ".conf")
		if err := os.WriteFile(c.SystemRegistriesConfPath, e.RegistriesConf, 0o600); err != nil {
			return nil, fmt.Errorf("write mirrors of %s: %w", e.Reference, err)
		}
	}
	if e.CAFile != "" {
		pem, err := os.ReadFile(e.CAFile)
		if err != nil {
			return nil, fmt.Errorf("read CA of %s: %w", e.Reference, err)
		}
		dir := s.path("certs-" + role)
		if err := errors.Join(os.Mkdir(dir, 0o700), os.WriteFile(filepath.Join(dir, "ca.crt"), pem, 0o600)); err != nil {
			return nil, fmt.Errorf("write CA of %s: %w", e.Reference, err)
		}
		c.DockerCertPath = dir
	}
	switch {
	case e.Username != "":
		c.DockerAuthConfig = &types.DockerAuthConfig{Username: e.Username, Password: e.Password}
	case e.AuthFile != "":
		if _, err := os.Stat(e.AuthFile); err != nil {
			return nil, fmt.Errorf("read credentials for %s: %w", e.Reference, err)
		}
		c.AuthFilePath = e.AuthFile
	}
	if e.Insecure {
		c.DockerInsecureSkipTLSVerify = types.OptionalBoolTrue
		c.OCIInsecureSkipTLSVerify = true
	}
	return c, nil
}
