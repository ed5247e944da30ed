package rpmostree_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/rebase/deploy"
	"dayone.dev/dayone/rebase/deploy/deploytest"
	"dayone.dev/dayone/rebase/deploy/rpmostree"
)

func TestStage(t *testing.T) {
	booted, staged := `"booted":true,"staged":false,`, `"booted":false,"staged":true,`
	image, err := deploy.ParseImage(deploytest.WantImage)
	require.NoError(t, err)
	host, deployment := deploytest.RPMOSTreeHost, deploytest.RPMOSTreeDeployment
	const other, want = deploytest.OtherImage, deploytest.WantImage
	for _, c := range []struct {
		name   string
		status string
		o      deploy.StageOptions
		want   []string
	}{
		{"another image runs",
			host(deployment(other, booted)), deploy.StageOptions{},
			[]string{"rpm-ostree rebase ostree-unverified-registry:" + want}},
		{"Zincati drives updates", strings.Replace(host(deployment(other, booted)), `"cached-update":null`,
			`"cached-update":null,"update-driver":{"driver-name":"Zincati","driver-sd-unit":"zincati.service"}`, 1),
			deploy.StageOptions{}, []string{"rpm-ostree rebase --bypass-driver ostree-unverified-registry:" + want}},
		{"with kernel arguments", host(deployment(other, booted)),
			deploy.StageOptions{AppendKernelArguments: []string{"a=1 b=2"}, DeleteKernelArguments: []string{"quiet"}},
			[]string{"rpm-ostree rebase ostree-unverified-registry:" + want,
				"rpm-ostree kargs --delete-if-present=quiet --append-if-missing=a=1 --append-if-missing=b=2"}},
		{"another one is staged",
			host(deployment(other, staged), deployment(other, booted)),
			deploy.StageOptions{},
			[]string{"rpm-ostree cleanup -p", "rpm-ostree rebase ostree-unverified-registry:" + want}},
		{"it is staged already",
			host(deployment(want, staged), deployment(other, booted)), deploy.StageOptions{},
			nil},
		{"it runs already", host(deployment(want, booted)), deploy.StageOptions{}, nil},
		{"it runs and another is staged",
			host(deployment(other, staged), deployment(want, booted),
				deployment(other, "")), deploy.StageOptions{},
			[]string{"rpm-ostree cleanup -p"}},
		{"it runs and a rollback is queued",
			host(deployment(other, ""), deployment(want, booted)),
			deploy.StageOptions{},
			[]string{"rpm-ostree rollback"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := &deploytest.Script{Answers: map[string]string{deploytest.RPMOSTreeStatus: c.status}}
			d := rpmostree.New(deploytest.Host(t, "rw quiet"), s.Run)
			require.NoError(t, d.Stage(t.Context(), image, c.o))
			assert.Equal(t, append([]string{deploytest.RPMOSTreeStatus}, c.want...), s.Calls)
		})
	}
}

func TestStatusOrder(t *testing.T) {
	s := &deploytest.Script{
		Answers: map[string]string{
			deploytest.RPMOSTreeStatus: deploytest.RPMOSTreeHost(
				deploytest.RPMOSTreeDeployment(deploytest.WantImage, `"booted":false,"staged":false,`),
				deploytest.RPMOSTreeDeployment(deploytest.OtherImage, `"booted":true,`),
				`{"id":"y","osname":"rhcos","checksum":"`+deploytest.CommitB+`","origin":"fedora:x"}`,
			),
		},
	}
	d := rpmostree.New(deploytest.Host(t, "BOOT_IMAGE=/k rw ostree=/ostree/boot.0/x"), s.Run)
	st, err := d.Status(t.Context())
	require.NoError(t, err)
	assert.Equal(t, deploytest.WantImage, st.Pending.Image.String())
	assert.Equal(t, st.Pending, st.Next())
	assert.Equal(t, deploytest.OtherImage, st.Booted.Image.String())
	assert.Equal(t, []string{"BOOT_IMAGE=/k", "rw"}, st.Booted.KernelArguments)
	assert.Equal(t, deploytest.CommitB, st.Rollback.Commit)
	assert.True(t, st.Rollback.Image.IsZero())
	assert.Nil(t, st.Staged)
}

func TestRollbackTwiceIsOneRollback(t *testing.T) {
	rpm := func(flags ...string) string {
		var all []string
		for _, f := range flags {
			all = append(all, deploytest.RPMOSTreeDeployment(deploytest.OtherImage, f))
		}
		return deploytest.RPMOSTreeHost(all...)
	}
	booted, staged, other := `"booted":true,"staged":false,`, `"booted":false,"staged":true,`,
		`"booted":false,"staged":false,`
	for _, c := range []struct {
		name   string
		status string
		want   []string
	}{
		{"not queued", rpm(booted, other), []string{"rpm-ostree rollback"}},
		{"queued already", rpm(other, booted), nil},
		{"another image is staged", rpm(staged, booted, other), []string{"rpm-ostree cleanup -p", "rpm-ostree rollback"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := &deploytest.Script{Answers: map[string]string{deploytest.RPMOSTreeStatus: c.status}}
			require.NoError(t, rpmostree.New(deploytest.Host(t, "rw"), s.Run).Rollback(t.Context()))
			assert.Equal(t, append([]string{deploytest.RPMOSTreeStatus}, c.want...), s.Calls)
		})
	}
}

func TestFetch(t *testing.T) {
	image, err := deploy.ParseImage(deploytest.WantImage)
	require.NoError(t, err)
	booted := `"booted":true,"staged":false,`
	for _, c := range []struct {
		name string
		runs string
		want []string
	}{
		{"another image runs", deploytest.OtherImage, []string{deploytest.RPMOSTreeStatus,
			"rpm-ostree rebase --download-only ostree-unverified-registry:" + deploytest.WantImage}},
		{"it runs already", deploytest.WantImage, []string{deploytest.RPMOSTreeStatus}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := &deploytest.Script{
				Answers: map[string]string{
					deploytest.RPMOSTreeStatus: deploytest.RPMOSTreeHost(deploytest.RPMOSTreeDeployment(c.runs, booted)),
				},
			}
			d := rpmostree.New(deploytest.Host(t, "root=x"), s.Run)
			require.NoError(t, d.Fetch(t.Context(), image, deploy.FetchOptions{}))
			assert.Equal(t, c.want, s.Calls)
		})
	}
}

func TestUnstage(t *testing.T) {
	for _, c := range []struct {
		name  string
		flags string
		want  string
	}{
		{"staged", `"staged":true,`, "rpm-ostree cleanup -p"},
		{"nothing staged", "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := &deploytest.Script{Answers: map[string]string{deploytest.RPMOSTreeStatus: deploytest.RPMOSTreeHost(
				deploytest.RPMOSTreeDeployment(deploytest.OtherImage, c.flags),
				deploytest.RPMOSTreeDeployment(deploytest.WantImage, `"booted":true,`))}}
			require.NoError(t, rpmostree.New(deploytest.Host(t, "rw"), s.Run).Unstage(t.Context()))
			if c.want == "" {
				assert.Len(t, s.Calls, 1, "only the question")
				return
			}
			assert.Equal(t, c.want, s.Calls[len(s.Calls)-1])
		})
	}
}
