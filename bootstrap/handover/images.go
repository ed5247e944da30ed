package handover

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"dayone.dev/dayone/build/appendengine"
	"dayone.dev/dayone/registry/transfer"
)

// copyImages brings every image of the plan into its final registry and verifies it there.
func (r *run) copyImages(ctx context.Context) error {
	for _, i := range r.o.Plan.Images {
		if r.verified[i.Reference()] {
			continue
		}
		if err := r.deliver(ctx, i); err != nil {
			return err
		}
		if err := r.keep(ctx, i); err != nil {
			return err
		}
		r.verified[i.Reference()] = true
	}
	return nil
}

// deliver makes sure that the final registry has an image with every blob of it.
func (r *run) deliver(ctx context.Context, i Image) error {
	log := r.o.Log.WithField("image", i.Reference())
	there, err := r.holds(ctx, i)
	if err != nil {
		return err
	}
	if there {
		log.Info("image is in its final registry")
		return nil
	}
	if r.o.Policy == PolicySkip {
		return fatal{fmt.Errorf(
			"%s is not in its final registry, and the policy is to copy nothing: copy it there by digest, or choose the policy wait", i.Reference())}
	}
	if err := r.copy(ctx, i); err != nil {
		return err
	}
	if there, err = r.holds(ctx, i); err != nil {
		return err
	}
	if !there {
		return fmt.Errorf("%s was copied and is not in its final registry: see that nothing removes it there", i.Reference())
	}
	log.Info("image is copied to its final registry and verified there")
	return nil
}

// holds asks the final registry for the manifest and every blob.
func (r *run) holds(ctx context.Context, i Image) (bool, error) {
	auth, err := r.files.auth(r.o.Plan, i.Secret)
	if err != nil {
		return false, err
	}
	client, err := appendengine.NewClient(appendengine.Access{CAFile: r.ca, AuthFile: auth})
	if err != nil {
		return false, fatal{err}
	}
	defer client.Close()
	image, err := client.Read(ctx, i.Reference(), r.o.Plan.Platform)
	if err == nil {
		var missing string
		if missing, err = client.Complete(ctx, image); err == nil {
			return missing == "", nil
		}
	}
	switch code := appendengine.StatusOf(err); {
	case code == http.StatusNotFound:
		return false, nil
	case code == http.StatusUnauthorized || code == http.StatusForbidden:
		// A registry may say so of a repository that is not there yet; the copy finds out.
		if r.o.Policy == PolicySkip {
			return false, r.refused(i, err)
		}
		return false, nil
	case code >= http.StatusInternalServerError || code == http.StatusTooManyRequests:
		return false, fmt.Errorf("look for %s: %w", i.Reference(), err)
	case code != 0:
		// On loopback the library asks without TLS after a certificate that it does not trust, and this is that answer.
		return false, fatal{fmt.Errorf("look for %s: %w: %s", i.Reference(), err, nextCertificate)}
	}
	return false, ofRegistry(fmt.Errorf("look for %s: %w", i.Reference(), err), nextCertificate)
}

const nextCertificate = "if its certificate is signed by an authority of your own, give that with --final-ca or in the ControllerConfig's additionalTrustBundle"

// copy pushes under all tags: the first one brings the blobs, the others the manifest.
func (r *run) copy(ctx context.Context, i Image) error {
	auth, err := r.files.auth(r.o.Plan, i.Secret)
	if err != nil {
		return err
	}
	from := transfer.Endpoint{Reference: i.source(r.o.Source.Host) + "@" + i.Digest, CAFile: r.o.Source.CAFile,
		AuthFile: r.o.Source.AuthFile}
	// What the source says is told apart from what the destination says, for each has another cure.
	if _, err := transfer.Inspect(ctx, from, r.o.Plan.Platform); err != nil {
		if errors.Is(err, transfer.ErrNotFound) {
			return fatal{fmt.Errorf(
				"%s is neither in its final registry nor in the bootstrap registry: run dayone bootstrap again, which makes it anew", i.Reference())}
		}
		return ofRegistry(fmt.Errorf("read from the bootstrap registry: %w", err),
			"run the hand-over on the bootstrap host, on its state directory")
	}
	for _, tag := range i.Tags {
		to := transfer.Endpoint{Reference: i.Repository + ":" + tag, CAFile: r.ca, AuthFile: auth}
		_, err := transfer.Copy(ctx, from, to, transfer.Options{TempDir: r.o.TempDir, Log: r.o.Log, Attempts: 1})
		if errors.Is(err, transfer.ErrUnauthorized) || errors.Is(err, transfer.ErrDenied) {
			return r.refused(i, err)
		}
		if err != nil {
			return ofRegistry(fmt.Errorf("copy to the final registry: %w", err), nextCertificate)
		}
	}
	return nil
}

// refused says whose credentials a final registry does not take.
func (r *run) refused(i Image, err error) error {
	host, _, _ := strings.Cut(i.Repository, "/")
	if i.Secret == "" {
		return fatal{fmt.Errorf(
			"registry %s wants an account for %s and no push Secret has one: add it to a push Secret of the layering directory, or push the image there yourself, "+
				"and run dayone bootstrap again: %w", host, i.Repository, err)}
	}
	return fatal{fmt.Errorf(
		"registry %s does not take the account of Secret %s for %s: correct the Secret in the layering directory and run dayone bootstrap again; what is copied is not copied "+
			"again: %w", host, i.Secret, i.Repository, err)}
}
