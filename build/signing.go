package build

import (
	"cmp"
	"context"
	"errors"

	"dayone.dev/dayone/build/appendengine"
	"dayone.dev/dayone/build/sign"
	"dayone.dev/dayone/registry/transfer"
)

// signed is how the signatures of a request's image name it and where they are.
func (r Request) signed(image *appendengine.Image) sign.Image {
	return sign.Image{Repository: cmp.Or(r.Final, r.Target), Endpoint: transfer.Endpoint{Reference: image.Ref.String(),
		CAFile: r.Registry.CAFile, AuthFile: r.Registry.AuthFile}}
}

// findSigned is find for an image that a known key has signed. Whoever may push could have put another one under the
// address, and signing what is found there would make it ours. An image with the signature of a key before gets that of
// the key that signs now.
func (b *Builder) findSigned(ctx context.Context, client *appendengine.Client, in input) (*appendengine.Image,
	*explanation, error) {
	image, note, err := find(ctx, client, in, b.o.Log)
	if err != nil || image == nil || b.o.Keys == nil {
		return image, note, err
	}
	err = b.o.Keys.Verify(ctx, in.signed(image))
	if errors.Is(err, transfer.ErrNotAllowed) {
		b.o.Log.WithError(err).WithField("image", image.Ref.String()).
			Warn("no known key has signed the image with this address: building again")
		return nil, nil, nil
	}
	if err == nil {
		err = b.o.Keys.Sign(ctx, in.signed(image))
	}
	if err != nil {
		return nil, nil, signingFailure(err)
	}
	return image, note, nil
}

// sign signs what this build has made and checked.
func (b *Builder) sign(ctx context.Context, in input, image *appendengine.Image, t *timeline) error {
	if b.o.Keys == nil {
		return nil
	}
	t.enter("sign")
	if err := b.o.Keys.Sign(ctx, in.signed(image)); err != nil {
		return signingFailure(err)
	}
	return nil
}

func signingFailure(err error) error {
	f := asFailure("sign", err)
	if errors.Is(err, transfer.ErrUnavailable) {
		f.Class, f.Next = ClassTransient, "check the registry's log"
	}
	return f
}
