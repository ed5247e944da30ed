package certs

import (
	"os"
	"path/filepath"
	"slices"
)

// Trusts are the fingerprints of the CAs that the programs of a node trust for a registry, sorted. What cannot be read
// is not trusted.
func Trusts(root, registry string) (out []string) {
	dirs := RegistryDirs()
	for i := range dirs {
		dirs[i] = filepath.Join(root, dirs[i])
	}
	for _, file := range RegistryFiles(registry, dirs...) {
		raw, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		for _, cert := range Bundle(raw) {
			out = append(out, Fingerprint(cert))
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}
