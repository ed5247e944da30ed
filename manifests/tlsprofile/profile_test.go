package tlsprofile

import (
	"strings"
	"testing"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestProfiles(t *testing.T) {
	for _, c := range []struct {
		name    string
		profile *configv1.TLSSecurityProfile
		min     configv1.TLSProtocolVersion
		refused string
	}{
		{"none", nil, configv1.VersionTLS12, ""},
		{"without a type", &configv1.TLSSecurityProfile{}, configv1.VersionTLS12, ""},
		{"old", &configv1.TLSSecurityProfile{Type: configv1.TLSProfileOldType}, configv1.VersionTLS10, ""},
		{"modern", &configv1.TLSSecurityProfile{Type: configv1.TLSProfileModernType}, configv1.VersionTLS13, ""},
		{"of one's own", &configv1.TLSSecurityProfile{Type: configv1.TLSProfileCustomType,
			Custom: &configv1.CustomTLSProfile{TLSProfileSpec: configv1.TLSProfileSpec{
				MinTLSVersion: configv1.VersionTLS11}}}, configv1.VersionTLS11, ""},
		{"of one's own without text", &configv1.TLSSecurityProfile{Type: configv1.TLSProfileCustomType}, "", "custom"},
		{"not known", &configv1.TLSSecurityProfile{Type: "Newest"}, "", `"Newest"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			spec, err := Spec(c.profile)
			if c.refused != "" {
				require.ErrorContains(t, err, c.refused)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, c.min, spec.MinTLSVersion)
		})
	}
}

// TestSuites holds the suites that MCO's kubelets get for the same profiles, and those that no Go program has.
func TestSuites(t *testing.T) {
	for _, c := range []struct {
		name          string
		ciphers       []string
		want, missing string
	}{
		{"intermediate", configv1.TLSProfiles[configv1.TLSProfileIntermediateType].Ciphers,
			"TLS_AES_128_GCM_SHA256 TLS_AES_256_GCM_SHA384 TLS_CHACHA20_POLY1305_SHA256 " +
				"TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256 TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256 " +
				"TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384 TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384 " +
				"TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256 TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256", ""},
		{"the rest of old", configv1.TLSProfiles[configv1.TLSProfileOldType].Ciphers[9:],
			"TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256 TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256 " +
				"TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA " +
				"TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA " +
				"TLS_RSA_WITH_AES_128_GCM_SHA256 TLS_RSA_WITH_AES_256_GCM_SHA384 TLS_RSA_WITH_AES_128_CBC_SHA256 " +
				"TLS_RSA_WITH_AES_128_CBC_SHA TLS_RSA_WITH_AES_256_CBC_SHA TLS_RSA_WITH_3DES_EDE_CBC_SHA",
			"ECDHE-ECDSA-AES256-SHA384 ECDHE-RSA-AES256-SHA384 AES256-SHA256"},
		{"IANA's name where OpenSSL's is wanted", []string{"TLS_RSA_WITH_AES_128_CBC_SHA"}, "",
			"TLS_RSA_WITH_AES_128_CBC_SHA"},
	} {
		t.Run(c.name, func(t *testing.T) {
			found, missing := Suites(c.ciphers)
			var names []string
			for _, s := range found {
				names = append(names, s.Name)
			}
			assert.Equal(t, c.want, strings.Join(names, " "))
			assert.Equal(t, c.missing, strings.Join(missing, " "))
		})
	}
}
