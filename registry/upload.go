package registry

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/opencontainers/go-digest"

	"dayone.dev/dayone/registry/route"
	"dayone.dev/dayone/registry/storage"
)

// serveUpload serves an upload under way.
func serveUpload(c call) {
	switch c.r.Method {
	case http.MethodGet, http.MethodHead, http.MethodPatch, http.MethodPut, http.MethodDelete:
	default:
		errMethod.write(c.w)
		return
	}
	owner := c.account.name
	if readMethod(c.r.Method) { // anybody may look at it
		owner = ""
	}
	u, err := c.repository().Upload(c.r.Context(), c.route.Ref, owner)
	if err != nil {
		c.fail(err, errUploadUnknown)
		return
	}
	defer c.release(u)
	switch c.r.Method {
	case http.MethodPatch:
		appendUpload(c, u)
	case http.MethodPut:
		finishUpload(c, u)
	case http.MethodDelete:
		if err := u.Cancel(c.r.Context()); err != nil {
			c.fail(err, errUploadUnknown)
			return
		}
		c.w.WriteHeader(http.StatusNoContent)
	default:
		uploadState(c.w, c.route.Name, u)
		c.w.WriteHeader(http.StatusNoContent)
	}
}

func (c call) release(u *storage.Upload) {
	if err := u.Release(); err != nil {
		c.log.WithField("upload", u.ID()).WithError(err).Warn("registry upload cannot go on")
	}
}

// startUpload mounts the blob, or takes it in one request, or opens an upload. A mount that is not possible is an
// upload.
func startUpload(c call) {
	if c.r.Method != http.MethodPost {
		errMethod.write(c.w)
		return
	}
	q := c.r.URL.Query()
	for _, name := range []string{"mount", "digest"} { // refuse before the upload exists
		if q.Get(name) == "" {
			continue
		}
		if _, err := storage.ParseDigest(q.Get(name)); err != nil {
			errDigestInvalid.with(err.Error()).write(c.w)
			return
		}
	}
	if from := q.Get("from"); q.Get("mount") != "" && (from == "" || route.ValidName(from)) {
		done, err := c.repository().Mount(c.r.Context(), from, digest.Digest(q.Get("mount")))
		if err != nil {
			c.fail(err, errBlobUnknown)
			return
		}
		if done {
			blobCreated(c.w, c.route.Name, q.Get("mount"))
			return
		}
	}
	u, err := c.repository().NewUpload(c.r.Context(), c.account.name)
	if err != nil {
		c.fail(err, errUploadUnknown)
		return
	}
	defer c.release(u)
	if q.Get("digest") != "" {
		finishUpload(c, u)
		if u.Open() { // the client does not know its address and cannot go on with it
			c.abandon(u)
		}
		return
	}
	uploadHeaders(c.w, c.route.Name, u)
	c.w.WriteHeader(http.StatusAccepted)
}

func uploadHeaders(w http.ResponseWriter, name string, u *storage.Upload) {
	h := w.Header()
	h.Set("Location", "/v2/"+name+"/blobs/uploads/"+u.ID())
	h.Set("Docker-Upload-Uuid", u.ID())
	h.Set("Range", "0-"+strconv.FormatInt(max(0, u.Size()-1), 10))
	h.Set("Content-Length", "0")
}

// uploadState tells a client that resumes where to go on. No range has no bytes: 0--1 is what clients that count from
// its end continue at 0 from, and 0-0 is one byte.
func uploadState(w http.ResponseWriter, name string, u *storage.Upload) {
	uploadHeaders(w, name, u)
	if u.Size() == 0 {
		w.Header().Set("Range", "0--1")
	}
}

func blobCreated(w http.ResponseWriter, name, digest string) {
	h := w.Header()
	h.Set("Location", "/v2/"+name+"/blobs/"+digest)
	h.Set("Docker-Content-Digest", digest)
	h.Set("Content-Length", "0")
	w.WriteHeader(http.StatusCreated)
}

func appendUpload(c call, u *storage.Upload) {
	if ct := c.r.Header.Get("Content-Type"); ct != "" && !strings.HasPrefix(ct, "application/octet-stream") {
		errUploadInvalid.with("content type must be application/octet-stream").write(c.w)
		return
	}
	if !receive(c, u) {
		return
	}
	uploadHeaders(c.w, c.route.Name, u)
	c.w.WriteHeader(http.StatusAccepted)
}

func finishUpload(c call, u *storage.Upload) {
	d, err := storage.ParseDigest(c.r.URL.Query().Get("digest"))
	if err != nil {
		errDigestInvalid.with(err.Error()).write(c.w)
		return
	}
	if !receive(c, u) {
		return
	}
	if err := u.Commit(c.r.Context(), d); err != nil {
		c.abandon(u) // an upload whose digest is wrong can never be finished
		c.fail(err, errUploadUnknown)
		return
	}
	blobCreated(c.w, c.route.Name, string(d))
}

// receive appends the body to the upload and answers when that fails.
func receive(c call, u *storage.Upload) bool {
	if cr := c.r.Header.Get("Content-Range"); cr != "" {
		first, last, ok := parseContentRange(cr)
		switch {
		case !ok:
			errUploadInvalid.with("Content-Range must be FIRST-LAST").write(c.w)
			return false
		case first != u.Size():
			uploadState(c.w, c.route.Name, u)
			errRange.with("the upload has " + strconv.FormatInt(u.Size(), 10) + " bytes").write(c.w)
			return false
		case c.r.ContentLength >= 0 && c.r.ContentLength != last-first+1:
			errSizeInvalid.write(c.w)
			return false
		}
	}
	if c.r.ContentLength > 0 {
		if err := c.store.Room(c.r.ContentLength); err != nil {
			c.w.Header().Set("Connection", "close") // do not read what will not be stored
			c.fail(err, errUploadUnknown)
			return false
		}
	}
	before := u.Size()
	body := timed(c)
	err := u.Append(body)
	c.metrics.received.Add(float64(u.Size() - before))
	if err == nil {
		return true
	}
	c.w.Header().Set("Connection", "close")
	if body.err != nil && !errors.Is(body.err, io.EOF) { // the client went away; what came stays for a resume
		uploadState(c.w, c.route.Name, u)
		errUploadInvalid.with("the body ended early").write(c.w)
		return false
	}
	c.abandon(u) // what it received would keep the room that others need
	c.fail(err, errUploadUnknown)
	return false
}

// abandon removes an upload, also of a client that has gone away.
func (c call) abandon(u *storage.Upload) {
	if err := u.Cancel(context.WithoutCancel(c.r.Context())); err != nil {
		c.log.WithField("upload", u.ID()).WithError(err).Warn("registry upload stays behind")
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
