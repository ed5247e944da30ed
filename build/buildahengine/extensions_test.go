package buildahengine_test

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/build"
	"dayone.dev/dayone/build/buildahengine"
	"dayone.dev/dayone/build/buildtest"
)

// Stand-ins for the package manager and for ostree, which write down how they are called. They show order, mounts and
// failures of the generated stage; what the real programs do with real packages is not shown here.
const (
	standInRpmOstree = `#!/bin/sh
echo "rpm-ostree $*" >>/usr/lib/calls
dir=$(grep ^baseurl=file:// /etc/yum.repos.d/dayone-extensions.repo) || { echo "error: no repository"; exit 1; }
dir=${dir#baseurl=file://}
install() {
    test -e "$dir/$1.rpm" || { echo "error: Packages not found: $1"; exit 1; }
    cp "$dir/$1.rpm" /usr/share/"$1"
}
if test "$1" = install; then
    shift
    for p in "$@"; do install "$p"; done
    exit 0
fi
test "$1 $2" = "override remove" || exit 2
rm -r /usr/lib/modules/6.1.0
shift 2
while test $# -gt 0; do
    if test "$1" = --install; then shift; install "$1"; fi
    shift
done
mkdir -p /usr/lib/modules/6.1.0-rt
echo kernel >/usr/lib/modules/6.1.0-rt/vmlinuz
echo initramfs >/usr/lib/modules/6.1.0-rt/initramfs.img
`
	standInOstree = "#!/bin/sh\necho \"ostree $*\" >>/usr/lib/calls\n"
)

// extensionsBench has a base with the stand-ins and an extensions image with these packages, in the layout of the real
// one: a package repository in /usr/share/rpm-ostree/extensions.
func extensionsBench(t *testing.T, packages ...string) (*bench, build.Request) {
	t.Helper()
	b := newBench(t, buildahengine.Options{})
	b.base = buildtest.Push(t, b.reg, buildtest.Base{Repository: "os/standin",
		Programs: map[string]string{"rpm-ostree": standInRpmOstree, "ostree": standInOstree},
		Files:    map[string]string{"/etc/yum.repos.d/stock.repo": "[stock]\n"}})
	files := map[string]string{"/usr/share/rpm-ostree/extensions/repodata/repomd.xml": "<repomd/>\n"}
	for _, p := range packages {
		files["/usr/share/rpm-ostree/extensions/"+p+".rpm"] = p + "\n"
	}
	image := buildtest.Push(t, b.reg, buildtest.Base{Repository: "os/extensions", NotBootable: true, Files: files})
	r := b.request("FROM configs\nRUN cat /usr/share/usbguard >/usr/lib/seen && echo user >>/usr/lib/calls\n")
	r.Extensions = &image
	return b, r
}

var realtime = []string{
	"kernel-rt-core",
	"kernel-rt-modules",
	"kernel-rt-modules-core",
	"kernel-rt-modules-extra",
	"kernel-rt-kvm",
} //nolint:gochecknoglobals // a constant in all but type

