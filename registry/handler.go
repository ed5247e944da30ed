package registry

import (
	"net/http"
	"runtime/debug"
	"time"
)

var ( // answers of the OCI distribution specification 1.1, table "Error Codes", and ours beside them
	errUnauthorized  = newError(http.StatusUnauthorized, "UNAUTHORIZED", "authentication required")
	errDenied        = newError(http.StatusForbidden, "DENIED", "this account may pull only")
	errTooManyLogins = newError(http.StatusTooManyRequests, "TOOMANYREQUESTS", "too many failed logins from this address")
	errReadOnly      = newError(http.StatusMethodNotAllowed, "UNSUPPORTED", "the registry is read-only")
	errNotFound      = newError(http.StatusNotFound, "UNSUPPORTED", "no such endpoint")
	errInternal      = newError(http.StatusInternalServerError, "UNKNOWN", "the registry failed, see its log")
	errNameInvalid   = newError(http.StatusBadRequest, "NAME_INVALID", "invalid repository name")
)

func readMethod(m string) bool { return m == http.MethodGet || m == http.MethodHead }

// ServeHTTP checks the account, then the role, then the path, and hands the request to the handler of its endpoint.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	defer s.recoverPanic(w, r)
	w.Header().Set("Docker-Distribution-Api-Version", "registry/2.0")
	acc, apiErr := s.accounts.authenticate(r, time.Now())
	if apiErr != nil {
		if apiErr.status == http.StatusUnauthorized {
			w.Header().Set("Www-Authenticate", `Basic realm="`+realm+`"`)
		} else {
			w.Header().Set("Retry-After", "5")
		}
		apiErr.write(w)
		return
	}
	if !readMethod(r.Method) {
		if acc.role != RolePush {
			errDenied.write(w)
			return
		}
		if s.readOnly.Load() {
			errReadOnly.write(w)
			return
		}
	}
	rt := parseRoute(r.URL.Path)
	if rt.name != "" && !validName(rt.name) {
		errNameInvalid.with(map[string]string{"name": rt.name}).write(w)
		return
	}
	s.dispatch(w, r, rt)
}

func (s *Server) dispatch(w http.ResponseWriter, r *http.Request, rt route) {
	if rt.end == endNone {
		errNotFound.write(w)
		return
	}
	s.upstream.ServeHTTP(w, r)
}

// recoverPanic answers a request whose handler panicked and keeps the server up. http.ErrAbortHandler is a deliberate abort.
func (s *Server) recoverPanic(w http.ResponseWriter, r *http.Request) {
	p := recover()
	if p == nil {
		return
	}
	if p == http.ErrAbortHandler { //nolint:errorlint // net/http compares it so, a panic value is not a wrapped error
		panic(p)
	}
	s.log.WithFields(map[string]any{"method": r.Method, "path": r.URL.Path, "panic": p, "stack": string(debug.Stack())}).Error("registry request panicked")
	errInternal.write(w)
}
