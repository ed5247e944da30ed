package pull

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"
	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/manifests"
	nodemirrors "dayone.dev/dayone/manifests/render/mirrors"
	"dayone.dev/dayone/rebase/deploy"
	"dayone.dev/dayone/rebase/deploy/deploytest"
)

const finalRepository = "registry.invalid/ocp/master-os"

// verifying is a node's root that reaches an image by its final name through mirrors.
type verifying struct {
	*testing.T
	root  string
	g     *deploytest.Registry
	ref   string // at the mirror
	image deploy.Image
}

// newVerifying lets the node read signatures at its mirrors.
func newVerifying(t *testing.T, mirrors ...*deploytest.Registry) verifying {
	t.Helper()
	f := verifying{T: t, root: t.TempDir(), g: mirrors[0]}
	img := deploytest.Image(t, deploytest.Options{}, deploytest.Layer(t, deploytest.Base("1")...))
	conf := "[[registry]]\nlocation = \"" + finalRepository + "\"\n"
	hosts := []string{"registry.invalid"}
	auths := map[string]json.RawMessage{}
	for _, g := range mirrors {
		f.ref = g.Push(t, img, "ocp/master-os")
		conf += "[[registry.mirror]]\nlocation = \"" + g.Addr + "/ocp/master-os\"\n"
		hosts = append(hosts, g.Addr)
		f.write("/etc/containers/certs.d/"+g.Addr+"/ca.crt", g.Authority.PEM)
		raw, err := os.ReadFile(g.AuthFile)
		require.NoError(t, err)
		var one struct {
			Auths map[string]json.RawMessage `json:"auths"`
		}
		require.NoError(t, json.Unmarshal(raw, &one))
		auths[g.Addr] = one.Auths[g.Addr]
	}
	raw, err := json.Marshal(map[string]any{"auths": auths})
	require.NoError(t, err)
	f.write("/etc/ostree/auth.json", raw)
	f.write("/etc/containers/registries.conf.d/50-test.conf", []byte(conf))
	f.write("/etc/containers/registries.d/test.yaml", deploytest.Attachments(hosts...))
	_, d, _ := strings.Cut(f.ref, "@")
	f.image = deploy.Image{Repository: finalRepository, Digest: digest.Digest(d)}
	f.ref = f.at(f.g)
	return f
}

func (f verifying) at(g *deploytest.Registry) string {
	return g.Addr + "/ocp/master-os@" + f.image.Digest.String()
}

func (f verifying) write(path string, content []byte) {
	f.Helper()
	at := filepath.Join(f.root, path)
	require.NoError(f, os.MkdirAll(filepath.Dir(at), 0o755))
	require.NoError(f, os.WriteFile(at, content, 0o644))
}

func (f verifying) policy(content []byte) { f.write(PolicyPath, content) }

// refused asks for the image and gives what is said.
func (f verifying) refused(class deploy.Class) string {
	f.Helper()
	err := Verify(f.Context(), f.root, f.image)
	require.Error(f, err)
	assert.Equal(f, class, deploy.ClassOf(err), err)
	assert.NotContains(f, err.Error(), deploytest.Password)
	return err.Error()
}

func (f verifying) allowed() { f.Helper(); require.NoError(f, Verify(f.Context(), f.root, f.image)) }

func TestVerifyPoliciesOfOthers(t *testing.T) {
	const anything, reject = `[{"type":"insecureAcceptAnything"}]`, `[{"type":"reject"}]`
	f := newVerifying(t, deploytest.StartRegistry(t))
	f.g.Spoil(deploytest.Status(http.StatusInternalServerError))
	f.allowed() // a node without a policy asks nobody
	for _, c := range []struct {
		name   string
		policy string
		class  deploy.Class
		says   string
	}{
		{"anything", `{"default":` + anything + `}`, "", ""},
		{"the final name is allowed", `{"default":` + reject + `,"transports":{"docker":{"registry.invalid/ocp":` + anything +
			`}}}`, "", ""},
		{"the transport's default", `{"default":` + reject + `,"transports":{"docker":{"":` + anything + `}}}`, "", ""},
		{"rejects by default", `{"default":` + reject + `}`, deploy.ClassUnsigned,
			"rejects it by its default; next: add the scope " + finalRepository},
		{"only the mirror's name is allowed", `{"default":` + reject + `,"transports":{"docker":{"` + f.g.Addr + `":` +
			anything + `}}}`, deploy.ClassUnsigned, "rejects it by its default"},
		{"rejects the repository", string(deploytest.Policy(finalRepository, reject)), deploy.ClassUnsigned,
			"scope " + finalRepository},
		{"an unknown type", string(deploytest.Policy(finalRepository, `[{"type":"notary"}]`)), deploy.ClassConfig,
			"next: repair"},
		{"no JSON", `{"default":`, deploy.ClassConfig, "next: repair"},
		{"no policy", `{"nothing":1}`, deploy.ClassConfig, "next: repair"},
		{"nothing required", `{"default":[]}`, deploy.ClassConfig, "next: repair"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := f
			f.T = t
			f.policy([]byte(c.policy))
			if c.class == "" {
				f.allowed()
				return
			}
			assert.Contains(t, f.refused(c.class), c.says)
		})
	}
	f.policy([]byte(`{"default":` + anything + `}`))
	f.write(ServedPolicyPath, []byte(`{"default":`+reject+`}`))
	assert.Contains(t, f.refused(deploy.ClassUnsigned), ServedPolicyPath, "the one of Day 1 holds later, too")
}

