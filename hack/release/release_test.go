package main

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/sha256"
	"debug/elf"
	"debug/macho"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/secure-systems-lab/go-securesystemslib/dsse"
	"github.com/sigstore/sigstore/pkg/cryptoutils"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/build/sign"
	"dayone.dev/dayone/hack/baseimage"
	"dayone.dev/dayone/hack/cache"
	"dayone.dev/dayone/hack/images"
	"dayone.dev/dayone/hack/testnode"
	"dayone.dev/dayone/registry/registrytest"
	"dayone.dev/dayone/registry/transfer"
)

const (
	version = "v0.1.0"
	// darwin is for which Macs the test makes the plugin: compiling it for the others, too, takes a minute.
	darwin = "arm64"
	// made is when the commit was, in seconds.
	made = "1767323045"
)

func TestMain(m *testing.M) {
	testnode.Init()
	os.Exit(m.Run())
}

func TestVersions(t *testing.T) {
	for _, c := range []struct {
		version string
		is      bool
	}{
		{"v0.1.0", true}, {"v1.22.333", true}, {"v0.1.0-rc.1", true},
		{"0.1.0", false}, {"v0.1", false}, {"", false}, {"v0.1.0 ", false}, {"v0.1.0/../x", false},
		{"v0.1.0-2-gabc-dirty", false},
	} {
		t.Run(c.version, func(t *testing.T) { assert.Equal(t, c.is, validVersion.MatchString(c.version)) })
	}
}

func TestOtherFoldersStay(t *testing.T) {
	mine := filepath.Join(t.TempDir(), "mine")
	require.NoError(t, os.MkdirAll(mine, 0o755))
	require.NoError(t, emptied(mine), "empty")
	require.NoError(t, os.WriteFile(filepath.Join(mine, "x"), nil, 0o600))
	require.NoError(t, emptied(mine), "an earlier release")
	assert.NoFileExists(t, filepath.Join(mine, "x"))
	require.NoError(t, os.Remove(filepath.Join(mine, sumsFile)))
	require.NoError(t, os.WriteFile(filepath.Join(mine, "x"), nil, 0o600))
	require.ErrorContains(t, emptied(mine), "is no release")
	assert.FileExists(t, filepath.Join(mine, "x"))
}

// sums are the files of a release with their SHA-256.
func sums(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	require.NoError(t, filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		at, err := filepath.Rel(dir, name)
		require.NoError(t, err)
		out[at], err = hashOf(name)
		return err
	}))
	return out
}

// emulator runs programs for arm64.
const emulator = "qemu-aarch64-static"

// inPackages are the programs that deb and rpm have; the others run from images.
var inPackages = []string{"dayone", "dayone-daemon", "dayone-registry"}

// architectures are those of the release: this machine's, and arm64.
func architectures() []string {
	if runtime.GOARCH == "arm64" {
		return []string{"arm64"}
	}
	return []string{runtime.GOARCH, "arm64"}
}

// missing tells what this machine lacks for the test.
func missing() error {
	err := testnode.Missing()
	if len(architectures()) > 1 {
		for _, name := range []string{emulator, "aarch64-linux-gnu-gcc"} {
			if _, lacks := exec.LookPath(name); lacks != nil {
				err = errors.Join(err, fmt.Errorf("%w: make setup-test setup-release installs it", lacks))
			}
		}
	}
	return err
}

