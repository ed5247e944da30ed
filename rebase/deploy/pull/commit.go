package pull

import (
	"context"
	"errors"

	"github.com/containers/image/v5/types"

	"dayone.dev/dayone/rebase/deploy"
	"dayone.dev/dayone/rebase/deploy/ostreerepo"
)

// commitImage overlays the layers' trees and commits the result under ref. Only directories are read and written.
func commitImage(ctx context.Context, objects *ostreerepo.Repository, f *fetched, ref string,
	allowUnbootable bool) (commit string, err error) {
	tree, err := overlay(objects, f)
	if err != nil {
		return "", classify("merge layers", err)
	}
	kernel, err := tree.Kernel()
	if err != nil {
		return "", err
	}
	if kernel == "" && !allowUnbootable {
		return "", &deploy.Fault{Class: deploy.ClassNoKernel, Op: "check image",
			Err:  errors.New("it has no usr/lib/modules/VERSION/vmlinuz"),
			Next: "build it from a bootable OS image and keep its kernel"}
	}
	c := ostreerepo.Commit{Bootable: kernel != "", Timestamp: created(f),
		Metadata: map[string]string{MetaManifestDigest: f.manifestDigest.String(),
			metaManifest: string(f.manifestRaw), metaConfig: string(f.configRaw)}}
	for key, value := range map[string]string{"version": f.config.Config.Labels["version"], "ostree.linux": kernel} {
		if value != "" {
			c.Metadata[key] = value
		}
	}
	tx, err := objects.Begin(ctx)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, tx.Close()) }()
	sum, err := tree.Commit(tx, c)
	if err != nil {
		return "", classify("commit image", err)
	}
	if err := tx.Install(map[string]ostreerepo.Checksum{ref: sum}); err != nil {
		return "", classify("commit image", err)
	}
	return sum.String(), nil
}

// overlay starts with the tree of the encapsulated commit, which is whole in itself, and puts the other layers over it.
func overlay(objects *ostreerepo.Repository, f *fetched) (*ostreerepo.Tree, error) {
	if len(f.layers) == 0 {
		return nil, errors.New("image has no layers")
	}
	tree := ostreerepo.NewImage()
	if f.encapsulated > 0 {
		c, err := layerCommit(objects, f.layers[0])
		if err != nil {
			return nil, err
		}
		tree = objects.Tree(c)
	}
	for _, l := range f.layers[f.encapsulated:] {
		c, err := layerCommit(objects, l)
		if err != nil {
			return nil, err
		}
		if err := tree.Overlay(objects.Tree(c), c.IsPlainLayer()); err != nil {
			return nil, err
		}
	}
	return tree, nil
}

func layerCommit(objects *ostreerepo.Repository, l types.BlobInfo) (c ostreerepo.Commit, err error) {
	name, err := objects.Resolve(layerRef(l.Digest))
	if err != nil {
		return c, err
	}
	sum, err := ostreerepo.ParseChecksum(name)
	if err != nil {
		return c, err
	}
	return objects.Commit(sum)
}

// created makes the commit the same on every node.
func created(f *fetched) uint64 {
	if f.config.Created == nil || f.config.Created.Unix() < 0 {
		return 0
	}
	return uint64(f.config.Created.Unix())
}
