package serve

import (
	"cmp"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	stdlog "log"
	"net"
	"net/http"
	"net/netip"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/sirupsen/logrus"
)

// reasonHeader carries the cause of an error answer: bodies of errors stay empty, as from MCO's server.
const reasonHeader = "Dayone-Reason"

// Handler answers /config/<anything>/<pool>, /files/<name> and /healthz.
func (s *Server) Handler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		started := time.Now()
		rec := &recorder{ResponseWriter: w}
		kind := s.route(rec, r)
		s.metrics.observe(kind, rec.status, time.Since(started), rec.written)
		if kind == "healthz" || !s.options.Log.Logger.IsLevelEnabled(logrus.InfoLevel) {
			return
		}
		s.options.Log.WithFields(logrus.Fields{
			"client": r.RemoteAddr, "method": r.Method, "path": r.URL.Path, "status": rec.status, "bytes": rec.written,
			"accept": r.Header.Get("Accept"), "agent": r.UserAgent(),
		}).Info("request answered")
	})
}

// route answers one request and names its kind for the metrics.
func (s *Server) route(w http.ResponseWriter, r *http.Request) string {
	target := r.URL.Path
	switch {
	case target == "/healthz":
		if methodAllowed(w, r) {
			w.Header().Set("Content-Length", "0")
			w.WriteHeader(http.StatusOK)
		}
		return "healthz"
	case target == "/config", strings.HasPrefix(target, "/config/"):
		if methodAllowed(w, r) && s.admitted(w, r, true) {
			s.config(w, r)
			if r.Method == http.MethodGet {
				s.options.Asked(r.RemoteAddr, path.Base(target), w.Header().Get(reasonHeader))
			}
		}
		return "config"
	case strings.HasPrefix(target, "/files/"):
		if methodAllowed(w, r) && s.admitted(w, r, false) {
			s.file(w, r, strings.TrimPrefix(target, "/files/"))
		}
		return "file"
	case s.options.Registry != nil && strings.HasPrefix(target, "/v2/"):
		s.options.Registry.ServeHTTP(w, r)
		return "registry"
	default:
		if methodAllowed(w, r) {
			refuse(w, http.StatusNotFound, nil)
		}
		return "other"
	}
}

func methodAllowed(w http.ResponseWriter, r *http.Request) bool {
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		return true
	}
	w.Header().Set("Allow", "GET, HEAD")
	refuse(w, http.StatusMethodNotAllowed, nil)
	return false
}

// refuse answers with a status, an empty body and the reason in a header.
func refuse(w http.ResponseWriter, status int, reason error) {
	if reason != nil {
		w.Header().Set(reasonHeader, oneLine(reason.Error()))
	}
	w.Header().Set("Content-Length", "0")
	w.WriteHeader(status)
}

// oneLine makes a text fit for a header: printable ASCII of bounded length.
func oneLine(text string) string {
	const limit = 300
	var b strings.Builder
	for _, c := range text {
		if b.Len() >= limit {
			break
		}
		if c < ' ' || c > '~' {
			c = ' '
		}
		b.WriteRune(c)
	}
	return b.String()
}

// admitted checks the client's network and, for configs, the token.
func (s *Server) admitted(w http.ResponseWriter, r *http.Request, secret bool) bool {
	if len(s.options.AllowedNetworks) > 0 && !s.fromAllowed(r.RemoteAddr) {
		refuse(w, http.StatusForbidden, errors.New("the client's network is not allowed"))
		return false
	}
	if secret && s.options.Token != "" {
		token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		want, got := sha256.Sum256([]byte(s.options.Token)), sha256.Sum256([]byte(token))
		if !ok || subtle.ConstantTimeCompare(want[:], got[:]) != 1 {
			refuse(w, http.StatusForbidden, errors.New("the token is missing or wrong"))
			return false
		}
	}
	return true
}

func (s *Server) fromAllowed(remote string) bool {
	host, _, err := net.SplitHostPort(remote)
	if err != nil {
		return false
	}
	addr, err := netip.ParseAddr(host)
	if err != nil {
		return false
	}
	addr = addr.Unmap().WithZone("")
	for _, network := range s.options.AllowedNetworks {
		if network.Contains(addr) {
			return true
		}
	}
	return false
}

