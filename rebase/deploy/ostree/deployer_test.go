package ostree

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/rebase/deploy"
	"dayone.dev/dayone/rebase/deploy/deploytest"
	"dayone.dev/dayone/rebase/deploy/pull"
)

func TestParseStatus(t *testing.T) {
	text := "  os " + deploytest.CommitB + ".1 (staged)\n    Version: 2\n    origin: <unknown origin type>\n" +
		"  my-os " + deploytest.CommitB + ".0 (pending)\n" +
		"* os " + deploytest.CommitA + ".0\n    Version: 1\n    GPG: Signature made * os\n" +
		"  os " + deploytest.CommitA + ".3 (rollback)\n  os " + deploytest.CommitA + ".4 (staged) (finalization " +
		"locked)\n  os " + deploytest.CommitA +
		".5 (pinned)"
	assert.Equal(t, []statusEntry{
		{stateroot: "os", commit: deploytest.CommitB, serial: "1", staged: true},
		{stateroot: "my-os", commit: deploytest.CommitB, serial: "0", pending: true},
		{stateroot: "os", commit: deploytest.CommitA, serial: "0", booted: true},
		{stateroot: "os", commit: deploytest.CommitA, serial: "3", old: true},
		{stateroot: "os", commit: deploytest.CommitA, serial: "4", staged: true},
		{stateroot: "os", commit: deploytest.CommitA, serial: "5"},
	}, parseStatus(text))
}

func TestReadOrigin(t *testing.T) {
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

func TestKargsChange(t *testing.T) {
	now := []string{"root=LABEL=root", "rw", `x="a b"`}
	for _, c := range []struct {
		name string
		o    deploy.StageOptions
		want []string
	}{
		{"nothing asked for", deploy.StageOptions{}, nil},
		{"there already", deploy.StageOptions{AppendKernelArguments: []string{"rw", `x="a b"`}}, nil},
		{"new, several in one", deploy.StageOptions{AppendKernelArguments: []string{"a=1 b=2", "a=1"}},
			[]string{"--karg-append=a=1", "--karg-append=b=2"}},
		{"removed where it is", deploy.StageOptions{DeleteKernelArguments: []string{"rw", "quiet"}},
			[]string{"--karg-delete=rw"}},
		{"in both", deploy.StageOptions{AppendKernelArguments: []string{"rw"},
			DeleteKernelArguments: []string{"rw quiet"}}, nil},
		{"a value with blanks", deploy.StageOptions{AppendKernelArguments: []string{`y="c d"`}},
			[]string{`--karg-append=y="c d"`}},
		{"another value of a name", deploy.StageOptions{AppendKernelArguments: []string{"root=LABEL=other"}},
			[]string{"--karg-append=root=LABEL=other"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := kargsChange(now, c.o)
			assert.Equal(t, c.want, got)
			assert.Equal(t, len(c.want) > 0, deploy.ChangesKernelArguments(now, c.o))
		})
	}
}

func TestPreferEntry(t *testing.T) {
	d := New(Options{Root: t.TempDir()})
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
	assert.Equal(t, []string{"rw", "quiet"}, deploy.WithoutOSTree(after[0].options))
	require.NoError(t, d.preferEntry(after[0].deployment), "twice is once")
	require.Error(t, d.preferEntry("/nowhere"))
}

func TestStageChecksBootRoom(t *testing.T) {
	repo := deploytest.NewRepository(t)
	root := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(root, "ostree"), 0o755))
	require.NoError(t, os.Mkdir(filepath.Join(root, "boot"), 0o755))
	if out, err := exec.CommandContext(t.Context(), "mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs",
		filepath.Join(root, "boot")).CombinedOutput(); err != nil {
		deploytest.SkipOrFail(t, "a small file system cannot be mounted: "+string(out))
	}
	t.Cleanup(func() {
		if out, err := exec.Command("umount", filepath.Join(root, "boot")).CombinedOutput(); err != nil {
			t.Errorf("umount: %s", out)
		}
	})
	require.NoError(t, os.Symlink(repo, filepath.Join(root, "ostree/repo")))
	base := deploytest.Layer(t, deploytest.Base("1")...)
	kernel := deploytest.Layer(t, deploytest.Entry{Name: "usr/lib/modules/1.0/vmlinuz", Body: strings.Repeat("k", 2<<20)})
	other := deploytest.Layer(t, deploytest.Entry{Name: "etc/x", Body: "x"})
	commit := func(layers ...v1.Layer) string {
		done, err := pull.Import(
			t.Context(),
			repo,
			deploytest.WriteOCI(t, deploytest.Image(t, deploytest.Options{}, layers...)),
			pull.Options{},
		)
		require.NoError(t, err)
		return done.Commit
	}
	booted := commit(base)
	d := New(Options{Root: root})
	require.NoError(t, d.checkBootSpace(booted, commit(base, other)), "the same kernel needs no room")
	err := d.checkBootSpace(booted, commit(base, kernel))
	require.Error(t, err)
	assert.Equal(t, deploy.ClassDiskFull, deploy.ClassOf(err), err)
	assert.ErrorContains(t, err, "boot")
}
