package deploy

import (
	"io"
	"sync/atomic"
)

// Transfer counts what arrives of an image while it is imported; the zero value is ready. It may be read at any time.
type Transfer struct {
	layers, layersDone, bytes, total atomic.Int64
}

// TransferState is how far a transfer is: of what was not on the node yet. Total is in bytes as the manifest gives
// them, compressed.
type TransferState struct {
	Layers, LayersDone int
	Bytes, Total       int64
}

// State is how far it is. A deployer that leaves the transfer to another program does not count.
func (t *Transfer) State() TransferState {
	if t == nil {
		return TransferState{}
	}
	return TransferState{Layers: int(t.layers.Load()), LayersDone: int(t.layersDone.Load()), Bytes: t.bytes.Load(),
		Total: t.total.Load()}
}

// Begin starts the count of an image that lacks so many layers and bytes.
func (t *Transfer) Begin(layers int, total int64) {
	if t == nil {
		return
	}
	t.bytes.Store(0)
	t.layersDone.Store(0)
	t.total.Store(total)
	t.layers.Store(int64(layers))
}

// LayerDone counts a layer.
func (t *Transfer) LayerDone() {
	if t != nil {
		t.layersDone.Add(1)
	}
}

// Counting counts what is read of a layer.
func (t *Transfer) Counting(in io.Reader) io.Reader {
	if t == nil {
		return in
	}
	return &countingReader{in, t}
}

type countingReader struct {
	in io.Reader
	to *Transfer
}

// Read counts the bytes that came.
func (c *countingReader) Read(p []byte) (int, error) {
	n, err := c.in.Read(p)
	c.to.bytes.Add(int64(n))
	return n, err
}
