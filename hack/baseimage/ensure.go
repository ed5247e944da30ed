package baseimage

import (
	"context"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"sync"

	"github.com/sirupsen/logrus"

	"dayone.dev/dayone/hack/cache"
	"dayone.dev/dayone/installconfig/report"
)

// Kind names a recipe.
type Kind string

const (
	// Tiny is busybox, the host's ostree and ip, and a shell script as PID 1: about 20 MB packed, made in two seconds, no
	// download but ostree-boot.
	Tiny Kind = "tiny"
	// Shell is Tiny without ostree and ip, 1 MB packed: an image that builds begin with and that no node boots.
	Shell Kind = "shell"
	// Debian is a Debian system with systemd, dbus, ostree and ostree-boot, without a kernel: about 55 MB packed, made by
	// mmdebstrap in half a minute.
	Debian Kind = "debian"
	// Forky is as Debian, made of Debian's next release: ostree 2026.1 and systemd 254 or later and a root of composefs,
	// so that its nodes can soft-reboot into another deployment. About 60 MB packed.
	Forky Kind = "forky"
	// Machine is Debian with a kernel and an initramfs that has ostree-prepare-root and Ignition: for virtual machines;
	// about 130 MB packed, made in two minutes.
	Machine Kind = "machine"
	// ForkyMachine is to Forky what Machine is to Debian.
	ForkyMachine Kind = "forky-machine"
)

const (
	// KernelVersion names usr/lib/modules/<version> in Tiny, Debian and Forky. The bytes there are no kernel: nodes share
	// the host's.
	KernelVersion = "6.1.0-dayone"
	// imageVersion is the image's version label and VERSION_ID.
	imageVersion = "1"
)

// Options tell where an image is kept. The zero value uses the default cache directory and logs nothing.
type Options struct {
	CacheDir string        // default cache.Dir()
	Log      *logrus.Entry // default: discard
}

// Ensure returns the directory of the OCI layout of kind, making it when the cache (cacheDir, "" for the default) has
// none for this recipe and these inputs. Several processes may call it at once: one builds, the others wait. Needs root
// for what is made of Debian.
func Ensure(ctx context.Context, kind Kind, cacheDir string) (string, error) {
	return EnsureWith(ctx, kind, Options{CacheDir: cacheDir})
}

// EnsureWith is Ensure with all options.
func EnsureWith(ctx context.Context, kind Kind, o Options) (string, error) {
	if o.Log == nil {
		o.Log = report.NoLog()
	}
	if o.CacheDir == "" {
		dir, err := cache.Dir()
		if err != nil {
			return "", err
		}
		o.CacheDir = dir
	}
	r, err := knownRecipe(ctx, kind, o)
	if err != nil {
		return "", err
	}
	return cache.Store{Dir: filepath.Join(o.CacheDir, "baseimage")}.Ensure(ctx, string(kind)+"-"+r.key,
		func(dir string) error {
			o.Log.WithField("image", string(kind)).Info("making base image")
			if err := r.make(ctx, dir); err != nil {
				return fmt.Errorf("make %s base image: %w", kind, err)
			}
			return nil
		})
}

// recipe is one way to make an image: key covers everything that reaches the image.
type recipe struct {
	key    string
	layers func(ctx context.Context, scratch string) ([]*layer, error) // what they read may lie in scratch
}

func (r recipe) make(ctx context.Context, dir string) error {
	scratch := filepath.Join(dir, "scratch")
	if err := os.Mkdir(scratch, 0o700); err != nil {
		return err
	}
	layers, err := r.layers(ctx, scratch)
	if err != nil {
		return err
	}
	if err := emptyICUTables(ctx, scratch, layers); err != nil {
		return err
	}
	if err := writeLayout(dir, labels(kernelOf(layers)), layers); err != nil {
		return err
	}
	return os.RemoveAll(scratch)
}

// recipes keeps what newRecipe has found: this machine's programs and package lists stay as they are while a test runs,
// and a test asks for each of its nodes. apt-cache alone takes a second.
//
//nolint:gochecknoglobals // a cache for the life of the process
var recipes sync.Map

func knownRecipe(ctx context.Context, kind Kind, o Options) (recipe, error) {
	of := struct {
		kind     Kind
		cacheDir string
	}{kind, o.CacheDir}
	if known, ok := recipes.Load(of); ok {
		if r, ok := known.(recipe); ok {
			return r, nil
		}
	}
	r, err := newRecipe(ctx, kind, o)
	if err == nil {
		recipes.Store(of, r)
	}
	return r, err
}

func newRecipe(ctx context.Context, kind Kind, o Options) (recipe, error) {
	switch kind {
	case Tiny:
		return tinyRecipe(ctx, o)
	case Shell:
		return shellRecipe(ctx)
	case Debian:
		return debianRecipe(ctx, o)
	case Forky:
		return forkyRecipe()
	case Machine:
		return machineRecipe(ctx, o)
	case ForkyMachine:
		return forkyMachineRecipe()
	}
	return recipe{}, fmt.Errorf("make base image: unknown kind %q (want %s, %s, %s, %s, %s or %s)", kind, Tiny, Shell,
		Debian, Forky, Machine, ForkyMachine)
}

// kernelOf gives the release of the kernel in layers.
func kernelOf(layers []*layer) string {
	for _, l := range layers {
		for name := range l.entries {
			if dir, file := path.Split(name); file == "vmlinuz" && path.Dir(path.Clean(dir)) == "usr/lib/modules" {
				return path.Base(dir)
			}
		}
	}
	return ""
}

// labels are what bootc, rpm-ostree and ostree-ext look for before they deploy an image.
func labels(kernel string) map[string]string {
	return map[string]string{
		"ostree.bootable":                 "true",
		"containers.bootc":                "1",
		"ostree.linux":                    kernel,
		"version":                         imageVersion,
		"org.opencontainers.image.title":  "dayone test OS",
		"org.opencontainers.image.vendor": "dayone",
	}
}
