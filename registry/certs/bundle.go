package certs

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"path/filepath"
)

// fingerprintBytes of a SHA-256 tell CAs apart, and are short enough for a list on each node.
const fingerprintBytes = 16

// Fingerprint tells one certificate from another: the first 128 bits of the SHA-256 of its DER, in hex.
func Fingerprint(cert *x509.Certificate) string {
	sum := sha256.Sum256(cert.Raw)
	return hex.EncodeToString(sum[:fingerprintBytes])
}

// Bundle reads the certificates of PEM. What is no certificate, such as a key, is left out.
func Bundle(raw []byte) (out []*x509.Certificate) {
	for block, rest := pem.Decode(raw); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			continue
		}
		if cert, err := x509.ParseCertificate(block.Bytes); err == nil {
			out = append(out, cert)
		}
	}
	return out
}

// EncodeBundle is what Bundle reads.
func EncodeBundle(all ...*x509.Certificate) (out []byte) {
	for _, cert := range all {
		out = append(out, certPEM(cert.Raw)...)
	}
	return out
}

// RegistryDirs are where a node's programs look for the CAs of a registry: the .crt files below HOST:PORT in the first
// that has some count. Source: containers-certs.d(5).
func RegistryDirs() []string { return []string{"/etc/containers/certs.d", "/etc/docker/certs.d"} }

// RegistryFiles are the files of a registry's CAs that count; none where no directory has any.
func RegistryFiles(registry string, dirs ...string) []string {
	for _, dir := range dirs {
		// The pattern is right, whatever the directory's name.
		if found, _ := filepath.Glob(filepath.Join(dir, registry, "*.crt")); registry != "" && len(found) > 0 {
			return found
		}
	}
	return nil
}
