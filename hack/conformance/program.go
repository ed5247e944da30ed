package conformance

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"

	"dayone.dev/dayone/hack/cache"
)

// suite is the package of the program, as suite/go.mod names it.
const suite = "github.com/opencontainers/distribution-spec/conformance"

// Program returns the path of the suite's program. It is built once for each state of module (a directory with go.mod
// and go.sum) and version of Go, into the cache outside the tree.
func Program(ctx context.Context, module string) (string, error) {
	h := sha256.New()
	fmt.Fprintln(h, suite, runtime.Version(), runtime.GOARCH)
	for _, name := range []string{"go.mod", "go.sum"} {
		b, err := os.ReadFile(filepath.Join(module, name))
		if err != nil {
			return "", fmt.Errorf("read module of the conformance tests: %w", err)
		}
		fmt.Fprintf(h, "%s %d\n%s", name, len(b), b)
	}
	dir, err := cache.Dir()
	if err != nil {
		return "", err
	}
	made, err := cache.Store{Dir: dir}.Ensure(ctx, "conformance-"+hex.EncodeToString(h.Sum(nil)[:8]),
		func(dir string) error {
			cmd := exec.CommandContext(ctx, "go", "build", "-o", filepath.Join(dir, "conformance"), suite)
			cmd.Dir = module
			cmd.Env = append(os.Environ(), "GOFLAGS=-mod=readonly", "CGO_ENABLED=0", "GOWORK=off")
			if out, err := cmd.CombinedOutput(); err != nil {
				return fmt.Errorf("build conformance tests: %w: %s", err, out)
			}
			return nil
		})
	if err != nil {
		return "", err
	}
	return filepath.Join(made, "conformance"), nil
}
