package standin

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/spf13/cobra"
)

// softRebootUnit is how bootc tells a systemd that can. Source: ostree-ext, systemd_has_soft_reboot.
const softRebootUnit = "/usr/lib/systemd/system/soft-reboot.target"

// softReboot is bootc's --soft-reboot: "" (not asked for), "required" or "auto".
type softReboot string

// addFlag gives a command the flag; its value is checked where the command line is.
func (s *softReboot) addFlag(c *cobra.Command) { c.Flags().Var(s, "soft-reboot", "required or auto") }

func (s *softReboot) String() string { return string(*s) }

func (s *softReboot) Type() string { return "SOFT_REBOOT" }

func (s *softReboot) Set(value string) error {
	if value != "required" && value != "auto" {
		return errors.New("[possible values: required, auto]")
	}
	*s = softReboot(value)
	return nil
}

// prepare lets libostree prepare a soft reboot into d, if asked for. name is bootc's word for d. What was staged stays,
// also where this fails. Source: bootc's cli.rs, handle_soft_reboot.
func (s softReboot) prepare(ctx context.Context, h host, all []deployment, d *deployment, name string) error {
	if s == "" {
		return nil
	}
	capable := false
	if d != nil {
		var err error
		if capable, err = canSoftReboot(booted(all), *d); err != nil {
			return err
		}
	}
	switch {
	case !capable && s == "required":
		return words("Handling soft reboot: Soft reboot was required but %s deployment is not soft-reboot capable", name)
	case !capable:
		return nil
	case d.booted:
		return errors.New("stand-in: a soft reboot into the booted deployment is not played")
	}
	h.say("%s deployment is soft-reboot capable, preparing for soft-reboot...", title(name))
	_, err := ostree(ctx, "admin", "prepare-soft-reboot", "--sysroot=/", strconv.Itoa(d.index))
	if err != nil {
		return words("Handling soft reboot: Soft reboot %s deployment: Preparing soft reboot: "+
			"Failed to prepare soft-reboot: %w", name, err)
	}
	return nil
}

func title(name string) string { return string(name[0]-'a'+'A') + name[1:] }

// prepareStaged is prepare for what switch and upgrade have staged.
func (s softReboot) prepareStaged(ctx context.Context, h host) error {
	all, err := deployments(ctx)
	if err != nil {
		return err
	}
	var staged *deployment
	if len(all) > 0 && all[0].staged {
		staged = &all[0]
	}
	if err := s.prepare(ctx, h, all, staged, "staged"); err != nil {
		return words("Handling staged soft reboot: %w", err)
	}
	return nil
}

// canSoftReboot is libostree's answer, which bootc passes on: the same kernel state as the booted deployment has. It
// says nothing about composefs. Source: ostree_sysroot_deployment_can_soft_reboot.
func canSoftReboot(b *deployment, d deployment) (bool, error) {
	if _, err := os.Stat(softRebootUnit); err != nil || b == nil {
		return false, nil //nolint:nilerr // this systemd cannot
	}
	running, err := b.kernelSum()
	if err != nil {
		return false, err
	}
	next, err := d.kernelSum()
	if err != nil || running != next {
		return false, err
	}
	// Another program staged it: this one does not know the arguments, and libostree refuses others when it prepares.
	if d.staged && d.kargs == nil {
		return true, nil
	}
	return slices.Equal(slices.Sorted(slices.Values(b.kargs)), slices.Sorted(slices.Values(d.kargs))), nil
}

// kernelSum is over the same files as libostree's boot checksum.
func (d deployment) kernelSum() (string, error) {
	sum := sha256.New()
	for _, name := range []string{"vmlinuz", "initramfs.img", "devicetree"} {
		files, err := filepath.Glob(filepath.Join(d.dir(), "usr/lib/modules/*", name))
		if err != nil {
			return "", fmt.Errorf("find kernel: %w", err)
		}
		for _, path := range files {
			f, err := os.Open(path)
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err != nil {
				return "", fmt.Errorf("read kernel: %w", err)
			}
			_, err = io.Copy(sum, f)
			if err := errors.Join(err, f.Close()); err != nil {
				return "", fmt.Errorf("read kernel: %w", err)
			}
		}
	}
	return string(sum.Sum(nil)), nil
}
