package upstream_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	v32 "github.com/coreos/ignition/v2/config/v3_2"
	ign32 "github.com/coreos/ignition/v2/config/v3_2/types"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// mostAdded is what a patch may add to bootstrap.ign: some platforms pass the file whole as user data.
const mostAdded = 100 << 10

// story is the sample of the openshift flow with a MachineOSConfig for each of three pools, one of them the user's own.
func story(t *testing.T, dayone string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "cluster")
	out, err := says(exec.CommandContext(t.Context(), dayone, "sample", "--flow", "openshift", "--dir", dir))
	require.NoError(t, err, out)
	change := func(from, to string, pairs ...string) {
		raw, err := os.ReadFile(filepath.Join(dir, from))
		require.NoError(t, err)
		changed := strings.NewReplacer(pairs...).Replace(string(raw))
		require.NotEqual(t, string(raw), changed, from)
		text(t, filepath.Join(dir, to), changed)
	}
	change("layering/worker.yaml", "layering/infra.yaml", "name: worker\n", "name: infra\n", "worker-os", "infra-os")
	change("install-config.yaml", "install-config.yaml",
		"  - name: worker\npull", "  - name: worker\n  - name: infra\npull")
	text(t, filepath.Join(dir, "openshift/99_infra-pool.yaml"), infraPool)
	return dir
}

// files maps the paths of a directory to what is in them.
func files(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, e := range entries {
		if e.Type().IsRegular() {
			raw, err := os.ReadFile(filepath.Join(dir, e.Name()))
			require.NoError(t, err)
			out[e.Name()] = string(raw)
		}
	}
	return out
}

// parsed is a config that spec 3.2 reads without a word of complaint.
func parsed(t *testing.T, raw string) ign32.Config {
	t.Helper()
	config, found, err := v32.Parse([]byte(raw))
	require.NoError(t, err, found.String())
	assert.False(t, found.IsFatal(), found.String())
	return config
}

// sources maps the paths of a config's files to where their contents come from, and units its units to their texts and
// drop-ins.
func sources(c ign32.Config) (paths, units map[string]string) {
	paths, units = map[string]string{}, map[string]string{}
	for _, f := range c.Storage.Files {
		paths[f.Path] = ""
		if f.Contents.Source != nil {
			paths[f.Path] = *f.Contents.Source
		}
	}
	for _, u := range c.Systemd.Units {
		if u.Contents != nil {
			units[u.Name] = *u.Contents
		}
		for _, d := range u.Dropins {
			units[u.Name+"/"+d.Name] = *d.Contents
		}
	}
	return paths, units
}

// installer runs the real openshift-install.
func (s *suite) installer(t *testing.T) func(dir string, args ...string) {
	t.Helper()
	program := os.Getenv(installerEnv)
	if program == "" {
		s.without(t, installerEnv+" names no openshift-install")
	}
	return func(dir string, args ...string) {
		t.Helper()
		out, err := says(exec.CommandContext(t.Context(), program, append(args, "--dir", dir)...))
		require.NoError(t, err, "openshift-install %v: %s", args, out)
	}
}

// TestInstaller walks the documented order of commands with the real openshift-install: nothing of the user's or the
// installer's is lost, dayone's units are in bootstrap.ign, the pointer configs are the installer's, and the patch can
// be taken back.
func TestInstaller(t *testing.T) {
	install := run.installer(t)
	added := 0
	run.record(t, func() string { return fmt.Sprintf("prepare to ignition, %d bytes added to bootstrap.ign", added) })
	program := run.program(t)
	dayone := func(dir string, args ...string) {
		t.Helper()
		out, err := says(exec.CommandContext(t.Context(), program, append(args, "--dir", dir)...))
		require.NoError(t, err, "dayone %v: %s", args, out)
	}
	dir := story(t, program)
	users := files(t, filepath.Join(dir, "openshift"))
	dayone(dir, "prepare")
	install(dir, "create", "manifests")
	dayone(dir, "manifests")
	given := files(t, filepath.Join(dir, "openshift"))
	for name, content := range users {
		assert.Equal(t, content, given[name], "create manifests and dayone manifests keep openshift/%s", name)
	}
	install(dir, "create", "ignition-configs")
	before := files(t, dir)
	patch := []string{"ignition", "--program-image", image("dayone")}
	dayone(dir, patch...)
	after := files(t, dir)
	dayone(dir, patch...)
	assert.Equal(t, after, files(t, dir), "twice is once")

	for _, pool := range []string{"master", "worker"} {
		name := pool + ".ign"
		assert.Equal(t, before[name], after[name], name)
		merge := parsed(t, after[name]).Ignition.Config.Merge
		require.Len(t, merge, 1, name)
		assert.Contains(t, *merge[0].Source, ":22623/config/"+pool)
	}
	old, oldUnits := sources(parsed(t, before["bootstrap.ign"]))
	now, units := sources(parsed(t, after["bootstrap.ign"]))
	for path, source := range old {
		assert.Equal(t, source, now[path], path)
	}
	for name, content := range oldUnits {
		assert.Equal(t, content, units[name], name)
	}
	for name, content := range given {
		assert.Contains(t, now, "/opt/openshift/openshift/"+name)
		assert.NotContains(t, content, "kind: MachineOSConfig\n", "at which the operator's bootstrap would stop")
	}
	for _, unit := range []string{"dayone-gate.service", "dayone-bootstrap.service", "dayone-fetch.service"} {
		assert.NotEmpty(t, units[unit], unit)
	}
	added = len(after["bootstrap.ign"]) - len(before["bootstrap.ign"])
	assert.Less(t, added, mostAdded)
	dayone(dir, "ignition", "--remove")
	assert.Equal(t, before["bootstrap.ign"], files(t, dir)["bootstrap.ign"], "byte for byte")
}

