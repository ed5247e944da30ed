package build

import (
	"context"
	"io"
	"sync"

	"dayone.dev/dayone/build/basetree"
)

// onePass hands the layers that an engine unpacks to the reader of the file tree, so that each is decompressed once.
// Layers come bottom first; those that the engine has already do not come at all, and are read from the registry.
type onePass struct {
	// coming has a channel per layer: the layer, or closed when it will not come.
	coming []chan io.Reader
	// next is the lowest layer that may still come. Only the engine's side uses it.
	next int
	// read says that the tree's reader has finished a layer, left that it reads no more layers.
	read, left chan struct{}
}

func newOnePass(layers int) *onePass {
	p := &onePass{coming: make([]chan io.Reader, layers), read: make(chan struct{}), left: make(chan struct{})}
	for i := range p.coming {
		p.coming[i] = make(chan io.Reader)
	}
	return p
}

// take is the Unpacked of the engine.
func (p *onePass) take(layer int, content io.Reader) {
	if layer < p.next || layer >= len(p.coming) {
		return // the library brought it twice: the first one counted
	}
	p.skipTo(layer)
	p.next = layer + 1
	select {
	case p.coming[layer] <- content:
		<-p.read
	case <-p.left:
	}
}

func (p *onePass) skipTo(layer int) {
	for ; p.next < layer; p.next++ {
		close(p.coming[p.next])
	}
}

// end says that the engine brings nothing more.
func (p *onePass) end() { p.skipTo(len(p.coming)) }

// leave says that no more layers are read.
func (p *onePass) leave() { close(p.left) }

// layers are those of the registry, each of which the engine's takes the place of the first time it is opened.
func (p *onePass) layers(stored []basetree.Layer) []basetree.Layer {
	out := make([]basetree.Layer, len(stored))
	for i, layer := range stored {
		var first sync.Once
		out[i] = func(ctx context.Context) (_ io.ReadCloser, err error) {
			var content io.Reader
			first.Do(func() {
				select {
				case content = <-p.coming[i]:
				case <-ctx.Done():
					err = ctx.Err()
				}
			})
			if content != nil {
				return passing{content, p}, nil
			}
			if err != nil {
				return nil, err
			}
			return layer(ctx)
		}
	}
	return out
}

// passing is a layer of the engine's while it is read.
type passing struct {
	io.Reader
	pass *onePass
}

// Close lets the engine go on.
func (p passing) Close() error {
	p.pass.read <- struct{}{}
	return nil
}
