package buildcontroller

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"

	"dayone.dev/dayone/registry/credentials"
	"dayone.dev/dayone/registry/transfer"
)

// Access is how to reach a registry.
type Access struct {
	// Auth is a pull secret in containers' auth.json form; empty means anonymous.
	Auth []byte
	// CA is PEM of authorities to trust beside the host's.
	CA []byte
}

// Images asks registries about images by digest. An error never means that an image is gone: a registry that refuses,
// fails or cannot be reached has said nothing about it.
type Images interface {
	// Exists tells whether the registry has the image.
	Exists(ctx context.Context, reference string, access Access) (bool, error)
	// Tag gives the image one more tag in its repository. It is false when the registry does not have the image.
	Tag(ctx context.Context, reference, tag string, access Access) (bool, error)
	// Delete removes the image. An image that is not there is removed.
	Delete(ctx context.Context, reference string, access Access) error
}

// Registries reaches registries over the network.
type Registries struct {
	// UserAgent is what registries log; default dayone.
	UserAgent string
}

// Exists tells whether the registry has the image.
func (r Registries) Exists(ctx context.Context, reference string, access Access) (bool, error) {
	digest, options, done, err := r.open(ctx, reference, access)
	if err != nil {
		return false, err
	}
	defer done()
	_, err = remote.Get(digest, options...) // an answer to HEAD has no body that says why
	if gone(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("look for image %s: %w", reference, err)
	}
	return true, nil
}

// Tag gives the image one more tag.
func (r Registries) Tag(ctx context.Context, reference, tag string, access Access) (bool, error) {
	digest, options, done, err := r.open(ctx, reference, access)
	if err != nil {
		return false, err
	}
	defer done()
	image, err := remote.Get(digest, options...)
	if gone(err) {
		return false, nil
	}
	if err == nil {
		err = remote.Tag(digest.Context().Tag(tag), image, options...)
	}
	if err != nil {
		return false, fmt.Errorf("tag image %s: %w", reference, err)
	}
	return true, nil
}

// Delete removes the image by its digest, and with it all its tags.
func (r Registries) Delete(ctx context.Context, reference string, access Access) error {
	digest, options, done, err := r.open(ctx, reference, access)
	if err != nil {
		return err
	}
	defer done()
	if err := remote.Delete(digest, options...); err != nil && !gone(err) {
		return fmt.Errorf("delete image %s: %w", reference, err)
	}
	return nil
}

// gone tells whether the registry says in so many words that it does not have the image: 404 with a code that is about
// images. A proxy's 404, 401, 403 and everything else say nothing.
func gone(err error) bool {
	var t *transport.Error
	if !errors.As(err, &t) || t.StatusCode != http.StatusNotFound {
		return false
	}
	for _, d := range t.Errors {
		if d.Code == transport.ManifestUnknownErrorCode || d.Code == transport.NameUnknownErrorCode {
			return true
		}
	}
	return false
}

// registryLimit bounds one question to a registry. It is short of what a person waits for: the question is asked again.
const registryLimit = 30 * time.Second

func (r Registries) open(ctx context.Context, reference string, access Access) (name.Digest, []remote.Option, func(),
	error) {
	digest, err := name.NewDigest(reference, name.StrictValidation)
	if err != nil {
		return digest, nil, nil, fmt.Errorf("read image reference %q: %w", reference, err)
	}
	keys, err := credentials.Parse(access.Auth)
	if err != nil {
		return digest, nil, nil, err
	}
	base, ok := remote.DefaultTransport.(*http.Transport)
	if !ok {
		return digest, nil, nil, errors.New("reach registry: the default transport is none of net/http")
	}
	t := base.Clone()
	if len(access.CA) > 0 {
		pool, err := x509.SystemCertPool()
		if err != nil {
			pool = x509.NewCertPool()
		}
		pool.AppendCertsFromPEM(access.CA)
		t.TLSClientConfig = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	}
	agent := r.UserAgent
	if agent == "" {
		agent = "dayone"
	}
	ctx, cancel := context.WithTimeout(ctx, registryLimit)
	options := []remote.Option{remote.WithContext(ctx), remote.WithTransport(t),
		remote.WithAuthFromKeychain(transfer.Keychain(keys)), remote.WithUserAgent(agent)}
	done := func() {
		cancel()
		t.CloseIdleConnections()
	}
	return digest, options, done, nil
}
