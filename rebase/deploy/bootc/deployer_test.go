package bootc_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/rebase/deploy"
	"dayone.dev/dayone/rebase/deploy/bootc"
	"dayone.dev/dayone/rebase/deploy/deploytest"
)

func TestStage(t *testing.T) {
	image, err := deploy.ParseImage(deploytest.WantImage)
	require.NoError(t, err)
	const bootcSwitch = "bootc switch --quiet " + deploytest.WantImage
	host, deployment := deploytest.BootcHost, deploytest.BootcDeployment
	const other, want = deploytest.OtherImage, deploytest.WantImage
	for _, c := range []struct {
		name   string
		status string
		o      deploy.StageOptions
		want   []string
		class  deploy.Class
	}{
		{"another image runs",
			host("null", deployment(other, false), "null"), deploy.StageOptions{},
			[]string{bootcSwitch}, ""},
		{"it is staged already",
			host(deployment(want, false), deployment(other, false),
				"null"), deploy.StageOptions{}, nil, ""},
		{"it is only downloaded",
			host(downloaded(deployment(want, false)), deployment(other, false), "null"), deploy.StageOptions{},
			[]string{"bootc upgrade --from-downloaded"}, ""},
		{"another is only downloaded, it runs",
			host(downloaded(deployment(other, false)), deployment(want, false), "null"), deploy.StageOptions{}, nil, ""},
		{"it runs already", host("null", deployment(want, false), "null"),
			deploy.StageOptions{AppendKernelArguments: []string{"rw"}}, nil, ""},
		{"it runs, another is staged",
			host(deployment(other, false), deployment(want, false),
				"null"), deploy.StageOptions{}, []string{bootcSwitch}, ""},
		{"it runs, arguments lack",
			host("null", deployment(want, false), "null"),
			deploy.StageOptions{AppendKernelArguments: []string{"a=1"}}, nil, deploy.ClassConfig},
		{"packages are layered",
			host("null", deployment(other, true), "null"), deploy.StageOptions{}, nil,
			deploy.ClassConfig},
		{"nothing of bootc's boots",
			host("null", "null", "null"), deploy.StageOptions{}, nil, deploy.ClassNotOSTree},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := &deploytest.Script{Answers: map[string]string{deploytest.BootcStatus: c.status}}
			d := bootc.New(deploytest.Host(t, "rw"), s.Run)
			err := d.Stage(t.Context(), image, c.o)
			if c.class == "" {
				require.NoError(t, err)
			} else {
				assert.Equal(t, c.class, deploy.ClassOf(err), err)
			}
			assert.Equal(t, append([]string{deploytest.BootcStatus}, c.want...), s.Calls)
		})
	}
}

// downloaded is an entry of `bootc upgrade --download-only`.
func downloaded(entry string) string {
	return strings.Replace(entry, `"pinned":false`, `"pinned":false,"downloadOnly":true`, 1)
}

func TestStatus(t *testing.T) {
	s := &deploytest.Script{
		Answers: map[string]string{
			deploytest.BootcStatus: deploytest.BootcHost(deploytest.BootcDeployment(deploytest.WantImage, false),
				deploytest.BootcDeployment(deploytest.OtherImage, false),
				`{"image":null,"incompatible":false,"ostree":null}`),
		},
	}
	d := bootc.New(deploytest.Host(t, "rw"), s.Run)
	st, err := d.Status(t.Context())
	require.NoError(t, err)
	assert.Equal(t, "default/"+deploytest.CommitA+".2", st.Booted.ID)
	assert.Equal(t, deploytest.OtherImage, st.Booted.Image.String())
	assert.Equal(t, deploytest.WantImage, st.Next().Image.String())
	assert.True(t, st.Rollback.Image.IsZero())
}

func TestRollbackTwiceIsOneRollback(t *testing.T) {
	entry := deploytest.BootcDeployment(deploytest.OtherImage, false)
	queued := func(s string) string {
		return strings.Replace(s, `"rollbackQueued":false`, `"rollbackQueued":true`, 1)
	}
	for _, c := range []struct {
		name   string
		status string
		want   []string
	}{
		{"not queued", deploytest.BootcHost("null", entry, entry), []string{"bootc rollback"}},
		{"queued already", queued(deploytest.BootcHost("null", entry, entry)), nil},
		{"queued, then another is staged", queued(deploytest.BootcHost(entry, entry, entry)),
			[]string{"bootc rollback", "bootc rollback"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := &deploytest.Script{Answers: map[string]string{deploytest.BootcStatus: c.status}}
			require.NoError(t, bootc.New(deploytest.Host(t, "rw"), s.Run).Rollback(t.Context()))
			assert.Equal(t, append([]string{deploytest.BootcStatus}, c.want...), s.Calls)
		})
	}
}

