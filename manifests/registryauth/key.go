package registryauth

import (
	"slices"
	"strings"
)

// hub is Docker Hub's name in references to images, and what containers' tools look for (containers-auth.json(5)).
const hub = "docker.io"

// hubHosts are names of Docker Hub: in references, in docker login's file and in go-containerregistry, and of the host
// that answers.
func hubHosts() []string { return []string{hub, "index.docker.io", "registry-1.docker.io"} }

// Key brings the key of an entry, or the name of a repository, into the one form HOST or HOST/PATH. What docker login
// and old programs put around it goes: the scheme, a slash at the end, the API's path behind a URL's host. Docker Hub
// is docker.io under each of its names.
func Key(key string) string {
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

// ByKey files entries under their keys in that form. Where two of them mean one registry, the one that is written so
// counts, else the first by name.
func ByKey[E any](entries map[string]E) map[string]E {
	names := make([]string, 0, len(entries))
	for name := range entries {
		names = append(names, name)
	}
	slices.Sort(names)
	out := make(map[string]E, len(entries))
	for _, name := range names {
		key := Key(name)
		if _, taken := out[key]; !taken || name == key {
			out[key] = entries[name]
		}
	}
	return out
}

// Find gives the entry for a repository (HOST/PATH): the one with the longest key that is it or a parent of it. The
// entries are ByKey's.
func Find[E any](entries map[string]E, repository string) (entry E, found bool) {
	for key := Key(repository); ; {
		if entry, found = entries[key]; found {
			return entry, true
		}
		slash := strings.LastIndexByte(key, '/')
		if slash < 0 {
			return entry, false
		}
		key = key[:slash]
	}
}
