package pull

import (
	"archive/tar"
	"context"
	"errors"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/rebase/deploy"
	"dayone.dev/dayone/rebase/deploy/deploytest"
	"dayone.dev/dayone/rebase/deploy/ostreerepo"
)

// ls gives type, mode, owner and target by path, as "d00755 0 0", "l00777 0 0 -> x".
func ls(t *testing.T, repo, commit string) map[string]string {
	t.Helper()
	got := map[string]string{}
	listing := deploytest.Run(t, "ostree", "ls", "--repo="+repo, "-R", commit)
	for _, line := range strings.Split(strings.TrimSpace(listing), "\n") {
		f := strings.Fields(line)
		path := f[4]
		got[path] = strings.Join(append(f[:3:3], f[5:]...), " ")
	}
	return got
}

func TestImportAppliesLayers(t *testing.T) {
	repo := deploytest.NewRepository(t)
	lower := append(deploytest.Base("1"),
		deploytest.Entry{Name: "etc/gone", Body: "x"}, deploytest.Entry{Name: "etc/gonedir/"},
		deploytest.Entry{Name: "etc/gonedir/f", Body: "x"},
		deploytest.Entry{Name: "etc/opaque/"}, deploytest.Entry{Name: "etc/opaque/lower", Body: "x"},
		deploytest.Entry{Name: "etc/dir/"}, deploytest.Entry{Name: "etc/dir/kept", Body: "x"},
		deploytest.Entry{Name: "usr/link-to-dir", Link: "lib"}, deploytest.Entry{Name: "usr/file-to-link", Body: "x"},
		deploytest.Entry{Name: "usr/dir-to-file/"},
		deploytest.Entry{Name: "usr/same", Body: "same"},
		deploytest.Entry{Name: "dev/null", Type: tar.TypeChar}, deploytest.Entry{Name: "usr/fifo", Type: tar.TypeFifo},
		deploytest.Entry{Name: "run/lock/"}, deploytest.Entry{Name: "var/lib/"}, deploytest.Entry{Name: "var/lib/state",
			Body: "x"},
		deploytest.Entry{Name: "etc/hard-target", Body: "hard"}, deploytest.Entry{Name: "etc/hard", Link: "etc/hard-target",
			Type: tar.TypeLink},
		deploytest.Entry{Name: "usr/hard-absolute", Link: "/etc/hard-target", Type: tar.TypeLink},
		deploytest.Entry{Name: "etc/setuid", Body: "x", Mode: 0o4755}, deploytest.Entry{Name: "etc/owned", Body: "x", UID: 12,
			GID: 34},
		deploytest.Entry{Name: "etc/absolute", Link: "/etc/shadow"})
	upper := []deploytest.Entry{
		{Name: "etc/.wh.gone"}, {Name: "etc/.wh.gonedir"}, {Name: "etc/opaque/.wh..wh..opq"},
		{Name: "etc/opaque/upper", Body: "x"},
		{Name: "etc/dir/", Mode: 0o2750, GID: 7}, {Name: "etc/dir/added", Body: "x"},
		{Name: "usr/link-to-dir/"}, {Name: "usr/link-to-dir/f", Body: "x"}, {Name: "usr/file-to-link", Link: "same"},
		{Name: "usr/dir-to-file", Body: "x"},
		{Name: "usr/same", Body: "same"}, {Name: "./etc/dotted", Body: "x"}, {Name: "/usr/absolute-name", Body: "x"}}
	src := deploytest.WriteOCI(t, deploytest.Image(t, deploytest.Options{}, deploytest.Layer(t, lower...),
		deploytest.Layer(t, upper...)))

	done, err := Import(t.Context(), repo, src, Options{})
	require.NoError(t, err)

	got := ls(t, repo, done.Commit)
	want := map[string]string{
		"/usr/etc/opaque/upper": "-00644 0 0", "/usr/etc/dir": "d02750 0 7", "/usr/etc/dir/kept": "-00644 0 0",
		"/usr/etc/dir/added": "-00644 0 0",
		"/usr/link-to-dir":   "d00755 0 0", "/usr/link-to-dir/f": "-00644 0 0", "/usr/file-to-link": "l00777 0 0 -> same",
		"/usr/dir-to-file": "-00644 0 0",
		"/usr/same":        "-00644 0 0", "/usr/etc/hard": "-00644 0 0", "/usr/hard-absolute": "-00644 0 0",
		"/usr/etc/setuid": "-04755 0 0", "/usr/etc/owned": "-00644 12 34", "/usr/etc/absolute": "l00777 0 0 -> /etc/shadow",
		"/usr/etc/dotted": "-00644 0 0", "/usr/absolute-name": "-00644 0 0", "/dev": "d00755 0 0", "/run": "d00755 0 0",
		"/var": "d00755 0 0",
	}
	for path, attributes := range want {
		assert.Equal(t, attributes, got[path], path)
	}
	for _, path := range []string{"/etc", "/usr/etc/gone", "/usr/etc/gonedir", "/usr/etc/opaque/lower", "/dev/null",
		"/usr/fifo", "/run/lock", "/var/lib"} {
		assert.NotContains(t, got, path)
	}
	assert.Equal(t, "hard", deploytest.Run(t, "ostree", "cat", "--repo="+repo, done.Commit, "/usr/etc/hard"))
	leftovers, err := filepath.Glob(filepath.Join(repo, "tmp", ostreerepo.StagingPrefix+"*"))
	require.NoError(t, err)
	assert.Empty(t, leftovers)
}

