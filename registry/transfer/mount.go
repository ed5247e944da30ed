package transfer

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"

	"github.com/containers/image/v5/docker/reference"
	"github.com/containers/image/v5/image"
	"github.com/containers/image/v5/manifest"
	"github.com/containers/image/v5/types"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	"github.com/opencontainers/go-digest"

	"dayone.dev/dayone/registry/dial"
)

// mountBlobs mounts the image's blobs into the destination's repository when source and destination are repositories of
// one registry. containers/image mounts only what it has itself copied before, and would send every blob through this
// host. A registry that does not mount gets them sent, so a failure here is no failure of the copy.
func (c *copier) mountBlobs(ctx context.Context) (err error) {
	from, to := c.src.DockerReference(), c.dst.DockerReference()
	if from == nil || to == nil || c.src.Transport().Name() != "docker" || c.dst.Transport().Name() != "docker" ||
		reference.Domain(from) != reference.Domain(to) || from.Name() == to.Name() {
		return nil
	}
	src, err := c.src.NewImageSource(ctx, c.opts.SourceCtx)
	if err != nil {
		return fmt.Errorf("open image: %w", err)
	}
	defer func() { err = errors.Join(err, src.Close()) }()
	blobs, err := blobsOf(ctx, src, nil)
	if err != nil {
		return err
	}
	at, err := c.dstEndpoint.login(ctx, to, transport.PushScope, reference.Path(from))
	if err != nil {
		return err
	}
	defer at.client.CloseIdleConnections()
	base := at.scheme + "://" + at.name.RegistryStr()
	for _, b := range blobs {
		if err := mount(ctx, at.client, base, reference.Path(from), reference.Path(to), b); err != nil {
			return err
		}
	}
	return nil
}

// site is a repository at its registry, and a client that is logged in there.
type site struct {
	client *http.Client
	scheme string
	name   name.Repository
}

// login makes a client for a repository of the endpoint's registry: to push when action is transport.PushScope, and to
// pull from each of others.
func (e Endpoint) login(ctx context.Context, to reference.Named, action string, others ...string) (site, error) {
	var options []name.Option
	limits := dial.Options{Insecure: e.Insecure, Answer: answerLimit}
	if e.CAFile != "" {
		limits.CAFiles = []string{e.CAFile}
	}
	inner, err := dial.Transport(limits)
	if err != nil {
		return site{}, err
	}
	if e.Insecure {
		options = append(options, name.Insecure)
	}
	reg, err := name.NewRegistry(reference.Domain(to), options...)
	if err != nil {
		return site{}, fmt.Errorf("name registry: %w", err)
	}
	auth, err := e.authenticator(to.Name())
	if err != nil {
		return site{}, err
	}
	repository := reg.Repo(reference.Path(to))
	scopes := []string{repository.Scope(action)}
	for _, other := range others {
		scopes = append(scopes, reg.Repo(other).Scope(transport.PullScope))
	}
	var secure http.RoundTripper = inner
	if !e.Insecure {
		secure = httpsOnly{inner}
	}
	rt, err := transport.NewWithContext(ctx, reg, auth, secure, scopes)
	if err != nil {
		return site{}, fmt.Errorf("log in: %w", err)
	}
	return site{client: &http.Client{Transport: rt}, scheme: reg.Scheme(), name: repository}, nil
}

// httpsOnly keeps go-containerregistry from plain HTTP, which it tries for private addresses, and redirects from it.
type httpsOnly struct{ http.RoundTripper }

func (h httpsOnly) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Scheme != "https" {
		return nil, errors.New("plain HTTP is not allowed")
	}
	return h.RoundTripper.RoundTrip(r)
}

// mount asks for one blob. An upload that a registry opens instead is cancelled.
func mount(ctx context.Context, client *http.Client, base, from, to string, d digest.Digest) error {
	q := url.Values{"mount": {d.String()}, "from": {from}}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, base+"/v2/"+to+"/blobs/uploads/?"+q.Encode(), nil)
	if err != nil {
		return fmt.Errorf("mount blob: %w", err)
	}
	resp, err := client.Do(req)
	if err != nil {
		return fmt.Errorf("mount blob %s: %w", d, err)
	}
	if err := resp.Body.Close(); err != nil {
		return fmt.Errorf("mount blob %s: %w", d, err)
	}
	if resp.StatusCode != http.StatusAccepted {
		return nil
	}
	upload, err := resp.Location()
	if err != nil {
		return fmt.Errorf("mount blob %s: %w", d, err)
	}
	if req, err = http.NewRequestWithContext(ctx, http.MethodDelete, upload.String(), nil); err != nil {
		return fmt.Errorf("cancel upload: %w", err)
	}
	if resp, err = client.Do(req); err != nil {
		return fmt.Errorf("cancel upload: %w", err)
	}
	return resp.Body.Close()
}

// blobsOf lists the blobs of an image, or of all images of an index.
func blobsOf(ctx context.Context, src types.ImageSource, instance *digest.Digest) ([]digest.Digest, error) {
	raw, mediaType, err := image.UnparsedInstance(src, instance).Manifest(ctx)
	if err != nil {
		return nil, fmt.Errorf("read manifest: %w", err)
	}
	var out []digest.Digest
	if manifest.MIMETypeIsMultiImage(mediaType) {
		list, err := manifest.ListFromBlob(raw, mediaType)
		if err != nil {
			return nil, fmt.Errorf("read index: %w", err)
		}
		for _, d := range list.Instances() {
			blobs, err := blobsOf(ctx, src, &d)
			if err != nil {
				return nil, err
			}
			out = append(out, blobs...)
		}
		return out, nil
	}
	m, err := manifest.FromBlob(raw, mediaType)
	if err != nil {
		return nil, fmt.Errorf("read manifest: %w", err)
	}
	out = append(out, m.ConfigInfo().Digest)
	for _, l := range m.LayerInfos() {
		out = append(out, l.Digest)
	}
	return out, nil
}
