package sign

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/containers/image/v5/signature"

	"dayone.dev/dayone/registry/transfer"
)

// Image is an image and the name under which nodes know it.
type Image struct {
	// Endpoint names the image by digest and says how to reach it.
	Endpoint transfer.Endpoint
	// Repository is the final one, HOST/REPOSITORY. Signatures name it, wherever the image is now.
	Repository string
}

const (
	// maxRounds is how often a signature is added that another signer undoes.
	maxRounds = 10
	// otherSigner is how much longer than this signer another one may take between reading and writing the tag.
	otherSigner = 3
	// maxPause bounds the wait for other signers.
	maxPause = 2 * time.Second
)

// Sign adds the key's signature to an image where it is, and reports whether it had none before. Other signatures
// stay. The tag of the signatures is read, changed and written, and registries have no lock for that: Sign looks again
// when another signer that began before would have ended, and adds the signature anew if that one undid it.
func (k *Key) Sign(ctx context.Context, i Image) (added bool, err error) {
	return k.sign(ctx, i, false)
}

// sign is Sign; with alone it does not wait for other signers.
func (k *Key) sign(ctx context.Context, i Image, alone bool) (added bool, err error) {
	err = Verify(ctx, i, k.Public)
	for range maxRounds {
		if err == nil || !errors.Is(err, transfer.ErrNotAllowed) {
			return added, err
		}
		signers, unread := k.signers()
		if unread != nil {
			return added, unread
		}
		began := time.Now()
		if err := transfer.Sign(ctx, i.Endpoint, i.Repository, signers, transfer.Options{}); err != nil {
			return added, err
		}
		added = true
		if !alone {
			if err := pause(ctx, otherSigner*time.Since(began)); err != nil {
				return added, err
			}
		}
		err = Verify(ctx, i, k.Public)
	}
	return added, fmt.Errorf("sign %s: the signature was added %d times and is not there: another program writes the "+
		"tag of the signatures, let one of them sign at a time: %w", i.Endpoint.Reference, maxRounds, err)
}

// pause waits for about d. Signers that meet again and again take different times.
func pause(ctx context.Context, d time.Duration) error {
	d = min(d, maxPause)
	select {
	case <-time.After(d + rand.N(d/2+1)): //nolint:gosec // it is no secret
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Verify reports nil if one of the keys has signed the image as one of i.Repository. transfer.ErrNotAllowed says that
// none has; with any other error nothing is known.
func Verify(ctx context.Context, i Image, keys ...PublicKey) error {
	policy, err := policyOf(i.Repository, keys)
	if err != nil {
		return err
	}
	return transfer.Allow(ctx, i.Endpoint, "", policy)
}

// Keys are those of a cluster.
type Keys struct {
	// Key signs; nil signs nothing.
	Key *Key
	// Public are those whose signatures count beside Key's.
	Public []PublicKey
	// Alone says that no other key signs images of this registry meanwhile, as on the bootstrap host, whose registry has
	// one account that may push: Sign need not wait for other signers.
	Alone bool
}

// Prepare does in the background what the first Sign would wait for: to decrypt Key, which takes 0.1 s.
func (k *Keys) Prepare() {
	if k.Key != nil {
		go func() { _, _ = k.Key.signers() }() // Sign asks again, and says why it fails
	}
}

// Sign adds Key's signature unless it is there.
func (k *Keys) Sign(ctx context.Context, i Image) error {
	if k.Key == nil {
		return nil
	}
	_, err := k.Key.sign(ctx, i, k.Alone)
	return err
}

// Verify reports nil if a key whose signatures count has signed the image, as the function Verify.
func (k *Keys) Verify(ctx context.Context, i Image) error {
	keys := k.Public
	if k.Key != nil {
		keys = append([]PublicKey{k.Key.Public}, keys...)
	}
	return Verify(ctx, i, keys...)
}

// policyOf is what containers/image on a node asks of an image of the repository.
func policyOf(repository string, keys []PublicKey) (*signature.Policy, error) {
	identity, err := signature.NewPRMExactRepository(repository)
	if err != nil {
		return nil, fmt.Errorf("name repository %q: %w", repository, err)
	}
	var pem [][]byte
	for _, k := range keys {
		pem = append(pem, k)
	}
	signed, err := signature.NewPRSigstoreSigned(signature.PRSigstoreSignedWithKeyDatas(pem),
		signature.PRSigstoreSignedWithSignedIdentity(identity))
	if err != nil {
		return nil, fmt.Errorf("make signature policy: %w", err)
	}
	return &signature.Policy{Default: signature.PolicyRequirements{signed}}, nil
}
