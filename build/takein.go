package build

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"dayone.dev/dayone/build/appendengine"
	"dayone.dev/dayone/build/basetree"
	"dayone.dev/dayone/build/containerfile"
)

// TakeIn does what of a build needs no rendered config: it reads the file tree of the base and, where the Containerfile
// needs a container on the base, lets the engine take the base into its storage, both in one pass over the layers. A
// later Build finds them. A Build works without it, also after it has failed or was cut off.
func (b *Builder) TakeIn(ctx context.Context, job BaseJob) error {
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(job.Options.Timeout, DefaultTimeout))
	defer cancel()
	client, err := appendengine.NewClient(appendengine.Access{CAFile: job.Registry.CAFile,
		AuthFile: job.Registry.AuthFile})
	if err != nil {
		return err
	}
	defer client.Close()
	from, layers, err := b.openBase(ctx, client, Request{Base: job.Base, Platform: job.Platform})
	if err != nil {
		return err
	}
	pass := newOnePass(len(layers))
	var tree, storage error
	var both sync.WaitGroup
	both.Go(func() {
		defer pass.leave()
		if from.tree == nil {
			_, tree = b.readBaseTree(ctx, from, pass.layers(layers))
		}
	})
	both.Go(func() {
		defer pass.end()
		if engine, ok := b.o.Engine.(baseEngine); ok && containerOnBase(job.Containerfile) {
			storage = engine.TakeInBase(ctx, job, pass.take)
		}
	})
	both.Wait()
	return errors.Join(tree, storage)
}

// BaseFile gives the SHA-256 in hex of a file of a base image; "" means that the base has no regular file at this path.
// It reads the base's layers only if TakeIn has not done so, or the file is there.
func (b *Builder) BaseFile(ctx context.Context, job BaseJob, file string) (sum string, err error) {
	client, err := appendengine.NewClient(appendengine.Access{CAFile: job.Registry.CAFile,
		AuthFile: job.Registry.AuthFile})
	if err != nil {
		return "", err
	}
	defer client.Close()
	from, err := b.readBase(ctx, client, Request{Base: job.Base, Platform: job.Platform})
	if err != nil {
		return "", err
	}
	if e, ok := from.tree.Lookup(file); !ok || e.Kind != basetree.Regular {
		return "", nil
	}
	layers, err := from.image.Layers(0)
	if err != nil {
		return "", registryFailure("base", err)
	}
	sum, err = hashOf(ctx, layers, file, true)
	if err != nil {
		return "", fmt.Errorf("read %s of base image: %w", file, err)
	}
	return sum, nil
}

// containerOnBase says whether a container engine will need the base for this text. Extensions, which only a rendered
// config names, are not known yet.
func containerOnBase(text string) bool {
	if text == "" {
		return false
	}
	file, err := containerfile.Parse(text)
	if err != nil {
		return false // the build refuses it
	}
	if plan, _ := file.PlanAppend(nil); plan != nil {
		return false
	}
	return slices.ContainsFunc(file.Images(), func(u containerfile.Use) bool {
		return u.Name == containerfile.Configs || u.Name == containerfile.Base
	})
}

// readBase reads the base image and its file tree, which the builder keeps.
func (b *Builder) readBase(ctx context.Context, client *appendengine.Client, r Request) (base, error) {
	out, layers, err := b.openBase(ctx, client, r)
	if err != nil || out.tree != nil {
		return out, err
	}
	out.tree, err = b.readBaseTree(ctx, out, layers)
	return out, err
}

// openBase reads what the base image says of itself. Its tree is nil where the builder has not kept it.
func (b *Builder) openBase(ctx context.Context, client *appendengine.Client, r Request) (base, []basetree.Layer,
	error) {
	image, err := client.Read(ctx, r.Base.Reference, r.platform())
	if err != nil {
		return base{}, nil, registryFailure("base", err)
	}
	if err := checkBootable(image, r.platform()); err != nil {
		return base{}, nil, err
	}
	out := base{image: image, created: image.Created()}
	if r.Options.Created != nil {
		out.created = *r.Options.Created
	}
	if out.tree, err = b.trees().Load(image.Ref.DigestStr()); err != nil {
		return base{}, nil, err
	}
	layers, err := image.Layers(0)
	if err != nil {
		return base{}, nil, registryFailure("base", err)
	}
	return out, layers, nil
}

// readBaseTree reads the layers of a base, and keeps the tree.
func (b *Builder) readBaseTree(ctx context.Context, from base, layers []basetree.Layer) (*basetree.Tree, error) {
	tree, err := b.readTree(ctx, layers)
	if err != nil {
		return nil, treeFailure("base", fmt.Errorf("read files of base image: %w", err))
	}
	return tree, b.trees().Save(from.image.Ref.DigestStr(), tree)
}

// readTree reads the layers of a base once, for its file tree and for bills of materials.
func (b *Builder) readTree(ctx context.Context, layers []basetree.Layer) (*basetree.Tree, error) {
	if b.o.BillsOfMaterials == nil {
		return basetree.Read(ctx, layers)
	}
	inventory, err := b.o.BillsOfMaterials.Take(layers)
	if err != nil {
		return nil, err
	}
	defer inventory.Close() //nolint:errcheck // it removes temporary files
	tree, err := basetree.ReadCopying(ctx, layers, inventory.Copy)
	if err != nil {
		return nil, err
	}
	if tree.Inventory, err = inventory.Encode(ctx); err != nil {
		b.o.Log.WithError(err).Debug("packages of the base cannot be listed") // the bill of materials says it aloud
	}
	return tree, nil
}