// TestRelease makes the release twice, from two checkouts with two environments, and installs the first one.
func TestRelease(t *testing.T) {
	if testing.Short() {
		t.Skip("builds all programs twice: left out with -short")
	}
	if err := missing(); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	source := filepath.Join(t.TempDir(), "checkout")
	commit := checkout(t, source)
	out := asThePage(t, source)

	t.Run("the folder", func(t *testing.T) { folder(t, out) })
	t.Run("provenance", func(t *testing.T) { attested(t, out, commit) })
	programs := map[string]string{}
	for _, arch := range architectures() {
		programs[arch] = unpacked(t, out, arch)
		t.Run(arch, func(t *testing.T) { forMachines(t, out, arch, programs[arch]) })
	}
	t.Run("for a Mac", func(t *testing.T) { forAMac(t, out) })
	t.Run("vulnerabilities", func(t *testing.T) {
		o := options{source: "../..", vulnDB: "file://" + vulnerabilities(t, module)}
		dayone, err := images.Find("dayone")
		require.NoError(t, err)
		err = checkVulnerabilities(t.Context(), o, programs[runtime.GOARCH], dayone)
		require.ErrorContains(t, err, "dayone contains GO-2026-0001 in package "+module+" ("+module+"@v")
		require.ErrorContains(t, err, "): move the module to v9.0.0")
		o.vulnDB = "file:///nowhere"
		err = checkVulnerabilities(t.Context(), o, programs[runtime.GOARCH], dayone)
		require.ErrorContains(t, err, "VULNDB=off leaves this out")
	})
	t.Run("images", func(t *testing.T) { imagesAndManifests(t, out, programs) })
	t.Run("bare roots", func(t *testing.T) { bareRoots(t, out) })
	t.Run("installed", func(t *testing.T) { installed(t, out) })
	t.Run("compiled", func(t *testing.T) { compiledByHand(t, source) })
	t.Run("again", func(t *testing.T) {
		source := filepath.Join(t.TempDir(), "another/checkout")
		sources(t, source)
		t.Setenv(cache.Env, t.TempDir())
		for _, kept := range []string{"GOCACHE", "GOMODCACHE", "GOPROXY", "GOSUMDB"} { // only links are made again
			raw, err := exec.Command("go", "env", kept).Output()
			require.NoError(t, err)
			t.Setenv(kept, strings.TrimSpace(string(raw)))
		}
		t.Setenv("HOME", t.TempDir())
		t.Setenv("TZ", "Asia/Tokyo")
		t.Setenv("SOURCE_DATE_EPOCH", made)
		again := filepath.Join(t.TempDir(), "again")
		// What is looked for in programs changes nothing in the folder.
		require.NoError(t, run(t.Context(), []string{"--version", version, "--arch", strings.Join(architectures(), ","),
			"--darwin", darwin, "--commit", commit, "--vulndb", vulnsOff, "--source", source, "--out", again}))
		equal(t, sums(t, out), sums(t, again))
	})
}

// module is one that is in each program.
const module = "github.com/opencontainers/go-digest"

// vulnerabilities is a database with one vulnerability, in a package of the module, in the form that govulncheck reads.
func vulnerabilities(t *testing.T, inPackage string) (dir string) {
	t.Helper()
	type list = []any
	const id, modified, fixed = "GO-2026-0001", "2026-01-01T00:00:00Z", "9.0.0"
	dir = t.TempDir()
	for file, content := range map[string]any{
		"index/db.json": object{"modified": modified},
		"index/modules.json": list{object{"path": module, "vulns": list{object{"id": id, "modified": modified,
			"fixed": fixed}}}},
		"index/vulns.json": list{object{"id": id, "modified": modified}},
		"ID/" + id + ".json": object{"schema_version": "1.3.1", "id": id, "modified": modified, "published": modified,
			"affected": list{object{
				"package": object{"name": module, "ecosystem": "Go"},
				"ranges": list{object{"type": "SEMVER", "events": list{object{"introduced": "0"},
					object{"fixed": fixed}}}},
				"ecosystem_specific": object{"imports": list{object{"path": inPackage}}}}}},
	} {
		raw, err := json.Marshal(content)
		require.NoError(t, err)
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, file)), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(dir, file), raw, 0o644))
	}
	return dir
}

// equal compares a signed release with an unsigned one: all that is in the latter is in the former, too, and what the
// former has more are signatures.
func equal(t *testing.T, signed, unsigned map[string]string) {
	index := filepath.Join(imagesDir, "index.json")
	assert.NotEqual(t, signed[index], unsigned[index], "signatures are images, too")
	for _, ofAll := range []string{sumsFile, index} {
		delete(signed, ofAll)
		delete(unsigned, ofAll)
	}
	for name := range signed {
		if _, ok := unsigned[name]; !ok {
			if filepath.Dir(name) != filepath.Join(imagesDir, "blobs/sha256") {
				assert.Contains(t, []string{sumsFile + ".sig", sign.PublicFile, envelopeFile}, name)
			}
			delete(signed, name)
		}
	}
	assert.Equal(t, signed, unsigned)
}

