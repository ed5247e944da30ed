package registry

import (
	"encoding/json"
	"errors"
	"net/http"
	"strconv"

	"dayone.dev/dayone/registry/storage"
)

// apiError is an answer in the form of the OCI distribution specification, §Error Codes.
type apiError struct {
	status  int
	Code    string `json:"code"`
	Message string `json:"message"`
	Detail  any    `json:"detail,omitempty"`
}

// The codes are those of the OCI distribution specification 1.1, table "Error Codes"; INSUFFICIENT_STORAGE is ours.
var (
	errUnauthorized  = newError(http.StatusUnauthorized, "UNAUTHORIZED", "authentication required")
	errDenied        = newError(http.StatusForbidden, "DENIED", "this account may pull only")
	errTooManyLogins = newError(http.StatusTooManyRequests, "TOOMANYREQUESTS",
		"too many failed logins from this address")
	errReadOnly    = newError(http.StatusMethodNotAllowed, "UNSUPPORTED", "the registry is read-only")
	errPullThrough = newError(http.StatusMethodNotAllowed, "UNSUPPORTED",
		"the registry holds what its upstream has: push to the upstream")
	errUpstream = newError(http.StatusBadGateway, "UNKNOWN",
		"the upstream registry does not give what was asked for, see the log of this one")
	errMethod         = newError(http.StatusMethodNotAllowed, "UNSUPPORTED", "the method is not allowed here")
	errNoEndpoint     = newError(http.StatusNotFound, "UNSUPPORTED", "no such endpoint")
	errTooManyUploads = newError(http.StatusTooManyRequests, "TOOMANYREQUESTS",
		"too many unfinished uploads of this account: finish or cancel some")
	errInternal      = newError(http.StatusInternalServerError, "UNKNOWN", "the registry failed, see its log")
	errNameInvalid   = newError(http.StatusBadRequest, "NAME_INVALID", "invalid repository name")
	errNameUnknown   = newError(http.StatusNotFound, "NAME_UNKNOWN", "repository name not known to registry")
	errDigestInvalid = newError(http.StatusBadRequest, "DIGEST_INVALID",
		"provided digest did not match uploaded content or is malformed")
	errBlobUnknown   = newError(http.StatusNotFound, "BLOB_UNKNOWN", "blob unknown to registry")
	errUploadUnknown = newError(http.StatusNotFound, "BLOB_UPLOAD_UNKNOWN", "blob upload unknown to registry")
	errUploadInvalid = newError(http.StatusBadRequest, "BLOB_UPLOAD_INVALID", "blob upload invalid")
	errUploadBusy    = newError(http.StatusConflict, "BLOB_UPLOAD_INVALID", "another request is writing to this upload")
	errSizeInvalid   = newError(http.StatusBadRequest, "SIZE_INVALID", "provided length did not match content length")
	errRange         = newError(http.StatusRequestedRangeNotSatisfiable, "BLOB_UPLOAD_INVALID",
		"the chunk does not start where the upload ends")
	errManifestUnknown = newError(http.StatusNotFound, "MANIFEST_UNKNOWN", "manifest unknown to registry")
	errManifestInvalid = newError(http.StatusBadRequest, "MANIFEST_INVALID", "manifest invalid")
	errManifestBlob    = newError(http.StatusBadRequest, "MANIFEST_BLOB_UNKNOWN",
		"manifest references a manifest or blob unknown to registry")
	errManifestSize = newError(http.StatusRequestEntityTooLarge, "SIZE_INVALID", "manifest is too large")
	errTagInvalid   = newError(http.StatusBadRequest, "TAG_INVALID", "manifest tag is malformed")
	errTooManyTags  = newError(http.StatusRequestURITooLong, "TAG_INVALID", "too many tag parameters")
	errPageInvalid  = newError(http.StatusBadRequest, "PAGINATION_NUMBER_INVALID", "n must be a number of 0 or more")
	errNoSpace      = newError(http.StatusInsufficientStorage, "INSUFFICIENT_STORAGE",
		"the registry's disk budget is used up")
)

func newError(status int, code, message string) *apiError {
	return &apiError{status: status, Code: code, Message: message}
}

func (e *apiError) with(detail any) *apiError {
	c := *e
	c.Detail = detail
	return &c
}

// write sends the error; a HEAD request gets only the header, as net/http drops the body.
func (e *apiError) write(w http.ResponseWriter) {
	body, err := json.Marshal(map[string]any{"errors": []*apiError{e}})
	if err != nil { // a detail that cannot be marshalled: the code still says enough
		body = []byte(`{"errors":[{"code":` + strconv.Quote(e.Code) + `}]}`)
	}
	h := w.Header()
	for _, k := range []string{"Etag", "Docker-Content-Digest", "Content-Range", "Cache-Control"} {
		h.Del(k)
	}
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(e.status)
	_, _ = w.Write(body) // this fails when the client is gone
}

// fail answers with what the store's error means; unknown is the answer for "not found". Errors that are the server's
// are logged.
func (c call) fail(err error, unknown *apiError) {
	var missing *storage.MissingError
	var fault upstreamError
	answer := errInternal
	switch {
	case errors.As(err, &fault):
		answer = errUpstream
		if c.r.Context().Err() == nil {
			c.log.WithField("path", c.r.URL.Path).WithError(err).Warn("registry upstream failed")
		}
	case errors.Is(err, storage.ErrCorrupt), errors.Is(err, storage.ErrNotFound):
		answer = unknown
	case errors.Is(err, storage.ErrNoSpace):
		answer = errNoSpace.with(err.Error())
		c.log.WithField("path", c.r.URL.Path).WithError(err).Warn("registry has no room")
	case errors.Is(err, storage.ErrDigest):
		answer = errDigestInvalid.with(err.Error())
	case errors.Is(err, storage.ErrManifest):
		answer = errManifestInvalid.with(err.Error())
	case errors.Is(err, storage.ErrTooManyUploads):
		answer = errTooManyUploads
	case errors.Is(err, storage.ErrBusy):
		answer = errUploadBusy
	case errors.As(err, &missing):
		answer = errManifestBlob.with(map[string]any{"digests": missing.Digests})
	}
	if answer == errInternal && c.r.Context().Err() == nil {
		c.metrics.failures.Inc()
		c.log.WithFields(map[string]any{"method": c.r.Method, "path": c.r.URL.Path}).WithError(err).
			Error("registry request failed")
	}
	answer.write(c.w)
}