func TestImportRefusesHostileLayers(t *testing.T) {
	for _, c := range []struct {
		name  string
		entry deploytest.Entry
		class deploy.Class
	}{
		{"a path that leaves the image", deploytest.Entry{Name: "usr/../../etc/passwd", Body: "x"}, deploy.ClassHostile},
		{"a hard link that leaves the image", deploytest.Entry{Name: "usr/x", Link: "../../etc/passwd",
			Type: tar.TypeLink}, deploy.ClassHostile},
		{"a hard link to what is dropped", deploytest.Entry{Name: "usr/x", Link: "run/secret", Type: tar.TypeLink},
			deploy.ClassHostile},
		{"a file in place of the root", deploytest.Entry{Name: ".", Body: "x"}, deploy.ClassHostile},
		{"an ostree repository", deploytest.Entry{Name: "sysroot/ostree/repo/objects/00/ab.file",
			Body: "x"}, deploy.ClassHostile},
		{"a hard link to a file that is no-where", deploytest.Entry{Name: "usr/x", Link: "usr/none", Type: tar.TypeLink},
			deploy.ClassHostile},
	} {
		t.Run(c.name, func(t *testing.T) {
			repo := deploytest.NewRepository(t)
			src := deploytest.WriteOCI(t, deploytest.Image(t, deploytest.Options{},
				deploytest.Layer(t, append(deploytest.Base("1"), c.entry)...)))
			_, err := Import(t.Context(), repo, src, Options{})
			require.Error(t, err)
			assert.Equal(t, c.class, deploy.ClassOf(err), err)
			assert.Empty(t, deploytest.Run(t, "ostree", "refs", "--repo="+repo))
		})
	}
}

func TestImportRefusesWhatCannotBoot(t *testing.T) {
	base := deploytest.Base("1")
	var noKernel []deploytest.Entry
	for _, e := range base {
		if !strings.HasSuffix(e.Name, "vmlinuz") {
			noKernel = append(noKernel, e)
		}
	}
	for _, c := range []struct {
		name    string
		options deploytest.Options
		entries []deploytest.Entry
		class   deploy.Class
	}{
		{"another architecture", deploytest.Options{Architecture: "s390x"}, base, deploy.ClassArchitecture},
		{"no bootable label", deploytest.Options{Labels: map[string]string{"a": "b"}}, base, deploy.ClassNotBootable},
		{"no kernel", deploytest.Options{}, noKernel, deploy.ClassNoKernel},
	} {
		t.Run(c.name, func(t *testing.T) {
			src := deploytest.WriteOCI(t, deploytest.Image(t, c.options, deploytest.Layer(t, c.entries...)))
			_, err := Import(t.Context(), deploytest.NewRepository(t), src, Options{})
			require.Error(t, err)
			assert.Equal(t, c.class, deploy.ClassOf(err), err)
		})
	}
}

