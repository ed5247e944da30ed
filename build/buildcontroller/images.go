package buildcontroller

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"

	"dayone.dev/dayone/build"
	"dayone.dev/dayone/build/sign"
	"dayone.dev/dayone/registry/credentials"
	"dayone.dev/dayone/registry/transfer"
)

// Access is how to reach a registry.
type Access struct {
	// Auth is a pull secret in containers' auth.json form; empty means anonymous.
	Auth []byte
	// CA is PEM of CAs to trust beside the host's.
	CA []byte
}

// Images asks registries about images by digest. An error never means that an image is gone: a registry that refuses,
// fails or cannot be reached has said nothing about it.
type Images interface {
	// Exists reports whether the registry has the image.
	Exists(ctx context.Context, reference string, access Access) (bool, error)
	// Tag gives the image one more tag in its repository. It is false when the registry does not have the image.
	Tag(ctx context.Context, reference, tag string, access Access) (bool, error)
	// Delete deletes the image. An image that does not exist is no error.
	Delete(ctx context.Context, reference string, access Access) error
}

// Finder looks for images by what they were made of.
type Finder interface {
	// Find gives the image of a content address in a repository, by digest; empty when the registry has none.
	Find(ctx context.Context, repository, address string, access Access) (string, error)
}

// Sizer says how large images are.
type Sizer interface {
	// Size is how many bytes an image takes in a registry, of an index the image for a platform (os/architecture). It is 0
	// when the registry does not have the image.
	Size(ctx context.Context, reference, platform string, access Access) (int64, error)
}

// Signer signs images where they are.
type Signer interface {
	// Sign adds the key's signature to an image by digest, under the name that it has, and before that says from what it
	// was made, if that is known. Both may be there already.
	Sign(ctx context.Context, reference string, key *sign.Key, from *sign.Provenance, access Access) error
}

// Registries reaches registries over the network.
type Registries struct {
	// UserAgent is what registries log; default dayone.
	UserAgent string
}

// Exists reports whether the registry has the image.
func (r Registries) Exists(ctx context.Context, reference string, access Access) (bool, error) {
	return r.ask(ctx, "look for", reference, access, func(d name.Digest, options []remote.Option) error {
		_, err := remote.Get(d, options...) // an answer to HEAD has no body that says why
		return err
	})
}

// Tag gives the image one more tag.
func (r Registries) Tag(ctx context.Context, reference, tag string, access Access) (bool, error) {
	return r.ask(ctx, "tag", reference, access, func(d name.Digest, options []remote.Option) error {
		image, err := remote.Get(d, options...)
		if err != nil {
			return err
		}
		return remote.Tag(d.Context().Tag(tag), image, options...)
	})
}

// Delete deletes the image by its digest, and with it all its tags.
func (r Registries) Delete(ctx context.Context, reference string, access Access) error {
	_, err := r.ask(ctx, "delete", reference, access, func(d name.Digest, options []remote.Option) error {
		return remote.Delete(d, options...)
	})
	return err
}

// Find gives the image of a content address in a repository, by digest. It is empty when the registry does not have
// the image with its label and all its layers.
func (r Registries) Find(ctx context.Context, repository, address string, access Access) (string, error) {
	reference := repository + ":" + build.Tag(address)
	tag, err := name.NewTag(reference, name.StrictValidation)
	if err != nil {
		return "", fmt.Errorf("read image reference %q: %w", reference, err)
	}
	found := ""
	_, err = r.reach(ctx, "look for", reference, access, func(options []remote.Option) error {
		image, err := remote.Image(tag, options...)
		if err != nil {
			return err
		}
		found, err = addressed(image, repository, address)
		return err
	})
	return found, err
}

// Size is how many bytes an image takes in a registry: its manifest, its config and its layers.
func (r Registries) Size(ctx context.Context, reference, platform string, access Access) (size int64, err error) {
	parsed, err := name.ParseReference(reference, name.StrictValidation)
	if err != nil {
		return 0, fmt.Errorf("read image reference %q: %w", reference, err)
	}
	p, err := v1.ParsePlatform(platform)
	if err != nil {
		return 0, fmt.Errorf("read platform %q: %w", platform, err)
	}
	_, err = r.reach(ctx, "size", reference, access, func(options []remote.Option) error {
		image, err := remote.Image(parsed, append(options, remote.WithPlatform(*p))...)
		if err != nil {
			return err
		}
		m, err := image.Manifest()
		if err != nil {
			return err
		}
		if size, err = image.Size(); err != nil {
			return err
		}
		for _, blob := range append(m.Layers, m.Config) {
			size += blob.Size
		}
		return nil
	})
	return size, err
}

// addressed is the reference of an image by digest, when the image says that it has the address and the registry has
// its layers.
func addressed(image v1.Image, repository, address string) (string, error) {
	config, err := image.ConfigFile()
	if err != nil || config.Config.Labels[build.LabelAddress] != address {
		return "", err
	}
	layers, err := image.Layers()
	if err != nil {
		return "", err
	}
	for _, l := range layers {
		if there, err := partial.Exists(l); err != nil || !there {
			return "", err
		}
	}
	digest, err := image.Digest()
	return repository + "@" + digest.String(), err
}

// registryLimit bounds one request to a registry. It is short of what a person waits for: the request is repeated.
const registryLimit = 30 * time.Second

// ask makes a request about an image. It is false when the registry does not have the image.
func (r Registries) ask(ctx context.Context, what, reference string, access Access,
	request func(name.Digest, []remote.Option) error) (bool, error) {
	digest, err := name.NewDigest(reference, name.StrictValidation)
	if err != nil {
		return false, fmt.Errorf("read image reference %q: %w", reference, err)
	}
	return r.reach(ctx, what, reference, access, func(options []remote.Option) error { return request(digest, options) })
}

// reach makes a request to a registry. It is false when the registry does not have what is asked for.
func (r Registries) reach(ctx context.Context, what, reference string, access Access,
	request func([]remote.Option) error) (bool, error) {
	keys, err := credentials.Parse(access.Auth)
	if err != nil {
		return false, err
	}
	base, ok := remote.DefaultTransport.(*http.Transport)
	if !ok {
		return false, errors.New("reach registry: the default transport is none of net/http")
	}
	own := base.Clone()
	defer own.CloseIdleConnections()
	if len(access.CA) > 0 {
		pool, err := x509.SystemCertPool()
		if err != nil {
			pool = x509.NewCertPool()
		}
		pool.AppendCertsFromPEM(access.CA)
		own.TLSClientConfig = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	}
	ctx, cancel := context.WithTimeout(ctx, registryLimit)
	defer cancel()
	err = request([]remote.Option{remote.WithContext(ctx), remote.WithTransport(own),
		remote.WithAuthFromKeychain(transfer.Keychain(keys)), remote.WithUserAgent(cmp.Or(r.UserAgent, "dayone"))})
	if gone(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("%s image %s: %w", what, reference, err)
	}
	return true, nil
}

// gone reports whether a registry says that it does not have the image: 404 with a code that is about images. The
// 404 of a proxy, 401, 403 and everything else say nothing.
func gone(err error) bool {
	var t *transport.Error
	return errors.As(err, &t) && t.StatusCode == http.StatusNotFound &&
		slices.ContainsFunc(t.Errors, func(d transport.Diagnostic) bool {
			return d.Code == transport.ManifestUnknownErrorCode || d.Code == transport.NameUnknownErrorCode
		})
}
