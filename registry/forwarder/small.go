package forwarder

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/opencontainers/go-digest"

	"dayone.dev/dayone/registry/peers"
	"dayone.dev/dayone/registry/route"
)

// passed are the headers of a peer's answer that clients get. Nothing that says how to log in there is among them.
var passed = []string{"Content-Type", "Docker-Content-Digest", "Etag", "Oci-Filters-Applied", "Accept-Ranges"}

// small serves what is no blob's content: manifests, lists, and the heads of all of them. It is read as a whole, and
// one that a digest names is compared with it, before the client gets anything.
func small(f *Forwarder, w http.ResponseWriter, r *http.Request, rt route.Route) {
	if !take(r.Context(), f.smalls) {
		return
	}
	defer func() { <-f.smalls }()
	q := question{method: r.Method, repository: rt.Name, path: r.URL.RequestURI(), header: http.Header{}}
	if accept := r.Header.Values("Accept"); len(accept) > 0 {
		q.header["Accept"] = accept
	}
	var resp *http.Response
	var body []byte
	err := f.ask(r.Context(), func(ctx context.Context, s source, p peers.Peer) (int64, error) {
		ctx, cancel := context.WithTimeout(ctx, smallLimit)
		defer cancel()
		var err error
		if resp, err = f.send(ctx, s, p, q, http.StatusOK); err != nil {
			return 0, err
		}
		body, err = readSmall(resp, rt, r.Method)
		return int64(len(body)), errors.Join(err, resp.Body.Close())
	})
	var none *noAnswer
	switch {
	case errors.As(err, &none):
		none.write(w, unknown(rt))
		return
	case err != nil:
		return // the client is gone
	}
	h := w.Header()
	for _, key := range passed {
		if v := resp.Header.Get(key); v != "" {
			h.Set(key, v)
		}
	}
	if link := resp.Header.Get("Link"); strings.HasPrefix(link, "</v2/") {
		h.Set("Link", link)
	}
	size := int64(len(body))
	if r.Method == http.MethodHead {
		size = resp.ContentLength
	}
	if size >= 0 {
		h.Set("Content-Length", strconv.FormatInt(size, 10))
	}
	w.WriteHeader(http.StatusOK)
	_, _ = w.Write(body) // this fails when the client is gone
}

// readSmall reads an answer and holds it against what was asked for.
func readSmall(resp *http.Response, rt route.Route, method string) ([]byte, error) {
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxSmall+1))
	if err != nil {
		return nil, err
	}
	if len(body) > maxSmall {
		return nil, lieError{fmt.Errorf("it sends more than %d bytes", maxSmall)}
	}
	named := resp.Header.Get("Docker-Content-Digest")
	want, isDigest := rt.Ref, strings.Contains(rt.Ref, ":")
	switch {
	case rt.End == route.Referrers, rt.End == route.Tags:
		return body, nil
	case !isDigest && named == "":
		return nil, lieError{errors.New("it does not say which digest the tag names")}
	case !isDigest:
		want = named
	}
	if isDigest && named != "" && named != rt.Ref {
		return nil, lieError{fmt.Errorf("it names %s", named)}
	}
	if method == http.MethodHead {
		return body, nil
	}
	d, err := digest.Parse(want)
	if err != nil || d.Algorithm().FromBytes(body) != d {
		return nil, lieError{errors.New("it sends what has another digest")}
	}
	return body, nil
}

// unknown is the code for what is not there. Source: OCI distribution specification, table of error codes.
func unknown(rt route.Route) string {
	switch rt.End {
	case route.Manifest:
		return "MANIFEST_UNKNOWN"
	case route.Blob:
		return "BLOB_UNKNOWN"
	default:
		return "NAME_UNKNOWN"
	}
}

// take takes a place, and false when the client goes before there is one.
func take(ctx context.Context, places chan struct{}) bool {
	select {
	case places <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}
