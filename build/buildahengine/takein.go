package buildahengine

import (
	"context"
	"fmt"

	"github.com/containers/common/libimage"
	"github.com/containers/common/pkg/config"

	"dayone.dev/dayone/build"
	"dayone.dev/dayone/build/containerfile"
)

// baseAddress stands for the content address of a build in names of files.
const baseAddress = "base"

// TakeInBase pulls the base into the storage, within the storage limit, and finds out which runtime works for RUN on
// this host. The next build removes what a killed TakeInBase leaves.
func (e *Engine) TakeInBase(ctx context.Context, job build.BaseJob) error {
	free, err := e.slot(ctx)
	if err != nil {
		return err
	}
	defer free()
	_, _, err = e.build(ctx, build.ContainerJob{Address: baseAddress,
		Contexts: map[string]build.Image{containerfile.Base: job.Base}, Platform: job.Platform, Registry: job.Registry,
		Options: job.Options}, job.Base.Reference)
	return err
}

// takeIn is TakeInBase in the child. The trial of the runtimes runs meanwhile; a host where none works is the build's
// matter.
func takeIn(ctx context.Context, s session) error {
	tried := make(chan struct{})
	go func() {
		defer close(tried)
		_, _ = chooseIsolation(ctx, s)
	}()
	defer func() { <-tried }()
	images, err := libimage.RuntimeFromStore(s.store, &libimage.RuntimeOptions{SystemContext: s.system})
	if err != nil {
		return fmt.Errorf("open images: %w", err)
	}
	pulled, err := images.Pull(ctx, "docker://"+s.Base, config.PullPolicyMissing, &libimage.PullOptions{
		CopyOptions: libimage.CopyOptions{SignaturePolicyPath: s.system.SignaturePolicyPath, Writer: s.out}})
	if err != nil {
		return err
	}
	for _, image := range pulled {
		if err := (shelf{s.store, s.Driver}).touch(image.ID()); err != nil {
			return err
		}
	}
	return nil
}
