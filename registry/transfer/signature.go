package transfer

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/containers/image/v5/copy"
	"github.com/containers/image/v5/docker/reference"
	"github.com/containers/image/v5/image"
	"github.com/containers/image/v5/signature"
	"github.com/containers/image/v5/signature/signer"
	"github.com/opencontainers/go-digest"
)

// ErrNotAllowed says that an image's signatures do not satisfy a policy.
var ErrNotAllowed = errors.New("the image's signatures are not accepted")

// Sign adds a signature by each signer to an image where it is, and to an index and its images. Signatures name it
// REPOSITORY@DIGEST, whatever repository the endpoint's is: nodes know an image by its final name. No blob moves. The
// tag of an image's signatures is read, changed and written: of two signers at the same time one may undo what the
// other one did, so who signs looks again whether its signature is there.
func Sign(ctx context.Context, e Endpoint, repository string, signers []*signer.Signer, o Options) (err error) {
	named, d, err := e.digested()
	if err != nil {
		return err
	}
	identity, err := reference.ParseNormalizedNamed(repository)
	if err == nil {
		identity, err = reference.WithDigest(reference.TrimNamed(identity), d)
	}
	if err != nil {
		return fmt.Errorf("sign %s as %q: %w", named, repository, err)
	}
	c, err := newCopier(e, e, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	c.opts.Signers, c.opts.SignIdentity = signers, identity
	c.opts.ImageListSelection = copy.CopyAllImages
	_, err = retry(ctx, c.o, "sign "+e.Reference, func() ([]byte, error) {
		var res Result
		return c.once(ctx, &res)
	})
	return err
}

// CopySigned is Copy, which then copies the image's signatures, too. Those that cannot be copied are a line in the log:
// who demands them says what is missing.
func CopySigned(ctx context.Context, src, dst Endpoint, o Options) (Result, error) {
	res, err := Copy(ctx, src, dst, o)
	if err != nil {
		return res, err
	}
	if err := CopySignatures(ctx, src, dst, res.Digest, o); err != nil {
		if ctx.Err() != nil {
			return res, err
		}
		o.withDefaults().Log.WithError(err).WithField("image", src.Reference).Warn("signatures cannot be copied")
	}
	return res, nil
}

// CopySignatures copies the signatures (cosign's tag) of an image that the destination has, from the mirror that
// answers; Attach asks the registry itself. Those at the destination stay. An archive or layout has none.
func CopySignatures(ctx context.Context, src, dst Endpoint, image digest.Digest, o Options) error {
	ref, err := src.parse()
	if err != nil {
		return err
	}
	if ref.Transport().Name() != "docker" {
		return nil
	}
	src.Reference = reference.TrimNamed(ref.DockerReference()).String() + "@" + image.String()
	o.signatures, o.Platform = true, ""
	_, err = Copy(ctx, src, dst, o)
	return err
}

// Allow evaluates a containers-policy.json(5) for an image under the name, by default that of the endpoint, also when a
// mirror answers. ErrNotAllowed says that the policy refuses it, also because a signature is lost; with any other error
// nothing is known.
func Allow(ctx context.Context, e Endpoint, name string, policy *signature.Policy) error {
	known, err := Endpoint{Reference: cmp.Or(name, e.Reference)}.parse()
	if err != nil {
		return err
	}
	return open(ctx, e, "", inspectLimit, func(at opened) (err error) {
		evaluation, err := signature.NewPolicyContext(policy)
		if err != nil {
			return fmt.Errorf("make signature policy: %w", err)
		}
		defer func() { err = errors.Join(err, evaluation.Destroy()) }()
		unparsed := image.UnparsedInstanceWithReference(image.UnparsedInstance(at.src, nil), known)
		if _, _, err := unparsed.Manifest(at.ctx); err != nil { // a manifest that cannot be had is no refusal
			return fmt.Errorf("read manifest: %w", err)
		}
		if _, err := evaluation.IsRunningImageAllowed(at.ctx, unparsed); err != nil {
			kind := kindOf(orSilence(at.ctx, err))
			if at.ctx.Err() != nil || kind != nil && !errors.Is(kind, ErrNotFound) {
				return fmt.Errorf("read signatures: %w", err)
			}
			return fmt.Errorf("%w: %w", ErrNotAllowed, err)
		}
		return nil
	})
}
