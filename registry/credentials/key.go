package credentials

import (
	"maps"
	"slices"
	"strings"
)

// hub is Docker Hub's name in references to images, and what containers' tools look for (containers-auth.json(5)).
const hub = "docker.io"

// hubHosts are names of Docker Hub: in references, in docker login's file and in go-containerregistry, and of the host
// that answers.
func hubHosts() []string { return []string{hub, "index.docker.io", "registry-1.docker.io"} }

// canonicalKey brings the key of an entry, or the name of a repository, into the one form HOST or HOST/PATH. It removes
// what docker login and old programs add: the scheme, a slash at the end, the API's path behind a URL's host. Docker
// Hub is docker.io under each of its names.
func canonicalKey(key string) string {
	_, plain, isURL := strings.Cut(key, "://")
	if !isURL {
		plain = key
	}
	host, path, _ := strings.Cut(strings.TrimRight(plain, "/"), "/")
	isHub := slices.Contains(hubHosts(), host)
	if (isURL || isHub) && (path == "v1" || path == "v2") {
		path = ""
	}
	if isHub {
		host = hub
	}
	if path == "" {
		return host
	}
	return host + "/" + path
}

// byKey files entries under their canonical keys. Where two of them mean one registry, the one that is already in
// that form counts, else the first by name.
func byKey[E any](entries map[string]E) map[string]E {
	out := make(map[string]E, len(entries))
	for _, name := range slices.Sorted(maps.Keys(entries)) {
		key := canonicalKey(name)
		if _, taken := out[key]; !taken || name == key {
			out[key] = entries[name]
		}
	}
	return out
}

// find returns the entry of byKey's for a repository (HOST/PATH), and its key: the longest that is the repository or a
// parent of it.
func find[E any](entries map[string]E, repository string) (found E, key string, ok bool) {
	for key = canonicalKey(repository); ; {
		if found, ok = entries[key]; ok {
			return found, key, true
		}
		slash := strings.LastIndexByte(key, '/')
		if slash < 0 {
			return found, "", false
		}
		key = key[:slash]
	}
}