// attested reads the provenance as verifiers of in-toto's envelopes do.
func attested(t *testing.T, out, commit string) {
	raw, err := os.ReadFile(filepath.Join(out, envelopeFile))
	require.NoError(t, err)
	var envelope dsse.Envelope
	require.NoError(t, json.Unmarshal(raw, &envelope))
	payload, err := envelope.DecodeB64Payload()
	require.NoError(t, err)
	plain, err := os.ReadFile(filepath.Join(out, provenanceFile))
	require.NoError(t, err)
	assert.JSONEq(t, string(plain), string(payload))
	require.Len(t, envelope.Signatures, 1)
	signature, err := base64.StdEncoding.DecodeString(envelope.Signatures[0].Sig)
	require.NoError(t, err)
	sum := sha256.Sum256(dsse.PAE(envelope.PayloadType, payload))
	assert.True(t, ecdsa.VerifyASN1(publicKey(t, out), sum[:], signature))

	var said struct {
		Subject   []sign.Dependency `json:"subject"`
		Predicate provenance        `json:"predicate"`
	}
	require.NoError(t, json.Unmarshal(payload, &said))
	have := map[string]string{}
	for _, s := range said.Subject {
		have[s.Name] = s.Digest["sha256"]
	}
	unnamed := []string{sumsFile, sumsFile + ".sig", sign.PublicFile, provenanceFile, envelopeFile}
	for name, sum := range sums(t, out) {
		if !strings.HasPrefix(name, imagesDir+"/") && !slices.Contains(unnamed, name) {
			assert.Equal(t, sum, have[name], name)
		}
	}
	for _, p := range images.Programs() {
		assert.FileExists(t, filepath.Join(out, imagesDir, "blobs/sha256", have["registry.example.com/dayone/"+p.Name]))
	}
	definition := said.Predicate.BuildDefinition
	assert.Equal(t, commit, definition.ResolvedDependencies[0].Digest["gitCommit"])
	assert.Empty(t, definition.ResolvedDependencies[0].Annotations, "the page's own way leaves the checkout as it was")
	assert.Equal(t, architectures(), definition.ExternalParameters.Architectures)
}

func publicKey(t *testing.T, out string) *ecdsa.PublicKey {
	pem, err := os.ReadFile(filepath.Join(out, sign.PublicFile))
	require.NoError(t, err)
	public, err := cryptoutils.UnmarshalPEMToPublicKey(pem)
	require.NoError(t, err)
	return public.(*ecdsa.PublicKey)
}

func folder(t *testing.T, out string) {
	check := exec.CommandContext(t.Context(), "sha256sum", "--strict", "-c", sumsFile)
	check.Dir = out
	said, err := check.CombinedOutput()
	require.NoError(t, err, string(said))
	listed := strings.Count(string(said), ": OK")
	assert.Len(t, sums(t, out), listed+3, "all but the sums, their signature and the key")

	raw, err := os.ReadFile(filepath.Join(out, sumsFile))
	require.NoError(t, err)
	text, err := os.ReadFile(filepath.Join(out, sumsFile+".sig"))
	require.NoError(t, err)
	signature, err := base64.StdEncoding.DecodeString(string(text))
	require.NoError(t, err)
	sum := sha256.Sum256(raw)
	assert.True(t, ecdsa.VerifyASN1(publicKey(t, out), sum[:], signature))

	as := exec.CommandContext(t.Context(), "sh", "-ec", strings.Join(ofThePage(t, "base64 "), "\n"))
	as.Dir = out
	said, err = as.CombinedOutput()
	require.NoError(t, err, string(said))
	assert.Contains(t, string(said), "Verified OK")
	require.NoError(t, os.Remove(filepath.Join(out, sumsFile+".bin")))

	krew, err := os.ReadFile(filepath.Join(out, krewFile))
	require.NoError(t, err)
	for _, arch := range architectures() {
		archive := "dayone_" + version + "_linux_" + arch + ".tar.gz"
		hash, err := hashOf(filepath.Join(out, archive))
		require.NoError(t, err)
		assert.Contains(t, string(krew), hash)
		assert.Contains(t, string(krew), archive)
	}

	for program, buildah := range map[string]bool{"dayone": true, "dayone-daemon": false} {
		raw, err := os.ReadFile(filepath.Join(out, program+"_"+version+"_linux_"+runtime.GOARCH+".cdx.json"))
		require.NoError(t, err)
		assert.Equal(t, buildah, strings.Contains(string(raw), "pkg:golang/github.com/containers/buildah@v"), program)
		assert.Contains(t, string(raw), `"id": "Apache-2.0"`)
	}
	licenses, err := os.ReadFile(filepath.Join(out, licensesFile))
	require.NoError(t, err)
	assert.Regexp(t, `(?m)^github\.com/containers/buildah@v\S+  Apache-2\.0  text \d+$`, string(licenses))
	assert.Regexp(t, `(?m)^std  BSD-3-Clause  text \d+$`, string(licenses))
	assert.Contains(t, string(licenses), "Redistribution and use in source and binary forms")
}

