package registry

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"

	"dayone.dev/dayone/registry/storage"
)

const (
	// controlSocket is where a running server takes maintenance commands. Root is 0700: only its owner reaches it.
	controlSocket = ".dayone-registry.sock"
	// controlWait bounds the connection to a server on the same host.
	controlWait = 10 * time.Second
	// maxControlBytes of a request; an answer names blobs and may be long.
	maxControlBytes = 1 << 20
)

var errRootReadOnly = errors.New("the registry is read-only: stop it, or serve without --read-only")

// removal names a manifest to be removed.
type removal struct {
	Repository string        `json:"repository"`
	Digest     digest.Digest `json:"digest"`
}

// serveControl takes commands for a server until stop is called, which waits for those under way. Of servers that share
// a root to read it, the first takes them.
func serveControl(root string, s *service) (stop func() error, err error) {
	ln, err := inRoot(root, func(path string) (net.Listener, error) {
		if conn, err := net.Dial("unix", path); err == nil {
			return nil, errors.Join(errors.New("another server takes them"), conn.Close())
		}
		if err := ignoreGone(os.Remove(path)); err != nil { // a killed server left it; the lock is ours
			return nil, err
		}
		return net.Listen("unix", path)
	})
	if err != nil {
		return nil, fmt.Errorf("listen for maintenance commands: %w", err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /status", control(func(context.Context, struct{}) (Status, error) { return readStatus(s) }))
	mux.HandleFunc("POST /gc", control(s.collect))
	mux.HandleFunc("POST /verify", control(func(ctx context.Context, _ struct{}) (storage.VerifyReport, error) {
		return scrub(ctx, s, time.Now(), storage.VerifyOptions{})
	}))
	mux.HandleFunc("POST /restore", func(w http.ResponseWriter, r *http.Request) { serveRestore(s, w, r) })
	mux.HandleFunc("POST /rm", control(func(ctx context.Context, r removal) (struct{}, error) {
		if s.readOnly {
			return struct{}{}, errRootReadOnly
		}
		return struct{}{}, s.store.Repository(r.Repository).DeleteManifest(ctx, r.Digest)
	}))
	ctx, cancel := context.WithCancel(context.Background())
	srv := &http.Server{Handler: mux, ReadHeaderTimeout: headerTimeout,
		BaseContext: func(net.Listener) context.Context { return ctx }}
	done := make(chan error, 1)
	go func() { done <- srv.Serve(ln) }()
	return func() error {
		cancel() // a collection or verification ends at its next blob
		err := srv.Shutdown(context.Background())
		if served := <-done; !errors.Is(served, http.ErrServerClosed) {
			err = errors.Join(err, served)
		}
		return errors.Join(err, ignoreGone(os.Remove(filepath.Join(root, controlSocket))))
	}, nil
}

func ignoreGone(err error) error {
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

// inRoot passes the socket's path by way of an open directory: the path of a socket has 107 bytes at most.
func inRoot[T any](root string, f func(path string) (T, error)) (out T, err error) {
	dir, err := os.Open(root)
	if err != nil {
		return out, err
	}
	defer func() { _ = dir.Close() }() // it was only read
	return f(fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), controlSocket))
}

func control[I, O any](do func(context.Context, I) (O, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var in I
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxControlBytes))
		if err == nil {
			err = json.Unmarshal(body, &in)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		out, err := do(r.Context(), in)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		writeJSON(w, "application/json", out)
	}
}

// dialControl is a client of the server that uses a root.
func dialControl(ctx context.Context, root string) (*http.Client, error) {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return inRoot(root, func(path string) (net.Conn, error) {
			return (&net.Dialer{Timeout: controlWait}).DialContext(ctx, "unix", path)
		})
	}
	conn, err := dial(ctx, "", "")
	if err != nil {
		return nil, err
	}
	return &http.Client{Transport: &http.Transport{DialContext: dial}}, conn.Close()
}

// ask lets a running server do what a command wants.
func ask[O any](ctx context.Context, server *http.Client, path string, in any) (out O, err error) {
	body, err := json.Marshal(in)
	if err != nil {
		return out, err
	}
	return send[O](ctx, server, path, bytes.NewReader(body))
}

func send[O any](ctx context.Context, server *http.Client, path string, body io.Reader) (out O, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://registry"+path, body)
	if err != nil {
		return out, err
	}
	resp, err := server.Do(req)
	if err != nil {
		return out, fmt.Errorf("ask the running registry: %w", err)
	}
	defer func() { _ = resp.Body.Close() }() // it was only read
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		return out, fmt.Errorf("ask the running registry: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		return out, errors.New(strings.TrimSpace(string(answer)))
	}
	return out, json.Unmarshal(answer, &out)
}
