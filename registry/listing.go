package registry

import (
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"sort"
	"strconv"

	v1 "github.com/opencontainers/image-spec/specs-go/v1"

	"dayone.dev/dayone/registry/layout"
)

// maxTagsPerPage bounds an answer; a client that gets fewer tags than it asked for follows the Link header.
const maxTagsPerPage = 10000

func (s *service) tags(w http.ResponseWriter, r *http.Request, rt route) {
	if !readMethod(r.Method) {
		errMethod.write(w)
		return
	}
	q := r.URL.Query()
	limit := maxTagsPerPage
	if n := q.Get("n"); n != "" {
		parsed, err := strconv.Atoi(n)
		if err != nil || parsed < 0 {
			errPageInvalid.with(map[string]string{"n": n}).write(w)
			return
		}
		limit = min(limit, parsed)
	}
	if !s.store.HasRepository(rt.name) {
		errNameUnknown.with(map[string]string{"name": rt.name}).write(w)
		return
	}
	tags, err := s.store.Tags(rt.name)
	if err != nil {
		s.fail(w, r, err, errNameUnknown)
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
			next := url.Values{"n": {strconv.Itoa(limit)}, "last": {tags[limit-1]}}
			w.Header().Set("Link", "</v2/"+rt.name+"/tags/list?"+next.Encode()+`>; rel="next"`)
		}
	}
	if tags == nil {
		tags = []string{}
	}
	writeJSON(w, "application/json", map[string]any{"name": rt.name, "tags": tags})
}

// referrers answers with an index, empty when nothing refers to the digest: it need not exist itself.
func (s *service) referrers(w http.ResponseWriter, r *http.Request, rt route) {
	if !readMethod(r.Method) {
		errMethod.write(w)
		return
	}
	d, err := layout.ParseDigest(rt.ref)
	if err != nil {
		errDigestInvalid.with(err.Error()).write(w)
		return
	}
	found, err := s.store.Referrers(rt.name, d)
	if err != nil {
		s.fail(w, r, err, errNameUnknown)
		return
	}
	if want := r.URL.Query().Get("artifactType"); want != "" {
		found = slices.DeleteFunc(found, func(d v1.Descriptor) bool { return d.ArtifactType != want })
		w.Header().Set("Oci-Filters-Applied", "artifactType")
	}
	index := v1.Index{MediaType: v1.MediaTypeImageIndex, Manifests: found}
	index.SchemaVersion = 2
	writeJSON(w, v1.MediaTypeImageIndex, index)
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
