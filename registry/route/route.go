package route

import (
	"regexp"
	"strings"
)

// Endpoint names a part of the OCI distribution API.
type Endpoint int

// The endpoints; None is a path that the API does not have.
const (
	None Endpoint = iota
	Base
	Catalog
	Tags
	Manifest
	Blob
	Uploads // POST: a new upload
	Upload  // an upload under way
	Referrers
	Metrics
)

// Route is a request's path taken apart: the repository and what follows it.
type Route struct {
	End  Endpoint
	Name string
	Ref  string // tag, digest or upload id, not yet checked
}

const (
	maxNameLength = 255 // distribution's reference.RepositoryNameTotalLengthMax without a host
	maxTagLength  = 128 // OCI distribution specification: [a-zA-Z0-9_][a-zA-Z0-9._-]{0,127}
)

// nameRule is <name> of the OCI distribution specification 1.1. It has no "." or ".." element, so a name is safe as a
// path.
var nameRule = regexp.MustCompile(`^[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*(/[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*)*$`)

// ValidName says whether a repository may have the name.
func ValidName(name string) bool { return len(name) <= maxNameLength && nameRule.MatchString(name) }

// ValidTag says whether a tag may have the name.
func ValidTag(tag string) bool {
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

// Parse takes a path apart from its end: a repository may itself have an element named blobs or tags.
func Parse(path string) Route {
	rest, ok := strings.CutPrefix(path, "/v2/")
	switch {
	case path == "/v2" || path == "/v2/":
		return Route{End: Base}
	case path == "/metrics":
		return Route{End: Metrics}
	case !ok:
		return Route{}
	case rest == "_catalog":
		return Route{End: Catalog}
	}
	if name, ok := strings.CutSuffix(rest, "/tags/list"); ok {
		return Route{End: Tags, Name: name}
	}
	if name, ok := strings.CutSuffix(rest, "/blobs/uploads/"); ok {
		return Route{End: Uploads, Name: name}
	}
	if name, ok := strings.CutSuffix(rest, "/blobs/uploads"); ok {
		return Route{End: Uploads, Name: name}
	}
	dir, ref, ok := cutLast(rest)
	if !ok || ref == "" {
		return Route{}
	}
	for _, e := range []struct {
		suffix string
		end    Endpoint
	}{{"/blobs/uploads", Upload}, {"/blobs", Blob}, {"/manifests", Manifest}, {"/referrers", Referrers}} {
		if name, ok := strings.CutSuffix(dir, e.suffix); ok {
			return Route{End: e.end, Name: name, Ref: ref}
		}
	}
	return Route{}
}

func cutLast(s string) (before, after string, found bool) {
	i := strings.LastIndexByte(s, '/')
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+1:], true
}
