package firstboot

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/sirupsen/logrus"
)

// healthInterval is the pause between two runs of the health command.
const healthInterval = 2 * time.Second

// kubeletTarget is reached when all that kubelet needs runs. Source: MCO,
// templates/common/_base/units/kubelet-dependencies.target.
const kubeletTarget = "kubelet-dependencies.target"

// waitHealthy repeats the health command, or the default check, until it succeeds or its time is over.
func waitHealthy(ctx context.Context, root string, c Config, log *logrus.Entry) error {
	if len(c.Health) == 0 {
		reached, err := kubeletCheck(ctx, root, log)
		if err != nil || reached == nil {
			return err
		}
		c.Health = reached
	}
	limited, cancel := context.WithTimeout(ctx, c.HealthTimeout.Duration())
	defer cancel()
	tick := time.NewTicker(healthInterval)
	defer tick.Stop()
	for {
		err := runCommand(limited, c.Health, "check health")
		if err == nil {
			return nil
		}
		select {
		case <-limited.Done():
			return fmt.Errorf("not healthy within %s: %w", c.HealthTimeout.Duration(), err)
		case <-tick.C:
		}
	}
}

// kubeletCheck is the check where none is configured: that kubeletTarget is reached. There is none where systemd does
// not run, where nothing wants the target, and where this unit itself holds the target back.
func kubeletCheck(ctx context.Context, root string, log *logrus.Entry) ([]string, error) {
	_, err := os.Stat(filepath.Join(root, "run/systemd/system"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look for systemd: %w", err)
	}
	out, err := exec.CommandContext(ctx, "systemctl", "show", "--property=LoadState,WantedBy,RequiredBy,After",
		kubeletTarget).Output()
	if err != nil {
		return nil, fmt.Errorf("look for %s: %w", kubeletTarget, err)
	}
	if !waitsForKubelet(string(out)) {
		return nil, nil
	}
	log.WithField("target", kubeletTarget).Info("waiting until what kubelet needs runs")
	return []string{"systemctl", "is-active", kubeletTarget}, nil
}

// waitsForKubelet reads the properties of kubeletTarget.
func waitsForKubelet(properties string) bool {
	p := map[string]string{}
	for line := range strings.Lines(properties) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		p[key] = value
	}
	return p["LoadState"] == "loaded" && p["WantedBy"]+p["RequiredBy"] != "" && !strings.Contains(p["After"], UnitName)
}
