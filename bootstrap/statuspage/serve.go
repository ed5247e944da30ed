package statuspage

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"crypto/tls"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"dayone.dev/dayone/bootstrap/board"
	"dayone.dev/dayone/registry/strangers"
)

// Paths of what is answered beside the page.
const (
	statusPath = "/status.json"
	bundlePath = "/bundle.tar.gz"
)

// pageSource asks again by itself; it loads nothing from elsewhere.
//
//go:embed page.html
var pageSource string

// Limits of one client.
const (
	headerLimit = 10 * time.Second
	writeLimit  = 30 * time.Second
	// bundleLimit is how long sending a log bundle may take.
	bundleLimit = 5 * time.Minute
	idleLimit   = time.Minute
	maxHeader   = 16 << 10
	// maxStrangers bounds the connections on which no token was shown yet, and maxOfAddress those of one address: clients
	// without a token must not use up the host's.
	maxStrangers = 64
	maxOfAddress = 8
)

// Handler answers with the JSON, the page and, where Bundle is set, a log bundle.
func (c *Collector) Handler() http.Handler {
	page := template.New("page").Funcs(template.FuncMap{"size": size, "took": board.Took})
	template.Must(template.Must(page.Parse(board.Style())).Parse(pageSource))
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+statusPath, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(c.Status(time.Now())) // the client may be gone
	})
	mux.HandleFunc("GET "+bundlePath, c.bundle)
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		shown := struct {
			Status
			Nonce string
		}{c.Status(time.Now()), rand.Text()}
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		// No script runs but the page's own, which the nonce marks, and that one reaches this host only.
		w.Header().Set("Content-Security-Policy",
			"default-src 'none'; script-src 'nonce-"+shown.Nonce+"'; connect-src 'self'; "+
				"style-src 'unsafe-inline'; frame-ancestors 'none'; form-action 'none'; base-uri 'none'")
		_ = page.Execute(w, shown)
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Cache-Control", "no-store")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		mux.ServeHTTP(w, r)
	})
}

// bundle sends a log bundle, one at a time: making it takes the host's processor and disk.
func (c *Collector) bundle(w http.ResponseWriter, r *http.Request) {
	switch {
	case c.Bundle == nil:
		http.NotFound(w, r)
		return
	case !c.bundling.TryLock():
		w.Header().Set("Retry-After", "10")
		http.Error(w, "another client is downloading a bundle", http.StatusServiceUnavailable)
		return
	}
	defer c.bundling.Unlock()
	ctx, cancel := context.WithTimeout(r.Context(), bundleLimit)
	defer cancel()
	if err := http.NewResponseController(w).SetWriteDeadline(time.Now().Add(bundleLimit)); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/gzip")
	w.Header().Set("Content-Disposition", `attachment; filename="log-bundle.tar.gz"`)
	if err := c.Bundle(ctx, w); err != nil {
		panic(http.ErrAbortHandler) // the client must not take a part for the whole
	}
}

// authorized lets clients in that know the token: as the password of any user, which browsers ask for, or as a bearer
// token.
func (id *Identity) authorized(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, token, ok := r.BasicAuth()
		if !ok {
			token, _ = strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		}
		if subtle.ConstantTimeCompare([]byte(token), []byte(id.Token)) != 1 {
			w.Header().Set("WWW-Authenticate", `Basic realm="dayone: any user, the token as password", charset="UTF-8"`)
			http.Error(w, "send the token as the password of any user; the administrator of this host has it",
				http.StatusUnauthorized)
			return
		}
		strangers.Admit(r.Context())
		next.ServeHTTP(w, r)
	})
}

// ServeSocket answers on a unix socket, mode 0600, until ctx ends. A socket that a killed process left is replaced.
func (c *Collector) ServeSocket(ctx context.Context, path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("serve status: %w", err)
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return fmt.Errorf("serve status: %w", err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return errors.Join(fmt.Errorf("serve status: %w", err), l.Close())
	}
	return serve(ctx, l, c.Handler())
}

// ServeTLS answers HTTPS on HOST:PORT to clients that know the token, until ctx ends.
func (c *Collector) ServeTLS(ctx context.Context, address string, id *Identity) error {
	return id.Serve(ctx, address, c.Handler())
}

// Serve answers HTTPS on HOST:PORT with h to clients that know the token, until ctx ends.
func (id *Identity) Serve(ctx context.Context, address string, h http.Handler) error {
	if id.Token == "" {
		return errors.New("serve: the token is missing: any client could read the status")
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		return fmt.Errorf("serve: %w", err)
	}
	l = tls.NewListener(strangers.Listen(l, maxStrangers, maxOfAddress), &tls.Config{
		Certificates: []tls.Certificate{id.Certificate}, MinVersion: tls.VersionTLS12})
	return serve(ctx, l, id.authorized(h))
}

func serve(ctx context.Context, l net.Listener, h http.Handler) error {
	srv := &http.Server{Handler: h, ReadHeaderTimeout: headerLimit, ReadTimeout: headerLimit, WriteTimeout: writeLimit,
		IdleTimeout: idleLimit, MaxHeaderBytes: maxHeader, ConnContext: strangers.ConnContext,
		ErrorLog: silent()}
	stop := context.AfterFunc(ctx, func() { _ = srv.Close() })
	defer stop()
	if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve: %w", err)
	}
	return nil
}

// maxStatus bounds an answer, in bytes.
const maxStatus = 1 << 20

// Fetch asks a bootstrap for its status.
func (c *Client) Fetch(ctx context.Context) (Status, error) {
	var s Status
	ctx, cancel := context.WithTimeout(ctx, writeLimit)
	defer cancel()
	body, err := c.get(ctx, statusPath)
	if err != nil {
		return s, fmt.Errorf("ask for the status: %w", err)
	}
	defer body.Close()
	if err := json.NewDecoder(io.LimitReader(body, maxStatus)).Decode(&s); err != nil {
		return s, fmt.Errorf("read the status: %w", err)
	}
	s.Board = s.board() // a bootstrap of an earlier version sends none
	return s, nil
}

// Bundle asks a bootstrap for a log bundle of at most limit bytes and writes it to w.
func (c *Client) Bundle(ctx context.Context, w io.Writer, limit int64) error {
	ctx, cancel := context.WithTimeout(ctx, bundleLimit)
	defer cancel()
	body, err := c.get(ctx, bundlePath)
	if err != nil {
		return fmt.Errorf("ask for a log bundle: %w", err)
	}
	defer body.Close()
	n, err := io.Copy(w, io.LimitReader(body, limit+1))
	switch {
	case err != nil:
		return fmt.Errorf("read the log bundle: %w", err)
	case n > limit:
		return fmt.Errorf("read the log bundle: it is larger than %d bytes", limit)
	}
	return nil
}