func TestImportFetchesOnlyWhatIsMissing(t *testing.T) {
	repo, g := deploytest.NewRepository(t), deploytest.StartRegistry(t)
	base := deploytest.Layer(t, deploytest.Base("1")...)
	stock := deploytest.WriteOCI(t, deploytest.Image(t, deploytest.Options{}, base))
	_, err := Import(t.Context(), repo, stock, Options{})
	require.NoError(t, err)

	layered := deploytest.Image(t, deploytest.Options{}, base,
		deploytest.Layer(t, deploytest.Entry{Name: "etc/new", Body: "x"}))
	ref := g.Push(t, layered, "ocp/master-os")
	o := Options{CertsDir: g.CertsDir, AuthFile: g.AuthFile}
	before := g.BlobGets()
	done, err := Import(t.Context(), repo, ref, o)
	require.NoError(t, err)
	assert.Equal(t, 1, done.LayersFetched)
	assert.Equal(t, 1, done.LayersPresent)
	assert.Equal(t, 2, g.BlobGets()-before, "the configuration and one layer")
	wantDigest, err := layered.Digest()
	require.NoError(t, err)
	assert.Equal(t, wantDigest.String(), done.ManifestDigest.String())

	before = g.BlobGets()
	again, err := Import(t.Context(), repo, ref, o)
	require.NoError(t, err)
	assert.True(t, again.Reused)
	assert.Equal(t, done.Commit, again.Commit)
	assert.Equal(t, done.Labels, again.Labels)
	assert.Equal(t, before, g.BlobGets())
}

func TestImportClassifiesRegistryErrors(t *testing.T) {
	status := func(code int) func(*deploytest.Registry) deploytest.Fault {
		return func(*deploytest.Registry) deploytest.Fault { return deploytest.Status(code) }
	}
	change := func(f func([]byte) []byte) func(*deploytest.Registry) deploytest.Fault {
		return func(g *deploytest.Registry) deploytest.Fault { return g.ChangeLayers(f) }
	}
	for _, c := range []struct {
		name  string
		spoil func(*deploytest.Registry) deploytest.Fault
		class deploy.Class
	}{
		{"401", status(401), deploy.ClassUnauthorized},
		{"403", status(403), deploy.ClassForbidden},
		{"404", status(404), deploy.ClassNotFound},
		{"500", status(500), deploy.ClassRegistry},
		{"503", status(503), deploy.ClassRegistry},
		{"a flipped bit in a layer", change(func(b []byte) []byte { b[len(b)/2] ^= 0x10; return b }), deploy.ClassCorrupted},
		{"a flipped bit at its end", change(func(b []byte) []byte { b[len(b)-1] ^= 0x10; return b }), deploy.ClassCorrupted},
		{"a truncated layer", change(func(b []byte) []byte { return b[:len(b)/2] }), deploy.ClassCorrupted},
		{"something after a layer", change(func(b []byte) []byte { return append(b, 0) }), deploy.ClassCorrupted},
	} {
		t.Run(c.name, func(t *testing.T) {
			repo, g := deploytest.NewRepository(t), deploytest.StartRegistry(t)
			ref := g.Push(t, deploytest.Image(t, deploytest.Options{}, deploytest.Layer(t, deploytest.Base("1")...)),
				"ocp/master-os")
			o := Options{CertsDir: g.CertsDir, AuthFile: g.AuthFile}
			g.Spoil(c.spoil(g))
			_, err := Import(t.Context(), repo, ref, o)
			require.Error(t, err)
			assert.Equal(t, c.class, deploy.ClassOf(err), err)
			assert.Empty(t, deploytest.Run(t, "ostree", "refs", "--repo="+repo))
			assert.NotContains(t, err.Error(), "s3cret-canary")
			g.Spoil(nil)
			_, err = Import(t.Context(), repo, ref, o)
			require.NoError(t, err, "when the fault is gone")
		})
	}
}

func TestImportClassifiesTrustErrors(t *testing.T) {
	repo, g := deploytest.NewRepository(t), deploytest.StartRegistry(t)
	ref := g.Push(t, deploytest.Image(t, deploytest.Options{}, deploytest.Layer(t, deploytest.Base("1")...)),
		"ocp/master-os")
	wrong := filepath.Join(t.TempDir(), "auth.json")
	require.NoError(t, os.WriteFile(wrong, []byte(`{"auths":{"`+g.Addr+`":{"auth":"YTpi"}}}`), 0o600))
	for _, c := range []struct {
		name  string
		ref   string
		o     Options
		class deploy.Class
	}{
		{"no CA", ref, Options{CertsDir: t.TempDir(), AuthFile: g.AuthFile}, deploy.ClassUntrusted},
		{"a wrong password", ref, Options{CertsDir: g.CertsDir, AuthFile: wrong}, deploy.ClassUnauthorized},
		{"no credential", ref, Options{CertsDir: g.CertsDir, Root: t.TempDir()}, deploy.ClassUnauthorized},
		{"nobody listens", strings.Replace(ref, g.Addr, "127.0.0.1:1", 1),
			Options{CertsDir: g.CertsDir, AuthFile: g.AuthFile}, deploy.ClassUnreachable},
		{"an unknown host", strings.Replace(ref, g.Addr, "registry.invalid", 1),
			Options{CertsDir: g.CertsDir, AuthFile: g.AuthFile}, deploy.ClassUnreachable},
		{"a tag, no digest", g.Addr + "/ocp/master-os:test", Options{CertsDir: g.CertsDir, AuthFile: g.AuthFile},
			deploy.ClassConfig},
		{"a digest not there", ref[:len(ref)-4] + "0000", Options{CertsDir: g.CertsDir, AuthFile: g.AuthFile},
			deploy.ClassNotFound},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := Import(t.Context(), repo, c.ref, c.o)
			require.Error(t, err)
			assert.Equal(t, c.class, deploy.ClassOf(err), err)
		})
	}
}

