package serve

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"

	configv1 "github.com/openshift/api/config/v1"

	"dayone.dev/dayone/manifests/tlsprofile"
)

// certificate is the server's certificate, read again when its files change.
type certificate struct {
	certFile, keyFile string
	mu                sync.Mutex
	raw               [2][]byte
	current           atomic.Pointer[tls.Certificate]
}

// load reads the files; the certificate in use is replaced only by a pair that fits.
func (c *certificate) load() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	cert, err := os.ReadFile(c.certFile)
	if err != nil {
		return fmt.Errorf("read certificate: %w", err)
	}
	key, err := os.ReadFile(c.keyFile)
	if err != nil {
		return fmt.Errorf("read certificate key: %w", err)
	}
	if bytes.Equal(cert, c.raw[0]) && bytes.Equal(key, c.raw[1]) {
		return nil
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return fmt.Errorf("load certificate %s with key %s: %w", c.certFile, c.keyFile, err)
	}
	c.raw = [2][]byte{cert, key}
	c.current.Store(&pair)
	return nil
}

// tlsConfig asks for the certificate and the profile at each handshake, so both can change while the server runs.
func (s *Server) tlsConfig() *tls.Config {
	base := &tls.Config{
		MinVersion: tls.VersionTLS12,
		NextProtos: []string{"http/1.1"},
		// Answers are hundreds of kilobytes: small first records would only cost.
		DynamicRecordSizingDisabled: true,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate,
			error) {
			return s.certificate.current.Load(), nil
		},
	}
	base.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		profile := s.current.Load().tls
		if profile == nil {
			return nil, nil // the base config
		}
		config := base.Clone()
		config.GetConfigForClient = nil
		applyProfile(config, profile)
		return config, nil
	}
	return base
}

// applyProfile restricts versions and cipher suites to the profile's. TLS 1.2 is the floor whatever the profile says; a
// profile that cannot be read is Intermediate.
func applyProfile(config *tls.Config, profile *configv1.TLSSecurityProfile) {
	spec, err := tlsprofile.Spec(profile)
	if err != nil {
		spec = configv1.TLSProfiles[configv1.TLSProfileIntermediateType]
	}
	if spec.MinTLSVersion == configv1.VersionTLS13 {
		config.MinVersion = tls.VersionTLS13
	}
	if suites := cipherSuites(spec.Ciphers); len(suites) > 0 {
		config.CipherSuites = suites
	}
}

// cipherSuites gives the suites of a profile that this server offers: those of TLS 1.3 cannot be chosen in Go, and
// those that Go calls insecure are left out.
func cipherSuites(names []string) []uint16 {
	known, _ := tlsprofile.Suites(names)
	var out []uint16
	for _, s := range known {
		if !s.Insecure && slices.Contains(s.SupportedVersions, tls.VersionTLS12) {
			out = append(out, s.ID)
		}
	}
	return out
}