// unpacked are the programs for an architecture.
func unpacked(t *testing.T, out, arch string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	say(t, "tar", "-xf", filepath.Join(out, "dayone_"+version+"_linux_"+arch+".tar.gz"), "-C", dir)
	for _, f := range []string{"LICENSE", licensesFile} {
		require.NoError(t, os.Remove(filepath.Join(dir, f)))
	}
	return dir
}

// forMachines looks whether archive and packages have the same programs, for machines of the architecture, and lets
// each of them say its version.
func forMachines(t *testing.T, out, arch, archived string) {
	deb, files := filepath.Join(out, "dayone_0.1.0_"+arch+".deb"), t.TempDir()
	say(t, "dpkg-deb", "--extract", deb, files)
	assert.Equal(t, arch+"\n", say(t, "dpkg-deb", "--field", deb, "Architecture"))
	machine := map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[arch]
	rpm := say(t, "rpm", "--query", "--package", filepath.Join(out, "dayone-0.1.0-1."+machine+".rpm"), "--queryformat",
		"%{ARCH}\n[%{FILENAMES} %{FILEDIGESTS}\n]")
	assert.Equal(t, machine, strings.SplitN(rpm, "\n", 2)[0])
	for _, p := range images.Programs() {
		program := filepath.Join(archived, p.Name)
		headers(t, program, arch)
		assert.Contains(t, runs(t, arch, program, "--version"), version, p.Name)
		packaged := filepath.Join(files, "usr/bin", p.Name)
		if _, err := os.Stat(packaged); slices.Contains(inPackages, p.Name) {
			require.NoError(t, err)
			assert.FileExists(t, filepath.Join(out, p.Name+"_"+version+"_linux_"+arch+".cdx.json"))
			sum, err := hashOf(program)
			require.NoError(t, err)
			have, err := hashOf(packaged)
			require.NoError(t, err)
			assert.Equal(t, sum, have, "%s of the deb", p.Name)
			assert.Contains(t, rpm, "/usr/bin/"+p.Name+" "+sum+"\n")
		} else {
			require.ErrorIs(t, err, fs.ErrNotExist, p.Name)
		}
	}
	dayone, dir := filepath.Join(archived, "dayone"), filepath.Join(t.TempDir(), "cluster")
	assert.Contains(t, runs(t, arch, dayone, "version", "-o", "json"), `"version": "`+version+`"`)
	runs(t, arch, dayone, "sample", "--dir", dir)
	assert.FileExists(t, filepath.Join(dir, "install-config.yaml"))
	// A call of a method by a name that is put together keeps all methods of all types: 7 MB more on every node.
	for name, limit := range map[string]int64{"dayone-daemon": 28e6, "dayone": 86e6} {
		program, err := os.Stat(filepath.Join(archived, name))
		require.NoError(t, err)
		assert.Less(t, program.Size(), limit, name)
	}
}

// runs is what a program for an architecture prints: here, or in an emulator.
func runs(t *testing.T, arch string, argv ...string) string {
	t.Helper()
	if arch != runtime.GOARCH {
		argv = append([]string{emulator}, argv...)
	}
	return say(t, argv...)
}

// headers are those of a static program for the architecture.
func headers(t *testing.T, program, arch string) {
	f, err := elf.Open(program)
	require.NoError(t, err)
	defer f.Close()
	assert.Equal(t, map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}[arch], f.Machine, program)
	for _, p := range f.Progs {
		assert.NotEqual(t, elf.PT_INTERP, p.Type, "%s needs libraries", program)
	}
}

// say is what a program prints.
func say(t *testing.T, argv ...string) string {
	t.Helper()
	said, err := exec.CommandContext(t.Context(), argv[0], argv[1:]...).CombinedOutput()
	require.NoError(t, err, string(said))
	return string(said)
}

