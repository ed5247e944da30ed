package preflight

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"dayone.dev/dayone/build/appendengine"
	"dayone.dev/dayone/installconfig"
	"dayone.dev/dayone/installconfig/report"
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
// where the user names one. Findings name the Secret to mend. dir is the install directory.
func (in *Input) CheckRegistries(ctx context.Context, dir string) ([]Probe, error) {
	scratch, err := os.MkdirTemp("", "dayone-probe-")
	if err != nil {
		return nil, fmt.Errorf("make scratch directory: %w", err)
	}
	defer os.RemoveAll(scratch)
	c := prober{in: in, dir: dir, scratch: scratch}
	for i, p := range in.Pools {
		c.push(ctx, i, p)
	}
	c.base(ctx)
	if err := ctx.Err(); err != nil {
		return c.done, fmt.Errorf("check registries: %w", err)
	}
	return c.done, c.rep.Err()
}

type prober struct {
	in           *Input
	dir, scratch string
	done         []Probe
	rep          report.Report
}

// client reaches a registry with the content of a Secret.
func (c *prober) client(auth []byte) (*appendengine.Client, error) {
	access := appendengine.Access{UserAgent: "dayone-probe"}
	if auth != nil {
		access.AuthFile = filepath.Join(c.scratch, "auth.json")
		if err := os.WriteFile(access.AuthFile, auth, 0o600); err != nil {
			return nil, fmt.Errorf("write credentials: %w", err)
		}
	}
	if ca := c.in.Sidecar.Config.Registry.CAFile; ca != "" {
		access.CAFile = filepath.Join(c.dir, filepath.FromSlash(ca))
	}
	return appendengine.NewClient(access)
}

// push writes, reads and removes a probe with the pool's push Secret.
func (c *prober) push(ctx context.Context, i int, p Pool) {
	spec := p.MachineOSConfig.Object.Spec
	what := fmt.Sprintf("push to %s with Secret %s", p.Repository, spec.RenderedImagePushSecret.Name)
	at := p.MachineOSConfig.Origin.At("spec.renderedImagePushSecret.name", "registry-push")
	if p.Generated() {
		at = report.Finding{File: installconfig.FileName, Path: poolPath(i), Rule: "registry-push"}
	}
	probe := Probe{What: what}
	if err := c.roundTrip(ctx, p, &probe); err != nil {
		at.Next = advice(err)
		c.rep.Errorf(at, "%s: %v", what, err)
		return
	}
	c.done = append(c.done, probe)
}

func (c *prober) roundTrip(ctx context.Context, p Pool, probe *Probe) error {
	client, err := c.client(p.PushAuth)
	if err != nil {
		return err
	}
	defer client.Close()
	// A name of its own: two installations may check at once.
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
	c.nodes(ctx, pushed, p)
	// Many registries do not let a push account delete; the probe is then a few hundred bytes that their collector takes.
	probe.Removed = errors.Join(remote.Delete(tag, options...), ignoreGone(remote.Delete(pushed, options...))) == nil
	return nil
}

// nodes reads the probe with what the pool's nodes pull with.
func (c *prober) nodes(ctx context.Context, pushed name.Digest, p Pool) {
	if p.NodePull == nil {
		return
	}
	what := fmt.Sprintf("pull from %s with the nodes' pull secret", p.Repository)
	err := func() error {
		client, err := c.client(p.NodePull)
		if err != nil {
			return err
		}
		defer client.Close()
		_, err = remote.Get(pushed, client.Options(ctx)...)
		return err
	}()
	if err != nil {
		host, _, _ := strings.Cut(p.Repository, "/")
		c.rep.Errorf(report.Finding{File: installconfig.FileName, Path: "pullSecret", Rule: "registry-node-pull",
			Next: "give the nodes' pull secret an entry for " + host + " that may pull"}, "%s: %v", what, err)
		return
	}
	c.done = append(c.done, Probe{What: what, Image: pushed.String()})
}

func ignoreGone(err error) error {
	if appendengine.StatusOf(err) == http.StatusNotFound {
		return nil
	}
	return err
}

// base reads the base image's manifest with the first pool's pull Secret, as the bootstrap does.
func (c *prober) base(ctx context.Context) {
	image := c.in.Sidecar.Config.BaseImage
	if image == "" {
		return
	}
	var auth []byte
	for _, p := range c.in.Pools {
		if auth == nil {
			auth = p.BasePull
		}
	}
	at := report.Finding{File: installconfig.FileName, Path: installconfig.Field + ".baseImage", Rule: "registry-pull"}
	err := func() error {
		client, err := c.client(auth)
		if err != nil {
			return err
		}
		defer client.Close()
		ref, err := name.ParseReference(image, name.StrictValidation)
		if err != nil {
			return fmt.Errorf("read image name: %w", err)
		}
		_, err = remote.Get(ref, client.Options(ctx)...)
		return err
	}()
	if err != nil {
		at.Next = advice(err)
		c.rep.Errorf(at, "pull of %s: %v", image, err)
		return
	}
	c.done = append(c.done, Probe{What: "pull of the base image", Image: image})
}

// advice says what to do about a registry's refusal.
func advice(err error) string {
	switch appendengine.StatusOf(err) {
	case http.StatusUnauthorized:
		return "the registry does not know these credentials: make the Secret anew"
	case http.StatusForbidden:
		return "these credentials may not do that: ask for the right to push to the repository"
	case http.StatusNotFound:
		return "create the repository, or correct its name"
	case 0:
		return "check the registry's name, port and CA (registry.caFile) from this machine, or leave --check-registry " +
			"out where it cannot be reached from here"
	}
	return "ask the registry's administrator"
}
