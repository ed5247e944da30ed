package sign_test

import (
	"encoding/base64"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/build/sign"
	"dayone.dev/dayone/registry/registrytest"
	"dayone.dev/dayone/registry/transfer"
)

// cosignEnv is the file of a cosign. It is in no package of Debian's: go install
// github.com/sigstore/cosign/v2/cmd/cosign@VERSION makes it.
const cosignEnv = "DAYONE_TEST_COSIGN"

// program is another program that works with images, where nothing of the machine's user counts and the internet is
// away.
type program struct {
	t         *testing.T
	path, dir string
	env       []string
}

func newProgram(t *testing.T, path string, r *registrytest.Registry) program {
	t.Helper()
	dir := t.TempDir()
	auth, err := os.ReadFile(r.PushAuthFile)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "config.json"), auth, 0o600))
	return program{t: t, path: path, dir: dir, env: []string{"HOME=" + dir, "DOCKER_CONFIG=" + dir, "TMPDIR=" + dir,
		"PATH=" + os.Getenv("PATH"), "SSL_CERT_FILE=" + r.CAFile, "COSIGN_PASSWORD=of the test",
		"HTTPS_PROXY=http://127.0.0.1:1", "HTTP_PROXY=http://127.0.0.1:1"}}
}

func (p program) run(args ...string) (said string, err error) {
	p.t.Helper()
	cmd := exec.CommandContext(p.t.Context(), p.path, args...)
	cmd.Dir, cmd.Env = p.dir, p.env
	out, err := cmd.CombinedOutput()
	p.t.Logf("%s %s: %v\n%s", filepath.Base(p.path), strings.Join(args, " "), err, out)
	return string(out), err
}

func (p program) must(args ...string) string {
	p.t.Helper()
	said, err := p.run(args...)
	require.NoError(p.t, err, said)
	return said
}

func (p program) file(name, text string) string {
	p.t.Helper()
	file := filepath.Join(p.dir, name)
	require.NoError(p.t, os.WriteFile(file, []byte(text), 0o600))
	return file
}

// TestCosign lets the cosign of the field verify what we sign and find what we attach, and verifies what it signs.
func TestCosign(t *testing.T) {
	path := os.Getenv(cosignEnv)
	if path == "" {
		t.Skip(cosignEnv + " names no cosign: it is not tried")
	}
	reg := registrytest.Start(t)
	p := newProgram(t, path, reg)
	p.must("version")
	_, at := push(t, reg, "os/worker")
	reference := at.Endpoint.Reference
	k, stranger := keys(t)[0], keys(t)[1]
	ours, theirs := p.file("ours.pub", string(k.Public)), p.file("theirs.pub", string(stranger.Public))
	verify := func(key string) []string {
		return []string{"verify", "--key", key, "--insecure-ignore-tlog", "--new-bundle-format=false", reference}
	}
	said, err := p.run(verify(ours)...)
	require.Error(t, err, "it has no signature yet")
	assert.Contains(t, said, "no signatures found")
	_, err = k.Sign(t.Context(), at)
	require.NoError(t, err)
	assert.Contains(t, p.must(verify(ours)...), `"docker-reference":"`+final)
	said, err = p.run(verify(theirs)...)
	require.Error(t, err, "another key")
	assert.Contains(t, said, "no matching signatures")

	require.NoError(t, k.Attest(t.Context(), at, sign.Provenance{}))
	require.NoError(t, transfer.AttachDocument(t.Context(), at.Endpoint, transfer.Document{Type: "application/spdx+json",
		Content: []byte(`{"spdxVersion":"SPDX-2.3"}`)}, transfer.Options{}))
	tree := p.must("tree", "--experimental-oci11", reference)
	for _, kind := range []string{sign.ProvenanceType, "application/spdx+json"} {
		assert.Contains(t, tree, kind)
	}
	envelopes, err := transfer.Documents(t.Context(), at.Endpoint, sign.ProvenanceType)
	require.NoError(t, err)
	_, digest, _ := strings.Cut(reference, "@sha256:")
	p.must("verify-blob-attestation", "--key", ours, "--signature", p.file("provenance.json", string(envelopes[0])),
		"--type", "slsaprovenance1", "--insecure-ignore-tlog", "--digest", digest, "--digestAlg", "sha256")

	p.must("generate-key-pair")
	p.must("sign", "--key", "cosign.key", "--tlog-upload=false", "--yes", "--sign-container-identity", final, reference)
	public, err := sign.ReadPublicKey(filepath.Join(p.dir, "cosign.pub"))
	require.NoError(t, err)
	require.NoError(t, sign.Verify(t.Context(), at, public), "cosign's signature")
	require.NoError(t, sign.Verify(t.Context(), at, k.Public), "ours is still there")

	_, next := push(t, reg, "os/worker")
	generated, err := sign.Load(filepath.Join(p.dir, "cosign.key"), p.file("passphrase", "of the test"))
	require.NoError(t, err)
	_, err = generated.Sign(t.Context(), next)
	require.NoError(t, err)
	reference = next.Endpoint.Reference
	p.must(verify("cosign.pub")...)
}

