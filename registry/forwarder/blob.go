package forwarder

import (
	"context"
	"errors"
	"fmt"
	"hash"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"

	"dayone.dev/dayone/registry/peers"
	"dayone.dev/dayone/registry/route"
)

// blob serves a blob or one range of it. Where a peer stops, the next one goes on. Of a whole blob the client gets the
// last piece when all bytes have the digest; otherwise its connection is broken. A range cannot be compared: that is
// left to the client, which has the rest.
func blob(f *Forwarder, w http.ResponseWriter, r *http.Request, rt route.Route) {
	d, err := digest.Parse(rt.Ref)
	if err != nil || !d.Algorithm().Available() {
		refuse(w, http.StatusBadRequest, "DIGEST_INVALID", "that is no digest", rt.Ref)
		return
	}
	if !take(r.Context(), f.blobs) {
		return
	}
	defer func() { <-f.blobs }()
	pieces, ok := f.pieces.Get().(*[2][pieceSize]byte)
	if !ok {
		pieces = new([2][pieceSize]byte)
	}
	defer f.pieces.Put(pieces)
	t := &transfer{f: f, w: w, control: http.NewResponseController(w), digest: d, pieces: pieces,
		question: question{method: http.MethodGet, repository: rt.Name, path: r.URL.RequestURI()}}
	t.asked, t.wanted = parseRange(r.Header.Get("Range"))
	f.state.transfers(1)
	defer f.state.transfers(-1)
	err = f.ask(r.Context(), t.attempt)
	var none *noAnswer
	switch {
	case err == nil:
	case t.given: // half an answer must not look like a whole one
		if r.Context().Err() == nil {
			f.state.broken()
			f.o.Log.WithField("digest", d).WithError(err).Warn("a client's connection is broken in the middle of a blob")
		}
		panic(http.ErrAbortHandler)
	case errors.Is(err, errRange):
		refuse(w, http.StatusRequestedRangeNotSatisfiable, "SIZE_INVALID", "the blob has no such range", t.asked)
	case errors.As(err, &none):
		none.write(w, unknown(rt))
	}
}

// transfer is a blob on its way from the peers to one client.
type transfer struct {
	f        *Forwarder
	w        http.ResponseWriter
	control  *http.ResponseController
	digest   digest.Digest
	question question
	// asked is the client's Range, and wanted what it says; "" is the whole.
	asked  string
	wanted wanted

	// span is what the client gets. sum is of what has come; nil for a part of the blob.
	span span
	sum  hash.Hash
	next int64 // the first byte that has not come
	// held is the piece that has come and was not given yet, in one of pieces.
	held   []byte
	pieces *[2][pieceSize]byte
	given  bool // the client has got something
	// by are the peers that something has come from.
	by []string
}

// span is from the first byte to before the end, of a blob of so many bytes.
type span struct{ from, end, total int64 }

func (s span) whole() bool { return s.from == 0 && s.end == s.total }

func (s span) String() string { return fmt.Sprintf("bytes %d to %d of %d", s.from, s.end, s.total) }

// wanted is a client's range: from the first byte to before the end, end 0: all that follows; or the last so many.
type wanted struct{ from, end, last int64 }

// parseRange reads a Range header. Of several ranges, and of what is no range of bytes, the client gets the whole.
func parseRange(header string) (string, wanted) {
	from, to, ok := strings.Cut(strings.TrimPrefix(header, "bytes="), "-")
	first, err := strconv.ParseInt(from, 10, 62)
	last, lastErr := strconv.ParseInt(to, 10, 62)
	switch {
	case !ok || !strings.HasPrefix(header, "bytes=") || first < 0 || last < 0:
	case err == nil && to == "":
		return header, wanted{from: first}
	case err == nil && lastErr == nil && first <= last:
		return header, wanted{from: first, end: last + 1}
	case from == "" && lastErr == nil && last > 0:
		return header, wanted{last: last}
	}
	return "", wanted{}
}

// is tells whether a span is the one that was wanted.
func (w wanted) is(s span) bool {
	switch {
	case w == wanted{}:
		return false
	case w.last > 0:
		return s.end == s.total && s.from == max(0, s.total-w.last)
	case w.end == 0:
		return s.from == w.from && s.end == s.total
	}
	return s.from == w.from && s.end == min(w.end, s.total)
}

// attempt takes from one peer what is still to come, as far as it goes. As long as the client has nothing, each peer
// begins anew: the one before may have lied about the size.
func (t *transfer) attempt(ctx context.Context, s source, p peers.Peer) (came int64, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	body, err := t.open(ctx, s, p)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, body.Close()) }()
	if t.given {
		t.f.state.switched()
	} else {
		t.by = nil
	}
	t.by = append(t.by, p.Name)
	began := t.next
	err = t.pump(ctx, cancel, body)
	return t.next - began, err
}

