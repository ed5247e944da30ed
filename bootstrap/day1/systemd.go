package day1

import (
	"context"
	"fmt"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
)

// Ready is what a service reports when it has started (sd_notify(3), READY=1).
const Ready = daemon.SdNotifyReady

// Notify reports a state such as Ready or "STATUS=…" to the service manager, if there is one (sd_notify(3)).
func Notify(state string) error {
	if _, err := daemon.SdNotify(false, state); err != nil {
		return fmt.Errorf("notify service manager: %w", err)
	}
	return nil
}

// KeepAlive reports to the service manager's watchdog, where it has one, that this process lives, as long as alive says
// so. It returns when ctx ends. The manager kills a process that hangs and starts it again.
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
