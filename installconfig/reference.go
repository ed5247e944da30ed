package installconfig

import "strings"

// Repository is an image reference without tag and digest.
func Repository(reference string) string {
	reference, _, _ = strings.Cut(reference, "@")
	if i := strings.LastIndexByte(reference, ':'); i > strings.LastIndexByte(reference, '/') {
		reference = reference[:i]
	}
	return reference
}

// RepositoryPath is a repository without its registry: the same path is used in the embedded registry, so that the
// embedded registry is a plain mirror of the final one.
func RepositoryPath(repository string) string {
	_, inside, _ := strings.Cut(repository, "/")
	return inside
}
