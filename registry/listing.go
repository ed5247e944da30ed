package registry

import (
	"encoding/json"
	"net/http"
	"net/url"
	"sort"
	"strconv"

	v1 "github.com/opencontainers/image-spec/specs-go/v1"

	"dayone.dev/dayone/registry/storage"
)

const (
	// maxTagsPerPage bounds an answer; a client that gets fewer tags than it asked for follows the Link header.
	maxTagsPerPage = 10000
	// maxCatalogEntries is the page size that distribution's own configuration defaults to.
	maxCatalogEntries = 1000
	// indexFrame is more than an index takes beside its descriptors.
	indexFrame = 256
)

// serveBase says that this is a registry.
func serveBase(c call) {
	if !readMethod(c.r.Method) {
		errMethod.write(c.w)
		return
	}
	writeJSON(c.w, "application/json", struct{}{})
}

// serveCatalog lists repositories with manifests.
func serveCatalog(c call) {
	if !readMethod(c.r.Method) {
		errMethod.write(c.w)
		return
	}
	q := c.r.URL.Query()
	limit, refusal := pageSize(q, maxCatalogEntries)
	if refusal != nil {
		refusal.write(c.w)
		return
	}
	names, more := []string{}, false
	if limit > 0 {
		var err error
		if names, more, err = c.store.Catalog(c.r.Context(), limit, q.Get("last")); err != nil {
			c.fail(err, errInternal)
			return
		}
	}
	if more {
		linkNext(c.w, "/v2/_catalog", limit, names[len(names)-1])
	}
	writeJSON(c.w, "application/json", map[string]any{"repositories": names})
}

// pageSize is the n of a request, or most.
func pageSize(q url.Values, most int) (int, *apiError) {
	n := q.Get("n")
	if n == "" {
		return most, nil
	}
	size, err := strconv.Atoi(n)
	if err != nil || size < 0 {
		return 0, errPageInvalid.with(map[string]string{"n": n})
	}
	return min(size, most), nil
}

func linkNext(w http.ResponseWriter, path string, size int, last string) {
	next := url.Values{"n": {strconv.Itoa(size)}, "last": {last}}
	w.Header().Set("Link", "<"+path+"?"+next.Encode()+`>; rel="next"`)
}

func serveTags(c call) {
	if !readMethod(c.r.Method) {
		errMethod.write(c.w)
		return
	}
	q := c.r.URL.Query()
	limit, refusal := pageSize(q, maxTagsPerPage)
	if refusal != nil {
		refusal.write(c.w)
		return
	}
	if c.through != nil && c.through.serveList(c, "tags/list") {
		return
	}
	if !c.repository().Exists() {
		errNameUnknown.with(map[string]string{"name": c.route.Name}).write(c.w)
		return
	}
	tags, err := c.repository().Tags(c.r.Context())
	if err != nil {
		c.fail(err, errNameUnknown)
		return
	}
	if last := q.Get("last"); last != "" {
		i := sort.SearchStrings(tags, last)
		if i < len(tags) && tags[i] == last {
			i++
		}
		tags = tags[i:]
	}
	if len(tags) > limit {
		tags = tags[:limit]
		if limit > 0 {
			linkNext(c.w, "/v2/"+c.route.Name+"/tags/list", limit, tags[limit-1])
		}
	}
	if tags == nil {
		tags = []string{}
	}
	writeJSON(c.w, "application/json", map[string]any{"name": c.route.Name, "tags": tags})
}

// serveReferrers answers with an index, empty when nothing refers to the digest: it need not exist itself. No page is
// larger than a manifest may be: clients bound what they read by that.
func serveReferrers(c call) {
	if !readMethod(c.r.Method) {
		errMethod.write(c.w)
		return
	}
	d, err := storage.ParseDigest(c.route.Ref)
	if err != nil {
		errDigestInvalid.with(err.Error()).write(c.w)
		return
	}
	if c.through != nil && c.through.serveList(c, "referrers/"+string(d)) {
		return
	}
	q := c.r.URL.Query()
	want := q.Get("artifactType")
	page, err := storage.Referrers(c.repository(), d, storage.ReferrersQuery{ArtifactType: want, After: q.Get("last"),
		MaxBytes: max(1, int(c.maxManifest)-indexFrame)})
	if err != nil {
		c.fail(err, errNameUnknown)
		return
	}
	if want != "" {
		c.w.Header().Set("Oci-Filters-Applied", "artifactType")
	}
	if page.Next != "" {
		next := url.Values{"last": {page.Next}}
		if want != "" {
			next.Set("artifactType", want)
		}
		c.w.Header().Set("Link", "<"+c.r.URL.Path+"?"+next.Encode()+`>; rel="next"`)
	}
	index := v1.Index{MediaType: v1.MediaTypeImageIndex, Manifests: page.Descriptors}
	index.SchemaVersion = 2
	writeJSON(c.w, v1.MediaTypeImageIndex, index)
}

func writeJSON(w http.ResponseWriter, contentType string, v any) {
	body, err := json.Marshal(v)
	if err != nil { // both callers pass strings and numbers only
		errInternal.write(w)
		return
	}
	w.Header().Set("Content-Type", contentType)
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	_, _ = w.Write(body) // the client is gone when this fails
}