func TestUnstage(t *testing.T) {
	for _, c := range []struct {
		name   string
		staged string
		want   string
	}{
		{"staged", "{}", "ostree admin undeploy 0"},
		{"nothing staged", "null", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := &deploytest.Script{Answers: map[string]string{
				deploytest.BootcStatus: `{"status":{"booted":{},"staged":` + c.staged + `}}`}}
			require.NoError(t, bootc.New(deploytest.Host(t, "rw"), s.Run).Unstage(t.Context()))
			if c.want == "" {
				assert.Len(t, s.Calls, 1, "only the question")
				return
			}
			assert.Equal(t, c.want, s.Calls[len(s.Calls)-1])
		})
	}
}

// A host that bootc booted from a composefs image has no ostree deployment: bootc tells digests of images, and has a
// command of its own that withdraws what is staged (bootc, bootc_composefs/status.rs and delete.rs).
func TestComposefs(t *testing.T) {
	const booted, staged = deploytest.CommitA, deploytest.CommitB
	status := deploytest.BootcHost(deploytest.ComposefsDeployment(deploytest.WantImage, staged),
		deploytest.ComposefsDeployment(deploytest.OtherImage, booted), "null")
	queued := strings.Replace(deploytest.BootcHost(deploytest.ComposefsDeployment(deploytest.WantImage, staged),
		deploytest.ComposefsDeployment(deploytest.OtherImage, booted),
		deploytest.ComposefsDeployment(deploytest.OtherImage, booted)), `"rollbackQueued":false`, `"rollbackQueued":true`, 1)
	const drop = "bootc delete-deployment " + staged
	for _, c := range []struct {
		name, status string
		do           func(*bootc.Deployer) error
		want         []string
	}{
		{"unstage", status, func(d *bootc.Deployer) error { return d.Unstage(t.Context()) }, []string{drop}},
		{"roll back", status, func(d *bootc.Deployer) error { return d.Rollback(t.Context()) },
			[]string{drop, "bootc rollback"}},
		{"roll back what is queued", queued, func(d *bootc.Deployer) error { return d.Rollback(t.Context()) },
			[]string{drop}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := &deploytest.Script{Answers: map[string]string{deploytest.BootcStatus: c.status}}
			d := bootc.New(deploytest.Host(t, "rw composefs=?"+booted+" quiet"), s.Run)
			require.NoError(t, c.do(d))
			assert.Equal(t, append([]string{deploytest.BootcStatus}, c.want...), s.Calls)
			st, err := d.Status(t.Context())
			require.NoError(t, err)
			assert.Equal(t, booted, st.Booted.ID)
			assert.True(t, st.Booted.Composefs)
			assert.Equal(t, []string{"rw", "quiet"}, st.Booted.KernelArguments, "what names the deployment is bootc's")
			assert.Equal(t, deploytest.WantImage, st.Next().Image.String())
		})
	}
}

// What bootc says of a soft reboot is asked before it is told to prepare one, and what it has done is looked at.
func TestPrepareSoft(t *testing.T) {
	const prepare = "bootc upgrade --from-downloaded --soft-reboot=required"
	const mounted = "77 1 0:50 / /run/nextroot rw - overlay composefs rw\n"
	other, want := deploytest.BootcDeployment(deploytest.OtherImage, false),
		deploytest.BootcDeployment(deploytest.WantImage, false)
	capable := strings.Replace(want, `"pinned":false`, `"pinned":false,"softRebootCapable":true`, 1)
	for _, c := range []struct {
		name, staged, answer, mounts string
		calls                        []string
		want                         string // of the error; empty: none
	}{
		{"capable", capable, "", mounted, []string{prepare}, ""},
		{"not capable", want, "", mounted, nil, "cannot be taken by a soft reboot"},
		{"nothing staged", "null", "", mounted, nil, "no deployment is staged"},
		{"only downloaded", downloaded(capable), "", mounted, nil, "no deployment is staged"},
		{"without ostree", deploytest.ComposefsDeployment(deploytest.WantImage, deploytest.CommitB), "", mounted, nil,
			"booted this node without ostree"},
		{"refused after all", capable, "error: Soft reboot was required", "", []string{prepare}, "was required"},
		{"nothing is mounted", capable, "", "", []string{prepare}, "nothing is mounted at /run/nextroot"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := &deploytest.Script{Answers: map[string]string{prepare: c.answer,
				deploytest.BootcStatus: deploytest.BootcHost(c.staged, other, "null")}}
			root := deploytest.Host(t, "rw")
			require.NoError(t, os.Mkdir(filepath.Join(root, "proc/1"), 0o755))
			require.NoError(t, os.WriteFile(filepath.Join(root, "proc/1/mountinfo"), []byte(c.mounts), 0o644))
			err := bootc.New(root, s.Run).PrepareSoft(t.Context())
			if c.want == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, c.want)
			}
			assert.Equal(t, append([]string{deploytest.BootcStatus}, c.calls...), s.Calls)
		})
	}
}

func TestNoFetch(t *testing.T) {
	_, bootcCan := any(bootc.New("/", nil)).(deploy.Fetcher)
	assert.False(t, bootcCan, "bootc has no command that fetches another image and stages nothing")
}
