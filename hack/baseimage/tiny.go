package baseimage

import (
	"context"
	"embed"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"
)

// files are the texts that go into images; each directory is one image's root.
//
//go:embed files
var files embed.FS

// tinyRecipeVersion is raised when the code below changes what an image holds without a change in its inputs.
const tinyRecipeVersion = "tiny 3"

// shellRecipeVersion is the same for Shell.
const shellRecipeVersion = "shell 2"

// notApplets are busybox's names for what the image brings itself.
//
//nolint:gochecknoglobals // a constant in all but type
var notApplets = []string{"busybox", "halt", "init", "ip", "linuxrc", "poweroff", "reboot"}

type tiny struct {
	busybox string
	applets []string
	// hardLinks makes the applets names of one file: where each build unpacks the image, 300 symbolic links are most of
	// its work.
	hardLinks bool
	// tools are further programs, by their place in the image.
	tools map[string]string
	libs  []string
	// locale lets ostree import names that are not ASCII; "" when the host's libc has it built in.
	locale string
}

func tinyRecipe(ctx context.Context, o Options) (recipe, error) {
	tools := map[string]string{}
	for _, name := range []string{"ostree", "ip"} {
		path, err := find(name)
		if err != nil {
			return recipe{}, err
		}
		tools["usr/bin/"+name] = path
	}
	bootDir, err := findPrepareRoot(ctx, o.CacheDir, o.Log)
	if err != nil {
		return recipe{}, err
	}
	for _, name := range []string{"ostree-prepare-root", "ostree-remount"} {
		tools[filepath.Join(filepath.Dir(prepareRoot), name)] = filepath.Join(bootDir, name)
	}
	return busyboxRecipe(ctx, tinyRecipeVersion, tiny{tools: tools})
}

func shellRecipe(ctx context.Context) (recipe, error) {
	return busyboxRecipe(ctx, shellRecipeVersion, tiny{hardLinks: true})
}

func busyboxRecipe(ctx context.Context, version string, t tiny) (recipe, error) {
	if err := t.find(ctx); err != nil {
		return recipe{}, err
	}
	config, err := embedded("files/tiny")
	if err != nil {
		return recipe{}, err
	}
	texts := append([]string{version, imageVersion, KernelVersion, t.locale}, config...)
	key, err := fingerprint(append(t.programs(), t.libs...), texts...)
	if err != nil {
		return recipe{}, err
	}
	return recipe{key: key, layers: func(context.Context, string) ([]*layer, error) { return t.layers() }}, nil
}

// find looks for the host's files that go into the image.
func (t *tiny) find(ctx context.Context) error {
	var err error
	if t.busybox, err = find("busybox"); err != nil {
		return err
	}
	list, err := run(ctx, "", t.busybox, "--list")
	if err != nil {
		return err
	}
	t.applets = strings.Fields(string(list))
	if locales, err := filepath.Glob("/usr/lib/locale/C.[uU][tT][fF]*8/LC_CTYPE"); err == nil && len(locales) > 0 {
		t.locale = locales[0]
	}
	t.libs, err = libraries(ctx, t.programs()...)
	return err
}

func (t *tiny) programs() []string {
	all := []string{t.busybox}
	for _, name := range slices.Sorted(maps.Keys(t.tools)) {
		all = append(all, t.tools[name])
	}
	return all
}

func (t *tiny) layers() ([]*layer, error) {
	base := newLayer("busybox and the directories of an ostree system")
	ostreeSkeleton(base)
	for _, d := range []string{"usr/bin", "usr/sbin", "usr/lib64", "usr/share", "etc"} {
		base.dir(d, 0o755)
	}
	for _, l := range []string{"bin", "sbin", "lib", "lib64"} {
		base.symlink(l, "usr/"+l)
	}
	if err := base.hostFile("usr/bin/busybox", t.busybox, 0o755); err != nil {
		return nil, err
	}
	for _, a := range t.applets {
		switch {
		case slices.Contains(notApplets, a):
		case t.hardLinks:
			base.hardLink("usr/bin/"+a, "usr/bin/busybox")
		default:
			base.symlink("usr/bin/"+a, "busybox")
		}
	}
	tools := newLayer("programs and libraries")
	if err := t.addTools(tools); err != nil {
		return nil, err
	}
	config := newLayer("PID 1 and configuration")
	fakeKernel(config)
	config.symlink("etc/os-release", "../usr/lib/os-release")
	return []*layer{base, tools, config}, addEmbedded(config, "files/tiny")
}

func (t *tiny) addTools(l *layer) error {
	for to, from := range t.tools {
		if err := l.hostFile(to, from, 0o755); err != nil {
			return err
		}
	}
	if t.locale != "" {
		if err := l.hostFile(t.locale, t.locale, 0o644); err != nil {
			return err
		}
	}
	for _, lib := range t.libs {
		to := lib
		if !strings.HasPrefix(to, "/usr/") {
			to = "/usr" + to // merged /usr: /lib is a link
		}
		if err := l.hostFile(to, lib, 0o755); err != nil {
			return err
		}
	}
	return nil
}

// ostreeSkeleton adds the toplevel directories and links that an ostree system has.
func ostreeSkeleton(l *layer) {
	for _, d := range []string{"boot", "dev", "proc", "run", "sys", "sysroot", "var"} {
		l.dir(d, 0o755)
	}
	l.dir("tmp", 0o1777)
	l.symlink("ostree", "sysroot/ostree")
	l.symlink("media", "run/media")
	for name, target := range map[string]string{"home": "var/home", "root": "var/roothome", "opt": "var/opt",
		"srv": "var/srv", "mnt": "var/mnt"} {
		l.symlink(name, target)
	}
	l.symlink("usr/local", "../var/usrlocal")
}

// fakeKernel adds what makes an image bootable in ostree's eyes. Nodes are namespaces: nothing ever executes it.
func fakeKernel(l *layer) {
	dir := "usr/lib/modules/" + KernelVersion
	l.file(dir+"/vmlinuz", 0o644, []byte("no kernel: dayone's test nodes share the host's\n"))
	l.file(dir+"/initramfs.img", 0o644, []byte("no initramfs: the test harness calls ostree-prepare-root\n"))
}

// addEmbedded copies an embedded tree into a layer. Scripts (they start with #!) are executable, /etc/shadow is root's
// only.
func addEmbedded(l *layer, root string) error {
	return fs.WalkDir(files, root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := files.ReadFile(path)
		if err != nil {
			return err
		}
		mode, name := int64(0o644), strings.TrimPrefix(path, root+"/")
		switch {
		case strings.HasPrefix(string(content), "#!"):
			mode = 0o755
		case name == "etc/shadow", name == "etc/gshadow":
			mode = 0o600
		}
		l.file(name, mode, []byte(strings.ReplaceAll(string(content), "@VERSION@", imageVersion)))
		return nil
	})
}

// embedded lists names and contents under root, for the cache key.
func embedded(root string) ([]string, error) {
	var all []string
	err := fs.WalkDir(files, root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := files.ReadFile(path)
		all = append(all, path, string(content))
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read recipe: %w", err)
	}
	return all, nil
}
