package registry

import (
	"regexp"
	"strings"
)

// endpoint names a part of the OCI distribution API.
type endpoint int

const (
	endNone endpoint = iota
	endBase
	endCatalog
	endTags
	endManifest
	endBlob
	endUploads // POST: a new upload
	endUpload  // an upload under way
	endReferrers
	endMetrics
)

// route is a request's path taken apart: the repository and what follows it.
type route struct {
	end  endpoint
	name string
	ref  string // tag, digest or upload id, not yet checked
}

const (
	maxNameLength = 255 // distribution's reference.RepositoryNameTotalLengthMax without a host
	maxTagLength  = 128 // OCI distribution specification: [a-zA-Z0-9_][a-zA-Z0-9._-]{0,127}
)

// nameRule is <name> of the OCI distribution specification 1.1. It has no "." or ".." element, so a name is safe as a
// path.
var nameRule = regexp.MustCompile(`^[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*(/[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*)*$`)

func validName(name string) bool { return len(name) <= maxNameLength && nameRule.MatchString(name) }

func validTag(tag string) bool {
	if tag == "" || len(tag) > maxTagLength || tag[0] == '.' || tag[0] == '-' {
		return false
	}
	for i := range len(tag) {
		c := tag[i]
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '_' && c != '.' && c != '-' {
			return false
		}
	}
	return true
}

// parseRoute takes a path apart from its end: a repository may itself have an element named blobs or tags.
func parseRoute(path string) route {
	rest, ok := strings.CutPrefix(path, "/v2/")
	switch {
	case path == "/v2" || path == "/v2/":
		return route{end: endBase}
	case path == "/metrics":
		return route{end: endMetrics}
	case !ok:
		return route{}
	case rest == "_catalog":
		return route{end: endCatalog}
	}
	if name, ok := strings.CutSuffix(rest, "/tags/list"); ok {
		return route{end: endTags, name: name}
	}
	if name, ok := strings.CutSuffix(rest, "/blobs/uploads/"); ok {
		return route{end: endUploads, name: name}
	}
	if name, ok := strings.CutSuffix(rest, "/blobs/uploads"); ok {
		return route{end: endUploads, name: name}
	}
	dir, ref, ok := cutLast(rest)
	if !ok || ref == "" {
		return route{}
	}
	for _, e := range []struct {
		suffix string
		end    endpoint
	}{{"/blobs/uploads", endUpload}, {"/blobs", endBlob}, {"/manifests", endManifest}, {"/referrers", endReferrers}} {
		if name, ok := strings.CutSuffix(dir, e.suffix); ok {
			return route{end: e.end, name: name, ref: ref}
		}
	}
	return route{}
}

func cutLast(s string) (before, after string, found bool) {
	i := strings.LastIndexByte(s, '/')
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+1:], true
}
