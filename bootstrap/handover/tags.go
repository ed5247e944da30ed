package handover

import (
	"context"
	"fmt"
	"net/http"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"dayone.dev/dayone/build/appendengine"
)

// keep gives an image that is in its final registry the tags that it lacks there: a copy may have ended between two of
// them, and who mirrors by digest brings none. An account that may not push is told of: the image is there, and
// somebody else brought it.
func (r *run) keep(ctx context.Context, i Image) error {
	if r.o.Policy == PolicySkip {
		return nil
	}
	auth, err := r.files.auth(r.o.Plan, i.Secret)
	if err != nil {
		return err
	}
	client, err := appendengine.NewClient(appendengine.Access{CAFile: r.ca, AuthFile: auth})
	if err != nil {
		return fatal{err}
	}
	defer client.Close()
	for _, tag := range i.Tags {
		err := keepTag(client.Options(ctx), i, tag)
		code := appendengine.StatusOf(err)
		switch {
		case err == nil:
		case code >= http.StatusBadRequest && code < http.StatusInternalServerError && code != http.StatusTooManyRequests:
			r.o.Log.WithField("image", i.Reference()).WithField("tag", tag).WithError(err).
				Warn("image is in its final registry without this tag: see that nothing removes it there")
		default:
			return ofRegistry(fmt.Errorf("tag %s as %s: %w", i.Reference(), tag, err), nextCertificate)
		}
	}
	return nil
}

// keepTag looks at a tag and writes it when it is missing or names another image.
func keepTag(options []remote.Option, i Image, tag string) error {
	repository, err := name.NewRepository(i.Repository, name.StrictValidation)
	if err != nil {
		return fmt.Errorf("read repository: %w", err)
	}
	have, err := remote.Get(repository.Tag(tag), options...)
	if err == nil && have.Digest.String() == i.Digest {
		return nil
	}
	if err != nil && appendengine.StatusOf(err) != http.StatusNotFound {
		return err
	}
	image, err := remote.Get(repository.Digest(i.Digest), options...)
	if err != nil {
		return err
	}
	return remote.Tag(repository.Tag(tag), image, options...)
}
