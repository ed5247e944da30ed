package day1

import (
	"context"
	"time"

	"dayone.dev/dayone/bootstrap/preflight"
	"dayone.dev/dayone/build"
)

// TakeIn makes the storages of the builds ready for a base image that the embedded registry has, so that builds do not
// begin with it. A failure is not one of Day 1: the build does the same again and says what is wrong.
func TakeIn(ctx context.Context, h Host, r *Registry, base string) {
	for _, p := range BuiltHere(h.In) {
		began := time.Now()
		builder, err := newBuilder(h, p.Name, nil)
		if err == nil {
			job := baseJob(h, r, base)
			job.Containerfile = p.Containerfile
			err = builder.TakeIn(ctx, job)
		}
		log := h.Log.WithField("pool", p.Name).WithField("image", base)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			log.WithError(err).Warn("base image is not ready for the build, which will take it in itself")
		default:
			log.WithField("seconds", time.Since(began).Seconds()).Info("base image is ready for the build")
		}
	}
}

// BaseFile gives the SHA-256 in hex of a file of a base image that the embedded registry has; "" when the base has no
// regular file at this path.
func BaseFile(ctx context.Context, h Host, r *Registry, base, file string) (string, error) {
	builder, err := newBuilder(h, preflight.ControlPlanePool, nil)
	if err != nil {
		return "", err
	}
	return builder.BaseFile(ctx, baseJob(h, r, base), file)
}

func baseJob(h Host, r *Registry, base string) build.BaseJob {
	return build.BaseJob{Base: build.Image{Reference: base}, Platform: h.Platform, Options: buildOptions(h),
		Registry: build.Access{CAFile: r.Identity.CAFile, AuthFile: r.Identity.PushAuth}}
}
