package build

import "context"

// ContainerJob is what an engine that runs containers is asked to do: build a Containerfile and push the outcome by digest.
type ContainerJob struct {
	// Address is the request's, for names of files and logs.
	Address string
	// Configs is base and config layer, what FROM configs means; Base is what FROM base means.
	Configs, Base Image
	// Contexts are further images by name.
	Contexts map[string]Image
	// Containerfile is the composed text.
	Containerfile string
	// Lines maps a line of Containerfile to the user's own, 0 for one that was generated.
	Lines func(int) int
	// Target is the repository that takes the image, untagged.
	Target   string
	Platform string
	// Created is the time for the image and all its new files.
	Created     int64
	TrustBundle []byte
	Registry    Access
	Options     Options
	// Progress takes events as they come; nil drops them. It is called from one goroutine at a time.
	Progress func(Event)
}

// ContainerImage is what such an engine pushed.
type ContainerImage struct {
	Digest    string
	Steps     []Step
	CacheHits int
	Log       string
	Warnings  []string
}

// ContainerEngine builds in containers. build/buildahengine is the one that ships. An error is a *Failure.
type ContainerEngine interface {
	BuildContainer(ctx context.Context, job ContainerJob) (ContainerImage, error)
}