func TestVerifySignatures(t *testing.T) {
	g := deploytest.StartRegistry(t)
	f := newVerifying(t, g)
	ours, theirs, next := deploytest.NewKey(t), deploytest.NewKey(t), deploytest.NewKey(t)
	f.policy(deploytest.Policy(finalRepository, deploytest.Required(ours)))
	says := f.refused(deploy.ClassUnsigned)
	assert.Contains(t, says, "no signature exists")
	assert.Contains(t, says, "next: sign the image")

	g.Sign(t, theirs, f.ref, f.image.String())
	assert.Contains(t, f.refused(deploy.ClassUnsigned), "not", "a stranger has signed it")
	g.Sign(t, ours, f.ref, "registry.invalid/ocp/worker-os@"+f.image.Digest.String())
	assert.Contains(t, f.refused(deploy.ClassUnsigned), "worker-os", "another repository's signature")
	g.Sign(t, ours, f.ref, f.image.String())
	f.allowed()

	f.write("/etc/containers/registries.d/test.yaml", deploytest.Attachments("registry.invalid"))
	f.policy(deploytest.Policy(finalRepository, deploytest.Required(ours, next)))
	assert.Contains(t, f.refused(deploy.ClassUnsigned), "next: set use-sigstore-attachments for "+g.Addr)
	f.write("/etc/containers/registries.d/test.yaml", deploytest.Attachments(g.Addr))
	f.allowed() // while keys rotate both count

	f.policy(deploytest.Policy(finalRepository, deploytest.Required(next)))
	assert.Contains(t, f.refused(deploy.ClassUnsigned), "does not allow it", "the old key is gone")
	g.Sign(t, next, f.ref, f.image.String())
	f.allowed()
}

func TestVerifiedIsRemembered(t *testing.T) {
	g := deploytest.StartRegistry(t)
	f := newVerifying(t, g)
	key := deploytest.NewKey(t)
	g.Sign(t, key, f.ref, f.image.String())
	f.policy(deploytest.Policy(finalRepository, deploytest.Required(key)))
	f.allowed()
	g.Spoil(deploytest.Status(http.StatusInternalServerError))
	f.allowed() // its registry is away
	for i := range 2 * maxVerified {
		require.NoError(t, writeVerified(f.root, append(readVerified(f.root), verified{fmt.Sprint(i), "x"})))
	}
	assert.Len(t, readVerified(f.root), maxVerified)
	f.refused(deploy.ClassRegistry) // forgotten
	g.Spoil(nil)
	f.allowed()
	g.Spoil(deploytest.Status(http.StatusInternalServerError))
	f.policy(deploytest.Policy(finalRepository, deploytest.Required(deploytest.NewKey(t))))
	f.refused(deploy.ClassRegistry) // other requirements
	f.write(VerifiedPath, []byte("{"))
	f.policy(deploytest.Policy(finalRepository, deploytest.Required(key)))
	f.refused(deploy.ClassRegistry)

	g.Spoil(nil)
	public := filepath.Join(f.root, "cosign.pub")
	require.NoError(t, os.WriteFile(public, key.Public, 0o644))
	f.policy(deploytest.Policy(finalRepository, `[{"type":"sigstoreSigned","keyPath":"`+public+
		`","signedIdentity":{"type":"matchRepository"}}]`))
	f.allowed()
	require.NoError(t, os.WriteFile(public, deploytest.NewKey(t).Public, 0o644))
	f.refused(deploy.ClassUnsigned) // a file's content may change
	require.NoError(t, os.Remove(public))
	assert.Contains(t, f.refused(deploy.ClassConfig), "next: bring the key")
}

func TestVerifyAsksTheNextMirror(t *testing.T) {
	first, second := deploytest.StartRegistry(t), deploytest.StartRegistry(t)
	f := newVerifying(t, first, second)
	key := deploytest.NewKey(t)
	f.policy(deploytest.Policy(finalRepository, deploytest.Required(key)))
	says := f.refused(deploy.ClassUnsigned)
	for _, place := range []string{first.Addr, second.Addr, "registry.invalid"} {
		assert.Contains(t, says, place, "each source is named")
	}
	second.Sign(t, key, f.at(second), f.image.String())
	f.allowed() // the first one lacks the signature

	require.NoError(t, os.Remove(filepath.Join(f.root, VerifiedPath)))
	first.Sign(t, deploytest.NewKey(t), f.at(first), f.image.String())
	f.allowed() // the first one's is a stranger's
}

