package standalone

import (
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"

	"dayone.dev/dayone/bootstrap/day1"
	"dayone.dev/dayone/bootstrap/preflight"
	"dayone.dev/dayone/installconfig"
	"dayone.dev/dayone/installconfig/report"
)

// imageProgram is where an image brings dayone-registry; it counts before the one that control-plane nodes fetch.
const imageProgram = "/usr/bin/" + registryName

// checkBaseProgram refuses a base image that brings another dayone-registry than this host serves: control-plane nodes
// would run that one, which may be older.
func checkBaseProgram(ctx context.Context, f flow, r *day1.Registry, base baseImage) error {
	if f.host.In.Shared == nil || namesProgram(f.host.In) {
		return nil
	}
	has, err := day1.BaseFile(ctx, f.host, r, base.Reference, imageProgram)
	if err != nil || has == "" {
		return err
	}
	own, err := hashOfFile(f.RegistryBinary, sha256.New())
	if err != nil || own == has {
		return err
	}
	return report.Finding{File: installconfig.FileName, Path: installconfig.Field + ".baseImage", Rule: "registry-program",
		Message: fmt.Sprintf("the base image brings another %s than this dayone has, and control-plane nodes would run that "+
			"one", imageProgram),
		Next: "add COPY --from=REGISTRY/dayone-registry@sha256:… " + imageProgram + " " + imageProgram +
			" to the Containerfile of pool " + preflight.ControlPlanePool + ", or RUN rm " + imageProgram +
			" to run the one that nodes fetch (a comment that names dayone-registry keeps the base's)"}
}

// namesProgram says that the user decides in the Containerfile of the control plane which program its nodes run.
func namesProgram(in *preflight.Input) bool {
	return slices.ContainsFunc(day1.BuiltHere(in), func(p preflight.Pool) bool {
		return p.Name == preflight.ControlPlanePool && strings.Contains(p.Containerfile, registryName)
	})
}