func TestExtensionsAndKernel(t *testing.T) {
	b, r := extensionsBench(t, append([]string{"usbguard", "krb5-workstation", "libkadm5"}, realtime...)...)
	r.Config.Spec.Extensions, r.Config.Spec.KernelType = []string{"usbguard", "kerberos"}, "realtime"
	result, err := b.builder.Build(t.Context(), r)
	require.NoError(t, err)
	assert.Equal(t, "the config asks for extensions or another kernel", result.Reason)
	assert.Equal(t, r.Extensions.Reference, result.Inputs.Extensions)
	tree := b.tree(result.Reference)
	for _, p := range []string{"/usr/share/usbguard", "/usr/share/kernel-rt-core", "/usr/lib/modules/6.1.0-rt/vmlinuz",
		"/usr/lib/seen", "/etc/from-config", "/etc/yum.repos.d/stock.repo"} {
		assert.Contains(t, tree.Entries, p)
	}
	for _, p := range []string{"/usr/lib/modules/6.1.0/vmlinuz", "/etc/yum.repos.d/dayone-extensions.repo",
		"/run/dayone-extensions/usr"} {
		assert.NotContains(t, tree.Entries, p, "neither the old kernel nor the way to the packages is in the image")
	}
	assert.NotContains(t, result.Labels, "dayone.dev/extensions")

	show := r
	show.Containerfile = "FROM configs\nRUN cat /usr/lib/calls\n"
	shown, err := b.builder.Build(t.Context(), show)
	require.NoError(t, err)
	assert.NotZero(t, shown.CacheHits, "the generated stage is taken from the cache")
	log, err := os.ReadFile(shown.Log)
	require.NoError(t, err)
	assert.Contains(t, string(log), strings.Join([]string{
		"rpm-ostree install usbguard krb5-workstation libkadm5",
		"rpm-ostree override remove kernel kernel-core kernel-modules kernel-modules-core kernel-modules-extra --install " +
			strings.Join(realtime, " --install "),
		"ostree container commit\n",
	}, "\n"))
}

func TestExtensionsWithoutAContainerfile(t *testing.T) {
	b, r := extensionsBench(t, "usbguard")
	r.Config.Spec.Extensions, r.Containerfile = []string{"usbguard"}, ""
	result, err := b.builder.Build(t.Context(), r)
	require.NoError(t, err)
	assert.Contains(t, b.tree(result.Reference).Entries, "/usr/share/usbguard")
}

func TestExtensionsWithNumberedStages(t *testing.T) {
	b, r := extensionsBench(t, "usbguard")
	r.Config.Spec.Extensions = []string{"usbguard"}
	r.Containerfile = "ARG WORD=seven\nFROM base\nARG WORD\nRUN echo $WORD >/usr/lib/word\nFROM configs\n" +
		"ARG WORD\nCOPY --from=0 /usr/lib/word /usr/lib/word\n" +
		"RUN test \"$WORD\" = \"$(cat /usr/lib/word)\" && test $WORD = seven\nRUN exit 5\n"
	f := b.fails(r)
	assert.Equal(t, 5, f.ExitCode, f.Error())
	assert.Equal(t, 9, f.Line)
}

func TestFailuresOfExtensions(t *testing.T) {
	b, r := extensionsBench(t, "usbguard", "krb5-workstation")
	for _, c := range []struct {
		name   string
		change func(*build.Request)
		says   []string
	}{
		{"a package that the image has not got", func(r *build.Request) {
			r.Config.Spec.Extensions = []string{"usbguard", "kerberos"}
		}, []string{"Packages not found: libkadm5", "set the extensions image of this base"}},
		{"a kernel that the image has not got", func(r *build.Request) { r.Config.Spec.KernelType = "realtime" },
			[]string{"Packages not found: kernel-rt-core", "kernelType"}},
		{"an extension that nobody knows", func(r *build.Request) { r.Config.Spec.Extensions = []string{"games"} },
			[]string{`unknown extension "games"`}},
		{"no extensions image", func(r *build.Request) { r.Config.Spec.Extensions, r.Extensions = []string{"usbguard"}, nil },
			[]string{"nothing names an extensions image", "baseOSExtensionsContainerImage"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := r
			r.Config = r.Config.DeepCopy()
			c.change(&r)
			f := b.fails(r)
			assert.Equal(t, build.ClassUser, f.Class, f.Error())
			assert.Zero(t, f.Line, "no line of the user's is to blame")
			for _, text := range c.says {
				assert.Contains(t, f.Error()+strings.Join(f.Excerpt, "\n"), text)
			}
		})
	}
	r.Config.Spec.Extensions, r.Containerfile = []string{"usbguard"}, "FROM configs\nRUN exit 4\n"
	f := b.fails(r)
	assert.Equal(t, 2, f.Line, "lines are the user's, whatever was generated before them")
	assert.Equal(t, 4, f.ExitCode)
	b.clean()
}
