package bootstrap

import (
	"context"
	"fmt"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
)

// notifyReady tells the service manager, if there is one, that nodes may come (sd_notify(3), READY=1).
func notifyReady() error { return Notify(daemon.SdNotifyReady) }

// Ready is what a service says when it has started.
const Ready = daemon.SdNotifyReady

// Notify tells the service manager, if there is one, a state such as Ready or "STATUS=…" (sd_notify(3)).
func Notify(state string) error {
	if _, err := daemon.SdNotify(false, state); err != nil {
		return fmt.Errorf("notify service manager: %w", err)
	}
	return nil
}

// KeepAlive tells the service manager's watchdog, where it has one, that this process lives, as long as alive says so.
// It returns when ctx ends. A process that hangs is then killed and started again.
func KeepAlive(ctx context.Context, alive func() bool) {
	interval, err := daemon.SdWatchdogEnabled(false)
	if err != nil || interval == 0 {
		return
	}
	ticks := time.NewTicker(interval / 3) // two may be lost
	defer ticks.Stop()
	for {
		if alive() {
			_ = Notify(daemon.SdNotifyWatchdog) // a manager that does not hear it acts by itself
		}
		select {
		case <-ctx.Done():
			return
		case <-ticks.C:
		}
	}
}
