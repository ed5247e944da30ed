package host

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"dayone.dev/dayone/rebase/deploy"
	"dayone.dev/dayone/rebase/deploy/bootc"
	"dayone.dev/dayone/rebase/deploy/deploytest"
)

func TestChoose(t *testing.T) {
	rpm := deploytest.RPMOSTreeHost(deploytest.RPMOSTreeDeployment(deploytest.OtherImage, `"booted":true,`))
	managed := deploytest.BootcHost("null", deploytest.BootcDeployment(deploytest.OtherImage, false), "null")
	for _, c := range []struct {
		name     string
		programs string
		answers  map[string]string
		ask      deploy.Kind
		want     deploy.Kind
	}{
		{"all three: as MCO", "rpm-ostree bootc " +
			"ostree", map[string]string{deploytest.RPMOSTreeStatus: rpm, deploytest.BootcStatus: managed},
			"", deploy.KindRPMOSTree},
		{"rpm-ostree does not answer",
			"rpm-ostree bootc ostree", map[string]string{deploytest.RPMOSTreeStatus: "error: no daemon",
				deploytest.BootcStatus: managed}, "", deploy.KindBootc},
		{"bootc only", "bootc ostree", map[string]string{deploytest.BootcStatus: managed}, "", deploy.KindBootc},
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

// bootc boots a composefs image without ostree, and then there is no /run/ostree-booted.
func TestChooseOnComposefs(t *testing.T) {
	managed := deploytest.BootcHost("null", deploytest.ComposefsDeployment(deploytest.OtherImage, deploytest.CommitA),
		"null")
	for _, c := range []struct {
		name, answer string
		ask          deploy.Kind
		want         deploy.Class
	}{
		{"bootc", managed, "", ""},
		{"bootc by its name", managed, deploy.KindBootc, ""},
		{"another deployer: refused", managed, deploy.KindOSTree, deploy.ClassConfig},
		{"bootc does not answer: refused", "error: no", "", deploy.ClassNotOSTree},
	} {
		t.Run(c.name, func(t *testing.T) {
			root := deploytest.Host(t, "rw composefs="+deploytest.CommitA)
			require.NoError(t, os.Remove(filepath.Join(root, "run/ostree-booted")))
			s := &deploytest.Script{Answers: map[string]string{deploytest.BootcStatus: c.answer}}
			found := func(program string) (string, error) { return program, nil }
			got, err := chooser{root: root, run: s.Run, find: found}.choose(t.Context(), c.ask)
			if c.want != "" {
				assert.Equal(t, c.want, deploy.ClassOf(err))
				return
			}
			require.NoError(t, err)
			assert.Equal(t, deploy.KindBootc, got.Kind)
			_, err = EtcChanges(t.Context(), root)
			assert.ErrorContains(t, err, "bootc config-diff")
		})
	}
}

// The staged tree of composefs is an image: nothing is looked for in ostree's directories, and nothing is withdrawn.
func TestCheckStagedComposefs(t *testing.T) {
	root := deploytest.Host(t, "composefs="+deploytest.CommitA)
	s := &deploytest.Script{Answers: map[string]string{deploytest.BootcStatus: deploytest.BootcHost(
		deploytest.ComposefsDeployment(deploytest.WantImage, deploytest.CommitB),
		deploytest.ComposefsDeployment(deploytest.OtherImage, deploytest.CommitA), "null")}}
	require.NoError(t, CheckStaged(t.Context(), root, bootc.New(root, s.Run)))
	assert.Equal(t, []string{deploytest.BootcStatus}, s.Calls)
}

// labelled makes a tree whose image enforces SELinux, in which all but one file have a label.
func labelled(t *testing.T, root, config, bare string) {
	t.Helper()
	tree := filepath.Join(root, "ostree/deploy/os/deploy/b.0/usr")
	for _, name := range []string{"bin/base", "lib/layer", "etc/selinux/config"} {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(tree, name)), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(tree, name), []byte(config), 0o644))
	}
	for _, name := range []string{"", "bin", "bin/base", "lib", "lib/layer"} {
		if name != bare {
			require.NoError(t, unix.Setxattr(filepath.Join(tree, name), "security.selinux",
				[]byte("system_u:object_r:usr_t:s0\x00"), 0))
		}
	}
}

func TestCheckLabels(t *testing.T) {
	const enforcing = "# comment\nSELINUX=enforcing\nSELINUXTYPE=targeted\n"
	for _, c := range []struct {
		name, config, bare string
		kind               deploy.Kind
		arguments          []string
		refused            bool
	}{
		{"a layer's file without a label", enforcing, "lib/layer", deploy.KindOSTree, nil, true},
		{"all have one", enforcing, "none", deploy.KindOSTree, nil, false},
		{"permissive", "SELINUX=permissive\n", "lib/layer", deploy.KindOSTree, nil, false},
		{"not enforced by an argument", enforcing, "lib/layer", deploy.KindOSTree, []string{"enforcing=0"}, false},
		{"rpm-ostree labels", enforcing, "lib/layer", deploy.KindRPMOSTree, nil, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			root := t.TempDir()
			labelled(t, root, c.config, c.bare)
			err := checkLabels(root, deploy.Status{Kind: c.kind, Booted: &deploy.Deployment{ID: "os/a.0",
				KernelArguments: c.arguments}, Staged: &deploy.Deployment{ID: "os/b.0"}})
			if !c.refused {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, "/usr/lib/layer has no label")
			assert.Equal(t, deploy.ClassConfig, deploy.ClassOf(err))
		})
	}
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
