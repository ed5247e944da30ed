package handover

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/opencontainers/go-digest"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/build/appendengine"
	"dayone.dev/dayone/registry/credentials"
	"dayone.dev/dayone/registry/transfer"
)

// courier brings images from the bootstrap registry into their final ones.
type courier struct {
	o Options
	// scratch takes what registry clients read from disk, mode 0600: credentials and CAs, gone with the hand-over.
	scratch string
	// ca is a file with the CAs that sign the final registries; "": the host's.
	ca string
	// at is HOST:PORT of a registry that stands for that of the images' names; "": by their names.
	at string
	// verified are the references that this run has seen whole in their final registry.
	verified map[string]bool
}

// to is a courier for one of the registries of the cluster's control plane.
func (c courier) to(address string) courier {
	c.at, c.verified = address, map[string]bool{}
	return c
}

// repository is where an image is written and asked for.
func (c courier) repository(i Image) string {
	if c.at == "" {
		return i.Repository
	}
	return i.source(c.at)
}

// reference is that by digest.
func (c courier) reference(i Image) string { return c.repository(i) + "@" + i.Digest }

// newCourier trusts the CAs of the caller, of the plan and of the cluster's additional trust bundle.
func newCourier(o Options, scratch string) (courier, error) {
	c := courier{o: o, scratch: scratch, verified: map[string]bool{}}
	pem := []byte(o.Plan.FinalCA)
	if o.FinalCAFile != "" {
		raw, err := os.ReadFile(o.FinalCAFile)
		if err != nil {
			return c, fmt.Errorf("read CAs of the final registries: %w", err)
		}
		pem = append(append(pem, raw...), '\n')
	}
	if n := len(o.Plan.Set.ControllerConfigs); n > 0 {
		pem = append(pem, o.Plan.Set.ControllerConfigs[n-1].Object.Spec.AdditionalTrustBundle...)
	}
	var err error
	c.ca, err = credentials.File(scratch, "ca.crt", pem)
	return c, err
}

// auth writes the credentials of a Secret of the plan; "" is anonymous.
func (c courier) auth(secret string) (string, error) {
	s := c.o.Plan.secret(secret)
	if s == nil {
		return "", nil
	}
	auth := s.Data[corev1.DockerConfigJsonKey]
	if c.at != "" {
		var err error
		if auth, err = accountFor(auth, c.o.Plan.ClusterRegistry, c.at); err != nil {
			return "", fatal{fmt.Errorf("read Secret %s: %w", secret, err)}
		}
	}
	return credentials.File(c.scratch, "auth-"+secret+".json", auth)
}

// client reaches the final registry of an image.
func (c courier) client(i Image) (*appendengine.Client, error) {
	auth, err := c.auth(i.Secret)
	if err != nil {
		return nil, err
	}
	client, err := appendengine.NewClient(appendengine.Access{CAFile: c.ca, AuthFile: auth})
	if err != nil {
		return nil, fatal{err}
	}
	return client, nil
}

// deliverAll brings every image of the plan into its final registry and verifies it there.
func (c courier) deliverAll(ctx context.Context) error {
	for _, i := range c.o.Plan.Images {
		if c.verified[i.Reference()] {
			continue
		}
		if err := c.deliver(ctx, i); err != nil {
			return err
		}
		if err := c.tag(ctx, i); err != nil {
			return err
		}
		c.verified[i.Reference()] = true
	}
	return nil
}

// deliver makes sure that the final registry has an image with every blob of it.
func (c courier) deliver(ctx context.Context, i Image) error {
	log := c.o.Log.WithField("image", c.reference(i))
	there, err := c.holds(ctx, i)
	if err != nil {
		return err
	}
	if there {
		log.Info("image is in its final registry")
		if c.o.Policy != PolicySkip {
			c.attachLate(ctx, i)
		}
		return nil
	}
	if c.o.Policy == PolicySkip {
		return fatal{fmt.Errorf(
			"%s is not in its final registry, and the policy is to copy nothing: copy it there by digest, or choose the "+
				"policy wait", i.Reference())}
	}
	if err := c.copy(ctx, i); err != nil {
		return err
	}
	if there, err = c.holds(ctx, i); err != nil {
		return err
	}
	if !there {
		return fmt.Errorf("%s was copied and is not in its final registry: see that nothing removes it there", i.Reference())
	}
	log.Info("image is copied to its final registry and verified there")
	return nil
}

