package buildahengine

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/containers/image/v5/copy"
	imagestorage "github.com/containers/image/v5/storage"
	"github.com/containers/image/v5/transports/alltransports"
	"github.com/containers/storage"

	"dayone.dev/dayone/build"
	"dayone.dev/dayone/build/containerfile"
)

// intake is what TakeInBase does instead of a build: the base's image, and who gets its layers. The zero value is a
// build.
type intake struct {
	base   string
	layers build.Unpacked
}

// baseAddress stands for the content address of a build in names of files.
const baseAddress = "base"

// TakeInBase pulls the base into the storage, within the storage limit, and finds out which runtime works for RUN on
// this host. The next build removes what a killed TakeInBase leaves. It passes each layer that it unpacks to layers,
// unless that is nil.
func (e *Engine) TakeInBase(ctx context.Context, job build.BaseJob, layers build.Unpacked) error {
	free, err := e.slot(ctx)
	if err != nil {
		return err
	}
	defer free()
	_, _, err = e.build(ctx, build.ContainerJob{Address: baseAddress,
		Contexts: map[string]build.Image{containerfile.Base: job.Base}, Platform: job.Platform, Registry: job.Registry,
		Options: job.Options}, intake{job.Base.Reference, layers})
	return err
}

// takeIn is TakeInBase in the child. The trial of the runtimes runs meanwhile.
func takeIn(ctx context.Context, s session) error {
	tried := make(chan struct{})
	go func() {
		defer close(tried)
		if err := tryAside(ctx, s); err != nil {
			s.out.deliver("no runtime is tried yet: " + err.Error())
		}
	}()
	defer func() { <-tried }()
	image, err := pullBase(ctx, s)
	if err != nil {
		return err
	}
	return shelf{s.store, s.Driver}.touch(image)
}

// tryAside tries the runtimes with a storage of their own: the storage of builds is locked while a layer is unpacked
// into it.
func tryAside(ctx context.Context, s session) (err error) {
	aside := filepath.Join(s.Run, "trial")
	s.store, err = storage.GetStore(storage.StoreOptions{RunRoot: filepath.Join(aside, "run"),
		GraphRoot: filepath.Join(aside, "storage"), GraphDriverName: s.Driver})
	if err != nil {
		return fmt.Errorf("make a storage: %w", err)
	}
	_, _ = chooseIsolation(ctx, s) // a host where none works is the build's matter
	_, err = s.store.Shutdown(false)
	return err
}

// pullBase gives the ID of the base's image in the storage.
func pullBase(ctx context.Context, s session) (id string, err error) {
	target, err := imagestorage.Transport.ParseStoreReference(s.store, s.Base)
	if err != nil {
		return "", fmt.Errorf("name base in storage: %w", err)
	}
	if _, have, err := imagestorage.ResolveReference(target); err == nil {
		return have.ID, nil
	}
	source, err := alltransports.ParseImageName("docker://" + s.Base)
	if err != nil {
		return "", fmt.Errorf("read base's name: %w", err)
	}
	image, err := source.NewImage(ctx, s.system)
	if err != nil {
		return "", err
	}
	config, err := image.OCIConfig(ctx)
	if err = errors.Join(err, image.Close()); err != nil {
		return "", fmt.Errorf("read base's config: %w", err)
	}
	to := unpackingReference{target, s.store, places(image.LayerInfos(), config.RootFS.DiffIDs), s.layers}
	if _, err := copyImage(ctx, s, to, source, &copy.Options{ReportWriter: s.out}); err != nil {
		return "", err
	}
	_, have, err := imagestorage.ResolveReference(target)
	if err != nil {
		return "", fmt.Errorf("find base in storage: %w", err)
	}
	return have.ID, nil
}
