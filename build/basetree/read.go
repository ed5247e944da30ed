package basetree

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"runtime"
	"strings"
	"sync"
)

// Layer opens a layer's blob: a tar file, plain or compressed with gzip or zstd. It may be opened twice.
// A layer that is open never keeps one below it from being opened.
type Layer func(ctx context.Context) (io.ReadCloser, error)

// checkEvery is how many entries are handled between two checks of the context.
const checkEvery = 4096

// maxReplaced bounds how often a layer may put something in the place of a directory of its own, which no tool does:
// each time is a walk over the whole tree.
const maxReplaced = 100

// Read builds the tree of an image from its layers, bottom first. Layers are read in parallel, as many as there are
// processors.
func Read(ctx context.Context, layers []Layer) (*Tree, error) { return ReadCopying(ctx, layers, nil) }

// ReadCopying is Read which lets also have files in the same pass.
func ReadCopying(ctx context.Context, layers []Layer, also Copy) (*Tree, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	b := newBudget(maxHeld)
	done := make([]*changes, len(layers))
	errs := make([]error, len(layers)+1)
	ready := make([]chan struct{}, len(layers))
	for i := range layers {
		ready[i] = make(chan struct{})
	}
	slots := make(chan struct{}, runtime.GOMAXPROCS(0))
	var wait sync.WaitGroup
	wait.Go(func() {
		for i, layer := range layers { // begun in their order: an upper one may have to wait for a lower one
			slots <- struct{}{}
			wait.Go(func() {
				defer close(ready[i])
				defer func() { <-slots }()
				if ctx.Err() != nil {
					return
				}
				if done[i], errs[i] = readLayer(ctx, layer, b, i, also); errs[i] != nil {
					errs[i] = fmt.Errorf("read layer %d: %w", i, errs[i])
					cancel()
				}
			})
		}
	})
	tree := &Tree{Entries: map[string]Entry{}, Contents: map[string][]byte{}}
	objects := map[string]bool{}
	for i := range layers {
		<-ready[i]
		if done[i] == nil {
			break
		}
		if errs[len(layers)] = tree.add(ctx, done[i], objects); errs[len(layers)] != nil {
			cancel()
			break
		}
		done[i] = nil // what is in the tree need not be held until the last layer is read
	}
	wait.Wait()
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := tree.checkAccounts(); err != nil {
		return nil, err
	}
	return tree, nil
}

// checkAccounts refuses users or groups in a pipe or a device: each program that looks up a user there would wait
// without an end. Container runtimes do that before each RUN.
func (t *Tree) checkAccounts() error {
	for _, file := range []string{"/etc/passwd", "/etc/group"} {
		at, err := t.ResolveAll(file)
		if err != nil {
			return fmt.Errorf("%w: %w", ErrUnsafe, err)
		}
		if entry, ok := t.Lookup(at); ok && entry.Kind == Other {
			return fmt.Errorf("%w: %s is a pipe or a device", ErrUnsafe, file)
		}
	}
	return nil
}

// add lays a layer over the tree and its objects of an ostree repository over those of the layers below.
func (t *Tree) add(ctx context.Context, layer *changes, objects map[string]bool) error {
	maps.Copy(objects, layer.objects)
	for object, p := range layer.dangling {
		if !objects[object] {
			return fmt.Errorf("%w: %s is a link to %s, which no layer has; publish the image again",
				ErrUnsafe, p, object)
		}
	}
	return t.applyAll(ctx, layer)
}

// With gives the tree after further layers, bottom first; the tree itself stays as it is.
func (t *Tree) With(ctx context.Context, layers []Layer) (*Tree, error) {
	out := &Tree{Entries: maps.Clone(t.Entries), Contents: maps.Clone(t.Contents)}
	if out.Entries == nil {
		out.Entries, out.Contents = map[string]Entry{}, map[string][]byte{}
	}
	b := newBudget(maxHeld)
	for i, layer := range layers {
		c, err := readLayer(ctx, layer, b, i, nil)
		if err != nil {
			return nil, fmt.Errorf("read layer %d: %w", i, err)
		}
		if err := out.applyAll(ctx, c); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// applyAll lays a layer over the tree. What it takes away is found in one walk over the tree, however much that is, and
// only below the layer: whiteouts do not hide what their own layer brings (OCI image specification, "Whiteouts").
func (t *Tree) applyAll(ctx context.Context, layer *changes) error {
	for _, c := range layer.list {
		if c.entry.Kind != Directory && t.isDirectory(c.path) {
			layer.gone[c.path] = true
		}
	}
	if err := t.remove(ctx, layer.gone); err != nil {
		return err
	}
	replaced := 0
	for i, c := range layer.list {
		if i%checkEvery == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		if c.entry.Kind != Directory && t.isDirectory(c.path) { // a directory of this very layer
			if replaced++; replaced > maxReplaced {
				return fmt.Errorf("%w: it replaces its own directories more than %d times", ErrUnsafe, maxReplaced)
			}
			if err := t.remove(ctx, map[string]bool{c.path: true}); err != nil {
				return err
			}
		}
		t.apply(c)
	}
	return nil
}

func (t *Tree) apply(c change) {
	if c.hard != "" {
		if target, ok := t.Entries[c.hard]; ok {
			c.entry = target
		}
		if c.content == nil {
			c.content = t.Contents[c.hard]
		}
	}
	delete(t.Contents, c.path)
	t.Entries[c.path] = c.entry
	if c.content != nil && keepContent(c.path) {
		t.Contents[c.path] = c.content
	}
}

// remove takes paths away with all that lies below them; with the value false the path itself stays.
func (t *Tree) remove(ctx context.Context, gone map[string]bool) error {
	if len(gone) == 0 {
		return nil
	}
	seen := 0
	for p := range t.Entries {
		if seen%checkEvery == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		seen++
		if isGone(p, gone) {
			delete(t.Entries, p)
			delete(t.Contents, p)
		}
	}
	return nil
}

func isGone(p string, gone map[string]bool) bool {
	if gone[p] {
		return true
	}
	for end := strings.LastIndexByte(p, '/'); end > 0; end = strings.LastIndexByte(p[:end], '/') {
		if _, ok := gone[p[:end]]; ok {
			return true
		}
	}
	_, all := gone["/"]
	return all && p != "/"
}
