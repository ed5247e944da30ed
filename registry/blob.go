package registry

import (
	"errors"
	"io"
	"net/http"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/opencontainers/go-digest"

	"dayone.dev/dayone/registry/storage"
)

const (
	// pieceBuffer is how much of a blob is read and sent at once: large enough that system calls do not count beside the
	// cipher, small enough for the second-level cache and for the memory of hundreds of clients, of which each has one.
	pieceBuffer = 192 << 10
	// stallTimeout ends a client that takes less than pieceBuffer in it, at least 3 kB/s, or sends nothing: stalled
	// clients do not hold files and connections for ever. One without an account has it for a whole request.
	stallTimeout = time.Minute
)

func serveBlob(c call) {
	d, err := storage.ParseDigest(c.route.Ref)
	if err != nil {
		errDigestInvalid.with(err.Error()).write(c.w)
		return
	}
	unknown := errBlobUnknown.with(map[string]string{"digest": c.route.Ref})
	switch c.r.Method {
	case http.MethodGet:
		getBlob(c, d, unknown)
	case http.MethodHead:
		headBlob(c, d, unknown)
	case http.MethodDelete:
		if err := c.repository().DeleteBlob(c.r.Context(), d); err != nil {
			c.fail(err, unknown)
			return
		}
		c.w.WriteHeader(http.StatusAccepted)
	default:
		errMethod.write(c.w)
	}
}

func getBlob(c call, d digest.Digest, unknown *apiError) {
	blobHeaders(c.w, d)
	b, err := openBlob(c, d)
	if err != nil {
		c.fail(err, unknown)
		return
	}
	defer func() { _ = b.Close() }() // it was only read
	out := &pacedWriter{ResponseWriter: c.w, buffers: &c.pieces, control: http.NewResponseController(c.w),
		took: func(n int) { c.took(Pull{Digest: string(d), Bytes: int64(n)}) }}
	http.ServeContent(out, c.r, "", time.Time{}, b)
	c.metrics.sent.Add(float64(out.sent))
}

func openBlob(c call, d digest.Digest) (io.ReadSeekCloser, error) {
	if c.through != nil {
		return c.through.openBlob(c.r, c.route.Name, d)
	}
	return c.repository().OpenBlob(d)
}

func blobHeaders(w http.ResponseWriter, d digest.Digest) {
	h := w.Header()
	h["Docker-Content-Digest"] = []string{string(d)}
	h["Etag"] = []string{`"` + string(d) + `"`}
	h["Content-Type"] = octetStream
	h["Cache-Control"] = forever
}

// headBlob answers whether the repository has a blob. A pusher does not send one that is there, so the collection keeps
// it for a while.
func headBlob(c call, d digest.Digest, unknown *apiError) {
	blobHeaders(c.w, d)
	var size int64
	var err error
	switch {
	case c.through != nil:
		size, err = c.through.statBlob(c.r.Context(), c.route.Name, d)
	case c.account.role == RolePush && !c.readOnly:
		size, err = c.repository().TouchBlob(d)
	default:
		size, err = c.repository().StatBlob(d)
	}
	if err != nil {
		c.fail(err, unknown)
		return
	}
	h := c.w.Header()
	h["Content-Length"] = []string{strconv.FormatInt(size, 10)}
	h["Accept-Ranges"] = acceptRanges
	c.w.WriteHeader(http.StatusOK)
}

var (
	octetStream  = []string{"application/octet-stream"}
	forever      = []string{"max-age=31536000"} // the name is the content's hash
	acceptRanges = []string{"bytes"}
)

// pacedWriter sends a blob in pieces and gives the client stallTimeout for each.
type pacedWriter struct {
	http.ResponseWriter
	control *http.ResponseController
	buffers *sync.Pool // *[pieceBuffer]byte
	// took is called with the size of each piece.
	took func(n int)
	sent int64
}

func (p *pacedWriter) ReadFrom(r io.Reader) (total int64, err error) {
	buffer, ok := p.buffers.Get().(*[pieceBuffer]byte)
	if !ok {
		buffer = new([pieceBuffer]byte)
	}
	defer p.buffers.Put(buffer)
	defer func() {
		p.sent += total
		err = errors.Join(err, p.limit(time.Time{}))
	}()
	for {
		n, readErr := io.ReadFull(r, buffer[:])
		if n > 0 {
			if err := p.limit(time.Now().Add(stallTimeout)); err != nil {
				return total, err
			}
			sent, err := p.Write(buffer[:n])
			total += int64(sent)
			p.took(sent)
			if err != nil {
				return total, err
			}
		}
		if errors.Is(readErr, io.EOF) || errors.Is(readErr, io.ErrUnexpectedEOF) {
			return total, nil
		}
		if readErr != nil {
			return total, readErr
		}
	}
}

func (p *pacedWriter) limit(at time.Time) error {
	if err := p.control.SetWriteDeadline(at); !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	return nil
}

// timedBody gives the client stallTimeout for each read of the request's body.
type timedBody struct {
	body    io.ReadCloser
	control *http.ResponseController
	err     error
}

func timed(c call) *timedBody {
	return &timedBody{body: c.r.Body, control: http.NewResponseController(c.w)}
}

func (b *timedBody) Close() error { return b.body.Close() }

func (b *timedBody) Read(p []byte) (int, error) {
	if err := b.control.SetReadDeadline(time.Now().Add(stallTimeout)); err != nil && !errors.Is(err, os.ErrNoDeadline) {
		return 0, err
	}
	n, err := b.body.Read(p)
	if errors.Is(err, io.EOF) {
		_ = b.control.SetReadDeadline(time.Time{}) // what is done with the body takes its time, which is not the client's
	}
	b.err = err
	return n, err
}