func TestImportExpiredCertificate(t *testing.T) {
	repo, g := deploytest.NewRepository(t), deploytest.StartRegistry(t)
	ref := g.Push(t, deploytest.Image(t, deploytest.Options{}, deploytest.Layer(t, deploytest.Base("1")...)),
		"ocp/master-os")
	g.SetValidity(t, time.Now().Add(-time.Hour))
	_, err := Import(t.Context(), repo, ref, Options{CertsDir: g.CertsDir, AuthFile: g.AuthFile})
	require.Error(t, err)
	assert.Equal(t, deploy.ClassExpired, deploy.ClassOf(err), err)
	assert.ErrorContains(t, err, "clock")
}

func TestImportFromMirror(t *testing.T) {
	repo, g := deploytest.NewRepository(t), deploytest.StartRegistry(t)
	ref := g.Push(t, deploytest.Image(t, deploytest.Options{}, deploytest.Layer(t, deploytest.Base("1")...)),
		"ocp/master-os")
	final := strings.Replace(ref, g.Addr, "registry.invalid", 1)
	conf := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(conf, "50-test.conf"), []byte(
		"[[registry]]\nlocation = \"registry.invalid/ocp/master-os\"\n[[registry.mirror]]\n"+
			"location = \""+g.Addr+"/ocp/master-os\"\npull-from-mirror = \"digest-only\"\n"), 0o644))
	o := Options{CertsDir: g.CertsDir, AuthFile: g.AuthFile, RegistriesConfDir: conf}
	g.Spoil(func(w http.ResponseWriter, _ *http.Request) bool { w.WriteHeader(http.StatusForbidden); return true })
	_, err := Import(t.Context(), repo, final, o)
	require.Error(t, err)
	assert.Equal(t, deploy.ClassForbidden, deploy.ClassOf(err), "the mirror's answer counts, not the unknown final "+
		"registry: %v", err)
	g.Spoil(nil)
	done, err := Import(t.Context(), repo, final, o)
	require.NoError(t, err)
	assert.Equal(t, ref, done.Source)
	assert.Equal(t, imageRef("docker://"+final), done.Ref)
}

// TestImportNeverContactSource: what an ImageDigestMirrorSet makes of NeverContactSource blocks the source alone.
func TestImportNeverContactSource(t *testing.T) {
	repo, source, copies := deploytest.NewRepository(t), deploytest.StartRegistry(t), deploytest.StartRegistry(t)
	img := deploytest.Image(t, deploytest.Options{}, deploytest.Layer(t, deploytest.Base("1")...))
	ref := source.Push(t, img, "ocp/master-os")
	copied := copies.Push(t, img, "mirror/master-os")
	source.Spoil(func(http.ResponseWriter, *http.Request) bool {
		t.Error("the source is asked")
		return false
	})
	for _, c := range []struct{ name, mirror, says string }{
		{"no mirror", "", "registries.conf blocks"},
		{"a blocked mirror, too", source.Addr + "/other", "registries.conf blocks"},
		{"a mirror", copies.Addr + "/mirror", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			conf, text := t.TempDir(), "[[registry]]\nlocation = \""+source.Addr+"\"\nblocked = true\n[[registry]]\n"+
				"location = \""+source.Addr+"/ocp\"\nblocked = true\n"
			if c.mirror != "" {
				text += "[[registry.mirror]]\nlocation = \"" + c.mirror + "\"\npull-from-mirror = \"digest-only\"\n"
			}
			require.NoError(t, os.WriteFile(filepath.Join(conf, "50-test.conf"), []byte(text), 0o644))
			o := clientOf(t, source, copies)
			o.RegistriesConfDir = conf
			done, err := Import(t.Context(), repo, ref, o)
			if c.says != "" {
				require.ErrorContains(t, err, c.says)
				assert.Equal(t, deploy.ClassConfig, deploy.ClassOf(err))
				return
			}
			require.NoError(t, err)
			assert.Equal(t, copied, done.Source)
		})
	}
}

