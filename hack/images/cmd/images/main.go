// Command images builds the container images of dayone's programs and pushes them.
//
//	--registry HOST:PORT/NAMESPACE [--ca FILE] [--auth FILE] [PROGRAM…] -> images -> references by digest
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"dayone.dev/dayone/build/appendengine"
	"dayone.dev/dayone/hack/images"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "images: "+err.Error())
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	var access appendengine.Access
	var o images.Options
	registry := flag.String("registry", "", "HOST:PORT/NAMESPACE that takes the images (required)")
	binaries := flag.String("binaries", "", "directory with binaries that are built already (default: build them)")
	flag.StringVar(&access.CAFile, "ca", "", "PEM file of the registry's authority")
	flag.StringVar(&access.AuthFile, "auth", "", "auth.json for the registry")
	flag.StringVar(&o.Version, "version", "v0.0.0-dev", "version of the programs")
	flag.StringVar(&o.Tag, "tag", "", "tag to set beside the digest")
	flag.StringVar(&o.Authorities, "authorities", "",
		"PEM file that becomes the images' list of authorities (default: none)")
	flag.Parse()
	if *registry == "" {
		return fmt.Errorf("name a registry with --registry")
	}
	client, err := appendengine.NewClient(access)
	if err != nil {
		return err
	}
	defer client.Close()
	dir := *binaries
	if dir == "" {
		if dir, err = os.MkdirTemp("", "dayone-images-"); err != nil {
			return fmt.Errorf("make directory for programs: %w", err)
		}
		defer os.RemoveAll(dir)
	}
	programs, err := wanted(flag.Args())
	if err != nil {
		return err
	}
	for _, p := range programs {
		binary := dir + "/" + p.Name
		if *binaries == "" {
			if binary, err = p.Build(ctx, ".", dir, o.Version); err != nil {
				return err
			}
		}
		reference, err := images.Push(ctx, client, p, binary, *registry+"/"+p.Name, o)
		if err != nil {
			return err
		}
		fmt.Println(reference)
	}
	return nil
}

// wanted are the programs that were named, or all.
func wanted(names []string) ([]images.Program, error) {
	if len(names) == 0 {
		return images.Programs(), nil
	}
	var out []images.Program
	for _, name := range names {
		p, err := images.Find(name)
		if err != nil {
			return nil, err
		}
		out = append(out, p)
	}
	return out, nil
}