// TestInstallerInPlace holds what a node that bootstraps itself needs against the real openshift-install: script and
// unit are where the patch looks for them, and the patch can be taken back.
func TestInstallerInPlace(t *testing.T) {
	install := run.installer(t)
	run.record(t, func() string { return "prepare to ignition of a bootstrap in place" })
	program := run.program(t)
	dayone := func(dir string, args ...string) {
		t.Helper()
		out, err := says(exec.CommandContext(t.Context(), program, append(args, "--dir", dir)...))
		require.NoError(t, err, "dayone %v: %s", args, out)
	}
	dir := filepath.Join(t.TempDir(), "cluster")
	dayone(dir, "sample", "--flow", "openshift")
	for _, sub := range []string{"layering", "openshift"} {
		require.NoError(t, os.RemoveAll(filepath.Join(dir, sub)))
	}
	file := filepath.Join(dir, "install-config.yaml")
	raw, err := os.ReadFile(file)
	require.NoError(t, err)
	text(t, file, strings.NewReplacer("replicas: 3", "replicas: 1", "replicas: 2", "replicas: 0",
		"onClusterLayering:\n", "bootstrapInPlace: {installationDisk: /dev/sda}\nonClusterLayering:\n"+
			"  registry: {type: cluster}\n", "  - name: master\n  - name: worker\n",
		"  - name: master\n    containerfile: FROM configs\n").Replace(string(raw)))
	dayone(dir, "prepare")
	install(dir, "create", "manifests")
	dayone(dir, "manifests")
	install(dir, "create", "single-node-ignition-config")
	const name = "bootstrap-in-place-for-live-iso.ign"
	before := files(t, dir)[name]
	dayone(dir, "ignition", "--program-image", image("dayone"))
	old, _ := sources(parsed(t, before))
	now, units := sources(parsed(t, files(t, dir)[name]))
	assert.Equal(t, old["/usr/local/bin/bootstrap-in-place.sh"], now["/usr/local/bin/bootstrap-in-place.installer.sh"])
	assert.Contains(t, units, "install-to-disk.service/10-dayone.conf")
	assert.Contains(t, now, "/opt/openshift/openshift/99_dayone-registry.yaml")
	dayone(dir, "ignition", "--remove")
	assert.Equal(t, before, files(t, dir)[name], "byte for byte")
}

// TestInstallerAgent holds the agent-based installer's live image against what dayone ignition builds on: the agent's
// unit is in its config, which takes the patch and gives it back. openshift-install fetches the live image of its
// release for it: DAYONE_TEST_PULL_SECRET names a file with a pull secret for that.
func TestInstallerAgent(t *testing.T) {
	install := run.installer(t)
	run.record(t, func() string { return "prepare to ignition of the agent-based installer" })
	program := run.program(t)
	iso, err := exec.LookPath("coreos-installer")
	require.NoError(t, err, "it shows the live image's config")
	dir := story(t, program)
	dayone := func(args ...string) {
		t.Helper()
		out, err := says(exec.CommandContext(t.Context(), program, append(args, "--dir", dir)...))
		require.NoError(t, err, "dayone %v: %s", args, out)
	}
	file := filepath.Join(dir, "install-config.yaml")
	raw, err := os.ReadFile(file)
	require.NoError(t, err)
	changed := strings.Replace(string(raw), "platform:\n  none: {}\n", "networking: {machineNetwork: [{cidr: "+
		"192.168.77.0/24}]}\nplatform:\n  baremetal: {apiVIPs: [192.168.77.5], ingressVIPs: [192.168.77.6]}\n", 1)
	require.NotEqual(t, string(raw), changed)
	if secret := os.Getenv("DAYONE_TEST_PULL_SECRET"); secret != "" {
		text, err := os.ReadFile(secret)
		require.NoError(t, err)
		before, _, found := strings.Cut(changed, "pullSecret:")
		require.True(t, found)
		_, after, found := strings.Cut(changed, "sshKey:")
		require.True(t, found)
		changed = before + "pullSecret: '" + strings.TrimSpace(string(text)) + "'\nsshKey:" + after
	}
	text(t, file, changed)
	text(t, filepath.Join(dir, "agent-config.yaml"), "apiVersion: v1beta1\nkind: AgentConfig\nmetadata: {name: demo}\n"+
		"rendezvousIP: 192.168.77.10\n")
	dayone("prepare")
	dayone("manifests")
	install(dir, "agent", "create", "image")
	images, err := filepath.Glob(filepath.Join(dir, "agent.*.iso"))
	require.NoError(t, err)
	require.Len(t, images, 1)
	shown, err := exec.CommandContext(t.Context(), iso, "iso", "ignition", "show", images[0]).Output()
	require.NoError(t, err)
	text(t, filepath.Join(dir, "agent.ign"), string(shown))
	dayone("ignition", "--program-image", image("dayone"))
	_, units := sources(parsed(t, files(t, dir)["agent.ign"]))
	assert.Contains(t, units, "agent.service")
	assert.Contains(t, units, "progress.service/10-dayone.conf")
	dayone("ignition", "--remove")
	assert.Equal(t, string(shown), files(t, dir)["agent.ign"], "byte for byte")
}
