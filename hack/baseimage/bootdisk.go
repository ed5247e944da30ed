package baseimage

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"dayone.dev/dayone/hack/cache"
)

const (
	// DiskFile is a disk with GRUB in its EFI system partition and two empty ones for the file systems of /boot and of the
	// root. These begin at offsets and have sizes in bytes.
	DiskFile = "disk.img"
	// FirmwareFile is UEFI firmware for QEMU, FirmwareVariablesFile what it keeps: a copy for each machine.
	FirmwareFile, FirmwareVariablesFile = "firmware.fd", "firmware-variables.fd"

	sector = 512
	// espStart and espSectors are the EFI system partition's, in sectors: after one MiB, as partitioning programs leave
	// it, 32 MiB, of which GRUB takes less than one.
	espStart, espSectors = 2048, 65536
	// DiskBootOffset and DiskBootSize are of the partition for /boot, which holds three kernels with their initramfs.
	DiskBootOffset, DiskBootSize = (espStart + espSectors) * sector, 512 << 20
	// DiskRootOffset and DiskRootSize are of the partition for the root, which holds a first deployment, two images on top
	// of it and the repository. The disk is sparse.
	DiskRootOffset, DiskRootSize = DiskBootOffset + DiskBootSize, 4 << 30
	// diskTail is where a partition table has its second copy.
	diskTail = 1 << 20

	// bootDiskVersion is raised when the code below changes what is made without a change in its inputs, or to take what
	// the mirror has by now.
	bootDiskVersion = "bootdisk 1"
)

// bootDiskPackages have the programs that make it, the boot loader and the firmware.
//
//nolint:gochecknoglobals // a constant in all but type
var bootDiskPackages = []string{"dosfstools", "fdisk", "grub-common", "grub-efi-amd64-bin", "mtools", "ovmf"}

// bootDiskHook runs in the finished tree ($1), and needs the directory that the files go to ($out) and the boot
// loader's configuration ($config). GRUB reads ostree's boot entries since 2.14, by the module blsuki.
var bootDiskHook = fmt.Sprintf(`set -e
[ -e "$1/usr/lib/grub/x86_64-efi/blsuki.mod" ] || {
  echo "the mirror's GRUB does not read boot entries (blscfg): 2.14 or later does" >&2; exit 1; }
cp "$config" "$1/tmp/grub.cfg"
chroot "$1" /bin/sh -e <<'IN'
cd /tmp
grub-mkimage --format=x86_64-efi --output=loader.efi --prefix=/EFI/BOOT \
  part_gpt fat ext2 normal loadenv search search_label test echo blsuki linux
grub-editenv grubenv create
truncate --size=%[1]d esp.img
mkfs.fat -F 16 esp.img >&2
mmd -i esp.img ::/EFI ::/EFI/BOOT
mcopy -i esp.img loader.efi ::/EFI/BOOT/BOOTX64.EFI
mcopy -i esp.img grub.cfg grubenv ::/EFI/BOOT/
truncate --size=%[2]d disk.img
printf 'label: gpt\n%[5]s\n%[6]s\n%[7]s\n' | sfdisk --quiet disk.img
dd if=esp.img of=disk.img bs=%[4]d seek=%[3]d conv=notrunc,sparse status=none
IN
cp --sparse=always "$1/tmp/disk.img" "$out/`+DiskFile+`"
cp "$1/usr/share/OVMF/OVMF_CODE_4M.fd" "$out/`+FirmwareFile+`"
cp "$1/usr/share/OVMF/OVMF_VARS_4M.fd" "$out/`+FirmwareVariablesFile+`"
rm "$1/tmp/"*`, espSectors*sector, DiskRootOffset+DiskRootSize+diskTail, espStart, sector,
	partition(espStart*sector, espSectors*sector, "uefi"), partition(DiskBootOffset, DiskBootSize, "linux"),
	partition(DiskRootOffset, DiskRootSize, "linux")) //nolint:gochecknoglobals // a constant in all but type

// partition is a line of sfdisk's.
func partition(offset, size int64, kind string) string {
	return fmt.Sprintf("start=%d, size=%d, type=%s", offset/sector, size/sector, kind)
}

// BootDisk returns a directory with what a virtual machine has before it has an OS, made when the cache has none: see
// DiskFile and FirmwareFile. GRUB boots the newest boot entry in /loader/entries of the file system "boot", as CoreOS's
// does: an entry's $ignition_firstboot is what Ignition waits for, on the first boot, and nothing later. Needs root.
func BootDisk(ctx context.Context) (string, error) {
	if os.Geteuid() != 0 {
		return "", errors.New("make a disk with a boot loader: needs root")
	}
	config, err := files.ReadFile("files/bootdisk/grub.cfg")
	if err != nil {
		return "", fmt.Errorf("make a disk with a boot loader: %w", err)
	}
	key, err := fingerprint(nil, bootDiskVersion, forkySuite, bootDiskHook, strings.Join(bootDiskPackages, " "),
		string(config))
	if err != nil {
		return "", err
	}
	dir, err := cache.Dir()
	if err != nil {
		return "", err
	}
	return cache.Store{Dir: filepath.Join(dir, "baseimage")}.Ensure(ctx, "bootdisk-"+key, func(dir string) error {
		if err := makeBootDisk(ctx, dir, config); err != nil {
			return fmt.Errorf("make a disk with a boot loader: %w", err)
		}
		return nil
	})
}

func makeBootDisk(ctx context.Context, dir string, config []byte) error {
	scratch := filepath.Join(dir, "scratch")
	if err := os.Mkdir(scratch, 0o700); err != nil {
		return err
	}
	file := filepath.Join(scratch, "grub.cfg")
	if err := os.WriteFile(file, config, 0o600); err != nil {
		return err
	}
	tree := bootstrap{suite: forkySuite, packages: bootDiskPackages, aptOptions: forkyAptOptions,
		hooks: []string{fmt.Sprintf("out='%s' config='%s'\n", dir, file) + bootDiskHook}}
	if err := tree.run(ctx, filepath.Join(scratch, "tree.tar")); err != nil {
		return err
	}
	return os.RemoveAll(scratch)
}