// signatures lets a mirror answer for the tag of signatures.
func signatures(answer func(w http.ResponseWriter)) deploytest.Fault {
	return func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.HasSuffix(r.URL.Path, ".sig") {
			return false
		}
		answer(w)
		return true
	}
}

func TestVerifyBoundsWhatARegistrySends(t *testing.T) {
	g := deploytest.StartRegistry(t)
	f := newVerifying(t, g)
	key := deploytest.NewKey(t)
	g.Sign(t, key, f.ref, f.image.String())
	f.policy(deploytest.Policy(finalRepository, deploytest.Required(key)))
	layers := func(n int, size int64) string {
		one := fmt.Sprintf(`{"mediaType":"application/vnd.dev.cosign.simplesigning.v1+json","digest":"%s","size":%d}`,
			f.image.Digest, size)
		return `{"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json","config":{` +
			`"mediaType":"application/vnd.oci.image.config.v1+json","digest":"` + f.image.Digest.String() +
			`","size":2},"layers":[` + strings.TrimSuffix(strings.Repeat(one+",", n), ",") + `]}`
	}
	for _, c := range []struct {
		name, body, says string
	}{
		{"many", layers(20_000, 300), "20000 signatures; 32 is the limit"},
		{"huge", layers(1, 1<<40), "a signature of 1099511627776 bytes; 65536 is the limit"},
		{"an endless manifest", strings.Repeat(" ", 5<<20), "exceeded maximum allowed size"},
		{"no manifest", `[]`, "read "},
		{"an index", `{"schemaVersion":2,"mediaType":"application/vnd.oci.image.index.v1+json","manifests":[]}`, "read "},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := f
			f.T = t
			blobs := g.BlobGets()
			g.Spoil(signatures(func(w http.ResponseWriter) {
				w.Header().Set("Content-Type", "application/vnd.oci.image.manifest.v1+json")
				_, _ = w.Write([]byte(c.body)) // the client may have had enough
			}))
			assert.Contains(t, f.refused(deploy.ClassUnsigned), c.says)
			assert.LessOrEqual(t, g.BlobGets(), blobs+1, "the image's configuration, and no signature")
		})
	}
	g.Spoil(signatures(func(w http.ResponseWriter) { w.WriteHeader(http.StatusNotFound) }))
	assert.Contains(t, f.refused(deploy.ClassUnsigned), "no signature exists", "somebody has deleted the tag")
	g.Spoil(nil)
	f.allowed()
}

// TestVerifyByAClusterImagePolicy takes the files that nodes get by rendering.
func TestVerifyByAClusterImagePolicy(t *testing.T) {
	mirror := deploytest.StartRegistry(t)
	f := newVerifying(t, mirror)
	old, next, stranger := deploytest.NewKey(t), deploytest.NewKey(t), deploytest.NewKey(t)
	own := []byte(`{"default":[{"type":"reject"}]}`) // an admin's: it stays
	render := func(keys []byte, mirrored string) {
		t.Helper()
		set := &manifests.Set{ClusterImagePolicies: []manifests.Item[*configv1.ClusterImagePolicy]{manifests.NewItem(
			&configv1.ClusterImagePolicy{Spec: configv1.ClusterImagePolicySpec{Scopes: []configv1.ImageScope{finalRepository},
				Policy: configv1.ImageSigstoreVerificationPolicy{RootOfTrust: configv1.PolicyRootOfTrust{
					PublicKey: &configv1.ImagePolicyPublicKeyRootOfTrust{KeyData: keys}}}}})}}
		set.IDMSs = []manifests.Item[*configv1.ImageDigestMirrorSet]{manifests.NewItem(&configv1.ImageDigestMirrorSet{
			Spec: configv1.ImageDigestMirrorSetSpec{ImageDigestMirrors: []configv1.ImageDigestMirrors{{
				Source: "registry.invalid/ocp", Mirrors: []configv1.ImageMirror{configv1.ImageMirror(mirrored)}}}}})}
		files, found, err := nodemirrors.Files(set, own)
		require.NoError(t, err)
		require.Empty(t, found)
		for _, file := range files {
			f.write(file.Path, file.Data)
		}
	}
	require.NoError(t, os.Remove(filepath.Join(f.root, "etc/containers/registries.d/test.yaml")))
	require.NoError(t, os.Remove(filepath.Join(f.root, "etc/containers/registries.conf.d/50-test.conf")))
	mirror.Sign(t, old, f.ref, f.image.String())
	render(append(next.Public, old.Public...), mirror.Addr+"/ocp")
	f.allowed()
	render(stranger.Public, mirror.Addr+"/ocp")
	assert.Contains(t, f.refused(deploy.ClassUnsigned), "does not allow it from "+mirror.Addr)
	f.image.Repository = "registry.invalid/other/os"
	assert.Contains(t, f.refused(deploy.ClassUnsigned), "rejects it by its default")
}
