package registry

import (
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/opencontainers/go-digest"

	"dayone.dev/dayone/registry/layout"
)

func (s *service) upload(w http.ResponseWriter, r *http.Request, rt route) {
	if rt.end == endUploads {
		if r.Method != http.MethodPost {
			errMethod.write(w)
			return
		}
		s.startUpload(w, r, rt)
		return
	}
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodPatch, http.MethodPut, http.MethodDelete:
	default:
		errMethod.write(w)
		return
	}
	u, err := s.store.AcquireUpload(rt.name, rt.ref)
	if err != nil {
		s.fail(w, r, err, errUploadUnknown)
		return
	}
	defer u.Release()
	switch r.Method {
	case http.MethodPatch:
		s.appendUpload(w, r, rt, u)
	case http.MethodPut:
		s.finishUpload(w, r, rt, u)
	case http.MethodDelete:
		if err := u.Cancel(); err != nil {
			s.fail(w, r, err, errUploadUnknown)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	default:
		uploadHeaders(w, rt.name, u)
		w.WriteHeader(http.StatusNoContent)
	}
}

// startUpload mounts the blob, or takes it in one request, or opens an upload. A mount that is not possible is an
// upload.
func (s *service) startUpload(w http.ResponseWriter, r *http.Request, rt route) {
	q := r.URL.Query()
	if mount := q.Get("mount"); mount != "" {
		d, err := layout.ParseDigest(mount)
		if err != nil {
			errDigestInvalid.with(err.Error()).write(w)
			return
		}
		from := q.Get("from")
		if from == "" || validName(from) {
			done, err := s.store.Mount(from, rt.name, d)
			if err != nil {
				s.fail(w, r, err, errBlobUnknown)
				return
			}
			if done {
				blobCreated(w, rt.name, string(d))
				return
			}
		}
	}
	if q.Get("digest") != "" { // refuse before the upload exists
		if _, err := layout.ParseDigest(q.Get("digest")); err != nil {
			errDigestInvalid.with(err.Error()).write(w)
			return
		}
	}
	u, err := s.store.NewUpload(rt.name)
	if err != nil {
		s.fail(w, r, err, errUploadUnknown)
		return
	}
	defer u.Release()
	if q.Get("digest") != "" {
		s.finishUpload(w, r, rt, u)
		if u.Open() { // the client does not know its address and cannot go on with it
			s.abandon(u)
		}
		return
	}
	uploadHeaders(w, rt.name, u)
	w.WriteHeader(http.StatusAccepted)
}

func uploadHeaders(w http.ResponseWriter, name string, u *layout.Upload) {
	h := w.Header()
	h.Set("Location", "/v2/"+name+"/blobs/uploads/"+u.ID())
	h.Set("Docker-Upload-Uuid", u.ID())
	h.Set("Range", "0-"+strconv.FormatInt(max(0, u.Size()-1), 10))
	h.Set("Content-Length", "0")
}

func blobCreated(w http.ResponseWriter, name, digest string) {
	h := w.Header()
	h.Set("Location", "/v2/"+name+"/blobs/"+digest)
	h.Set("Docker-Content-Digest", digest)
	h.Set("Content-Length", "0")
	w.WriteHeader(http.StatusCreated)
}

func (s *service) appendUpload(w http.ResponseWriter, r *http.Request, rt route, u *layout.Upload) {
	if ct := r.Header.Get("Content-Type"); ct != "" && !strings.HasPrefix(ct, "application/octet-stream") {
		errUploadInvalid.with("content type must be application/octet-stream").write(w)
		return
	}
	if !s.receive(w, r, rt, u, "") {
		return
	}
	uploadHeaders(w, rt.name, u)
	w.WriteHeader(http.StatusAccepted)
}

func (s *service) finishUpload(w http.ResponseWriter, r *http.Request, rt route, u *layout.Upload) {
	want := r.URL.Query().Get("digest")
	d, err := layout.ParseDigest(want)
	if err != nil {
		errDigestInvalid.with(err.Error()).write(w)
		return
	}
	if !s.receive(w, r, rt, u, d) {
		return
	}
	if err := u.Commit(d); err != nil {
		s.abandon(u) // an upload whose digest is wrong can never be finished
		s.fail(w, r, err, errUploadUnknown)
		return
	}
	blobCreated(w, rt.name, string(d))
}

// receive appends the body to the upload and answers when that fails. want is the digest of the whole where the client
// has told it.
func (s *service) receive(w http.ResponseWriter, r *http.Request, rt route, u *layout.Upload, want digest.Digest) bool {
	if cr := r.Header.Get("Content-Range"); cr != "" {
		first, last, ok := parseContentRange(cr)
		switch {
		case !ok:
			errUploadInvalid.with("Content-Range must be FIRST-LAST").write(w)
			return false
		case first != u.Size():
			uploadHeaders(w, rt.name, u)
			errRange.with("the upload has " + strconv.FormatInt(u.Size(), 10) + " bytes").write(w)
			return false
		case r.ContentLength >= 0 && r.ContentLength != last-first+1:
			errSizeInvalid.write(w)
			return false
		}
	}
	if known := want != "" && u.Expect(want); !known && r.ContentLength > 0 {
		if err := s.store.Room(r.ContentLength); err != nil {
			w.Header().Set("Connection", "close") // do not read what will not be stored
			s.fail(w, r, err, errUploadUnknown)
			return false
		}
	}
	before := u.Size()
	body := &timedBody{body: r.Body, control: http.NewResponseController(w)}
	err := u.Append(body)
	s.metrics.received.Add(float64(u.Size() - before))
	if err == nil {
		return true
	}
	if body.err != nil && !errors.Is(body.err, io.EOF) { // the client went away; what came stays for a resume
		w.Header().Set("Connection", "close")
		uploadHeaders(w, rt.name, u)
		errUploadInvalid.with("the body ended early").write(w)
		return false
	}
	w.Header().Set("Connection", "close")
	s.abandon(u) // what it received would keep the room that others need
	s.fail(w, r, err, errUploadUnknown)
	return false
}

func (s *service) abandon(u *layout.Upload) {
	if err := u.Cancel(); err != nil {
		s.log.WithField("upload", u.ID()).WithError(err).Warn("registry upload stays behind")
	}
}

// parseContentRange reads FIRST-LAST; the specification has no unit here, but some clients send "bytes FIRST-LAST/*".
func parseContentRange(v string) (first, last int64, ok bool) {
	v = strings.TrimPrefix(v, "bytes ")
	v, _, _ = strings.Cut(v, "/")
	a, b, ok := strings.Cut(v, "-")
	if !ok {
		return 0, 0, false
	}
	first, err := strconv.ParseInt(a, 10, 64)
	if err != nil || first < 0 || a[0] == '+' {
		return 0, 0, false
	}
	last, err = strconv.ParseInt(b, 10, 64)
	if err != nil || last < first || b[0] == '+' {
		return 0, 0, false
	}
	return first, last, true
}
