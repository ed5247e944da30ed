package statuspage

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"io/fs"
	"net"
	"net/http"
	"os"
	"time"
)

// StatusPath is where the JSON is; every other path is the page.
const StatusPath = "/status.json"

// page refreshes itself; it loads nothing from elsewhere.
var page = template.Must(template.New("page").Parse(`<!doctype html><html lang="en"><head><meta charset="utf-8"><meta http-equiv="refresh" content="2">
<title>dayone bootstrap</title><style>body{font:14px sans-serif;margin:2em}td{padding:.2em 1em .2em 0}.done{color:#060}.failed{color:#a00}.running{color:#05a}pre{background:#eee;padding:1em}</style></head><body>
<h1>dayone bootstrap</h1><table>{{range .Phases}}<tr><td class="{{.Status}}">{{.Status}}</td><td>{{.Title}}</td><td>{{printf "%.1f s" .Seconds}}</td>
<td>{{if .Bytes}}{{.Bytes}} bytes{{end}}</td><td>{{if .Error}}<span class="failed">{{.Error}}</span>{{else}}{{.Detail}}{{end}}</td></tr>{{end}}</table>
<p>{{len .Phases}} of {{.Total}} phases begun, {{.Time.UTC.Format "15:04:05"}} UTC</p><pre>{{range .Log}}{{.}}
{{end}}</pre></body></html>
`))

// Handler answers with the JSON and the page.
func (b *Board) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+StatusPath, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(b.Status(time.Now())) // the client may be gone
	})
	mux.HandleFunc("GET /", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.Header().Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'")
		_ = page.Execute(w, b.Status(time.Now()))
	})
	return mux
}

const headerLimit = 10 * time.Second

// ServeSocket answers on a unix socket, mode 0600, until ctx ends. A socket that a killed process left is replaced.
func (b *Board) ServeSocket(ctx context.Context, path string) error {
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
	return b.serve(ctx, l)
}

// ServeTLS answers HTTPS on HOST:PORT until ctx ends.
func (b *Board) ServeTLS(ctx context.Context, address string, certificate tls.Certificate) error {
	l, err := tls.Listen("tcp", address, &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12})
	if err != nil {
		return fmt.Errorf("serve status: %w", err)
	}
	return b.serve(ctx, l)
}

func (b *Board) serve(ctx context.Context, l net.Listener) error {
	srv := &http.Server{Handler: b.Handler(), ReadHeaderTimeout: headerLimit}
	stop := context.AfterFunc(ctx, func() { _ = srv.Close() })
	defer stop()
	if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve status: %w", err)
	}
	return nil
}

// Fetch asks a socket for the status.
func Fetch(ctx context.Context, socket string) (Status, error) {
	var s Status
	client := &http.Client{Timeout: headerLimit, Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://dayone"+StatusPath, nil)
	if err != nil {
		return s, fmt.Errorf("ask for the status: %w", err)
	}
	response, err := client.Do(request)
	if err != nil {
		return s, fmt.Errorf("ask for the status: %w", err)
	}
	defer response.Body.Close()
	if err := json.NewDecoder(response.Body).Decode(&s); err != nil {
		return s, fmt.Errorf("read the status: %w", err)
	}
	return s, nil
}
