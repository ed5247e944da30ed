package buildahengine_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/build"
	"dayone.dev/dayone/build/buildahengine"
	"dayone.dev/dayone/build/buildtest"
)

// Packages of the tests: two kernels with the files that a deployment needs, and an extension with a dependency that
// only the package manager knows of. They are made by the real rpmbuild and hold next to nothing.
func specs() map[string]string {
	kernel := func(name, version string) string {
		text := fmt.Sprintf(
			"Name: %s\nVersion: 6.1.0\nRelease: 1\nSummary: kernel\nLicense: none\nBuildArch: noarch\n%%description\nkernel\n",
			name)
		files := "%files\n"
		for _, part := range []string{"core", "modules", "modules-core", "modules-extra", "kvm"} {
			text += fmt.Sprintf("%%package %s\nSummary: %s\n%%description %s\npart\n", part, part, part)
			if part == "core" {
				files += fmt.Sprintf("%%files core\n/usr/lib/modules/%s/vmlinuz\n/usr/lib/modules/%s/initramfs.img\n", version,
					version)
			} else {
				files += fmt.Sprintf("%%files %s\n/usr/lib/modules/%s/%s\n", part, version, part)
			}
		}
		return text + fmt.Sprintf(
			"%%install\nd=%%{buildroot}/usr/lib/modules/%s; mkdir -p $d; cd $d; touch vmlinuz initramfs.img modules "+
				"modules-core modules-extra kvm\n", version) + files
	}
	return map[string]string{
		"kernel": kernel("kernel", "6.1.0"), "kernel-rt": kernel("kernel-rt", "6.1.0-rt"),
		"usbguard": "Name: usbguard\nVersion: 1\nRelease: 1\nSummary: x\nLicense: none\nBuildArch: noarch\n" +
			"Requires: usbguard-policy >= 1\n%description\nx\n" +
			"%package -n usbguard-policy\nSummary: p\n%description -n usbguard-policy\np\n%install\n" +
			"mkdir -p %{buildroot}/usr/share %{buildroot}/etc/usbguard; touch %{buildroot}/usr/share/usbguard; echo rules " +
			">%{buildroot}/etc/usbguard/rules\n" +
			"%files\n/usr/share/usbguard\n%files -n usbguard-policy\n/etc/usbguard/rules\n",
	}
}

func command(t *testing.T, dir, name string, arguments ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, arguments...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s %v: %s", name, arguments, out)
	return string(out)
}

// makePackages gives a directory with the packages.
func makePackages(t *testing.T) string {
	t.Helper()
	work := t.TempDir()
	for name, text := range specs() {
		spec := filepath.Join(work, name+".spec")
		require.NoError(t, os.WriteFile(spec, []byte(text), 0o600))
		command(t, work, "rpmbuild", "-bb", "--define", "_topdir "+work, "--define", "_dbpath "+work+"/db", spec)
	}
	return filepath.Join(work, "RPMS", "noarch")
}

// toolsTree is a directory with the real rpm and dnf of this host, the libraries that they need, and a package database
// with the default kernel, where ostree systems have it.
func toolsTree(t *testing.T, packages string) string {
	t.Helper()
	tree := t.TempDir()
	command(t, tree, "sh", "-c", `set -e
for p in dnf python3-dnf python3-hawkey python3-libdnf libdnf2-common python3-libcomps python3-rpm rpm rpm-common python3-minimal python3.11-minimal \
    libpython3.11-minimal libpython3.11-stdlib python3-gpg dash; do dpkg -L $p; done | sort -u | grep -v -E '^/usr/share/(doc|man|locale|bash-completion|lintian)|/__pycache__|/rpmbuild$' |
    xargs -d '\n' sh -c 'for f in "$@"; do if test -f "$f"; then echo "$f"; fi; done' sh >files
grep -E '\.so|/bin/' files | xargs ldd 2>/dev/null | grep -o '/[^ ]*' | grep -v ':$' | sort -u >libraries
cat files libraries | sort -u | sed 's,^/bin/,/usr/bin/,; s,^/,,' | sort -u | tar -C / -ch --no-recursion -T - | tar -x
rm files libraries
ln -sf dash usr/bin/sh  # busybox's shell has an rpm of its own, which comes before the real one
mkdir -p usr/share/rpm etc/rpm etc/dnf etc/yum.repos.d
echo '%_dbpath /usr/share/rpm' >etc/rpm/macros
printf '[main]\ngpgcheck=1\ninstall_weak_deps=False\n' >etc/dnf/dnf.conf
printf 'NAME=test\nID=test\nVERSION_ID=1\n' >etc/os-release`)
	list, err := filepath.Glob(filepath.Join(packages, "kernel-[6cm]*.rpm"))
	require.NoError(t, err)
	require.Len(t, list, 5, "the default kernel's packages, but for one that real systems have not got either")
	command(t, tree, "rpm", append([]string{"--root", tree, "--dbpath", "/usr/share/rpm", "-i", "--nodeps"}, list...)...)
	return tree
}

