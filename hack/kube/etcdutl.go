package kube

import (
	"context"
	"path/filepath"

	"dayone.dev/dayone/hack/cache"
)

// etcdutl is the package of the program, as its go.mod names it.
const etcdutl = "go.etcd.io/etcd/etcdutl/v3"

// Etcdutl returns the path of the program that restores snapshots of etcd, of the version of etcd that Assets has. It
// is built when this machine has none: half a minute. It is no part of Assets, because a change of these costs minutes.
func Etcdutl(ctx context.Context) (string, error) {
	src, err := source(ctx, etcdutlModule)
	if err != nil {
		return "", err
	}
	key, err := recipeKey(ctx, src, "go.mod", "go.sum")
	if err != nil {
		return "", err
	}
	home, err := cache.Dir()
	if err != nil {
		return "", err
	}
	dir, err := cache.Store{Dir: home}.Ensure(ctx, "etcdutl-"+key, func(dir string) error {
		ctx, cancel := context.WithTimeout(ctx, buildLimit)
		defer cancel()
		_, err := goCommand(ctx, src, "build", "-buildvcs=false", "-trimpath", "-ldflags", "-s -w", "-o",
			filepath.Join(dir, "etcdutl"), etcdutl)
		return err
	})
	return filepath.Join(dir, "etcdutl"), err
}