// forAMac reads what krew installs there. No Mac runs it here.
func forAMac(t *testing.T, out string) {
	archive, dir := "dayone_"+version+"_darwin_arm64.tar.gz", t.TempDir()
	said, err := exec.Command("tar", "-xf", filepath.Join(out, archive), "-C", dir).CombinedOutput()
	require.NoError(t, err, string(said))
	f, err := macho.Open(filepath.Join(dir, plugin))
	require.NoError(t, err)
	defer f.Close()
	assert.Equal(t, macho.CpuArm64, f.Cpu)
	krew, err := os.ReadFile(filepath.Join(out, krewFile))
	require.NoError(t, err)
	hash, err := hashOf(filepath.Join(out, archive))
	require.NoError(t, err)
	assert.Contains(t, string(krew), hash)
	assert.Contains(t, string(krew), "os: darwin")
	assert.FileExists(t, filepath.Join(out, plugin+"_"+version+"_darwin_arm64.cdx.json"))
}

func imagesAndManifests(t *testing.T, out string, programs map[string]string) {
	at, err := layout.ImageIndexFromPath(filepath.Join(out, imagesDir))
	require.NoError(t, err)
	index, err := at.IndexManifest()
	require.NoError(t, err)
	of := len(architectures())
	require.Len(t, index.Manifests, 5+5*(1+of), "five indexes, and the signatures of them and of their images")
	var manifests strings.Builder
	files, err := filepath.Glob(filepath.Join(out, kustomizeDir, "*.yaml"))
	require.NoError(t, err)
	for _, file := range files {
		raw, err := os.ReadFile(file)
		require.NoError(t, err)
		manifests.Write(raw)
	}
	named := 0
	for _, m := range index.Manifests {
		program := m.Annotations[refName]
		if !m.MediaType.IsIndex() {
			continue
		}
		if strings.Contains(manifests.String(), "registry.example.com/dayone/"+program+"@"+m.Digest.String()) {
			named++
		}
		child, err := at.ImageIndex(m.Digest)
		require.NoError(t, err)
		ofEachMachine(t, child, program, programs)
	}
	assert.Equal(t, 3, named, "controller, builder and agent, by digest")
	from := transfer.Endpoint{Reference: "oci:" + filepath.Join(out, imagesDir) + ":dayone-daemon"}
	reg := registrytest.Start(t)
	to := transfer.Endpoint{Reference: reg.Addr + "/dayone/dayone-daemon:v1", CAFile: reg.CAFile,
		AuthFile: reg.PushAuthFile}
	copied, err := transfer.Copy(t.Context(), from, to, transfer.Options{})
	require.NoError(t, err)
	assert.Contains(t, manifests.String(), "dayone-daemon@"+copied.Digest.String(), "as the page says to copy it")

	_, err = transfer.Attach(t.Context(), from, to, copied.Digest, transfer.Options{})
	require.NoError(t, err)
	key, err := sign.ReadPublicKey(filepath.Join(out, sign.PublicFile))
	require.NoError(t, err)
	other, err := sign.LoadOrCreate(t.TempDir())
	require.NoError(t, err)
	child, err := at.ImageIndex(v1.Hash{Algorithm: "sha256", Hex: copied.Digest.Encoded()})
	require.NoError(t, err)
	platforms, err := child.IndexManifest()
	require.NoError(t, err)
	signed := []string{copied.Digest.String()}
	for _, m := range platforms.Manifests {
		signed = append(signed, m.Digest.String())
	}
	require.Len(t, signed, 1+of)
	for _, d := range signed {
		to.Reference = reg.Addr + "/dayone/dayone-daemon@" + d
		image := sign.Image{Endpoint: to, Repository: "registry.example.com/dayone/dayone-daemon"}
		require.NoError(t, sign.Verify(t.Context(), image, key))
		require.ErrorIs(t, sign.Verify(t.Context(), image, other.Public), transfer.ErrNotAllowed)
		image.Repository = "registry.example.com/dayone/dayone"
		require.ErrorIs(t, sign.Verify(t.Context(), image, key), transfer.ErrNotAllowed, "another program's")
	}
}

// ofEachMachine looks whether an index has the program of each architecture; programs are their directories.
func ofEachMachine(t *testing.T, index v1.ImageIndex, program string, programs map[string]string) {
	t.Helper()
	platforms, err := index.IndexManifest()
	require.NoError(t, err)
	require.Len(t, platforms.Manifests, len(programs))
	for i, arch := range architectures() {
		assert.Equal(t, arch, platforms.Manifests[i].Platform.Architecture)
		image, err := index.Image(platforms.Manifests[i].Digest)
		require.NoError(t, err)
		config, err := image.ConfigFile()
		require.NoError(t, err)
		assert.Equal(t, arch, config.Architecture)
		want, err := os.ReadFile(filepath.Join(programs[arch], program))
		require.NoError(t, err)
		assert.True(t, bytes.Equal(want, fileOf(t, image, program)), "%s for %s is the archive's", program, arch)
	}
}

