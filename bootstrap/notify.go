package bootstrap

import (
	"fmt"

	"github.com/coreos/go-systemd/v22/daemon"
)

// notifyReady tells the service manager, if there is one, that nodes may come (sd_notify(3), READY=1).
func notifyReady() error {
	if _, err := daemon.SdNotify(false, daemon.SdNotifyReady); err != nil {
		return fmt.Errorf("notify service manager: %w", err)
	}
	return nil
}
