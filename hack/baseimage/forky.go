package baseimage

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
)

const (
	// forkyRecipeVersion is raised when the code below changes what an image holds without a change in its inputs, or to
	// take what the mirror has by now.
	forkyRecipeVersion = "forky 1"
	// forkySuite is Debian's next release after trixie, whose ostree (2025.2) is too old.
	forkySuite = "forky"
	// forkyPackageList has a line "name version" for each package of the image. This machine's package lists say nothing
	// about another release, so the image keeps what the mirror gave on the day when it was made.
	forkyPackageList = "/usr/share/dayone/packages"
)

// forkyHook runs in the finished tree ($1), with this machine's dpkg. Sources of the floors: ostree's NEWS (2026.1:
// /var, /sysroot and /boot are whole after a soft reboot) and systemd's (254: soft-reboot.target).
const forkyHook = `
set -e
installed() { dpkg-query --admindir="$1/var/lib/dpkg" --show "$2" "$3"; }
mkdir -p "$1/usr/share/dayone"
installed "$1" --showformat='${Package} ${Version}\n' '*' >"$1` + forkyPackageList + `"
for floor in ostree:2026.1 systemd:254; do
  have=$(installed "$1" --showformat='${Version}' "${floor%:*}")
  dpkg --compare-versions "$have" ge "${floor#*:}" && continue
  echo "the mirror's ${floor%:*} is $have: soft reboots need ${floor#*:} or later" >&2
  exit 1
done`

// forkyConfigs are laid over the tree, in this order.
//
//nolint:gochecknoglobals // a constant in all but type
var forkyConfigs = []string{"files/debian", "files/forky"}

// forkyAptOptions: a mirror that lags behind serves Release files past their date; the signature still counts.
//
//nolint:gochecknoglobals // a constant in all but type
var forkyAptOptions = []string{`Acquire::Check-Valid-Until "false"`}

func forkyRecipe() (recipe, error) {
	tree := bootstrap{suite: forkySuite, packages: debianPackages, hooks: []string{debianHook + forkyHook},
		aptOptions: forkyAptOptions}
	key, err := tree.fingerprint(forkyConfigs, forkyRecipeVersion, imageVersion, KernelVersion)
	if err != nil {
		return recipe{}, err
	}
	return recipe{key: key, layers: func(ctx context.Context, scratch string) ([]*layer, error) {
		layers, err := tree.layers(ctx, scratch)
		if err != nil {
			return nil, err
		}
		last := layers[len(layers)-1]
		fakeKernel(last)
		return layers, addEmbedded(last, "files/forky")
	}}, nil
}

// forkyMachineRecipe has the way to composefs in the initramfs, too: prepare-root.conf is there before dracut runs.
func forkyMachineRecipe() (recipe, error) {
	tree := bootstrap{suite: forkySuite, packages: slices.Concat(debianPackages, machinePackages),
		hooks: []string{machineHook + forkyHook}, aptOptions: forkyAptOptions}
	initramfs := []string{"files/initramfs", "files/forky-initramfs"}
	key, err := tree.fingerprint(slices.Concat(forkyConfigs, []string{"files/machine"}, initramfs), forkyRecipeVersion,
		imageVersion, kernelHook)
	if err != nil {
		return recipe{}, err
	}
	return recipe{key: key, layers: func(ctx context.Context, scratch string) ([]*layer, error) {
		config := filepath.Join(scratch, "prepare-root")
		if err := writeOut("files/forky/usr/lib/ostree", config); err != nil {
			return nil, err
		}
		tree.hooks = append(tree.hooks, "copy-in "+filepath.Join(config, "prepare-root.conf")+" /usr/lib/ostree")
		layers, err := machineLayers(ctx, tree, scratch, initramfs...)
		if err != nil {
			return nil, err
		}
		return layers, addEmbedded(layers[len(layers)-1], "files/forky")
	}}, nil
}

// fingerprint is over what the tree is made of and what is laid over it.
func (b bootstrap) fingerprint(configs []string, texts ...string) (string, error) {
	if os.Geteuid() != 0 {
		return "", fmt.Errorf("make base image of Debian %s: needs root (use --kind tiny without)", b.suite)
	}
	texts = slices.Concat(texts, []string{b.suite}, b.hooks, b.aptOptions, b.packages, osPackages)
	for _, root := range configs {
		more, err := embedded(root)
		if err != nil {
			return "", err
		}
		texts = append(texts, more...)
	}
	return fingerprint(nil, texts...)
}
