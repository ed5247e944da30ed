package postconfig

import (
	"fmt"
	"path"
)

// ofKernel are the files in /etc that are read when the kernel or the initramfs starts, or that the running kernel
// keeps after they have changed. Package rebase/softreboot/userspace compares them under the same names.
var ofKernel = [...]struct { //nolint:gochecknoglobals // a constant in all but type
	what     string
	patterns []string
}{
	{"the SELinux policy", []string{"/etc/selinux/config", "/etc/selinux/*/policy/policy.*"}},
	{"FIPS", []string{"/etc/system-fips", "/etc/crypto-policies/config"}},
	{"the IMA policy", []string{"/etc/ima/*"}},
	{"sysctl settings", []string{"/etc/sysctl.d/*", "/etc/sysctl.conf"}},
	{"the modules to load", []string{"/etc/modules-load.d/*", "/etc/modules"}},
	{"module options", []string{"/etc/modprobe.d/*"}},
	{"udev rules", []string{"/etc/udev/rules.d/*"}},
	{"fstab", []string{"/etc/fstab"}},
	{"crypttab", []string{"/etc/crypttab"}},
	{"prepare-root.conf", []string{"/etc/ostree/prepare-root.conf"}},
}

// OfKernel says what a file is that only a start of the kernel takes in, so that no soft reboot follows its change;
// empty: it is none.
func OfKernel(file string) string {
	for _, k := range ofKernel {
		for _, pattern := range k.patterns {
			if is, err := path.Match(pattern, path.Clean(file)); err == nil && is {
				return k.what
			}
		}
	}
	return ""
}

// checkSoft refuses a SoftReboot after the change of a file that never can be soft.
func checkSoft(actions []Action, file string) error {
	what := OfKernel(file)
	if len(actions) != 1 || actions[0].Type != SoftReboot || what == "" {
		return nil
	}
	return fmt.Errorf("SoftReboot never takes effect for %s: only a start of the kernel brings %s: write Reboot, or move "+
		"the file to another MachineConfig", file, what)
}
