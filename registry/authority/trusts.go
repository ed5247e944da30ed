package authority

import (
	"os"
	"path/filepath"
	"slices"

	"dayone.dev/dayone/registry/certs"
)

// Trusts are the fingerprints of the CAs that the programs of a node trust for a registry, sorted. What cannot be read
// is not trusted.
func Trusts(root, registry string) (out []string) {
	dirs := certs.RegistryDirs()
	for i := range dirs {
		dirs[i] = filepath.Join(root, dirs[i])
	}
	for _, file := range certs.RegistryFiles(registry, dirs...) {
		raw, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		for _, cert := range certs.Bundle(raw) {
			out = append(out, certs.Fingerprint(cert))
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}