// config answers with the config of the pool that is the path's last element.
func (s *Server) config(w http.ResponseWriter, r *http.Request) {
	version, err := negotiate(r.Header.Get("Accept"))
	if err != nil {
		refuse(w, http.StatusBadRequest, err)
		return
	}
	name := path.Base(r.URL.Path)
	if !s.options.serves(name) {
		refuse(w, http.StatusInternalServerError, fmt.Errorf("pool %s is not served here", name))
		return
	}
	pool := s.current.Load().pool(name)
	if pool.err != nil {
		refuse(w, pool.status, pool.err)
		return
	}
	a := pool.of(r.RemoteAddr).get(version)
	if a.err != nil {
		s.options.Log.WithError(a.err).WithFields(logrus.Fields{"pool": name, "version": version}).
			Warn("config cannot be served in this version")
		refuse(w, a.status, a.err)
		return
	}
	send(w, r, a)
}

// send writes a complete answer.
func send(w http.ResponseWriter, r *http.Request, a *answer) {
	body, tag := a.body, `"`+a.tag+`"`
	h := w.Header()
	if wantsGzip(r.Header.Get("Accept-Encoding")) {
		if zipped := a.packed(); zipped != nil {
			body, tag = zipped, `"`+a.tag+`-gzip"`
			h.Set("Content-Encoding", "gzip")
		}
	}
	h.Set("Vary", "Accept, Accept-Encoding")
	h.Set("Etag", tag)
	h.Set("Cache-Control", "no-cache")
	if matches(r.Header.Get("If-None-Match"), tag) {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(http.StatusOK)
	if r.Method != http.MethodHead {
		_, _ = w.Write(body) // a client that has gone away is no error of ours
	}
}

func wantsGzip(header string) bool {
	for part := range strings.SplitSeq(header, ",") {
		coding, q, _ := strings.Cut(part, ";")
		if strings.EqualFold(strings.TrimSpace(coding), "gzip") {
			q = strings.ReplaceAll(q, " ", "")
			return q != "q=0" && q != "q=0.0" && q != "q=0.00" && q != "q=0.000"
		}
	}
	return false
}

func matches(header, tag string) bool {
	for part := range strings.SplitSeq(header, ",") {
		if part = strings.TrimSpace(part); part == tag || part == "*" || strings.TrimPrefix(part, "W/") == tag {
			return true
		}
	}
	return false
}

// file answers with a local file that the options name.
func (s *Server) file(w http.ResponseWriter, r *http.Request, name string) {
	f, ok := s.files[name]
	if !ok {
		refuse(w, http.StatusNotFound, nil)
		return
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Etag", fmt.Sprintf(`"%x-%x"`, f.info.Size(), f.info.ModTime().UnixNano()))
	http.ServeContent(w, r, "", f.info.ModTime(), io.NewSectionReader(f.opened, 0, f.info.Size()))
}

// recorder notes status and size of an answer.
type recorder struct {
	http.ResponseWriter
	status  int
	written int64
}

// WriteHeader notes the status.
func (r *recorder) WriteHeader(status int) {
	r.status = status
	r.ResponseWriter.WriteHeader(status)
}

// Write notes the size.
func (r *recorder) Write(p []byte) (int, error) {
	r.status = cmp.Or(r.status, http.StatusOK)
	n, err := r.ResponseWriter.Write(p)
	r.written += int64(n)
	return n, err
}

// errorLog sends what net/http has to say, mostly failed handshakes, to the log at debug level.
func errorLog(log *logrus.Entry) *stdlog.Logger {
	return stdlog.New(httpErrors{log}, "", 0)
}

type httpErrors struct{ log *logrus.Entry }

// Write logs one line.
func (e httpErrors) Write(p []byte) (int, error) {
	e.log.WithField("detail", strings.TrimSpace(string(p))).Debug("http server message")
	return len(p), nil
}
