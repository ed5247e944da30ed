package tlsprofile

import (
	"crypto/tls"
	"fmt"
	"slices"
	"strings"

	configv1 "github.com/openshift/api/config/v1"
)

// Spec gives what a profile says; nil and a profile without a type are Intermediate (openshift/api, config/v1). It
// refuses a type that is not known and a Custom profile without its text: the API's other readers take Intermediate
// for both in silence.
func Spec(profile *configv1.TLSSecurityProfile) (*configv1.TLSProfileSpec, error) {
	if profile == nil || profile.Type == "" {
		return configv1.TLSProfiles[configv1.TLSProfileIntermediateType], nil
	}
	if profile.Type == configv1.TLSProfileCustomType {
		if profile.Custom == nil {
			return nil, fmt.Errorf("profile Custom has no field custom: name ciphers and minTLSVersion there")
		}
		return &profile.Custom.TLSProfileSpec, nil
	}
	spec, ok := configv1.TLSProfiles[profile.Type]
	if !ok {
		return nil, fmt.Errorf("profile %q is not known: use Old, Intermediate, Modern or Custom", profile.Type)
	}
	return spec, nil
}

// Versions are the names of the versions of TLS, the lowest first.
func Versions() []configv1.TLSProtocolVersion {
	return []configv1.TLSProtocolVersion{configv1.VersionTLS10, configv1.VersionTLS11, configv1.VersionTLS12,
		configv1.VersionTLS13}
}

// Suites finds the cipher suites that a profile lists by OpenSSL's names, in the profile's order, and the names that Go
// does not have.
func Suites(names []string) ([]*tls.CipherSuite, []string) {
	all := append(tls.CipherSuites(), tls.InsecureCipherSuites()...)
	var found []*tls.CipherSuite
	var unknown []string
	for _, name := range names {
		i := slices.IndexFunc(all, func(s *tls.CipherSuite) bool { return openSSLName(s.Name) == name })
		if i < 0 {
			unknown = append(unknown, name)
			continue
		}
		found = append(found, all[i])
	}
	return found, unknown
}

// openSSLName turns IANA's name of a cipher suite into OpenSSL's; TLS 1.3 has the same names in both.
func openSSLName(iana string) string {
	exchange, rest, is12 := strings.Cut(strings.TrimPrefix(iana, "TLS_"), "_WITH_")
	if !is12 {
		return iana
	}
	// OpenSSL does not name RSA where it is the exchange, nor CBC, and not the hash of ChaCha20.
	words := strings.NewReplacer("3DES_EDE_CBC", "DES_CBC3", "_CBC", "", "AES_", "AES",
		"POLY1305_SHA256", "POLY1305").Replace(rest)
	name := strings.TrimPrefix(exchange+"_", "RSA_") + words
	return strings.ReplaceAll(name, "_", "-")
}
