package deploy

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var (
	commitA = strings.Repeat("a", 64)
	commitB = strings.Repeat("b", 64)
)

func TestParseStatusReadsEveryVersionsMarks(t *testing.T) {
	text := "  os " + commitB + ".1 (staged)\n    Version: 2\n    origin: <unknown origin type>\n" +
		"  my-os " + commitB + ".0 (pending)\n" +
		"* os " + commitA + ".0\n    Version: 1\n    GPG: Signature made * os\n" +
		"  os " + commitA + ".3 (rollback)\n  os " + commitA + ".4 (staged) (finalization locked)\n  os " + commitA +
		".5 (pinned)"
	assert.Equal(t, []statusEntry{
		{stateroot: "os", commit: commitB, serial: "1", staged: true},
		{stateroot: "my-os", commit: commitB, serial: "0", pending: true},
		{stateroot: "os", commit: commitA, serial: "0", booted: true},
		{stateroot: "os", commit: commitA, serial: "3", old: true},
		{stateroot: "os", commit: commitA, serial: "4", staged: true},
		{stateroot: "os", commit: commitA, serial: "5"},
	}, parseStatus(text))
}

func TestReadOriginUnderstandsEveryFormOfReference(t *testing.T) {
	const image = "registry.example.com/ocp/os@sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	for _, form := range []string{"ostree-unverified-registry:" + image, "ostree-unverified-image:docker://" + image,
		"ostree-unverified-image:registry:" + image,
		"ostree-image-signed:docker://" + image, "ostree-remote-registry:fedora:" + image} {
		path := filepath.Join(t.TempDir(), "origin")
		require.NoError(t, os.WriteFile(path, []byte("[origin]\ncontainer-image-reference="+form+"\n"), 0o644))
		got, err := readOrigin(path)
		require.NoError(t, err)
		assert.Equal(t, image, got.String(), form)
	}
	for _, content := range []string{"[origin]\nrefspec=fedora:x86_64\n",
		"[origin]\ncontainer-image-reference=ostree-unverified-registry:host/x:tag\n"} {
		path := filepath.Join(t.TempDir(), "origin")
		require.NoError(t, os.WriteFile(path, []byte(content), 0o644))
		got, err := readOrigin(path)
		require.NoError(t, err)
		assert.True(t, got.IsZero(), content)
	}
	got, err := readOrigin(filepath.Join(t.TempDir(), "none"))
	require.NoError(t, err)
	assert.True(t, got.IsZero())
}

func TestKernelArgumentsChangeOnlyWhereTheyDiffer(t *testing.T) {
	now := []string{"root=LABEL=root", "rw", `x="a b"`}
	for _, c := range []struct {
		name string
		o    StageOptions
		want []string
	}{
		{"nothing asked for", StageOptions{}, nil},
		{"there already", StageOptions{AppendKernelArguments: []string{"rw", `x="a b"`}}, nil},
		{"new, several in one", StageOptions{AppendKernelArguments: []string{"a=1 b=2", "a=1"}},
			[]string{"--karg-append=a=1", "--karg-append=b=2"}},
		{"removed where it is", StageOptions{DeleteKernelArguments: []string{"rw", "quiet"}},
			[]string{"--karg-delete=rw"}},
		{"in both", StageOptions{AppendKernelArguments: []string{"rw"},
			DeleteKernelArguments: []string{"rw quiet"}}, nil},
		{"a value with blanks", StageOptions{AppendKernelArguments: []string{`y="c d"`}},
			[]string{`--karg-append=y="c d"`}},
		{"another value of a name", StageOptions{AppendKernelArguments: []string{"root=LABEL=other"}},
			[]string{"--karg-append=root=LABEL=other"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := kargsChange(now, c.o)
			assert.Equal(t, c.want, got)
			assert.Equal(t, len(c.want) > 0, ChangesKernelArguments(now, c.o))
		})
	}
}

func TestParseImageWantsADigestAndNoTag(t *testing.T) {
	const digest = "@sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	image, err := ParseImage("docker://192.168.77.1:5000/ocp/os" + digest)
	require.NoError(t, err)
	assert.Equal(t, "192.168.77.1:5000/ocp/os", image.Repository)
	assert.Equal(t, "192.168.77.1:5000/ocp/os"+digest, image.String())
	for _, bad := range []string{"", "host/os", "host/os:tag", "host/os:tag" + digest, "host/os@sha256:short", "host/OS" +
		digest, "-"} {
		_, err := ParseImage(bad)
		require.Error(t, err, bad)
	}
}

func TestEscapeMakesRefNamesAsOSTreeExtDoes(t *testing.T) {
	for _, c := range []struct {
		name string
		want string
	}{
		{"sha256:ab", "sha256_3A_ab"},
		{"docker://quay.io/a_b:c@sha1:2", "docker_3A_/_2F_quay.io/a__b_3A_c_40_sha1_3A_2"},
		{"/x/", "_2F_x_2F_"},
		{"a/.b", "a/_2E_b"},
	} {
		assert.Equal(t, c.want, escape(c.name), c.name)
	}
}

func TestRollbackOfOldOSTreeReordersBootEntries(t *testing.T) {
	d := NewOSTree(OSTreeOptions{Root: t.TempDir()})
	entries := filepath.Join(d.root, "boot/loader/entries")
	require.NoError(t, os.MkdirAll(entries, 0o755))
	dirs := map[string]string{}
	for n, name := range map[int]string{2: "new", 1: "old"} {
		dirs[name] = filepath.Join(d.root, "ostree/deploy/os/deploy", name)
		require.NoError(t, os.MkdirAll(dirs[name], 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(entries, "ostree-"+string(rune('0'+n))+"-os.conf"),
			[]byte("title "+name+"\nversion "+string(rune('0'+n))+
				"\noptions rw ostree=/ostree/deploy/os/deploy/"+name+" quiet\nlinux /k\n"), 0o644))
	}
	before, err := d.bootEntries()
	require.NoError(t, err)
	require.Len(t, before, 2)
	require.NoError(t, d.preferEntry(before[1].deployment))
	after, err := d.bootEntries()
	require.NoError(t, err)
	require.Len(t, after, 2)
	assert.Equal(t, dirs["old"], after[0].deployment)
	assert.Equal(t, "ostree-3-os.conf", filepath.Base(after[0].file))
	assert.Equal(t, []string{"rw", "quiet"}, after[0].kernelArguments())
	require.NoError(t, d.preferEntry(after[0].deployment), "twice is once")
	require.Error(t, d.preferEntry("/nowhere"))
}

func TestMetadataIsWhatOSTreeWrote(t *testing.T) {
	repo := newRepo(t)
	dir := t.TempDir()
	for _, want := range []string{"plain", `{"a":"it's \"q\" \\n"}`, "line\nbreak\ttab", "ä€😀", "\x01\x7f", "",
		strings.Repeat("long", 20000)} {
		run(t, "ostree", "commit", "--repo="+repo, "-b", "x", "--tree=dir="+dir, "--subject=s", "--body=b",
			"--add-metadata-string=k="+want, "--add-metadata=n=uint32 7")
		commit := strings.TrimSpace(run(t, "ostree", "rev-parse", "--repo="+repo, "x"))
		got, err := repository{path: repo}.metadata(commit)
		require.NoError(t, err)
		assert.Equal(t, want, got["k"])
		assert.NotContains(t, got, "other")
	}
}
