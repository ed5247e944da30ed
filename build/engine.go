package build

import (
	"context"
	"errors"
	"io"
)

// ContainerJob is what an engine that runs containers is asked to do: build a Containerfile and push the outcome by
// digest.
type ContainerJob struct {
	// Address is the request's, for names of files and logs.
	Address string
	// Contexts are the images that FROM and --from may name, configs and base among them.
	Contexts map[string]Image
	// Containerfile is the composed text.
	Containerfile string
	// Skip is how many lines of Containerfile were generated; what follows is the user's text.
	Skip int
	// Target is the repository that takes the image, untagged.
	Target   string
	Platform string
	// Docker asks for Docker's media types, because the base has them; else the image is OCI's.
	Docker bool
	// BaseLayers are those that the image must keep as they are, for nodes have them or download them once.
	BaseLayers []BaseLayer
	// Created is the time for the image and all its new files, in seconds since 1970.
	Created  int64
	Registry Access
	Options  Options
	// Hidden are texts that no output may show: what the rendered config keeps secret.
	Hidden []string `json:"-"`
	// Progress takes events as they come; nil drops them. It is called from one goroutine at a time.
	Progress func(Event) `json:"-"`
}

// BaseLayer is one layer of a base image: the digest of its blob, and that of what is in it when it is unpacked.
type BaseLayer struct{ Digest, DiffID string }

// ContainerImage is what such an engine pushed.
type ContainerImage struct {
	Digest    string
	Steps     []Step
	CacheHits int
	Log       string
	// Isolation is how RUN was run, and IsolationReason says why.
	Isolation       string
	IsolationReason string
}

// ErrImageNotGot is the cause of a Failure where the engine did not get an image that the Containerfile names and does
// not know why.
var ErrImageNotGot = errors.New("container engine did not get an image")

// ContainerEngine builds in containers. build/buildahengine is the one that ships. An error is a *Failure.
type ContainerEngine interface {
	BuildContainer(ctx context.Context, job ContainerJob) (ContainerImage, error)
}

// BaseJob is what is known of a build before there is a rendered config.
type BaseJob struct {
	Base     Image
	Platform string
	// Containerfile is the user's text; empty is one that only adds the config.
	Containerfile string
	Registry      Access
	Options       Options
}

// Unpacked takes a layer of a base while an engine unpacks it: its place, from 0 at the bottom, and its tar file. An
// engine calls it for one layer after the other, in their order, and not for a layer that it has unpacked before. The
// content ends with io.EOF only if the layer is the one that the image's manifest and config name. What is not read of
// it is lost.
type Unpacked func(layer int, content io.Reader)

// baseEngine is a ContainerEngine that can take a base image into its storage before the builds that begin with it.
type baseEngine interface {
	TakeInBase(ctx context.Context, job BaseJob, layers Unpacked) error
}
