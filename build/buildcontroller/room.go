package buildcontroller

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"dayone.dev/dayone/build/decide"
	replicas "dayone.dev/dayone/registry/wanted"
)

// roomFor holds a build back while the registry of a ready control-plane node cannot store one more image: the image
// could be pushed and never be replicated. It counts with an image as large as that in use, or as the base, with all
// its layers: which of them are new is known after the build only.
func roomFor(ctx context.Context, x scope, s state, keys *keyring) error {
	host, _, _ := strings.Cut(s.desired.repository, "/")
	if x.o.Registry == "" || host != x.o.Registry {
		return nil
	}
	reports, _, err := registryReports(ctx, x.api.live)
	if err != nil {
		return err
	}
	room, nodes := leastRoom(reports)
	if len(nodes) == 0 {
		return nil
	}
	size := imageSize(ctx, x, s, keys)
	if size > room {
		return waiting(x.o.Poll, reasonRegistryFull, "one more image takes %s, and the registry of %s has room for %s; "+
			"free space on its disk or give it a larger one, or delete MachineOSBuilds that are not needed: "+
			"dayone cluster registry status shows what takes it", bytesText(size), strings.Join(nodes, ", "), bytesText(room))
	}
	active, _, err := runningBuilds(ctx, x)
	if err != nil {
		return err
	}
	for _, replaced := range s.decision.Interrupt {
		delete(active, replaced)
	}
	if all := size * int64(len(active)+1); all > room {
		return waiting(x.o.Poll, decide.ReasonQueued, "waits until fewer builds run: the registry of %s has room for %s, "+
			"and %d images take %s", strings.Join(nodes, ", "), bytesText(room), len(active)+1, bytesText(all))
	}
	return nil
}

// leastRoom is how many bytes the fullest registries take, and whose these are. A registry that does not say it does
// not count: it is older, or has not reported yet.
func leastRoom(reports map[string]replicas.Report) (room int64, nodes []string) {
	for _, node := range slices.Sorted(maps.Keys(reports)) {
		n := reports[node].RoomBytes
		if n == nil || len(nodes) > 0 && *n > room {
			continue
		}
		if len(nodes) > 0 && *n < room {
			nodes = nil
		}
		room, nodes = *n, append(nodes, node)
	}
	return room, nodes
}

// imageSize is how large the next image will be; 0 where no registry says it.
func imageSize(ctx context.Context, x scope, s state, keys *keyring) int64 {
	for _, known := range []struct {
		image string
		auth  []byte
	}{{string(s.config.Status.CurrentImagePullSpec), keys.push}, {s.desired.request.Base.Reference, keys.pull}} {
		if known.image == "" {
			continue
		}
		size, err := x.o.Sizes.Size(ctx, known.image, x.o.Platform, Access{Auth: known.auth, CA: keys.ca})
		if err != nil {
			x.log.WithError(err).WithField("image", known.image).Warn("size of an image is not known")
		}
		if size > 0 {
			return size
		}
	}
	return 0
}

func bytesText(n int64) string { return fmt.Sprintf("%.2f GiB", float64(n)/(1<<30)) }
