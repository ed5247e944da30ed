package registry

import (
	"net/http"
	"runtime/debug"
	"sync"
	"time"

	"github.com/sirupsen/logrus"

	"dayone.dev/dayone/registry/route"
	"dayone.dev/dayone/registry/storage"
	"dayone.dev/dayone/registry/strangers"
)

// service answers requests between one Start and its Shutdown.
type service struct {
	root        string
	realm       string
	store       *storage.Store
	accounts    *accounts
	readOnly    bool
	maxManifest int64
	sparse      bool
	metrics     *metrics
	pulled      func(Pull)
	reports     http.Handler
	reportsPath string
	log         *logrus.Entry
	house       house
	through     *pullThrough // nil without an upstream
	pieces      sync.Pool    // *[pieceBuffer]byte
}

// call is one request of an account to an endpoint, and its answer.
type call struct {
	*service
	w       http.ResponseWriter
	r       *http.Request
	route   route.Route
	account *account
}

func (c call) repository() storage.Repository { return c.store.Repository(c.route.Name) }

// took reports what a node gets.
func (c call) took(p Pull) {
	if c.account.role != RolePull {
		return
	}
	p.Client, p.Repository = clientAddress(c.r), c.route.Name
	c.pulled(p)
}

func readMethod(m string) bool { return m == http.MethodGet || m == http.MethodHead }

// handler serves an endpoint.
func (s *service) handler(end route.Endpoint) func(call) {
	switch end {
	case route.Manifest:
		return serveManifest
	case route.Blob:
		return serveBlob
	case route.Uploads:
		return startUpload
	case route.Upload:
		return serveUpload
	case route.Referrers:
		return serveReferrers
	case route.Tags:
		return serveTags
	case route.Catalog:
		return serveCatalog
	case route.Base:
		return serveBase
	case route.Metrics:
		return func(c call) { c.metrics.handler.ServeHTTP(c.w, c.r) }
	}
	return func(c call) { errNoEndpoint.write(c.w) }
}

// ServeHTTP checks the account, then the role, then the path, and hands the request to the handler of its endpoint.
func (s *service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	defer s.recoverPanic(w, r)
	w.Header()["Docker-Distribution-Api-Version"] = apiVersion
	if r.Body == http.NoBody {
		// nothing is waited for, and a long answer is not to be ended by it
		_ = http.NewResponseController(w).SetReadDeadline(time.Time{})
	}
	if s.serveHealth(w, r) {
		return
	}
	acc, refusal := s.accounts.authenticate(r, time.Now())
	if refusal != nil {
		s.metrics.refused.Inc()
		if refusal.status == http.StatusUnauthorized {
			w.Header().Set("Www-Authenticate", `Basic realm="`+s.realm+`"`)
		} else {
			w.Header().Set("Retry-After", "5")
			w.Header().Set("Connection", "close")
		}
		refusal.write(w)
		return
	}
	strangers.Admit(r.Context())
	if r.Body != http.NoBody && http.NewResponseController(w).EnableFullDuplex() == nil { // net/http leaves the body to us
		defer sink(w, r)
	}
	if s.reports != nil && r.URL.Path == s.reportsPath && r.Method == http.MethodPost {
		s.reports.ServeHTTP(w, r)
		return
	}
	if !readMethod(r.Method) {
		if acc.role != RolePush {
			errDenied.write(w)
			return
		}
		if s.readOnly {
			errReadOnly.write(w)
			return
		}
		if s.through != nil {
			errPullThrough.write(w)
			return
		}
	}
	rt := route.Parse(r.URL.Path)
	if rt.Name != "" && !route.ValidName(rt.Name) {
		errNameInvalid.with(map[string]string{"name": rt.Name}).write(w)
		return
	}
	s.metrics.requests[rt.End].Inc()
	began := time.Now()
	defer func() { s.metrics.seconds[rt.End].Observe(time.Since(began).Seconds()) }()
	s.handler(rt.End)(call{service: s, w: w, r: r, route: rt, account: acc})
}

var apiVersion = []string{"registry/2.0"}

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
	s.metrics.failures.Inc()
	s.log.WithFields(logrus.Fields{"method": r.Method, "path": r.URL.Path, "panic": p, "stack": string(debug.Stack())}).
		Error("registry request panicked")
	errInternal.write(w)
}