func TestImportResumes(t *testing.T) {
	repo, g := deploytest.NewRepository(t), deploytest.StartRegistry(t)
	img := deploytest.Image(t, deploytest.Options{}, deploytest.Layer(t, deploytest.Base("1")...),
		deploytest.Layer(t, deploytest.Entry{Name: "etc/two", Body: "2"}))
	ref := g.Push(t, img, "ocp/master-os")
	layers, err := img.Layers()
	require.NoError(t, err)
	second, err := layers[1].Digest()
	require.NoError(t, err)
	o := Options{CertsDir: g.CertsDir, AuthFile: g.AuthFile, Parallel: 1, StallTimeout: 200 * time.Millisecond}
	hung := make(chan struct{})
	defer close(hung)
	g.Spoil(func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.HasSuffix(r.URL.Path, second.String()) {
			return false
		}
		w.Header().Set("Content-Length", "1000")
		w.WriteHeader(http.StatusOK)
		w.(http.Flusher).Flush()
		select {
		case <-hung:
		case <-r.Context().Done():
		}
		return true
	})
	first := layerRef(mustDigest(t, layers[0]))
	// a busy machine may be so slow that the first layer counts as stalled as well
	for refs := map[string]bool{}; !refs[first]; {
		_, err = Import(t.Context(), repo, ref, o)
		require.Error(t, err)
		require.Equal(t, deploy.ClassUnreachable, deploy.ClassOf(err), err)
		refs, err = refsOf(NewStore(repo))
		require.NoError(t, err)
	}
	g.Spoil(nil)
	o.StallTimeout = 0
	done, err := Import(t.Context(), repo, ref, o)
	require.NoError(t, err)
	assert.Equal(t, 1, done.LayersPresent)
	assert.Equal(t, 1, done.LayersFetched)
}

func TestImportFullDisk(t *testing.T) {
	repo := deploytest.NewRepository(t)
	small := filepath.Dir(repo)
	require.NoError(t, os.RemoveAll(repo))
	if out, err := exec.CommandContext(t.Context(), "mount", "-t", "tmpfs", "-o", "size=12m", "tmpfs", small).
		CombinedOutput(); err != nil {
		deploytest.SkipOrFail(t, "a small file system cannot be mounted: "+string(out))
	}
	t.Cleanup(func() {
		if out, err := exec.Command("umount", small).CombinedOutput(); err != nil {
			t.Errorf("umount: %s", out)
		}
	})
	deploytest.Run(t, "ostree", "init", "--repo="+repo, "--mode=bare")
	noise := make([]byte, 16<<20)
	for _, c := range []struct {
		name string
		fill func()
	}{
		{"ostree meets it", func() {}}, // zeroes: 16 KiB to fetch
		{"seen beforehand", func() {
			for i := range noise {
				noise[i] = byte((i * i) >> 7)
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.fill()
			src := deploytest.WriteOCI(t, deploytest.Image(t, deploytest.Options{},
				deploytest.Layer(t, append(deploytest.Base("1"), deploytest.Entry{Name: "usr/big", Body: string(noise)})...)))
			_, err := Import(t.Context(), repo, src, Options{})
			require.Error(t, err)
			assert.Equal(t, deploy.ClassDiskFull, deploy.ClassOf(err), err)
			assert.Empty(t, deploytest.Run(t, "ostree", "refs", "--repo="+repo))
		})
	}
}

func TestImportLocks(t *testing.T) {
	repo := deploytest.NewRepository(t)
	unlock, err := NewStore(repo).lock()
	require.NoError(t, err)
	_, err = Import(context.Background(), repo, "oci:/nowhere", Options{})
	require.ErrorContains(t, err, "other import")
	unlock()
	_, err = Import(context.Background(), repo, "oci:/nowhere", Options{})
	require.Error(t, err)
	assert.NotContains(t, err.Error(), "other import")
	var f *deploy.Fault
	assert.True(t, errors.As(err, &f))
}
