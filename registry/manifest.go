package registry

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strconv"
	"strings"

	"github.com/opencontainers/go-digest"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"

	"dayone.dev/dayone/registry/layout"
)

// maxTagParameters bounds the work of one push; the specification asks for ten.
const maxTagParameters = 100

func (s *service) manifest(w http.ResponseWriter, r *http.Request, rt route) {
	byDigest := strings.Contains(rt.ref, ":")
	var d digest.Digest
	if byDigest {
		var err error
		if d, err = layout.ParseDigest(rt.ref); err != nil {
			errDigestInvalid.with(err.Error()).write(w)
			return
		}
	} else if !validTag(rt.ref) {
		if readMethod(r.Method) { // no manifest can have such a tag
			errManifestUnknown.with(map[string]string{"tag": rt.ref}).write(w)
			return
		}
		errTagInvalid.with(map[string]string{"tag": rt.ref}).write(w)
		return
	}
	switch r.Method {
	case http.MethodGet, http.MethodHead:
		s.getManifest(w, r, rt, d)
	case http.MethodPut:
		s.putManifest(w, r, rt, d)
	case http.MethodDelete:
		s.deleteManifest(w, r, rt, d)
	default:
		errMethod.write(w)
	}
}

// getManifest is the hottest path: an account, one look into the cache, one write. What a client says it accepts does
// not matter, the digest decides: a converted manifest would have another one.
func (s *service) getManifest(w http.ResponseWriter, r *http.Request, rt route, d digest.Digest) {
	var m *layout.Manifest
	var err error
	if d != "" {
		m, err = s.store.Manifest(rt.name, d)
	} else {
		m, err = s.store.Tagged(rt.name, rt.ref)
	}
	if err != nil {
		s.fail(w, r, err, errManifestUnknown.with(map[string]string{"name": rt.name, "reference": rt.ref}))
		return
	}
	h := w.Header()
	h["Docker-Content-Digest"] = []string{string(m.Digest)}
	h["Etag"] = []string{m.Quoted}
	if etagMatches(r.Header["If-None-Match"], m.Quoted) {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	h["Content-Type"] = []string{m.MediaType}
	h["Content-Length"] = []string{strconv.Itoa(len(m.Body))}
	if r.Method == http.MethodHead {
		w.WriteHeader(http.StatusOK)
		return
	}
	_, _ = w.Write(m.Body) // the client is gone when this fails
}

// etagMatches also accepts the digest without quotes, as distribution does.
func etagMatches(headers []string, quoted string) bool {
	for _, h := range headers {
		for v := range strings.SplitSeq(h, ",") {
			v = strings.TrimPrefix(strings.TrimSpace(v), "W/")
			if v == quoted || v == "*" || v == strings.Trim(quoted, `"`) {
				return true
			}
		}
	}
	return false
}

func (s *service) putManifest(w http.ResponseWriter, r *http.Request, rt route, d digest.Digest) {
	if r.ContentLength > s.maxManifest {
		w.Header().Set("Connection", "close")
		errManifestSize.with(fmt.Sprintf("at most %d bytes", s.maxManifest)).write(w)
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, s.timed(w, r), s.maxManifest))
	if err != nil {
		var tooLarge *http.MaxBytesError
		if errors.As(err, &tooLarge) {
			errManifestSize.with(fmt.Sprintf("at most %d bytes", s.maxManifest)).write(w)
			return
		}
		errManifestInvalid.with("the body ended early").write(w)
		return
	}
	content, err := parseManifest(r.Header.Get("Content-Type"), body)
	if err != nil {
		errManifestInvalid.with(err.Error()).write(w)
		return
	}
	var apiErr *apiError
	put := layout.Put{Repository: rt.name, Digest: d, Body: body}
	if d == "" {
		put.Tags, put.Digest = []string{rt.ref}, digest.FromBytes(body)
	} else if got := d.Algorithm().FromBytes(body); got != d {
		errDigestInvalid.with(fmt.Sprintf("the body has %s", got)).write(w)
		return
	} else if put.Tags, apiErr = tagParameters(r); apiErr != nil {
		apiErr.write(w)
		return
	}
	if !s.sparse {
		put.Needs, put.Children = references(content)
	}
	if err := s.store.PutManifest(put); err != nil {
		s.fail(w, r, err, errManifestUnknown)
		return
	}
	h := w.Header()
	if content.Subject != nil {
		h.Set("Oci-Subject", string(content.Subject.Digest))
	}
	if d != "" && put.Tags != nil {
		h["Oci-Tag"] = put.Tags
	}
	h.Set("Location", "/v2/"+rt.name+"/manifests/"+string(put.Digest))
	h.Set("Docker-Content-Digest", string(put.Digest))
	h.Set("Content-Length", "0")
	w.WriteHeader(http.StatusCreated)
}

