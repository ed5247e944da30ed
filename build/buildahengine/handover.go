package buildahengine

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"

	"dayone.dev/dayone/build"
)

// layersDescriptor is where the child writes the layers that it unpacks, if its order says so.
const layersDescriptor = lockDescriptor + 1

// maxFrame is the largest piece of a layer that is written at once, in bytes.
const maxFrame = 64 << 10

// A frame is what stands before each piece of a layer on the pipe: the layer and the length of the piece, each in four
// bytes, big-endian. A piece of length 0 ends the layer, whose digests the child has checked.
const frameSize = 8

// layerWriter is the child's end of the pipe. When the parent reads no more, what is written is dropped.
type layerWriter struct {
	out *bufio.Writer // its first error stays
}

func newLayerWriter(pipe io.Writer) *layerWriter {
	return &layerWriter{bufio.NewWriterSize(pipe, frameSize+maxFrame)}
}

// tee gives what content gives, and writes it, too. It writes no end of the layer.
func (w *layerWriter) tee(layer int, content io.Reader) io.Reader {
	if w == nil {
		return content
	}
	return io.TeeReader(content, layerPart{w, layer})
}

// end says that the layer is whole and right.
func (w *layerWriter) end(layer int) {
	if w == nil {
		return
	}
	w.frame(layer, 0)
	_ = w.out.Flush() // see layerWriter
}

func (w *layerWriter) frame(layer, size int) {
	var head [frameSize]byte
	binary.BigEndian.PutUint32(head[:], uint32(layer))
	binary.BigEndian.PutUint32(head[4:], uint32(size))
	_, _ = w.out.Write(head[:])
}

// layerPart writes pieces of one layer.
type layerPart struct {
	to    *layerWriter
	layer int
}

// Write never fails: see layerWriter.
func (p layerPart) Write(content []byte) (int, error) {
	for rest := content; len(rest) > 0; {
		piece := rest[:min(len(rest), maxFrame)]
		p.to.frame(p.layer, len(piece))
		_, _ = p.to.out.Write(piece)
		rest = rest[len(piece):]
	}
	return len(content), nil
}

// layerPipe is the pipe between the two. The zero value is that of a child which writes no layers.
type layerPipe struct {
	read, write *os.File
	layers      build.Unpacked
	over        chan struct{}
}

// newLayerPipe gives cmd the pipe's end, after the storage lock.
func newLayerPipe(cmd *exec.Cmd, layers build.Unpacked) (p layerPipe, err error) {
	if layers == nil {
		return p, nil
	}
	p.layers, p.over = layers, make(chan struct{})
	if p.read, p.write, err = os.Pipe(); err != nil {
		return p, fmt.Errorf("make pipe for layers: %w", err)
	}
	cmd.ExtraFiles = append(cmd.ExtraFiles, p.write)
	return p, nil
}

// follow begins to read, once the child has started or has not.
func (p layerPipe) follow() {
	if p.layers == nil {
		return
	}
	_ = p.write.Close() // the child has its own
	go func() {
		defer close(p.over)
		handOver(p.read, p.layers)
	}()
}

// close returns when the child has ended and its layers are handed over.
func (p layerPipe) close() {
	if p.layers == nil {
		return
	}
	<-p.over
	_ = p.read.Close() // nothing comes any more
}

// handOver is the parent's end: it calls layers for each layer that comes, and returns when the child has closed the
// pipe.
func handOver(pipe io.Reader, layers build.Unpacked) {
	in := bufio.NewReaderSize(pipe, frameSize+maxFrame)
	for {
		head, err := in.Peek(frameSize)
		if err != nil {
			return
		}
		r := &layerReader{in: in, layer: binary.BigEndian.Uint32(head)}
		layers(int(r.layer), r)
		if _, err := io.Copy(io.Discard, r); err != nil {
			return
		}
	}
}

// layerReader reads the pieces of one layer. It fails where the child ended within the layer.
type layerReader struct {
	in    *bufio.Reader
	layer uint32
	left  uint32 // of the piece
	err   error
}

var errForeignPiece = errors.New("a piece of another layer came before the end of this one")

// Read implements io.Reader.
func (r *layerReader) Read(p []byte) (int, error) {
	if r.left == 0 && r.err == nil {
		r.err = r.next()
	}
	if r.err != nil {
		return 0, r.err
	}
	n, err := r.in.Read(p[:min(len(p), int(r.left))])
	r.left -= uint32(n)
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	r.err = err
	return n, err
}

// next reads a frame; io.EOF is that of the layer's end.
func (r *layerReader) next() error {
	var head [frameSize]byte
	if _, err := io.ReadFull(r.in, head[:]); err != nil {
		return io.ErrUnexpectedEOF
	}
	r.left = binary.BigEndian.Uint32(head[4:])
	switch {
	case binary.BigEndian.Uint32(head[:]) != r.layer:
		return errForeignPiece
	case r.left == 0:
		return io.EOF
	}
	return nil
}
