package daemon

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
)

// Services runs systemctl on the node.
type Services interface {
	// Systemctl runs it with arguments such as "restart", "crio.service".
	Systemctl(ctx context.Context, args ...string) error
}

// systemctl runs the program of that name.
type systemctl struct{}

func (systemctl) Systemctl(ctx context.Context, args ...string) error {
	out, err := exec.CommandContext(ctx, "systemctl", args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("systemctl %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}

// ReloadCRIO lets the node's CRI-O read its configuration again.
func ReloadCRIO(ctx context.Context) error {
	return systemctl{}.Systemctl(ctx, "reload", "crio.service")
}
