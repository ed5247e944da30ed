package registry

import (
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"

	"dayone.dev/dayone/registry/route"
	"dayone.dev/dayone/registry/storage"
)

// maxTagParameters bounds the work of one push; the specification asks for ten.
const maxTagParameters = 100

func serveManifest(c call) {
	byDigest := strings.Contains(c.route.Ref, ":")
	var d digest.Digest
	if byDigest {
		var err error
		if d, err = storage.ParseDigest(c.route.Ref); err != nil {
			errDigestInvalid.with(err.Error()).write(c.w)
			return
		}
	} else if !route.ValidTag(c.route.Ref) {
		if readMethod(c.r.Method) { // no manifest can have such a tag
			errManifestUnknown.with(map[string]string{"tag": c.route.Ref}).write(c.w)
			return
		}
		errTagInvalid.with(map[string]string{"tag": c.route.Ref}).write(c.w)
		return
	}
	switch c.r.Method {
	case http.MethodGet, http.MethodHead:
		getManifest(c, d)
	case http.MethodPut:
		putManifest(c, d)
	case http.MethodDelete:
		deleteManifest(c, d)
	default:
		errMethod.write(c.w)
	}
}

// getManifest is the hottest path: an account, one look into the cache, one write. What a client says it accepts does
// not matter, the digest decides: a converted manifest would have another one.
func getManifest(c call, d digest.Digest) {
	m, stale, err := findManifest(c, d)
	if err != nil {
		c.fail(err, errManifestUnknown.with(map[string]string{"name": c.route.Name, "reference": c.route.Ref}))
		return
	}
	h := c.w.Header()
	if stale > 0 {
		staleHeaders(h, stale)
	}
	h["Docker-Content-Digest"] = []string{string(m.Digest)}
	h["Etag"] = []string{m.Quoted}
	if etagMatches(c.r.Header["If-None-Match"], m.Quoted) {
		c.w.WriteHeader(http.StatusNotModified)
		return
	}
	h["Content-Type"] = []string{m.MediaType}
	h["Content-Length"] = []string{strconv.Itoa(len(m.Body))}
	if c.r.Method == http.MethodHead {
		c.w.WriteHeader(http.StatusOK)
		return
	}
	c.took(Pull{Digest: string(m.Digest), Manifest: m.Body})
	_, _ = c.w.Write(m.Body) // the client is gone when this fails
}

// findManifest finds a manifest by digest, or with "" by the tag in the path. stale is the age of a tag that the
// upstream did not confirm.
func findManifest(c call, d digest.Digest) (m *storage.Manifest, stale time.Duration, err error) {
	switch {
	case c.through != nil && d == "":
		return c.through.tagged(c.r.Context(), c.route.Name, c.route.Ref)
	case c.through != nil:
		m, err = c.through.manifest(c.r.Context(), c.route.Name, d)
	case d == "":
		m, err = c.repository().Tagged(c.route.Ref)
	default:
		m, err = c.repository().Manifest(d)
	}
	return m, 0, err
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

func putManifest(c call, d digest.Digest) {
	if c.r.ContentLength > c.maxManifest {
		c.w.Header().Set("Connection", "close")
		errManifestSize.with(fmt.Sprintf("at most %d bytes", c.maxManifest)).write(c.w)
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(c.w, timed(c), c.maxManifest))
	if err != nil {
		if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
			errManifestSize.with(fmt.Sprintf("at most %d bytes", c.maxManifest)).write(c.w)
			return
		}
		errManifestInvalid.with("the body ended early").write(c.w)
		return
	}
	content, mediaType, err := parseManifest(c.r.Header.Get("Content-Type"), body)
	if err != nil {
		errManifestInvalid.with(err.Error()).write(c.w)
		return
	}
	var apiErr *apiError
	put := storage.Put{Digest: d, MediaType: mediaType, Body: body, Sparse: c.sparse}
	if d == "" {
		put.Tags, put.Digest = []string{c.route.Ref}, digest.FromBytes(body)
	} else if got := d.Algorithm().FromBytes(body); got != d {
		errDigestInvalid.with(fmt.Sprintf("the body has %s", got)).write(c.w)
		return
	} else if put.Tags, apiErr = tagParameters(c.r); apiErr != nil {
		apiErr.write(c.w)
		return
	}
	if err := c.repository().PutManifest(c.r.Context(), put); err != nil {
		c.fail(err, errManifestUnknown)
		return
	}
	h := c.w.Header()
	if content.Subject != nil {
		h.Set("Oci-Subject", string(content.Subject.Digest))
	}
	if d != "" && put.Tags != nil {
		h["Oci-Tag"] = put.Tags
	}
	h.Set("Location", "/v2/"+c.route.Name+"/manifests/"+string(put.Digest))
	h.Set("Docker-Content-Digest", string(put.Digest))
	h.Set("Content-Length", "0")
	c.w.WriteHeader(http.StatusCreated)
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
		if !route.ValidTag(tag) {
			return nil, errTagInvalid.with(map[string]string{"tag": tag})
		}
	}
	return tags, nil
}

// parseManifest accepts the four manifests of OCI and docker and refuses what one client would read otherwise than
// another.
func parseManifest(contentType string, body []byte) (content *storage.Content, mediaType string, err error) {
	mediaType = contentType
	if contentType != "" {
		if mediaType, _, err = mime.ParseMediaType(contentType); err != nil {
			return nil, "", fmt.Errorf("parse content type: %w", err)
		}
	}
	c, err := storage.ParseContent(body)
	if err != nil {
		return nil, "", err
	}
	if c.SchemaVersion != 2 {
		return nil, "", fmt.Errorf("schemaVersion is %d, only 2 is supported", c.SchemaVersion)
	}
	if mediaType == "" {
		mediaType = c.MediaType
	}
	if c.MediaType != "" && c.MediaType != mediaType {
		return nil, "", fmt.Errorf("mediaType %q is not the content type %q", c.MediaType, mediaType)
	}
	return c, mediaType, checkFields(mediaType, c)
}

// checkFields wants the fields that a manifest of this media type has, and no field of the other kind.
func checkFields(mediaType string, c *storage.Content) error {
	switch mediaType {
	case v1.MediaTypeImageManifest, storage.MediaTypeDockerManifest:
		if c.Manifests != nil {
			return errors.New("an image manifest has no manifests")
		}
		if c.Config == nil {
			return errors.New("config is missing")
		}
		if mediaType == storage.MediaTypeDockerManifest && c.MediaType == "" {
			return errors.New("a docker manifest names its mediaType")
		}
	case v1.MediaTypeImageIndex, storage.MediaTypeDockerList:
		if c.Config != nil || c.Layers != nil {
			return errors.New("an index has neither config nor layers")
		}
		if mediaType == storage.MediaTypeDockerList && c.MediaType == "" {
			return errors.New("a docker manifest list names its mediaType")
		}
		if c.MediaType == "" && c.Manifests == nil {
			return errors.New("manifests is missing")
		}
	default:
		return fmt.Errorf("content type %q is not that of an OCI or docker manifest", mediaType)
	}
	return nil
}

func deleteManifest(c call, d digest.Digest) {
	var err error
	if d != "" {
		err = c.repository().DeleteManifest(c.r.Context(), d)
	} else {
		err = c.repository().DeleteTag(c.r.Context(), c.route.Ref)
	}
	if err != nil {
		c.fail(err, errManifestUnknown.with(map[string]string{"name": c.route.Name, "reference": c.route.Ref}))
		return
	}
	c.w.WriteHeader(http.StatusAccepted)
}
