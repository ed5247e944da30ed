package deploy

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"time"
)

// Fetcher brings an image into the node's store ahead of its time: nothing is staged, and the next boot stays what it
// was.
type Fetcher interface {
	// Fetch brings the image. Cancelled or killed, it leaves nothing that a later Fetch or Stage has to clear away, and
	// both go on from what has come.
	Fetch(ctx context.Context, image Image, o FetchOptions) error
	// Forget drops the image, or what has come of it, unless a deployment was made from it. That nothing is there is no
	// error.
	Forget(ctx context.Context, image Image) error
}

// FetchOptions tune Fetch; the zero value takes the whole line.
type FetchOptions struct {
	// BytesPerSecond bounds the bytes that come of layers; 0: no bound. A deployer that leaves the transfer to another
	// program cannot bound it.
	BytesPerSecond int64
	// Transfer counts what comes; nil: nobody wants to know.
	Transfer *Transfer
}

// Fetch imports the image, one layer after the other: it has time.
func (d *OSTree) Fetch(ctx context.Context, image Image, o FetchOptions) error {
	pull := d.pull
	pull.Parallel, pull.BytesPerSecond, pull.Transfer = 1, o.BytesPerSecond, o.Transfer
	done, err := Import(ctx, d.repo.path, "docker://"+image.String(), pull)
	if err != nil {
		return err
	}
	d.log.WithField("image", image.String()).WithField("bytes", done.BytesFetched).WithField("reused", done.Reused).
		Info("image is fetched ahead")
	return nil
}

// Forget drops the image's name and the layers that no other image has, and lets ostree free the space.
func (d *OSTree) Forget(ctx context.Context, image Image) error {
	entries, err := d.entries(ctx)
	if err != nil {
		return err
	}
	deployed := map[string]bool{}
	for _, e := range entries {
		deployed[e.commit] = true
	}
	dropped, err := d.repo.forget("docker://"+image.String(), deployed)
	if err != nil || !dropped {
		return err
	}
	d.log.WithField("image", image.String()).Info("image fetched ahead is forgotten")
	_, err = d.admin(ctx, "cleanup")
	return err
}

// forget drops an image's name, unless it is deployed, and layers that no remaining image has; those of an import that
// never ended are among them. It tells whether there was something to drop.
func (r repository) forget(name string, deployed map[string]bool) (bool, error) {
	unlock, err := r.lock()
	if err != nil {
		return false, err
	}
	defer unlock()
	if err := r.removeLeftovers(); err != nil {
		return false, err
	}
	refs, err := r.refs()
	if err != nil {
		return false, err
	}
	var drop []string
	keep := map[string]bool{}
	for ref := range refs {
		if !strings.HasPrefix(ref, imagePrefix) {
			continue
		}
		commit, err := r.resolve(ref)
		if err != nil {
			return false, err
		}
		if ref == imageRef(name) && !deployed[commit] {
			drop = append(drop, ref)
			continue
		}
		layers, err := r.layersOf(commit)
		if err != nil {
			return false, err
		}
		if len(layers) == 0 {
			return false, nil // it does not tell its layers: any may be its
		}
		for _, l := range layers {
			keep[layerRef(l)] = true
		}
	}
	for ref := range refs {
		if strings.HasPrefix(ref, layerPrefix) && !keep[ref] {
			drop = append(drop, ref)
		}
	}
	if len(drop) == 0 {
		return false, nil
	}
	// images first: a name says that all layers are there
	slices.SortFunc(drop, func(a, b string) int { return strings.Compare(b, a) })
	objects, err := r.open()
	if err != nil {
		return false, err
	}
	return true, objects.DeleteRefs(drop...)
}

// Fetch lets rpm-ostree download the image. Source: rpm-ostree(1), rebase --download-only.
func (d *RPMOSTree) Fetch(ctx context.Context, image Image, _ FetchOptions) error {
	s, err := d.Status(ctx)
	if err != nil {
		return err
	}
	for _, have := range []*Deployment{s.Booted, s.Staged, s.Pending, s.Rollback} {
		if have.Runs(image) {
			return nil // rpm-ostree refuses to rebase to what it has
		}
	}
	_, err = d.run(ctx, "rpm-ostree", "rebase", "--download-only", "ostree-unverified-registry:"+image.String())
	return err
}

// Forget does nothing: rpm-ostree drops images that no deployment was made from with its next transaction, and has no
// command for one of them.
func (d *RPMOSTree) Forget(context.Context, Image) error { return nil }

// pacedReader reads no faster than so many bytes a second.
type pacedReader struct {
	ctx       context.Context //nolint:containedctx // the transfer's own: a pause must end with it
	in        io.Reader
	perSecond int64
	next      time.Time
}

// paced bounds a layer's transfer where somebody asked for that.
func (o ImportOptions) paced(ctx context.Context, in io.Reader) io.Reader {
	if o.BytesPerSecond <= 0 {
		return in
	}
	return &pacedReader{ctx: ctx, in: in, perSecond: o.BytesPerSecond, next: time.Now()}
}

// maxBurst bounds one read, so that a slow pace is an even one.
const maxBurst = 64 << 10

// Read waits until what has been read before may have come.
func (p *pacedReader) Read(b []byte) (int, error) {
	if wait := time.Until(p.next); wait > 0 {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		select {
		case <-p.ctx.Done():
			return 0, errors.Join(errors.New("wait for the next bytes"), p.ctx.Err())
		case <-timer.C:
		}
	}
	n, err := p.in.Read(b[:min(len(b), maxBurst)])
	if now := time.Now(); p.next.Before(now.Add(-time.Second)) {
		p.next = now // a pause is not made up for
	}
	p.next = p.next.Add(time.Duration(n) * time.Second / time.Duration(p.perSecond))
	return n, err
}
