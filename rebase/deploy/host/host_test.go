package host

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/rebase/deploy"
	"dayone.dev/dayone/rebase/deploy/deploytest"
)

func TestChoose(t *testing.T) {
	rpm := deploytest.RPMOSTreeHost(deploytest.RPMOSTreeDeployment(deploytest.OtherImage, `"booted":true,`))
	bootc := deploytest.BootcHost("null", deploytest.BootcDeployment(deploytest.OtherImage, false), "null")
	for _, c := range []struct {
		name     string
		programs string
		answers  map[string]string
		ask      deploy.Kind
		want     deploy.Kind
	}{
		{"all three: as MCO", "rpm-ostree bootc " +
			"ostree", map[string]string{deploytest.RPMOSTreeStatus: rpm, deploytest.BootcStatus: bootc},
			"", deploy.KindRPMOSTree},
		{"rpm-ostree does not answer",
			"rpm-ostree bootc ostree", map[string]string{deploytest.RPMOSTreeStatus: "error: no daemon",
				deploytest.BootcStatus: bootc}, "", deploy.KindBootc},
		{"bootc only", "bootc ostree", map[string]string{deploytest.BootcStatus: bootc}, "", deploy.KindBootc},
		{"bootc cannot carry the system", "bootc ostree",
			map[string]string{deploytest.BootcStatus: deploytest.BootcHost("null",
				deploytest.BootcDeployment(deploytest.OtherImage, true), "null")}, "", deploy.KindOSTree},
		{"bootc manages nothing", "bootc ostree",
			map[string]string{deploytest.BootcStatus: deploytest.BootcHost("null", "null", "null")}, "", deploy.KindOSTree},
		{"plain", "ostree", nil, "", deploy.KindOSTree},
		{"asked for, whatever is there",
			"rpm-ostree " +
				"ostree", map[string]string{deploytest.RPMOSTreeStatus: rpm}, deploy.KindOSTree, deploy.KindOSTree},
		{"nothing at all: refused", "", nil, "", ""},
		{"something unknown: refused", "ostree", nil, "dnf", ""},
		{"bootc asked for by its name", "bootc", nil, deploy.KindBootc, deploy.KindBootc},
		{"rpm-ostree asked by its name", "", nil, deploy.KindRPMOSTree, deploy.KindRPMOSTree},
		{"rpm-ostree dead, nothing else",
			"rpm-ostree", map[string]string{deploytest.RPMOSTreeStatus: "error: no daemon"}, "", ""},
		{"rpm-ostree without a boot: not",
			"rpm-ostree " +
				"ostree", map[string]string{deploytest.RPMOSTreeStatus: deploytest.RPMOSTreeHost()}, "", deploy.KindOSTree},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := &deploytest.Script{Answers: c.answers}
			got, err := chooser{root: deploytest.Host(t, "rw"), run: s.Run, find: func(program string) (string, error) {
				if strings.Contains(" "+c.programs+" ", " "+program+" ") {
					return program, nil
				}
				return "", os.ErrNotExist
			}}.choose(t.Context(), c.ask)
			assert.Equal(t, c.want, got.Kind)
			if c.want == "" {
				require.Error(t, err)
				return
			}
			require.NoError(t, err)
			assert.NotEmpty(t, got.Reason)
			assert.NotNil(t, got.Deployer)
		})
	}
	_, err := chooser{root: t.TempDir()}.choose(t.Context(), "")
	assert.Equal(t, deploy.ClassNotOSTree, deploy.ClassOf(err), "not booted by ostree")
}

func TestCheckBootRoom(t *testing.T) {
	root := t.TempDir()
	kernel := func(deployment, release, like string) *deploy.Deployment {
		dir := filepath.Join(root, "ostree/deploy/os/deploy", deployment, "usr/lib/modules", release)
		require.NoError(t, os.MkdirAll(dir, 0o755))
		path := filepath.Join(dir, "vmlinuz")
		if like != "" {
			require.NoError(t, os.Link(like, path)) // equal content is one object of the repository
		} else {
			require.NoError(t, os.WriteFile(path, nil, 0o644))
			require.NoError(t, os.Truncate(path, 8<<40)) // more than is free, and not more than a file may have
		}
		return &deploy.Deployment{ID: "os/" + deployment}
	}
	require.NoError(t, os.Mkdir(filepath.Join(root, "boot"), 0o755))
	booted := kernel("a.0", "1", "")
	same := kernel("b.0", "1", filepath.Join(root, "ostree/deploy/os/deploy/a.0/usr/lib/modules/1/vmlinuz"))
	other := kernel("c.0", "2+rt", "")
	require.NoError(t, checkBoot(root, booted, same))
	err := checkBoot(root, booted, other)
	require.Error(t, err)
	assert.Equal(t, deploy.ClassDiskFull, deploy.ClassOf(err))
	kernels, err := Kernels(root, other)
	require.NoError(t, err)
	assert.Equal(t, []string{"2+rt"}, kernels)
	_, err = Kernels(root, nil)
	require.ErrorContains(t, err, "list kernels")
}
