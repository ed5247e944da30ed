package openshift_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var library = regexp.MustCompile(`=> (/\S+)`)

// librariesOf are the shared libraries of a program beside the C library's own, which every base image has.
func (w *world) librariesOf(program string) []string {
	out, err := exec.Command("ldd", program).Output()
	require.NoError(w.t, err)
	var list []string
	for _, m := range library.FindAllStringSubmatch(string(out), -1) {
		if base := filepath.Base(m[1]); !strings.HasPrefix(base, "libc.") && !strings.HasPrefix(base, "ld-") {
			list = append(list, m[1])
		}
	}
	return list
}

// find gives the path of one of this machine's programs.
func (w *world) find(name string) string {
	path, err := exec.LookPath(name)
	require.NoError(w.t, err, "run hack/setup/setup.sh test")
	return path
}

// fetchedProgram puts one of this machine's programs on the node, with its libraries.
func (w *world) fetchedProgram(name, to string) {
	from := w.find(name)
	w.fetched(to, from)
	for _, l := range w.librariesOf(from) {
		to := "/usr" + strings.TrimPrefix(l, "/usr")
		if !slices.ContainsFunc(w.files, func(f map[string]any) bool { return f["path"] == to }) {
			w.fetched(to, l)
		}
	}
}

// containers puts podman on the node, with what it runs containers with and its configuration: a real node's userland
// has them.
func (w *world) containers() {
	for name, to := range map[string]string{"podman": "/usr/bin/podman", "conmon": "/usr/bin/conmon",
		"runc": "/usr/sbin/runc"} {
		w.fetchedProgram(name, to)
	}
	// Newer versions of podman do not start without their network program, whatever the network.
	for _, program := range []string{"/usr/lib/podman/netavark", "/usr/libexec/podman/netavark"} {
		if _, err := os.Stat(program); err == nil {
			w.fetchedProgram(program, program)
		}
	}
	for _, file := range []string{"/usr/share/containers/seccomp.json", "/etc/containers/policy.json"} {
		raw, err := os.ReadFile(file)
		require.NoError(w.t, err, "run hack/setup/setup.sh test")
		w.put(file, 0o644, raw)
	}
	// Hosts with two hierarchies of cgroups have no controller of processes in the one that nodes see.
	w.put("/etc/containers/containers.conf", 0o644, []byte("[containers]\npids_limit = 0\n"))
}

// inContainers says that the unit's sandbox let runc run what dayone-bootstrap.service runs in containers: the masters'
// Containerfile, and MCO's controller, whose log stays for the installer's gather.
func (w *world) inContainers() {
	t := w.t
	out, err := w.sh(`sed -n 's/.*"isolation": "\(.*\)".*/\1/p' /var/lib/dayone/journal.json`)
	require.NoError(t, err)
	reason, err := w.sh(`sed -n 's/.*"isolationReason": "\(.*\)".*/\1/p' /var/lib/dayone/journal.json`)
	require.NoError(t, err)
	assert.Equal(t, "oci (runc)", strings.TrimSpace(out), "RUN does not fall back to a plain chroot: %s", reason)
	out, err = w.sh("podman inspect --format '{{.State.ExitCode}} {{.OCIRuntime}}' dayone-render")
	require.NoError(t, err)
	assert.Equal(t, "0 runc", strings.TrimSpace(out))
	out, err = w.sh("podman logs dayone-render 2>&1")
	require.NoError(t, err)
	assert.Contains(t, out, "rendered-master-")
}

// mcoImage is an image on a base in which dayone's renderer plays machine-config-controller, as an OCI layout.
func (w *world) mcoImage(base string) string {
	here, err := os.Getwd()
	require.NoError(w.t, err)
	return w.image(base, map[string]string{"/usr/bin/dayone": w.bin, "/usr/bin/dayone-registry": w.registryProgram(),
		"/usr/bin/machine-config-controller": filepath.Join(here, "testdata/mco/machine-config-controller")})
}

// image is one on a base, with these programs of this machine beside, as an OCI layout.
func (w *world) image(base string, programs map[string]string) string {
	dir := w.t.TempDir()
	// buildah makes a name of the path, for which most paths are not fit.
	require.NoError(w.t, os.Symlink(base, filepath.Join(dir, "base")))
	buildah := func(args ...string) string {
		storage := []string{"--root", filepath.Join(dir, "root"), "--runroot", filepath.Join(dir, "run"),
			"--storage-driver", "vfs"}
		cmd := exec.CommandContext(w.t.Context(), w.find("buildah"), append(storage, args...)...)
		cmd.Dir = dir
		var errs strings.Builder
		cmd.Stderr = &errs
		out, err := cmd.Output()
		require.NoError(w.t, err, "buildah %v: %s", args, &errs)
		return strings.TrimSpace(string(out))
	}
	container := buildah("from", "oci:base")
	for to, from := range programs {
		buildah("copy", "--quiet", "--chmod", "0755", container, from, to)
	}
	layout := filepath.Join(dir, "made")
	buildah("commit", "--quiet", container, "oci:"+layout)
	return layout
}
