package preflight

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"dayone.dev/dayone/build/appendengine"
	"dayone.dev/dayone/installconfig"
	"dayone.dev/dayone/installconfig/report"
	"dayone.dev/dayone/registry/credentials"
	"dayone.dev/dayone/registry/transfer"
)

// Probe is one answer of CheckRegistries.
type Probe struct {
	// What was tried, for people: push to, or pull of, which repository as whom.
	What string `json:"what"`
	// Image is the reference that was pushed or read.
	Image string `json:"image"`
	// Removed says that nothing of a pushed probe stays in the registry.
	Removed bool `json:"removed,omitempty"`
}

// CheckRegistries tries the credentials that the cluster will use: it pushes a probe of a few hundred bytes to every
// pool's repository, reads it back and deletes it where the registry allows that, and reads the base image's manifest
// where the user names one. Findings name the Secret to correct.
func CheckRegistries(ctx context.Context, in *Input) ([]Probe, error) {
	scratch, err := os.MkdirTemp("", "dayone-probe-")
	if err != nil {
		return nil, fmt.Errorf("make scratch directory: %w", err)
	}
	defer os.RemoveAll(scratch)
	c := prober{scratch: scratch}
	trusted := slices.Concat(in.RegistryCA, in.Nodes.TrustBundle)
	if c.caFile, err = credentials.File(scratch, "ca.pem", trusted); err != nil {
		return nil, err
	}
	for i, p := range in.Pools {
		if in.Sidecar.Config.InCluster() {
			break // they run when the masters do
		}
		at := p.MachineOSConfig.Origin.At("spec.renderedImagePushSecret.name", "registry-push")
		if p.Generated() {
			at = report.Finding{File: installconfig.FileName, Path: poolPath(i), Rule: "registry-push"}
		}
		secret := p.MachineOSConfig.Object.Spec.RenderedImagePushSecret.Name
		c.try(at, Probe{What: fmt.Sprintf("push to %s with Secret %s", p.Repository, secret)},
			func(probe *Probe) error { return c.roundTrip(ctx, p, probe) })
	}
	if image := in.Sidecar.Config.BaseImage; image != "" {
		at := report.Finding{File: installconfig.FileName, Path: installconfig.Field + ".baseImage", Rule: "registry-pull"}
		c.try(at, Probe{What: "pull of the base image " + image, Image: image},
			func(*Probe) error {
				auth, err := in.BasePull()
				if err != nil {
					return err
				}
				conf, err := in.RegistriesConf()
				if err != nil {
					return err
				}
				return c.find(ctx, auth, image, conf)
			})
	}
	if err := ctx.Err(); err != nil {
		return c.done, fmt.Errorf("check registries: %w", err)
	}
	return c.done, c.rep.Err()
}

// prober collects what its attempts result in.
type prober struct {
	caFile, scratch string
	done            []Probe
	rep             report.Report
}

// try keeps the probe of an attempt that succeeds, and reports one that fails at its place.
func (c *prober) try(at report.Finding, probe Probe, attempt func(*Probe) error) {
	if err := attempt(&probe); err != nil {
		if at.Next == "" {
			at.Next = advice(err)
		}
		c.rep.Errorf(at, "%s: %v", probe.What, err)
		return
	}
	c.done = append(c.done, probe)
}

// client reaches a registry with the content of a Secret.
func (c *prober) client(auth []byte) (*appendengine.Client, error) {
	file, err := credentials.File(c.scratch, "auth.json", auth)
	if err != nil {
		return nil, err
	}
	return appendengine.NewClient(appendengine.Access{UserAgent: "dayone-probe", CAFile: c.caFile, AuthFile: file})
}

// find reads the base image's manifest as the bootstrap host will: at its mirrors first.
func (c *prober) find(ctx context.Context, auth []byte, image string, conf []byte) error {
	file, err := credentials.File(c.scratch, "auth.json", auth)
	if err != nil {
		return err
	}
	_, err = transfer.Find(ctx, transfer.Endpoint{Reference: "docker://" + image, CAFile: c.caFile, AuthFile: file,
		RegistriesConf: conf})
	return err
}

// read reads an image's manifest.
func (c *prober) read(ctx context.Context, auth []byte, image string) error {
	ref, err := name.ParseReference(image, name.StrictValidation)
	if err != nil {
		return fmt.Errorf("read image name: %w", err)
	}
	client, err := c.client(auth)
	if err != nil {
		return err
	}
	defer client.Close()
	_, err = remote.Get(ref, client.Options(ctx)...)
	return err
}

// roundTrip writes, reads and removes a probe with the pool's push Secret, and reads it as the pool's nodes.
func (c *prober) roundTrip(ctx context.Context, p Pool, probe *Probe) error {
	client, err := c.client(p.PushAuth)
	if err != nil {
		return err
	}
	defer client.Close()
	// A unique name: two installations may check at once.
	tag, err := name.NewTag(p.Repository + ":dayone-probe-" + strings.ToLower(rand.Text()))
	if err != nil {
		return fmt.Errorf("read repository name: %w", err)
	}
	image, err := mutate.Config(empty.Image, v1.Config{Labels: map[string]string{"dev.dayone.probe": tag.TagStr()}})
	if err != nil {
		return fmt.Errorf("make probe: %w", err)
	}
	options := client.Options(ctx)
	if err := remote.Write(tag, image, options...); err != nil {
		return fmt.Errorf("push probe: %w", err)
	}
	digest, err := image.Digest()
	if err != nil {
		return fmt.Errorf("make probe: %w", err)
	}
	pushed := tag.Digest(digest.String())
	probe.Image = pushed.String()
	if _, err := remote.Get(pushed, options...); err != nil {
		return fmt.Errorf("read probe back: %w", err)
	}
	if p.NodePull != nil {
		host, _, _ := strings.Cut(p.Repository, "/")
		c.try(report.Finding{File: installconfig.FileName, Path: "pullSecret", Rule: "registry-node-pull",
			Next: "give the nodes' pull secret an entry for " + host + " that may pull"},
			Probe{What: fmt.Sprintf("pull from %s with the nodes' pull secret", p.Repository), Image: probe.Image},
			func(probe *Probe) error { return c.read(ctx, p.NodePull, probe.Image) })
	}
	// Many registries do not let a push account delete; the probe is then a few hundred bytes that their garbage
	// collector removes.
	probe.Removed = errors.Join(remote.Delete(tag, options...), ignoreGone(remote.Delete(pushed, options...))) == nil
	return nil
}

func ignoreGone(err error) error {
	if appendengine.StatusOf(err) == http.StatusNotFound {
		return nil
	}
	return err
}

// advice says what to do about a registry's refusal.
func advice(err error) string {
	status := appendengine.StatusOf(err)
	is := func(code int, kind error) bool { return status == code || errors.Is(err, kind) }
	switch {
	case is(http.StatusUnauthorized, transfer.ErrUnauthorized):
		return "the registry does not know these credentials: make a new Secret"
	case is(http.StatusForbidden, transfer.ErrDenied):
		return "these credentials may not do that: ask for the right to push to the repository"
	case is(http.StatusNotFound, transfer.ErrNotFound):
		return "create the repository, or correct its name"
	case status == 0:
		return "check the registry's name, port and CA (registry.caFile) from this machine, or leave --check-registry " +
			"out where it cannot be reached from here"
	}
	return "ask the registry's administrator"
}
