package mirrors

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"testing"

	"github.com/containers/image/v5/signature"
	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dayone.dev/dayone/manifests"
)

func publicKey(t *testing.T) []byte {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	der, err := x509.MarshalPKIXPublicKey(&k.PublicKey)
	require.NoError(t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
}

func policySet(p configv1.ImageSigstoreVerificationPolicy) *manifests.Set {
	return &manifests.Set{ClusterImagePolicies: []manifests.Item[*configv1.ClusterImagePolicy]{manifests.NewItem(
		&configv1.ClusterImagePolicy{ObjectMeta: metav1.ObjectMeta{Name: "p"},
			Spec: configv1.ClusterImagePolicySpec{Scopes: []configv1.ImageScope{"a.example.com/b"}, Policy: p}})}}
}

// TestRootsOfTrust: what comes out is what nodes' own library reads.
func TestRootsOfTrust(t *testing.T) {
	key, other := publicKey(t), publicKey(t)
	public := func(data []byte) configv1.PolicyRootOfTrust {
		return configv1.PolicyRootOfTrust{PublicKey: &configv1.ImagePolicyPublicKeyRootOfTrust{KeyData: data}}
	}
	rekor := public(key)
	rekor.PublicKey.RekorKeyData = other
	for _, c := range []struct {
		name     string
		root     configv1.PolicyRootOfTrust
		identity *configv1.PolicyIdentity
		says     string
	}{
		{"a key", public(key), nil, `"matchRepoDigestOrExact"`},
		{"two keys", public(append(key, other...)), nil, `"keyDatas"`},
		{"a key and a log", rekor, &configv1.PolicyIdentity{MatchPolicy: configv1.IdentityMatchPolicyMatchRepository},
			`"rekorPublicKeyData"`},
		{"Fulcio", configv1.PolicyRootOfTrust{FulcioCAWithRekor: &configv1.ImagePolicyFulcioCAWithRekorRootOfTrust{
			FulcioCAData: key, RekorKeyData: other, FulcioSubject: configv1.PolicyFulcioSubject{
				OIDCIssuer: "https://i.example.com", SignedEmail: "a@example.com"}}}, nil, `"subjectEmail": "a@example.com"`},
		{"PKI", configv1.PolicyRootOfTrust{PKI: &configv1.ImagePolicyPKIRootOfTrust{CertificateAuthorityRootsData: key,
			CertificateAuthorityIntermediatesData: other, PKICertificateSubject: configv1.PKICertificateSubject{
				Email: "a@example.com", Hostname: "s.example.com"}}},
			&configv1.PolicyIdentity{MatchPolicy: configv1.IdentityMatchPolicyExactRepository,
				PolicyMatchExactRepository: &configv1.PolicyMatchExactRepository{Repository: "c.example.com/d"}},
			`"dockerRepository": "c.example.com/d"`},
		{"another prefix", public(key), &configv1.PolicyIdentity{MatchPolicy: configv1.IdentityMatchPolicyRemapIdentity,
			PolicyMatchRemapIdentity: &configv1.PolicyMatchRemapIdentity{Prefix: "a.example.com",
				SignedPrefix: "s.example.com"}},
			`"signedPrefix": "s.example.com"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			files, found, err := Files(policySet(configv1.ImageSigstoreVerificationPolicy{RootOfTrust: c.root,
				SignedIdentity: c.identity}), nil)
			require.NoError(t, err)
			require.Empty(t, found)
			require.Len(t, files, 2)
			assert.Contains(t, string(files[0].Data), c.says)
			_, err = signature.NewPolicyFromBytes(files[0].Data)
			require.NoError(t, err)
		})
	}
}

func TestSeveralPoliciesOfAScope(t *testing.T) {
	set := policySet(configv1.ImageSigstoreVerificationPolicy{RootOfTrust: configv1.PolicyRootOfTrust{
		PublicKey: &configv1.ImagePolicyPublicKeyRootOfTrust{KeyData: publicKey(t)}}})
	set.Append(policySet(configv1.ImageSigstoreVerificationPolicy{RootOfTrust: configv1.PolicyRootOfTrust{
		PublicKey: &configv1.ImagePolicyPublicKeyRootOfTrust{KeyData: publicKey(t)}}}))
	files, _, err := Files(set, nil)
	require.NoError(t, err)
	var policy struct{ Transports map[string]map[string][]any }
	require.NoError(t, json.Unmarshal(files[0].Data, &policy))
	assert.Len(t, policy.Transports["docker"]["a.example.com/b"], 2, "an image must satisfy both")
}
