// Command baseimage makes a bootable ostree OCI base image in the cache, or finds it there, and prints where it is.
//
//	flags -> baseimage.Ensure -> path of the image in the cache
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"

	"github.com/sirupsen/logrus"

	"dayone.dev/dayone/hack/baseimage"
	"dayone.dev/dayone/hack/cache"
)

func main() {
	kind := flag.String("kind", string(baseimage.Tiny),
		"tiny (busybox), shell (no ostree), debian (systemd), forky (as debian; can soft-reboot), machine (debian with "+
			"kernel and initramfs) or forky-machine (forky with both)")
	dir := flag.String("cache", "", "cache directory (default $"+cache.Env+", else dayone in the user's cache directory)")
	printPath := flag.Bool("print-path", false, "print only the path of the OCI layout")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, baseimage.Kind(*kind), *dir, *printPath); err != nil {
		fmt.Fprintln(os.Stderr, "baseimage:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, kind baseimage.Kind, dir string, printPath bool) error {
	path, err := baseimage.EnsureWith(ctx, kind,
		baseimage.Options{CacheDir: dir, Log: logrus.NewEntry(logrus.StandardLogger())})
	if err != nil {
		return err
	}
	digest, err := baseimage.Digest(path)
	if err != nil {
		return err
	}
	if printPath {
		fmt.Println(path)
		return nil
	}
	fmt.Printf("image   oci:%s:latest\ndigest  %s\n", path, digest)
	return nil
}
