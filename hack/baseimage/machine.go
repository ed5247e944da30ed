package baseimage

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// machineRecipeVersion is raised when the code below changes what an image holds without a change in its inputs.
const machineRecipeVersion = "machine 2"

// machinePackages are what a virtual machine needs beside debianPackages: a kernel, and what goes into its initramfs.
//
//nolint:gochecknoglobals // a constant in all but type
var machinePackages = []string{"curl", "dracut", "dracut-network", "e2fsprogs", "ignition", "kmod",
	"linux-image-cloud-amd64", "udev"}

// machineHook runs in the finished tree ($1). Unlike a namespace, a machine configures its network itself, from a file:
// the generator would meet what it wrote in the initramfs.
const machineHook = `chroot "$1" systemctl enable ` +
	"ostree-finalize-staged.path ostree-remount.service systemd-networkd.service\n" +
	`chroot "$1" systemctl mask ` + debianTimers + " systemd-resolved.service systemd-timesyncd.service " +
	"systemd-networkd-wait-online.service systemd-network-generator.service"

// kernelHook makes the initramfs with dracut, in the tree: nothing of the host gets in (no-hostonly), and only the
// drivers of the machine that QEMU makes. Kernel and initramfs belong where ostree looks for them; newer releases
// of Debian put hard links there to what is in /boot, which the image has not.
const kernelHook = `set -e
kver=$(ls "$1/usr/lib/modules")
chroot "$1" dracut --force --quiet --no-hostonly --reproducible --gzip --kver "$kver" --add dayone \
  --omit "crypt dm nvdimm resume lunmask kernel-modules-extra network-legacy" --filesystems ext4 \
  --drivers "virtio_pci virtio_blk virtio_net ext4 qemu_fw_cfg" "/usr/lib/modules/$kver/initramfs.img"
[ -e "$1/usr/lib/modules/$kver/vmlinuz" ] || cp "$1/boot/vmlinuz-$kver" "$1/usr/lib/modules/$kver/vmlinuz"
rm -r "$1/boot/"*`

func machineRecipe(ctx context.Context, _ Options) (recipe, error) {
	if os.Geteuid() != 0 {
		return recipe{}, errors.New("make machine base image: needs root")
	}
	packages := slices.Concat(debianPackages, machinePackages)
	suite, err := debianSuite()
	if err != nil {
		return recipe{}, err
	}
	texts := []string{machineRecipeVersion, imageVersion, suite, machineHook, kernelHook,
		packageVersions(ctx, suite, packages)}
	texts = slices.Concat(texts, packages, osPackages)
	for _, root := range []string{"files/debian", "files/machine", "files/initramfs"} {
		config, err := embedded(root)
		if err != nil {
			return recipe{}, err
		}
		texts = append(texts, config...)
	}
	key, err := fingerprint(nil, texts...)
	if err != nil {
		return recipe{}, err
	}
	return recipe{key: key, layers: func(ctx context.Context, scratch string) ([]*layer, error) {
		return machineLayers(ctx, bootstrap{suite: suite, packages: packages, hooks: []string{machineHook}}, scratch,
			"files/initramfs")
	}}, nil
}

// machineLayers makes the tree, with the initramfs that the embedded directories describe as the last thing.
func machineLayers(ctx context.Context, tree bootstrap, scratch string, initramfs ...string) ([]*layer, error) {
	module := filepath.Join(scratch, "98dayone")
	for _, root := range initramfs {
		if err := writeOut(root, module); err != nil {
			return nil, err
		}
	}
	tree.hooks = append(slices.Clone(tree.hooks), "copy-in "+module+" /usr/lib/dracut/modules.d", kernelHook)
	layers, err := tree.layers(ctx, scratch)
	if err != nil {
		return nil, err
	}
	config := layers[len(layers)-1]
	config.symlink("usr/lib/systemd/system/multi-user.target.wants/dayone-control.service", "../dayone-control.service")
	return layers, addEmbedded(config, "files/machine")
}

// writeOut puts an embedded directory's files where mmdebstrap can copy them from.
func writeOut(root, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	entries, err := fs.ReadDir(files, root)
	if err != nil {
		return err
	}
	for _, e := range entries {
		content, err := files.ReadFile(root + "/" + e.Name())
		if err != nil {
			return err
		}
		mode := fs.FileMode(0o644)
		if strings.HasPrefix(string(content), "#!") {
			mode = 0o755
		}
		if err := os.WriteFile(filepath.Join(dir, e.Name()), content, mode); err != nil {
			return err
		}
	}
	return nil
}
