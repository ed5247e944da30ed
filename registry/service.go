package registry

import (
	"net/http"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sirupsen/logrus"

	"dayone.dev/dayone/registry/layout"
)

// service answers requests between one Start and its Shutdown.
type service struct {
	store       *layout.Store
	upstream    *upstream
	accounts    *accounts
	readOnly    *atomic.Bool
	maxManifest int64
	sparse      bool
	metrics     *metrics
	log         *logrus.Entry
	pieces      sync.Pool // *pieceBuffers
}

func readMethod(m string) bool { return m == http.MethodGet || m == http.MethodHead }

// ServeHTTP checks the account, then the role, then the path, and hands the request to the handler of its endpoint.
func (s *service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	defer s.recoverPanic(w, r)
	w.Header()["Docker-Distribution-Api-Version"] = apiVersion
	if r.Body == http.NoBody {
		// nothing is waited for, and a long answer is not to be ended by it
		_ = http.NewResponseController(w).SetReadDeadline(time.Time{})
	}
	acc, apiErr := s.accounts.authenticate(r, time.Now())
	if apiErr != nil {
		s.metrics.refused.Inc()
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
	s.metrics.requests[rt.end].Inc()
	s.dispatch(w, r, rt, acc)
}

var apiVersion = []string{"registry/2.0"}

func (s *service) dispatch(w http.ResponseWriter, r *http.Request, rt route, acc *account) {
	switch rt.end {
	case endManifest:
		s.manifest(w, r, rt)
	case endBlob:
		s.blob(w, r, rt, acc)
	case endUploads, endUpload:
		s.upload(w, r, rt)
	case endReferrers:
		s.referrers(w, r, rt)
	case endTags:
		s.tags(w, r, rt)
	case endMetrics:
		s.metrics.handler.ServeHTTP(w, r)
	case endBase, endCatalog:
		if !readMethod(r.Method) {
			errMethod.write(w)
			return
		}
		s.upstream.ServeHTTP(w, r)
	default:
		errNoEndpoint.write(w)
	}
}

// recoverPanic answers a request whose handler panicked and keeps the server up. http.ErrAbortHandler is a deliberate
// abort.
func (s *service) recoverPanic(w http.ResponseWriter, r *http.Request) {
	p := recover()
	if p == nil {
		return
	}
	if p == http.ErrAbortHandler { //nolint:errorlint // net/http compares it so, a panic value is not a wrapped error
		panic(p)
	}
	s.log.WithFields(logrus.Fields{"method": r.Method, "path": r.URL.Path, "panic": p, "stack": string(debug.Stack())}).
		Error("registry request panicked")
	errInternal.write(w)
}
