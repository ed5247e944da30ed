// Command machine-config-daemon is a STAND-IN for MCO's program with --once-from, as assisted-installer calls it: it
// writes an Ignition config's files and units into the running system, as far as the real one knows them.
//
//	Ignition file -> chroot -> files, units -> systemctl enable, disable, preset
package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	ign "github.com/coreos/ignition/v2/config/v3_5/types"
	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"dayone.dev/dayone/manifests/machineconfig"
)

// unitDir is where units of the machine's own are.
const unitDir = "/etc/systemd/system"

func main() {
	if err := command().Execute(); err != nil {
		os.Exit(1)
	}
}

func command() *cobra.Command {
	var node, root, from string
	var skipReboot bool
	start := &cobra.Command{Use: "start", Args: cobra.NoArgs, SilenceUsage: true,
		RunE: func(*cobra.Command, []string) error {
			if !skipReboot || from == "" {
				return errors.New("stand-in: only --once-from with --skip-reboot is played")
			}
			return once(root, from)
		}}
	start.Flags().StringVar(&node, "node-name", "", "name of this node")
	start.Flags().StringVar(&root, "root-mount", "/rootfs", "where the host's root directory is")
	start.Flags().StringVar(&from, "once-from", "", "Ignition file, as the host sees it")
	start.Flags().BoolVar(&skipReboot, "skip-reboot", false, "do not reboot afterwards")
	_ = start.MarkFlagRequired("node-name") // the flag is there
	c := &cobra.Command{Use: "machine-config-daemon", Long: "STAND-IN, not MCO's program."}
	c.AddCommand(start)
	return c
}

// once applies the file.
func once(root, from string) error {
	if err := errors.Join(unix.Chroot(root), os.Chdir("/")); err != nil {
		return fmt.Errorf("enter the host's root directory: %w", err)
	}
	raw, err := os.ReadFile(from)
	if err != nil {
		return fmt.Errorf("read the config: %w", err)
	}
	config, err := machineconfig.Parse(raw)
	if err != nil {
		return fmt.Errorf("read the config: %w", err)
	}
	for _, f := range config.Storage.Files {
		if err := writeFile(f); err != nil {
			return fmt.Errorf("write %s: %w", f.Path, err)
		}
	}
	for _, u := range config.Systemd.Units {
		if err := writeUnit(u); err != nil {
			return fmt.Errorf("write unit %s: %w", u.Name, err)
		}
	}
	return nil
}

// writeFile refuses what the real program refuses: appending, and content from elsewhere.
func writeFile(f ign.File) error {
	if len(f.Append) > 0 {
		return errors.New("appending is not supported")
	}
	content, err := machineconfig.Contents(f.Contents)
	if err != nil {
		return err
	}
	mode := os.FileMode(0o644)
	if f.Mode != nil {
		mode = os.FileMode(*f.Mode)
	}
	return put(f.Path, content, mode)
}

// put replaces a file in one step.
func put(path string, content []byte, mode os.FileMode) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(path+".new", content, 0o600); err != nil {
		return err
	}
	return errors.Join(os.Chmod(path+".new", mode), os.Rename(path+".new", path))
}

// writeUnit leaves drop-ins that the config does not name as they are.
func writeUnit(u ign.Unit) error {
	if u.Mask != nil && *u.Mask {
		return errors.New("stand-in: masks are not played")
	}
	for _, d := range u.Dropins {
		if d.Contents == nil {
			continue
		}
		if err := put(filepath.Join(unitDir, u.Name+".d", d.Name), []byte(*d.Contents), 0o644); err != nil {
			return err
		}
	}
	if u.Contents == nil {
		return nil
	}
	if exec.Command("systemctl", "is-enabled", "--quiet", u.Name).Run() == nil {
		if err := systemctl("disable", u.Name); err != nil {
			return err
		}
	}
	if err := put(filepath.Join(unitDir, u.Name), []byte(*u.Contents), 0o644); err != nil {
		return err
	}
	switch {
	case u.Enabled == nil:
		_ = systemctl("preset", u.Name) // the real one goes on, too
		return nil
	case *u.Enabled:
		return systemctl("enable", u.Name)
	default:
		return systemctl("disable", u.Name)
	}
}

func systemctl(verb, unit string) error {
	if out, err := exec.Command("systemctl", verb, unit).CombinedOutput(); err != nil {
		return fmt.Errorf("systemctl %s: %w: %s", verb, err, out)
	}
	return nil
}