// rpmBench has a base with the real tools and an extensions image with the real packages, in the layout of the real
// one.
func rpmBench(t *testing.T) (*bench, build.Request) {
	t.Helper()
	buildtest.Need(t, true, "rpmbuild", "createrepo_c", "dnf", "ldd", "dpkg")
	b := newBench(t, buildahengine.Options{})
	packages := makePackages(t)
	b.base = buildtest.Push(t, b.reg, buildtest.Base{Repository: "os/rpm", Tree: toolsTree(t, packages)})
	extensions := t.TempDir()
	repository := filepath.Join(extensions, "usr/share/rpm-ostree/extensions")
	require.NoError(t, os.MkdirAll(repository, 0o755))
	command(t, packages, "sh", "-c", "cp kernel-rt-*.rpm usbguard*.rpm "+repository)
	command(t, repository, "createrepo_c", "--quiet", ".")
	image := buildtest.Push(t, b.reg, buildtest.Base{Repository: "os/extensions", NotBootable: true, Tree: extensions})
	r := b.request("FROM configs\nRUN rpm -qa; test -e /usr/share/usbguard\n")
	r.Extensions = &image
	return b, r
}

// TestExtensionsWithRealPackages runs the generated stage with the real dnf and rpm on a real repository: dependencies
// are solved, packages installed and the kernel exchanged. rpm-ostree and ostree are not there; extensions_test.go has
// stand-ins for them.
func TestExtensionsWithRealPackages(t *testing.T) {
	b, r := rpmBench(t)
	r.Config.Spec.Extensions, r.Config.Spec.KernelType = []string{"usbguard"}, "realtime"
	result, err := b.builder.Build(t.Context(), r)
	if f := build.AsFailure(err); f != nil {
		t.Fatalf("%v\n%s", f, strings.Join(f.Excerpt, "\n"))
	}
	tree := b.tree(result.Reference)
	for _, p := range []string{"/usr/share/usbguard", "/etc/usbguard/rules", "/usr/lib/modules/6.1.0-rt/vmlinuz",
		"/usr/lib/modules/6.1.0-rt/kvm", "/etc/from-config"} {
		_, ok := tree.Lookup(p)
		assert.True(t, ok, p)
	}
	for _, p := range []string{"/usr/lib/modules/6.1.0/vmlinuz", "/etc/yum.repos.d/dayone-extensions.repo",
		"/var/cache/dnf", "/var/lib/dnf", "/run/dayone-kernel-swap"} {
		_, ok := tree.Lookup(p)
		assert.False(t, ok, p)
	}
	log, err := os.ReadFile(result.Log)
	require.NoError(t, err)
	for _, p := range []string{"kernel-rt-core-6.1.0-1.noarch\n", "kernel-rt-kvm-6.1.0-1.noarch\n",
		"usbguard-1-1.noarch\n", "usbguard-policy-1-1.noarch\n"} {
		assert.Contains(t, string(log), "\n"+p)
	}
	assert.NotContains(t, string(log), "\nkernel-core-6.1.0",
		"the package database knows that the default kernel has gone")
	for _, w := range result.Warnings {
		assert.NotEqual(t, "var-content", w.Rule, w.Message)
	}

	t.Run("a base that has the kernel already", func(t *testing.T) {
		again := r
		again.Base = build.Image{Reference: result.Reference}
		again.Containerfile = ""
		second, err := b.builder.Build(t.Context(), again)
		require.NoError(t, err)
		log, err := os.ReadFile(second.Log)
		require.NoError(t, err)
		assert.Contains(t, string(log), "this kernel is installed")
	})
	for _, c := range []struct {
		name   string
		change func(*build.Request)
		says   string
	}{
		{"an extension that the repository has not got", func(r *build.Request) {
			r.Config.Spec.Extensions = []string{"kerberos"}
		}, "krb5-workstation"},
		{"a kernel that the repository has not got", func(r *build.Request) { r.Config.Spec.KernelType = "64k-pages" },
			"kernel-64k-core"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := r
			r.Config = r.Config.DeepCopy()
			r.Config.Spec.Extensions, r.Config.Spec.KernelType = nil, "default"
			c.change(&r)
			f := b.fails(r)
			assert.Equal(t, build.ClassUser, f.Class, f.Error())
			assert.Zero(t, f.Line)
			assert.Contains(t, strings.Join(f.Excerpt, "\n"), c.says)
			assert.Contains(t, f.Next, "set the extensions image of this base")
		})
	}
	b.clean()
}