// debian is a program of a package of Debian's.
func debian(t *testing.T, name string) (path string) {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		if os.Getenv("CI") != "" {
			t.Fatalf("install the package %s: %s", name, err)
		}
		t.Skipf("%s is missing: install the package %[1]s", name)
	}
	return path
}

// judges signs an image and lets a program pull it by the policy that nodes have: with our key, and with a stranger's.
// A program that is built without sigstore refuses every image by it.
func (p program) judges(reg *registrytest.Registry, at sign.Image, pull func(policy string) (said string, err error)) {
	t := p.t
	t.Helper()
	k, stranger := keys(t)[0], keys(t)[1]
	_, err := k.Sign(t.Context(), at)
	require.NoError(t, err)
	dir := filepath.Join(p.dir, ".config/containers/registries.d")
	require.NoError(t, os.MkdirAll(dir, 0o700))
	p.file(".config/containers/registries.d/test.yaml", "docker:\n  "+reg.Addr+":\n    use-sigstore-attachments: true\n")
	by := func(key sign.PublicKey) (string, error) {
		return pull(p.file("policy.json", fmt.Sprintf(`{"default":[{"type":"reject"}],"transports":{"docker":{%q:[{`+
			`"type":"sigstoreSigned","keyData":%q,"signedIdentity":{"type":"matchRepository"}}]}}}`, at.Repository,
			base64.StdEncoding.EncodeToString(key))))
	}
	said, err := by(stranger.Public)
	require.Error(t, err, said)
	if strings.Contains(said, "sigstore disabled") {
		t.Log("this one is built without sigstore")
		return
	}
	said, err = by(k.Public)
	require.NoError(t, err, said)
}

// TestSkopeo lets skopeo find signatures and judge by them.
func TestSkopeo(t *testing.T) {
	reg := registrytest.Start(t)
	p := newProgram(t, debian(t, "skopeo"), reg)
	_, at := push(t, reg, "os/worker")
	certs := filepath.Join(reg.CertsDir, reg.Addr)
	repository, digest, _ := strings.Cut(at.Endpoint.Reference, "@")
	at.Repository = repository // skopeo gets the image by this name
	p.judges(reg, at, func(policy string) (string, error) {
		return p.run("--policy", policy, "copy", "--src-cert-dir", certs, "--src-authfile", reg.PullAuthFile,
			"docker://"+at.Endpoint.Reference, "dir:"+filepath.Join(t.TempDir(), "d"))
	})
	tag := strings.Replace(digest, ":", "-", 1) + ".sig"
	access := []string{"--cert-dir", certs, "--authfile", reg.PullAuthFile}
	assert.Contains(t, p.must(append([]string{"list-tags", "docker://" + repository}, access...)...), tag)
	assert.Contains(t, p.must(append([]string{"inspect", "--raw", "docker://" + repository + ":" + tag}, access...)...),
		"dev.cosignproject.cosign/signature")
}

// TestPodman lets podman judge by signatures.
func TestPodman(t *testing.T) {
	reg := registrytest.Start(t)
	p := newProgram(t, debian(t, "podman"), reg)
	_, at := push(t, reg, "os/worker")
	at.Repository, _, _ = strings.Cut(at.Endpoint.Reference, "@")
	p.judges(reg, at, func(policy string) (string, error) {
		return p.run("--root", filepath.Join(p.dir, "root"), "--runroot", filepath.Join(p.dir, "run"), "--storage-driver",
			"vfs", "pull", "--signature-policy", policy, "--cert-dir", filepath.Join(reg.CertsDir, reg.Addr), "--authfile",
			reg.PullAuthFile, at.Endpoint.Reference)
	})
}