// holds asks the final registry for the manifest and every blob. Before it gives up for good it asks again: where the
// library may speak without TLS, a registry that starts between its two requests answers as one with a wrong
// certificate does.
func (c courier) holds(ctx context.Context, i Image) (bool, error) {
	there, err := c.find(ctx, i)
	if _, ok := errors.AsType[fatal](err); ok {
		return c.find(ctx, i)
	}
	return there, err
}

func (c courier) find(ctx context.Context, i Image) (bool, error) {
	client, err := c.client(i)
	if err != nil {
		return false, err
	}
	defer client.Close()
	image, err := client.Read(ctx, c.reference(i), c.o.Plan.Platform)
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
		if c.o.Policy == PolicySkip {
			return false, c.refused(i, err)
		}
		return false, nil
	case busy(code):
		return false, fmt.Errorf("find %s: %w", c.reference(i), err)
	case code != 0:
		// On loopback the library asks without TLS after a certificate that it does not trust, and this is that answer.
		return false, fatal{fmt.Errorf("find %s: %w: %s", c.reference(i), err, nextCertificate)}
	}
	return false, ofRegistry(fmt.Errorf("find %s: %w", c.reference(i), err), nextCertificate)
}

// busy tells answers of a registry that may be others later.
func busy(code int) bool {
	return code >= http.StatusInternalServerError || code == http.StatusTooManyRequests
}

const nextCertificate = "if its certificate is signed by a CA of your own, give that with --final-ca or in the " +
	"ControllerConfig's additionalTrustBundle"

// copy pushes under all tags: the first one brings the blobs, the others the manifest. What is attached to the image
// comes with it: nodes may ask for its signature.
func (c courier) copy(ctx context.Context, i Image) error {
	auth, err := c.auth(i.Secret)
	if err != nil {
		return err
	}
	from := c.source(i)
	// What the source says is kept apart from what the destination says, for each has another cure.
	if _, err := transfer.Inspect(ctx, from, c.o.Plan.Platform); err != nil {
		if errors.Is(err, transfer.ErrNotFound) {
			return fatal{fmt.Errorf(
				"%s is neither in its final registry nor in the bootstrap registry: run dayone bootstrap again, which makes "+
					"it anew", i.Reference())}
		}
		return ofRegistry(fmt.Errorf("read from the bootstrap registry: %w", err),
			"run the hand-over on the bootstrap host, on its state directory")
	}
	for _, tag := range i.Tags {
		to := transfer.Endpoint{Reference: c.repository(i) + ":" + tag, CAFile: c.ca, AuthFile: auth}
		_, err := transfer.Copy(ctx, from, to, transfer.Options{TempDir: c.o.TempDir, Log: c.o.Log, Attempts: 1})
		if errors.Is(err, transfer.ErrUnauthorized) || errors.Is(err, transfer.ErrDenied) {
			return c.refused(i, err)
		}
		if err != nil {
			return ofRegistry(fmt.Errorf("copy to the final registry: %w", err), nextCertificate)
		}
	}
	if err := c.attach(ctx, i, from, auth); err != nil {
		return ofRegistry(fmt.Errorf("copy to the final registry: %w", err), nextCertificate)
	}
	return nil
}

// attach brings signatures and referrers to where the image is.
func (c courier) attach(ctx context.Context, i Image, from transfer.Endpoint, auth string) error {
	to := transfer.Endpoint{Reference: c.reference(i), CAFile: c.ca, AuthFile: auth}
	_, err := transfer.Attach(ctx, from, to, digest.Digest(i.Digest),
		transfer.Options{TempDir: c.o.TempDir, Log: c.o.Log, Attempts: 1})
	return err
}

// attachLate is for an image that was in its final registry already: a copy may have ended before its signatures, and a
// mirror by digest brings none. An account that may not push gets a warning, and an image that only the final registry
// has brings what it has.
func (c courier) attachLate(ctx context.Context, i Image) {
	auth, err := c.auth(i.Secret)
	if err == nil {
		err = c.attach(ctx, i, c.source(i), auth)
	}
	if err != nil && !errors.Is(err, transfer.ErrNotFound) {
		c.o.Log.WithField("image", i.Reference()).WithError(err).
			Warn("image is in its final registry, its signatures and referrers may not be")
	}
}

