package deployers

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/hack/testnode"
	"dayone.dev/dayone/hack/testnode/standin"
	"dayone.dev/dayone/rebase/deploy"
	"dayone.dev/dayone/rebase/firstboot"
)

// run is a command on the node with all that it said.
func (f *fixture) run(line string) (testnode.Result, string) {
	f.t.Helper()
	r, err := f.node.Exec(f.t.Context(), "sh", "-c", line)
	require.NoError(f.t, err)
	return r, r.Stdout + r.Stderr
}

// The stand-ins on one node that has both: what they refuse, what they say, and what they agree on.
func TestStandInsKeepToTheirOriginals(t *testing.T) {
	need(t)
	t.Parallel()
	f := stock(t, deploy.KindRPMOSTree, standin.Programs())
	tag := strings.Split(f.image, "@")[0]
	for _, c := range []struct {
		line   string
		status int
		says   string
	}{
		{"rpm-ostree rebase " + f.image, 1, "Invalid ostree image reference"},
		{"rpm-ostree rebase ostree-image-signed:docker://" + f.image, 1,
			"specifies a default of `insecureAcceptAnything`; refusing usage"},
		{"bootc switch --enforce-container-sigpolicy " + f.image, 1, "refusing usage"},
		{"container=x bootc switch " + f.image, 1, "Detected container; this command requires a booted host system"},
		{"container=x bootc status --format=json", 0, `"booted":null`},
		{"bootc rollback", 1, "No rollback available"},
		{"rpm-ostree rollback", 1, "No rollback deployment found"},
		{"rpm-ostree kargs", 0, "root=LABEL=root rw"},
		{"rpm-ostree kargs --unchanged-exit-77 --append-if-missing=rw", 77, "No changes."},
		{"bootc upgrade --check", 1, "registry.example.com"}, // the stock image's registry is not there
		{"chmod 600 " + caPath + "; rpm-ostree rebase ostree-unverified-registry:" + f.image, 1, "ca.crt: permission denied"},
		{"bootc switch " + f.image, 0, "Queued for next boot"}, // as root
		{"bootc switch " + f.image, 0, "Image specification is unchanged."},
		{"chmod 644 " + caPath, 0, ""},
		{"rpm-ostree rebase --experimental ostree-unverified-image:docker://" + f.image, 1,
			"Old and new refs are equal: ostree-unverified-registry:" + f.image},
		{"rpm-ostree rollback", 1, "Staged deployment (remove with cleanup -p)"},
		{"rpm-ostree cleanup -p", 0, ""},
		{"rpm-ostree rebase --bypass-driver --custom-origin-url pivot://x --custom-origin-description day1 " +
			"ostree-unverified-registry:" + f.image, 0, "Pulling manifest"},
		{"rpm-ostree kargs --append=first=1 --append=second=2", 0, "Kernel arguments updated"},
		{"rpm-ostree kargs --delete=first=1", 0, "Kernel arguments updated"},
		{"rpm-ostree kargs", 0, "rw second=2"},
		{"bootc switch " + tag + ":no-such-tag", 1,
			"error: Switching: Preparing import: Fetching manifest: failed to invoke method OpenImage: "},
		{"mv /etc/containers/policy.json /etc/aside; bootc switch " + tag + ":test", 1, "policy.json: no such file"},
		{"mv /etc/aside /etc/containers/policy.json", 0, ""},
	} {
		r, said := f.run(c.line)
		assert.Equal(t, c.status, r.ExitCode, "%s: %s", c.line, said)
		assert.Contains(t, said, c.says, c.line)
	}
	var rpm struct {
		Deployments []map[string]any `json:"deployments"`
	}
	require.NoError(t, json.Unmarshal([]byte(f.output("rpm-ostree", "status", "--json")), &rpm))
	require.Len(t, rpm.Deployments, 2)
	assert.Equal(t, true, rpm.Deployments[0]["staged"])
	assert.Equal(t, "ostree-unverified-registry:"+f.image, rpm.Deployments[0]["container-image-reference"])
	assert.Equal(t, []any{"pivot://x", "day1"}, rpm.Deployments[0]["custom-origin"],
		"kept by a change of kernel arguments")
	var bootc struct {
		Status struct {
			Staged, Booted struct{ Image struct{ ImageDigest string } }
		}
	}
	require.NoError(t, json.Unmarshal([]byte(f.output("bootc", "status", "--format=json")), &bootc))
	assert.Equal(t, strings.Split(f.image, "@")[1], bootc.Status.Staged.Image.ImageDigest)
	assert.NotEmpty(t, bootc.Status.Booted.Image.ImageDigest)

	require.NoError(t, f.node.Reboot(t.Context()))
	cmdline := f.output("cat", "/proc/cmdline")
	assert.Contains(t, cmdline, "second=2")
	assert.NotContains(t, cmdline, "first=1")
	_, said := f.run("bootc rollback; bootc status --format=json")
	assert.Contains(t, said, `"bootOrder":"rollback"`)
	_, said = f.run("bootc rollback")
	assert.Contains(t, said, "Reverting queued rollback state")
	_, said = f.run("rpm-ostree rollback; rpm-ostree status")
	assert.NotRegexp(t, `^● `, strings.SplitAfter(said, "Deployments:\n")[1], "the booted one is no longer the first")
}

func TestDeployerIsChosenByWhatTheHostHas(t *testing.T) {
	need(t)
	t.Parallel()
	f := stock(t, deploy.KindRPMOSTree, standin.Programs())
	assert.Equal(t, deploy.KindRPMOSTree, f.status().Kind, "as MCO")
	f.output(firstboot.DaemonPath, "stage", "--deployer=bootc", f.image)
	assert.Equal(t, f.image, f.status().Staged.Image.String(), "what one has staged the other sees")

	f.output("rpm-ostree", "cleanup", "-p")
	f.output("sh", "-c",
		`for o in /ostree/deploy/`+testnode.Stateroot+`/deploy/*.origin; do printf '[packages]\nrequested=vim;\n' >>$o; done`)
	_, said := f.run("bootc status --format=json")
	assert.Contains(t, said, `"incompatible":true`)
	r, said := f.run(firstboot.DaemonPath + " stage --deployer=bootc " + f.image)
	assert.Equal(t, 1, r.ExitCode)
	assert.Contains(t, said, "next: use the rpm-ostree deployer")
}

// TestUpdatesDriver: on Fedora CoreOS Zincati drives updates, and rpm-ostree refuses everybody else's rebase.
func TestUpdatesDriver(t *testing.T) {
	need(t)
	t.Parallel()
	f := stock(t, deploy.KindRPMOSTree, []string{"rpm-ostree"})
	f.output("rpm-ostree", "deploy", "--register-driver=Zincati", "")
	r, said := f.run("rpm-ostree rebase ostree-unverified-registry:" + f.image)
	assert.Equal(t, 1, r.ExitCode)
	assert.Contains(t, said, "Updates and deployments are driven by Zincati (zincati.service)")
	f.output(firstboot.DaemonPath, "stage", "--download-only", f.image)
	f.output(firstboot.DaemonPath, "stage", f.image)
	assert.Equal(t, f.image, f.status().Staged.Image.String())
}
