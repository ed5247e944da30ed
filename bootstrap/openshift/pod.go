package openshift

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/render"
)

// controller is how MCO's static pod renders.
type controller struct {
	Image string   `json:"image"`
	Argv  []string `json:"argv"`
}

// readController finds the init container that renders: the one with a destination directory.
func readController(file string) (controller, error) {
	raw, err := os.ReadFile(file)
	if err != nil {
		return controller{}, fmt.Errorf("MCO's static pod is not there: %w", err)
	}
	var pod corev1.Pod
	if err := yaml.Unmarshal(raw, &pod); err != nil {
		return controller{}, fmt.Errorf("read MCO's static pod: %w", err)
	}
	for _, c := range pod.Spec.InitContainers {
		argv := append(slices.Clone(c.Command), c.Args...)
		if slices.ContainsFunc(argv, func(a string) bool { return a == destFlag || strings.HasPrefix(a, destFlag+"=") }) {
			return controller{Image: c.Image, Argv: argv}, nil
		}
	}
	return controller{},
		fmt.Errorf(
			"read MCO's static pod %s: no init container has %s; this release renders in another way than those that "+
				"dayone knows", file, destFlag)
}

const destFlag = "--dest-dir"

// withDest is the command line with another destination.
func withDest(argv []string, dest string) []string {
	out := slices.Clone(argv)
	for i, a := range out {
		if strings.HasPrefix(a, destFlag+"=") {
			out[i] = destFlag + "=" + dest
		} else if a == destFlag && i+1 < len(out) {
			out[i+1] = dest
		}
	}
	return out
}

// Podman runs MCO's controller as the static pod does, in a container that stays: the installer's gather takes its log.
// On the host's network it keeps the host's name, as a pod does. It reads the manifests and nothing else of the host,
// so it needs no more than that SELinux lets it.
type Podman struct {
	// Program is podman's path; default podman.
	Program string
}

// renderContainer is the container's name in the log bundle.
const renderContainer = "dayone-render"

// Render runs the controller once.
func (p Podman) Render(ctx context.Context, r Rendering) error {
	program := p.Program
	if program == "" {
		program = "podman"
	}
	args := []string{"run", "--name", renderContainer, "--replace", "--net=host", "--uts=host",
		"--security-opt=label=disable", "--log-driver=k8s-file", "--sdnotify=ignore", "--authfile", hostPullSecret,
		"--volume", r.Source + ":" + r.Source + ":ro", "--volume", r.Dest + ":" + r.Dest, "--entrypoint", r.Argv[0], r.Image}
	out, err := exec.CommandContext(ctx, program, append(args, r.Argv[1:]...)...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("run MCO's controller (podman logs %s): %w: %s", renderContainer, err, lastLines(string(out)))
	}
	return nil
}

// excerpt is how many lines of a failed program are kept.
const excerpt = 5

func lastLines(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-excerpt):], " | ")
}

// ReleaseBase asks the release image for its OS image as the installer's own scripts do: for that of the OS image
// stream that the installer's manifests name, if they name one. root stands before the installer's paths.
func ReleaseBase(ctx context.Context, root string) (string, error) {
	stream, err := chosenStream(filepath.Join(root, installerManifests))
	if err != nil {
		return "", err
	}
	tags, err := streamTags(stream)
	if err != nil {
		return "", err
	}
	const script = `. "$1" && shift && for tag; do image_for "$tag" && exit; done; exit 1`
	out, err := exec.CommandContext(ctx, "bash", append([]string{"-c", script, "bash", filepath.Join(root, releaseScript)},
		tags...)...).Output()
	if err != nil {
		return "", fmt.Errorf("ask the release image for %s: %w", strings.Join(tags, " or "), err)
	}
	return strings.TrimSpace(string(out)), nil
}

// chosenStream is the default stream of the OSImageStream that the installer writes where it knows streams; empty: it
// has written none.
func chosenStream(dir string) (stream string, err error) {
	read := manifests.InstallDirectory("")
	read.Inspect = func(raw []byte, _ manifests.Origin) {
		var o mcfgv1.OSImageStream // installers write it in an older version, too
		if json.Unmarshal(raw, &o) == nil && o.Kind == "OSImageStream" && o.Name == render.OSImageStreamName {
			stream = o.Spec.DefaultStream
		}
	}
	if _, err := manifests.ReadDir(dir, read); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("look for the OS image stream: %w", err)
	}
	return stream, nil
}

// streamTags are the names of a stream's OS image in the release, the first that is there counts
// (openshift/machine-config-operator, pkg/osimagestream and test/extended-priv/const.go).
func streamTags(stream string) ([]string, error) {
	const rhel = "rhel-coreos"
	switch version, isRHEL := strings.CutPrefix(stream, "rhel-"); {
	case stream == "":
		return []string{rhel, "stream-coreos"}, nil
	case stream == "rhel-9":
		return []string{rhel}, nil
	case isRHEL:
		return []string{rhel + "-" + version}, nil
	}
	return nil, fmt.Errorf("OS image stream %s: its name in the release is not known", stream)
}
