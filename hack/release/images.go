package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"dayone.dev/dayone/build/appendengine"
	"dayone.dev/dayone/build/sign"
	"dayone.dev/dayone/hack/images"
	"dayone.dev/dayone/registry"
	"dayone.dev/dayone/registry/transfer"
)

const (
	imagesDir    = "images"
	kustomizeDir = "kustomize"
	// refName is the OCI image layout's name of an image.
	refName = "org.opencontainers.image.ref.name"
	// shutdownLimit is how long a registry without clients takes to end at most.
	shutdownLimit = 10 * time.Second
)

// images writes the container images as an OCI layout, an index of the architectures for each program, with a key's
// signatures, and the kustomize directory that names them by digest.
func (o options) images(ctx context.Context, work string) (err error) {
	root := filepath.Join(work, "registry")
	push, err := registry.NewUser("push", registry.RolePush)
	if err != nil {
		return err
	}
	o2 := registry.Options{Root: root, Listen: "127.0.0.1:0", Users: []registry.User{push}}
	server, err := registry.New(o2)
	if err != nil {
		return err
	}
	if err := server.Start(); err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownLimit)
		defer cancel()
		err = errors.Join(err, server.Shutdown(ctx))
	}()
	auth := filepath.Join(work, "auth.json")
	if err := push.WriteAuthFile(auth, server.Addr()); err != nil {
		return err
	}
	client, err := appendengine.NewClient(appendengine.Access{CAFile: o2.CAFile(), AuthFile: auth})
	if err != nil {
		return err
	}
	defer client.Close()
	to, err := layout.Write(filepath.Join(o.out, imagesDir), empty.Index)
	if err != nil {
		return fmt.Errorf("write images: %w", err)
	}
	references := map[string]string{}
	for _, p := range images.Programs() {
		index, err := o.index(ctx, client, p, work, server.Addr())
		if err != nil {
			return err
		}
		digest, err := index.Digest()
		if err == nil {
			err = to.AppendIndex(index, layout.WithAnnotations(map[string]string{refName: p.Name}))
		}
		if err == nil && o.key != nil {
			at := transfer.Endpoint{Reference: server.Addr() + "/dayone/" + p.Name + "@" + digest.String(),
				CAFile: o2.CAFile(), AuthFile: auth}
			err = o.signatures(ctx, client, index, sign.Image{Endpoint: at, Repository: o.registry + "/" + p.Name}, to)
		}
		if err != nil {
			return fmt.Errorf("write image of %s: %w", p.Name, err)
		}
		references[p.Name] = o.registry + "/" + p.Name + "@" + digest.String()
	}
	return o.kustomize(ctx, filepath.Join(work, platform{"linux", o.architectures[0]}.String(), "dayone"), references)
}

// index is a program's image for each architecture that has it.
func (o options) index(ctx context.Context, client *appendengine.Client, p images.Program, work,
	address string) (v1.ImageIndex, error) {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, arch := range o.architectures {
		binary := filepath.Join(work, platform{"linux", arch}.String(), p.Name)
		if _, err := os.Stat(binary); err != nil {
			continue // it is not built for this one
		}
		reference, err := images.Push(ctx, client, p, binary, address+"/dayone/"+p.Name, images.Options{Version: o.version})
		if err != nil {
			return nil, err
		}
		at, err := name.NewDigest(reference)
		if err != nil {
			return nil, fmt.Errorf("read image of %s: %w", p.Name, err)
		}
		image, err := remote.Image(at, client.Options(ctx)...)
		if err != nil {
			return nil, fmt.Errorf("read image of %s: %w", p.Name, err)
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: image,
			Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: arch}}})
	}
	return index, nil
}

// signatures signs an index and its images in the registry, where the signer works, and writes the signatures to the
// layout under the tags that nodes look for.
func (o options) signatures(ctx context.Context, client *appendengine.Client, index v1.ImageIndex, image sign.Image,
	to layout.Path) error {
	at, err := name.NewDigest(image.Endpoint.Reference)
	if err != nil {
		return err
	}
	if err := remote.WriteIndex(at, index, client.Options(ctx)...); err != nil {
		return err
	}
	if _, err := o.key.Sign(ctx, image); err != nil {
		return err
	}
	of, err := index.IndexManifest()
	if err != nil {
		return err
	}
	signed := []string{at.DigestStr()}
	for _, m := range of.Manifests {
		signed = append(signed, m.Digest.String())
	}
	for _, d := range signed {
		tag := strings.Replace(d, ":", "-", 1) + ".sig"
		signature, err := remote.Image(at.Context().Tag(tag), client.Options(ctx)...)
		if err == nil {
			err = to.AppendImage(signature, layout.WithAnnotations(map[string]string{refName: tag}))
		}
		if err != nil {
			return fmt.Errorf("write signature %s: %w", tag, err)
		}
	}
	return nil
}

// kustomize writes what dayone cluster install would apply: the program itself writes it.
func (o options) kustomize(ctx context.Context, dayone string, references map[string]string) error {
	dir, err := filepath.Abs(filepath.Join(o.out, kustomizeDir))
	if err != nil {
		return fmt.Errorf("write manifests: %w", err)
	}
	cmd := exec.CommandContext(ctx, dayone, "cluster", "manifests", "--kustomize", dir, "--node-agent",
		"--image", "controller="+references["dayone-controller"],
		"--image", "builder="+references["machine-os-builder"], "--image", "daemon="+references["dayone-daemon"])
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("write manifests: %w: %s", err, out)
	}
	return nil
}
