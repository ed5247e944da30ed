package registry

import (
	"errors"
	"io"
	"math"
	"net/http"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/opencontainers/go-digest"

	"dayone.dev/dayone/registry/layout"
)

const (
	// stallTimeout ends a client that takes less than pieceBuffer in it, at least 4 kB/s, or sends nothing: stalled
	// clients do not hold files and connections for ever. One without an account has it for a whole request.
	stallTimeout = time.Minute
)

func (s *service) blob(w http.ResponseWriter, r *http.Request, rt route, acc *account) {
	d, err := layout.ParseDigest(rt.ref)
	if err != nil {
		errDigestInvalid.with(err.Error()).write(w)
		return
	}
	unknown := errBlobUnknown.with(map[string]string{"digest": rt.ref})
	switch r.Method {
	case http.MethodGet, http.MethodHead:
	case http.MethodDelete:
		if err := s.store.DeleteBlob(rt.name, d); err != nil {
			s.fail(w, r, err, unknown)
			return
		}
		w.WriteHeader(http.StatusAccepted)
		return
	default:
		errMethod.write(w)
		return
	}
	blobHeaders(w, d)
	if r.Method == http.MethodHead {
		s.headBlob(w, r, rt, d, acc.role == RolePush && !s.readOnly.Load())
		return
	}
	b, err := s.store.OpenBlob(rt.name, d)
	if err != nil {
		s.fail(w, r, err, unknown)
		return
	}
	defer func() { _ = b.Close() }() // it was only read
	out := &pacedWriter{ResponseWriter: w, buffers: &s.pieces}
	out.cork, _ = r.Context().Value(corkKey{}).(*corkConn)
	http.ServeContent(out, r, "", time.Time{}, b.File)
	s.metrics.sent.Add(float64(out.sent))
}

func blobHeaders(w http.ResponseWriter, d digest.Digest) {
	h := w.Header()
	h["Docker-Content-Digest"] = []string{string(d)}
	h["Etag"] = []string{`"` + string(d) + `"`}
	h["Content-Type"] = octetStream
	h["Cache-Control"] = forever
}

// headBlob tells whether a blob is there. A pusher takes yes for an answer and does not send it, so it is kept from
// collection.
func (s *service) headBlob(w http.ResponseWriter, r *http.Request, rt route, d digest.Digest, pusher bool) {
	look := s.store.StatBlob
	if pusher {
		look = s.store.TouchBlob
	}
	size, err := look(rt.name, d)
	if err != nil {
		s.fail(w, r, err, errBlobUnknown.with(map[string]string{"digest": rt.ref}))
		return
	}
	h := w.Header()
	h["Content-Length"] = []string{strconv.FormatInt(size, 10)}
	h["Accept-Ranges"] = acceptRanges
	w.WriteHeader(http.StatusOK)
}

var (
	octetStream  = []string{"application/octet-stream"}
	forever      = []string{"max-age=31536000"} // the name is the content's hash
	acceptRanges = []string{"bytes"}
)

// pacedWriter sends in pieces, each within stallTimeout (corkConn) and in one system call, over TLS too. sendfile,
// which TLS cannot use, is slower on the loopback addresses where plain HTTP is allowed: it wakes both sides for every
// 64 KiB (measured, see docs/developers/benchmarks.md).
type pacedWriter struct {
	http.ResponseWriter
	cork    *corkConn  // nil without TLS
	buffers *sync.Pool // *pieceBuffers
	sent    int64
}

// pieceBuffers are what a client that is being sent a blob takes.
type pieceBuffers struct {
	plain  [pieceBuffer]byte
	sealed [corkBuffer]byte
}

func (p *pacedWriter) ReadFrom(r io.Reader) (int64, error) {
	var total int64
	defer func() { p.sent += total }()
	left := int64(math.MaxInt64)
	if limited, ok := r.(*io.LimitedReader); ok { // net/http passes the file so
		r, left = limited.R, limited.N
	}
	buffers, ok := p.buffers.Get().(*pieceBuffers)
	if !ok {
		buffers = &pieceBuffers{}
	}
	defer p.buffers.Put(buffers)
	for left > 0 {
		want := min(left, pieceBuffer)
		n, err := p.send(buffers, r, want)
		total, left = total+n, left-n
		if err != nil || n < want { // an early end: net/http notices the missing bytes
			return total, err
		}
	}
	return total, nil
}

func (p *pacedWriter) send(b *pieceBuffers, r io.Reader, want int64) (int64, error) {
	n, err := io.ReadFull(r, b.plain[:want])
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) {
		return 0, err
	}
	if p.cork == nil {
		sent, err := p.Write(b.plain[:n])
		return int64(sent), err
	}
	p.cork.hold(b.sealed[:])
	sent, err := p.Write(b.plain[:n])
	return int64(sent), errors.Join(err, p.cork.release())
}

// timedBody gives the client stallTimeout for each read of the request's body.
type timedBody struct {
	body    io.Reader
	control *http.ResponseController
	err     error
}

func (s *service) timed(w http.ResponseWriter, r *http.Request) io.ReadCloser {
	return io.NopCloser(&timedBody{body: r.Body, control: http.NewResponseController(w)})
}

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