// source is where the bootstrap registry has an image.
func (c courier) source(i Image) transfer.Endpoint {
	return transfer.Endpoint{Reference: i.source(c.o.Source.Host) + "@" + i.Digest, CAFile: c.o.Source.CAFile,
		AuthFile: c.o.Source.AuthFile}
}

// refused says whose credentials a final registry does not take.
func (c courier) refused(i Image, err error) error {
	host, _, _ := strings.Cut(i.Repository, "/")
	if i.Secret == "" {
		return fatal{fmt.Errorf(
			"registry %s wants an account for %s and no push Secret has one: add it to a push Secret of the layering "+
				"directory, or push the image there yourself, "+
				"and run dayone bootstrap again: %w", host, i.Repository, err)}
	}
	return fatal{fmt.Errorf(
		"registry %s does not take the account of Secret %s for %s: correct the Secret in the layering directory and "+
			"run dayone bootstrap again; what is copied is not copied "+
			"again: %w", host, i.Secret, i.Repository, err)}
}

// tag gives an image that is in its final registry the tags that it lacks there: a copy may have ended between two of
// them, and a mirror by digest brings none. An account that may not push gets a warning: the image is there, and
// another program brought it.
func (c courier) tag(ctx context.Context, i Image) error {
	if c.o.Policy == PolicySkip {
		return nil
	}
	client, err := c.client(i)
	if err != nil {
		return err
	}
	defer client.Close()
	for _, tag := range i.Tags {
		err := tagOnce(client.Options(ctx), c.repository(i), i.Digest, tag)
		code := appendengine.StatusOf(err)
		switch {
		case err == nil:
		case busy(code):
			return fmt.Errorf("tag %s as %s: %w", i.Reference(), tag, err)
		case code != 0:
			c.o.Log.WithField("image", i.Reference()).WithField("tag", tag).WithError(err).
				Warn("image is in its final registry without this tag: see that nothing removes it there")
		default:
			return ofRegistry(fmt.Errorf("tag %s as %s: %w", i.Reference(), tag, err), nextCertificate)
		}
	}
	return nil
}

// tagOnce reads a tag and writes it when it is missing or names another image.
func tagOnce(options []remote.Option, at, digest, tag string) error {
	repository, err := name.NewRepository(at, name.StrictValidation)
	if err != nil {
		return fmt.Errorf("read repository: %w", err)
	}
	have, err := remote.Get(repository.Tag(tag), options...)
	if err == nil && have.Digest.String() == digest {
		return nil
	}
	if err != nil && appendengine.StatusOf(err) != http.StatusNotFound {
		return err
	}
	image, err := remote.Get(repository.Digest(digest), options...)
	if err != nil {
		return err
	}
	return remote.Tag(repository.Tag(tag), image, options...)
}

// adoptOrphans makes sure that nothing refers to a digest that only the bootstrap registry holds. A digest of an
// earlier build on this host, which a node may still run, is copied, too.
func (c courier) adoptOrphans(ctx context.Context, cluster client.Client) error {
	v, err := readView(ctx, cluster)
	if err != nil {
		return err
	}
	concerned, dangling := Concerned(c.o.Plan, references(v))
	if len(dangling) > 0 {
		d := dangling[0]
		return waitsFor{fmt.Sprintf("%s: %s names %s in the bootstrap registry, which goes: name it in its final registry",
			d.Object, d.Field, d.Image)}
	}
	repositories := c.o.Plan.repositories()
	for _, ref := range concerned {
		if c.verified[ref.Image] {
			continue
		}
		image := orphan(ref.Image, repositories)
		if err := c.deliver(ctx, image); err != nil {
			return fmt.Errorf("%s: %s refers to an image that its final registry does not have: %w", ref.Object, ref.Field, err)
		}
		c.verified[ref.Image] = true
	}
	return nil
}

// orphan is an image in one of a plan's repositories that the plan does not have.
func orphan(reference string, repositories map[string]Image) Image {
	repository, digest, _ := strings.Cut(reference, "@")
	_, hex, _ := strings.Cut(digest, ":")
	return Image{Repository: repository, Digest: digest, Tags: []string{"dayone-" + hex[:min(len(hex), 12)]},
		Secret: repositories[repository].Secret}
}