// fileOf is a file of an image, by its base name.
func fileOf(t *testing.T, image v1.Image, name string) []byte {
	t.Helper()
	tree := mutate.Extract(image)
	defer tree.Close()
	for r := tar.NewReader(tree); ; {
		h, err := r.Next()
		require.NoError(t, err, "the image has no %s", name)
		if path.Base(h.Name) == name && h.Typeflag == tar.TypeReg {
			raw, err := io.ReadAll(r)
			require.NoError(t, err)
			return raw
		}
	}
}

// installed lets dpkg install the package on a host that systemd runs, and starts its units.
func installed(t *testing.T, out string) {
	lab, err := testnode.New(context.Background(), testnode.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, lab.Close(context.Background())) })
	base, err := baseimage.Ensure(context.Background(), baseimage.Debian, "")
	require.NoError(t, err)
	n, err := lab.NewNode(context.Background(), "m0", testnode.NodeOptions{Sysroot: testnode.SysrootOptions{Base: base}})
	require.NoError(t, err)
	require.NoError(t, n.Start(t.Context()))
	require.NoError(t, n.WaitReady(t.Context()))
	do := func(script string) string {
		t.Helper()
		said, err := n.Output(t.Context(), "sh", "-ec", script)
		require.NoError(t, err, said)
		return said
	}
	deb, err := os.Open(filepath.Join(out, "dayone_0.1.0_"+runtime.GOARCH+".deb"))
	require.NoError(t, err)
	defer deb.Close()
	code, err := n.Run(t.Context(), testnode.Command{Argv: []string{"sh", "-c", "cat >/run/dayone.deb"}, Stdin: deb})
	require.NoError(t, err)
	require.Zero(t, code)
	// The host is an ostree deployment: a writable /usr and dpkg's own directory make it an ordinary Debian.
	do(`mkdir -p /run/usr/upper /run/usr/work /var/lib/dpkg/info /var/lib/dpkg/updates
mount -t overlay overlay -o lowerdir=/usr,upperdir=/run/usr/upper,workdir=/run/usr/work /usr
touch /var/lib/dpkg/status
dpkg -i --path-include='/usr/share/man/*' --path-include='/usr/share/doc/*' /run/dayone.deb`)
	assert.Contains(t, do("dayone version -o json"), `"version": "`+version+`"`)
	assert.Contains(t, do("kubectl-dayone --help"), "kubectl dayone")
	assert.Contains(t, do(`kubectl_complete-dayone manif`), "manifests")
	do(`gzip -dc /usr/share/man/man1/dayone-registry-serve.1.gz | grep -q '^.TH "DAYONE-REGISTRY-SERVE"'`)
	do("bash -n /usr/share/bash-completion/completions/dayone; test -s /usr/share/doc/dayone/copyright")
	do("id dayone-registry")

	do("systemctl start dayone-registry-server")
	assert.Equal(t, "active", do("systemctl is-active dayone-registry-server"))
	do(`timeout 300 sh -c 'until runuser -u dayone-registry -- dayone registry status --root /var/lib/dayone-registry
do sleep 1; done'`)
	assert.Equal(t, "dayone-registry", do(`stat -c %U /proc/$(systemctl show -P MainPID dayone-registry-server)`))
	do("systemctl reload dayone-registry-server && systemctl restart dayone-registry-server")

	// Without an install directory it says so once, and systemd does not try again.
	do("systemctl start dayone-bootstrap || true")
	assert.Equal(t, "3", do("systemctl show -P ExecMainStatus dayone-bootstrap"))
	assert.Equal(t, "0", do("systemctl show -P NRestarts dayone-bootstrap"))
	assert.Contains(t, do("journalctl -u dayone-bootstrap"), "/etc/dayone/cluster")

	do("dpkg -r dayone")
	assert.Equal(t, "inactive", do("systemctl is-active dayone-registry-server || true"))
	assert.Empty(t, do("ls /usr/bin | grep dayone || true"), "nothing of it stays")
	do("test -d /var/lib/dayone-registry") // but the images
}