// open asks for what is still to come.
func (t *transfer) open(ctx context.Context, s source, p peers.Peer) (io.ReadCloser, error) {
	q := t.question
	q.header = http.Header{"Accept-Encoding": {"identity"}}
	switch {
	case t.given:
		q.header.Set("Range", fmt.Sprintf("bytes=%d-%d", t.next, t.span.end-1))
	case t.asked != "":
		q.header.Set("Range", t.asked)
	}
	resp, err := t.f.send(ctx, s, p, q, http.StatusOK, http.StatusPartialContent,
		http.StatusRequestedRangeNotSatisfiable)
	if err != nil {
		return nil, err
	}
	got, err := spanOf(resp)
	switch {
	case errors.Is(err, errRange) && !t.given && t.asked != "":
		err = final{err}
	case err != nil:
	case t.given:
		if want := (span{t.next, t.span.end, t.span.total}); got != want {
			err = fmt.Errorf("it sends %s, %s is to come", got, want)
		}
	case !got.whole() && !t.wanted.is(got):
		err = lieError{fmt.Errorf("it sends %s, which nobody asked for", got)}
	default:
		t.begin(got)
	}
	if err != nil {
		return nil, errors.Join(err, resp.Body.Close())
	}
	return resp.Body, nil
}

func (t *transfer) begin(s span) {
	t.span, t.next, t.held, t.sum = s, s.from, nil, nil
	if s.whole() {
		t.sum = t.digest.Algorithm().Hash()
	}
}

// spanOf says what an answer has. 416 has nothing, as a range that begins behind the blob's end.
func spanOf(resp *http.Response) (s span, err error) {
	switch resp.StatusCode {
	case http.StatusOK:
		s = span{0, resp.ContentLength, resp.ContentLength}
		if s.total < 0 {
			return s, lieError{errors.New("it does not say how large the blob is")}
		}
		return s, nil
	case http.StatusRequestedRangeNotSatisfiable:
		return s, errRange
	}
	var last int64
	text := resp.Header.Get("Content-Range")
	_, err = fmt.Sscanf(text, "bytes %d-%d/%d", &s.from, &last, &s.total)
	s.end = last + 1
	if err != nil || s.from < 0 || s.end <= s.from || s.total < s.end || resp.ContentLength != s.end-s.from {
		return s, lieError{fmt.Errorf("it sends %d bytes as the range %q", resp.ContentLength, text)}
	}
	return s, nil
}

// errRange is an answer for the client, not a fault of the peer.
var errRange = errors.New("416 Range Not Satisfiable")

// pump reads pieces and gives each when the next one is there.
func (t *transfer) pump(ctx context.Context, cancel context.CancelCauseFunc, body io.Reader) error {
	limit := t.f.sources.limits.answer
	stalled := fmt.Errorf("less than %d bytes came in %s", pieceSize, limit)
	timer := time.AfterFunc(limit, func() { cancel(stalled) })
	defer timer.Stop()
	for t.next < t.span.end {
		timer.Reset(limit)
		piece := t.free()[:min(pieceSize, t.span.end-t.next)]
		n, err := io.ReadFull(body, piece)
		timer.Stop()
		if cause := context.Cause(ctx); err != nil && cause != nil {
			err = cause
		}
		if n > 0 {
			if err := t.take(piece[:n]); err != nil {
				return err
			}
		}
		if err != nil {
			return fmt.Errorf("at byte %d of %d: %w", t.next, t.span.total, err)
		}
	}
	if t.sum != nil && digest.NewDigest(t.digest.Algorithm(), t.sum) != t.digest {
		return t.spoiled()
	}
	return t.give()
}

// free is the buffer that does not hold the last piece.
func (t *transfer) free() []byte {
	if len(t.held) > 0 && &t.held[0] == &t.pieces[0][0] {
		return t.pieces[1][:]
	}
	return t.pieces[0][:]
}

// take counts a piece and gives the one before.
func (t *transfer) take(piece []byte) error {
	if t.sum != nil {
		_, _ = t.sum.Write(piece) // it never fails
	}
	t.next += int64(len(piece))
	if t.held != nil {
		if err := t.give(); err != nil {
			return err
		}
	}
	t.held = piece
	return nil
}

// spoiled says who sent what has another digest. The next peer may do better if the client has got nothing.
func (t *transfer) spoiled() error {
	err := lieError{fmt.Errorf("what %s sent has another digest", strings.Join(t.by, " and "))}
	t.f.state.lied(t.by, err)
	if t.given {
		return final{err}
	}
	return err
}

// final ends a transfer that no other peer can save.
type final struct{ error }

func (e final) Unwrap() error { return e.error }

// give sends what is held, after the head of the answer.
func (t *transfer) give() error {
	if !t.given {
		t.head()
	}
	err := t.control.SetWriteDeadline(time.Now().Add(clientLimit))
	if err == nil || errors.Is(err, http.ErrNotSupported) {
		_, err = t.w.Write(t.held)
	}
	t.held = nil
	if err != nil {
		return final{fmt.Errorf("the client takes nothing: %w", err)}
	}
	return nil
}

func (t *transfer) head() {
	t.given = true
	h := t.w.Header()
	h.Set("Content-Type", "application/octet-stream")
	h.Set("Docker-Content-Digest", string(t.digest))
	h.Set("Etag", `"`+string(t.digest)+`"`)
	h.Set("Accept-Ranges", "bytes")
	h.Set("Content-Length", strconv.FormatInt(t.span.end-t.span.from, 10))
	status := http.StatusOK
	if t.asked != "" && (!t.span.whole() || strings.HasPrefix(t.asked, "bytes=0-")) {
		h.Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", t.span.from, t.span.end-1, t.span.total))
		status = http.StatusPartialContent
	}
	t.w.WriteHeader(status)
}
