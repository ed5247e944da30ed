package build

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"

	"dayone.dev/dayone/build/appendengine"
	"dayone.dev/dayone/build/containerfile"
)

// TakeIn does what of a build needs no rendered config: it reads the file tree of the base and, where the Containerfile
// needs a container on the base, lets the engine take the base into its storage, both at the same time. A later Build
// finds them. A Build works without it, also after it has failed or was cut off.
func (b *Builder) TakeIn(ctx context.Context, job BaseJob) error {
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(job.Options.Timeout, DefaultTimeout))
	defer cancel()
	client, err := appendengine.NewClient(appendengine.Access{CAFile: job.Registry.CAFile,
		AuthFile: job.Registry.AuthFile})
	if err != nil {
		return err
	}
	defer client.Close()
	var tree, storage error
	var both sync.WaitGroup
	both.Go(func() {
		_, tree = b.readBase(ctx, client, Request{Base: job.Base, Platform: job.Platform})
	})
	if engine, ok := b.o.Engine.(baseEngine); ok && containerOnBase(job.Containerfile) {
		both.Go(func() { storage = engine.TakeInBase(ctx, job) })
	}
	both.Wait()
	return errors.Join(tree, storage)
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
