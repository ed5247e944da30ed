package program

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
)

// Reboot asks the init system for a reboot. It uses systemd where it runs, and the reboot program otherwise, so that
// staged deployments are finalized. The hardware reboots, also where somebody has prepared a soft reboot: that is
// withdrawn first, and systemd is told not to take it (systemctl(1)), because the kernel of the new deployment would
// not boot.
func Reboot(ctx context.Context) error {
	if err := CancelSoft(ctx); err != nil {
		return err
	}
	command := []string{"systemctl", "reboot"}
	if _, err := os.Stat("/run/systemd/system"); err != nil {
		command = []string{"reboot"}
	}
	return ask(ctx, command...)
}

// ask asks the init system for a shutdown.
func ask(ctx context.Context, command ...string) error {
	asked := exec.CommandContext(ctx, command[0], command[1:]...)
	asked.Env = append(os.Environ(), skipAuto)
	out, err := asked.CombinedOutput()
	if ended, ok := errors.AsType[*exec.ExitError](err); ok {
		// The shutdown that it asked for ends the agent's service and every process in it.
		if status, ok := ended.Sys().(syscall.WaitStatus); ok && status.Signaled() && status.Signal() == syscall.SIGTERM {
			return nil
		}
	}
	if err != nil {
		return fmt.Errorf("ask for reboot: %w: %s", err, strings.TrimSpace(string(out)))
	}
	return nil
}
