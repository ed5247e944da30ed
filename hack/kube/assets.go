package kube

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/sirupsen/logrus"

	"dayone.dev/dayone/hack/cache"
	"dayone.dev/dayone/installconfig/report"
)

// buildLimit bounds a cold build: about six minutes on two busy cores, more on a slow machine that also downloads 95 MB
// of modules.
const buildLimit = 40 * time.Minute

// collector makes the compilers collect garbage less often: a sixth less time for a third more memory.
const collector = "GOGC=400"

// Names are the programs in the directory that Assets returns.
func Names() []string {
	return []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kubectl",
		"kubeadm"}
}

// Assets returns the directory of the programs, built when this machine has none for the sources in this tree and this
// version of Go: four to six minutes and 3 GB of Go's build cache. Several processes may call it at once: one builds,
// the others wait.
func Assets(ctx context.Context, log *logrus.Entry) (dir string, err error) {
	if log == nil {
		log = report.NoLog()
	}
	src, err := source(ctx, binaryModule)
	if err != nil {
		return "", err
	}
	key, err := recipeKey(ctx, src, "main.go", "go.mod", "go.sum")
	if err != nil {
		return "", err
	}
	home, err := cache.Dir()
	if err != nil {
		return "", err
	}
	name := "kube-" + key
	return cache.Store{Dir: home}.Ensure(ctx, name, func(dir string) error {
		log.WithField("path", filepath.Join(home, name)).
			Info("building kubernetes, which takes minutes when go's build cache is cold")
		begin := time.Now()
		if err := build(ctx, src, dir); err != nil {
			return fmt.Errorf("build kubernetes: %w", err)
		}
		log.WithField("duration", time.Since(begin).Round(time.Second)).Info("built kubernetes")
		return nil
	})
}

// Verify checks the modules of the programs: that their files are as go would write them and their modules unchanged.
// That they compile, Assets and Etcdutl say; go vet would look at all of Kubernetes first, for minutes.
func Verify(ctx context.Context) error {
	for _, module := range []string{binaryModule, etcdutlModule} {
		src, err := source(ctx, module)
		if err != nil {
			return err
		}
		for _, args := range [][]string{{"mod", "tidy", "-diff"}, {"mod", "verify"}} {
			if out, err := goCommand(ctx, src, args...); err != nil {
				return fmt.Errorf("verify %s: %w %s", module, err, out)
			}
		}
	}
	return nil
}

// Modules of programs, below the root of this tree.
const (
	binaryModule  = "hack/kube/binary"
	etcdutlModule = "hack/kube/etcdutl"
)

// source finds a module from anywhere inside the tree, as tests and go run are.
func source(ctx context.Context, module string) (string, error) {
	out, err := goCommand(ctx, "", "env", "GOMOD")
	if err != nil {
		return "", err
	}
	for dir := filepath.Dir(out); ; dir = filepath.Dir(dir) {
		src := filepath.Join(dir, filepath.FromSlash(module))
		if _, err := os.Stat(filepath.Join(src, "go.mod")); err == nil {
			return src, nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("find %s: not inside dayone's source tree: run from a directory in it", module)
		}
	}
}

// recipeKey hashes all that decides what a program is: its module's files, the version of Go, and the platform.
func recipeKey(ctx context.Context, src string, files ...string) (string, error) {
	version, err := goCommand(ctx, src, "env", "GOVERSION", "GOOS", "GOARCH")
	if err != nil {
		return "", err
	}
	h := sha256.New()
	fmt.Fprintln(h, version)
	for _, name := range files {
		raw, err := os.ReadFile(filepath.Join(src, name))
		if err != nil {
			return "", fmt.Errorf("hash sources of a program: %w", err)
		}
		fmt.Fprintf(h, "%s %x\n", name, sha256.Sum256(raw))
	}
	return hex.EncodeToString(h.Sum(nil))[:16], nil
}

func build(ctx context.Context, src, dir string) error {
	ctx, cancel := context.WithTimeout(ctx, buildLimit)
	defer cancel()
	version, err := goCommand(ctx, src, "list", "-m", "-f", "{{.Version}}", "k8s.io/kubernetes")
	if err != nil {
		return err
	}
	if _, err := goCommand(ctx, src, "build", "-buildvcs=false", "-trimpath", "-ldflags", linkerFlags(version), "-o",
		filepath.Join(dir, "kube")); err != nil {
		return err
	}
	for _, name := range Names() {
		if err := os.Symlink("kube", filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	return nil
}

// linkerFlags strip the program and tell it its version: Kubernetes' own sources say v0.0.0-master, which clients take
// for ancient.
func linkerFlags(version string) string {
	parts := strings.SplitN(strings.TrimPrefix(version, "v"), ".", 3)
	flags := []string{"-s", "-w"}
	for _, pkg := range []string{"k8s.io/component-base/version", "k8s.io/client-go/pkg/version"} {
		set := func(name, value string) { flags = append(flags, "-X", pkg+"."+name+"="+value) }
		set("gitVersion", version)
		set("gitTreeState", "clean")
		set("gitCommit", "go-module")
		if len(parts) == 3 {
			set("gitMajor", parts[0])
			set("gitMinor", parts[1])
		}
	}
	return strings.Join(flags, " ")
}

// goCommand runs go without this tree's flags, which are meant for dayone's own packages, and without cgo: a static
// program runs in every image and mount namespace. It gives go's output, also of a failure, without the end of the last
// line.
func goCommand(ctx context.Context, dir string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOFLAGS=", "GOWORK=off", "CGO_ENABLED=0", collector)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		lines := strings.Split(strings.TrimSpace(errs.String()), "\n")
		return strings.TrimSpace(out.String()), fmt.Errorf("run go %s: %w: %s", args[0], err,
			strings.Join(lines[max(0, len(lines)-5):], " | "))
	}
	return strings.TrimSpace(out.String()), nil
}
