package standin

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/spf13/cobra"
)

// driverPath remembers the registered updates driver until the next boot, as the real one's file in /run/rpm-ostree
// does.
const driverPath = "/run/ostree-standin.driver"

// updateDriver is a program that drives this host's updates; rpm-ostree leaves rebases to it.
type updateDriver struct {
	Name string `json:"driver-name"`
	Unit string `json:"driver-sd-unit"`
}

// newDeploy plays what Zincati begins with, `rpm-ostree deploy --register-driver Zincati ”`, and nothing else of
// deploy. The real one finds out the unit of the process that asks; here the unit has the driver's name.
func newDeploy(h host) *cobra.Command {
	var name string
	c := &cobra.Command{Use: "deploy REVISION", Args: cobra.ExactArgs(1)}
	c.RunE = func(_ *cobra.Command, args []string) error {
		if name == "" || args[0] != "" {
			return words("stand-in: deploy of a revision is not played")
		}
		raw, err := json.Marshal(updateDriver{Name: name, Unit: strings.ToLower(name) + ".service"})
		if err != nil {
			return fmt.Errorf("register driver: %w", err)
		}
		h.say("Empty string revision found; registering update driver only")
		return os.WriteFile(driverPath, raw, 0o600)
	}
	c.Flags().StringVar(&name, "register-driver", "", "register an updates driver")
	return c
}

// registeredDriver is nil where none is.
func registeredDriver() (*updateDriver, error) {
	raw, err := os.ReadFile(driverPath)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	d := &updateDriver{}
	if err == nil {
		err = json.Unmarshal(raw, d)
	}
	if err != nil {
		return nil, fmt.Errorf("read updates driver: %w", err)
	}
	return d, nil
}

// checkDriver refuses what the driver should do. Source of the words: rpm-ostree, src/app/rpmostree-clientlib.cxx.
func checkDriver(bypass bool) error {
	d, err := registeredDriver()
	if err != nil || d == nil || bypass {
		return err
	}
	return words("Updates and deployments are driven by %s (%s)\nSee %s's documentation\n"+
		"Use --bypass-driver to bypass %s and perform the operation anyways", d.Name, d.Unit, d.Name, d.Name)
}
