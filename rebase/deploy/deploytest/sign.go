package deploytest

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containers/image/v5/copy"
	"github.com/containers/image/v5/docker"
	"github.com/containers/image/v5/docker/reference"
	"github.com/containers/image/v5/signature"
	"github.com/containers/image/v5/signature/signer"
	"github.com/containers/image/v5/signature/sigstore"
	"github.com/containers/image/v5/types"
	"github.com/stretchr/testify/require"
)

// Key signs images as nodes read it: cosign's simple signing, in a tag beside the image.
type Key struct {
	// Public is PEM.
	Public []byte
	file   string
}

// NewKey makes a key.
func NewKey(t testing.TB) Key {
	t.Helper()
	pair, err := sigstore.GenerateKeyPair([]byte(Password))
	require.NoError(t, err)
	k := Key{Public: pair.PublicKey, file: filepath.Join(t.TempDir(), "key")}
	require.NoError(t, os.WriteFile(k.file, pair.PrivateKey, 0o600))
	return k
}

// Required is a requirement of policy.json: one of the keys has signed the image under a name of its repository.
func Required(keys ...Key) string {
	data := make([]string, 0, len(keys))
	for _, k := range keys {
		data = append(data, `"`+base64.StdEncoding.EncodeToString(k.Public)+`"`)
	}
	return fmt.Sprintf(`[{"type":"sigstoreSigned","keyDatas":[%s],"signedIdentity":{"type":"matchRepository"}}]`,
		strings.Join(data, ","))
}

// Policy is a policy.json with requirements for one scope of registries, and anything else as it is.
func Policy(scope, required string) []byte {
	return fmt.Appendf(nil, `{"default":[{"type":"insecureAcceptAnything"}],"transports":{"docker":{"%s":%s}}}`, scope,
		required)
}

// Attachments is a file of registries.d: signatures are read beside the images of these registries.
func Attachments(hosts ...string) []byte {
	out := []byte("docker:\n")
	for _, h := range hosts {
		out = fmt.Appendf(out, "  %s:\n    use-sigstore-attachments: true\n", h)
	}
	return out
}

// Unsign deletes all signatures of the image ref.
func (g *Registry) Unsign(t testing.TB, ref string) {
	t.Helper()
	name, digest, _ := strings.Cut(ref, "@")
	_, path, _ := strings.Cut(name, "/")
	r, err := http.NewRequestWithContext(t.Context(), http.MethodDelete, "http://registry/v2/"+path+"/manifests/"+
		strings.Replace(digest, ":", "-", 1)+".sig", nil)
	require.NoError(t, err)
	require.Equal(t, http.StatusAccepted, g.raw(r).Code)
}

// Sign adds k's signature to the image ref (HOST/PATH@DIGEST, whatever the host) of the registry, under another name.
func (g *Registry) Sign(t testing.TB, k Key, ref, name string) {
	t.Helper()
	dir := t.TempDir()
	server := httptest.NewServer(g.handler)
	defer server.Close()
	here := strings.TrimPrefix(server.URL, "http://")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "test.yaml"), Attachments(here), 0o600))
	sys := &types.SystemContext{RegistriesDirPath: dir, DockerInsecureSkipTLSVerify: types.OptionalBoolTrue}
	s, err := sigstore.NewSigner(sigstore.WithPrivateKeyFile(k.file, []byte(Password)))
	require.NoError(t, err)
	judge, err := signature.NewPolicyContext(
		&signature.Policy{Default: signature.PolicyRequirements{signature.NewPRInsecureAcceptAnything()}})
	require.NoError(t, err)
	_, path, _ := strings.Cut(ref, "/")
	image, err := docker.ParseReference("//" + here + "/" + path)
	require.NoError(t, err)
	identity, err := reference.ParseNamed(name)
	require.NoError(t, err)
	_, err = copy.Image(t.Context(), judge, image, image, &copy.Options{Signers: []*signer.Signer{s},
		SignIdentity: identity, PreserveDigests: true, SourceCtx: sys, DestinationCtx: sys})
	require.NoError(t, err)
	require.NoError(t, s.Close())
	require.NoError(t, judge.Destroy())
}