// tagParameters are the tags that a push by digest sets at once (tag parameters of the OCI distribution specification
// after 1.1).
func tagParameters(r *http.Request) ([]string, *apiError) {
	if r.URL.RawQuery == "" {
		return nil, nil
	}
	tags := r.URL.Query()["tag"]
	if len(tags) > maxTagParameters {
		return nil, errTooManyTags.with(fmt.Sprintf("at most %d", maxTagParameters))
	}
	for _, tag := range tags {
		if !validTag(tag) {
			return nil, errTagInvalid.with(map[string]string{"tag": tag})
		}
	}
	return tags, nil
}

// parseManifest accepts the four manifests of OCI and docker and refuses what one client would read otherwise than
// another.
func parseManifest(contentType string, body []byte) (*layout.Content, error) {
	mediaType := contentType
	if contentType != "" {
		var err error
		if mediaType, _, err = mime.ParseMediaType(contentType); err != nil {
			return nil, fmt.Errorf("parse content type: %w", err)
		}
	}
	var c layout.Content
	if err := json.Unmarshal(body, &c); err != nil {
		return nil, fmt.Errorf("parse manifest: %w", err)
	}
	if c.SchemaVersion != 2 {
		return nil, fmt.Errorf("schemaVersion is %d, only 2 is supported", c.SchemaVersion)
	}
	if mediaType == "" {
		mediaType = c.MediaType
	}
	if c.MediaType != "" && c.MediaType != mediaType {
		return nil, fmt.Errorf("mediaType %q is not the content type %q", c.MediaType, mediaType)
	}
	switch mediaType {
	case v1.MediaTypeImageManifest, layout.MediaTypeDockerManifest:
		if c.Manifests != nil {
			return nil, errors.New("an image manifest has no manifests")
		}
		if c.Config == nil {
			return nil, errors.New("config is missing")
		}
		if mediaType == layout.MediaTypeDockerManifest && c.MediaType == "" {
			return nil, errors.New("a docker manifest names its mediaType")
		}
	case v1.MediaTypeImageIndex, layout.MediaTypeDockerList:
		if c.Config != nil || c.Layers != nil {
			return nil, errors.New("an index has neither config nor layers")
		}
		if mediaType == layout.MediaTypeDockerList && c.MediaType == "" {
			return nil, errors.New("a docker manifest list names its mediaType")
		}
		if c.MediaType == "" && c.Manifests == nil {
			return nil, errors.New("manifests is missing")
		}
	default:
		return nil, fmt.Errorf("content type %q is not that of an OCI or docker manifest", mediaType)
	}
	return &c, checkDescriptors(&c)
}

func checkDescriptors(c *layout.Content) error {
	check := func(where string, d v1.Descriptor) error {
		if _, err := layout.ParseDigest(string(d.Digest)); err != nil {
			return fmt.Errorf("%s: %w", where, err)
		}
		if d.Size < 0 {
			return fmt.Errorf("%s: size is negative", where)
		}
		return nil
	}
	if c.Config != nil {
		if err := check("config", *c.Config); err != nil {
			return err
		}
	}
	if c.Subject != nil {
		if err := check("subject", *c.Subject); err != nil {
			return err
		}
	}
	for i, d := range c.Layers {
		if err := check(fmt.Sprintf("layers[%d]", i), d); err != nil {
			return err
		}
	}
	for i, d := range c.Manifests {
		if err := check(fmt.Sprintf("manifests[%d]", i), d); err != nil {
			return err
		}
	}
	return nil
}

// references are what has to be in the repository before the manifest. A subject may come later (OCI distribution
// specification, "Pushing Manifests with Subject"), and a layer that lives elsewhere by its URLs is not asked for.
func references(c *layout.Content) (blobs, manifests []digest.Digest) {
	if c.Config != nil {
		blobs = append(blobs, c.Config.Digest)
	}
	for _, l := range c.Layers {
		if len(l.URLs) > 0 && (strings.Contains(l.MediaType, "nondistributable") ||
			strings.Contains(l.MediaType, "foreign")) {
			continue
		}
		blobs = append(blobs, l.Digest)
	}
	for _, m := range c.Manifests {
		manifests = append(manifests, m.Digest)
	}
	return blobs, manifests
}

func (s *service) deleteManifest(w http.ResponseWriter, r *http.Request, rt route, d digest.Digest) {
	var err error
	if d != "" {
		err = s.store.DeleteManifest(rt.name, d)
	} else {
		err = s.store.DeleteTag(rt.name, rt.ref)
	}
	if err != nil {
		s.fail(w, r, err, errManifestUnknown.with(map[string]string{"name": rt.name, "reference": rt.ref}))
		return
	}
	w.WriteHeader(http.StatusAccepted)
}
