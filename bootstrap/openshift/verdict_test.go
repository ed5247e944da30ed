package openshift_test

import (
	"bytes"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"dayone.dev/dayone/bootstrap/gather"
	"dayone.dev/dayone/bootstrap/gather/analyze"
	"dayone.dev/dayone/bootstrap/gather/bundle"
	"dayone.dev/dayone/bootstrap/gather/page"
	"dayone.dev/dayone/bootstrap/journal"
	"dayone.dev/dayone/bootstrap/openshift"
	"dayone.dev/dayone/bootstrap/phasetest"
	"dayone.dev/dayone/installconfig"
)

// verdict gathers the node and analyses the bundle.
func (n *node) verdict() *analyze.Report {
	n.t.Helper()
	var out bytes.Buffer
	require.NoError(n.t, gather.Host(n.t.Context(), gather.Options{StateDir: n.order.State, InstallDir: n.order.Dir,
		Root: n.order.Root, NoCommands: true}, &out))
	made, err := bundle.Read(&out)
	require.NoError(n.t, err)
	return analyze.Bundle(made)
}

// installersVerdict analyses what openshift-install gather bootstrap takes from the node. installer-gather.sh copies
// the records as root and packs them as core, who reads only what everybody may read.
func (n *node) installersVerdict() *analyze.Report {
	t := n.t
	t.Helper()
	before := unix.Umask(unitUmask)
	err := gather.Keep(t.Context(), gather.Options{StateDir: n.order.State, InstallDir: n.order.Dir, Root: n.order.Root},
		n.at(gather.InstallerDir))
	unix.Umask(before)
	require.NoError(t, err)
	dir, err := os.MkdirTemp("", "artifacts-")
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, os.RemoveAll(dir)) })
	services := filepath.Join(dir, "bootstrap/services")
	require.NoError(t, errors.Join(os.Chmod(dir, 0o755), os.MkdirAll(services, 0o755)))
	out, err := exec.CommandContext(t.Context(), "cp", "-r", n.at("/var/log/openshift")+"/.", services).CombinedOutput()
	require.NoError(t, err, string(out))
	tar := exec.CommandContext(t.Context(), "tar", "cz", "-C", dir, ".")
	tar.Dir, tar.SysProcAttr = "/", &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	var packed, errs bytes.Buffer
	tar.Stdout, tar.Stderr = &packed, &errs
	require.NoError(t, tar.Run(), errs.String())
	b, err := bundle.Read(&packed)
	require.NoError(t, err)
	return analyze.Bundle(b)
}

// edit changes the master's MachineOSConfig.
func (n *node) edit(old, by string) {
	file := filepath.Join(n.order.Dir, "layering/master.yaml")
	raw, err := os.ReadFile(file)
	require.NoError(n.t, err)
	require.Contains(n.t, string(raw), old)
	require.NoError(n.t, os.WriteFile(file, bytes.ReplaceAll(raw, []byte(old), []byte(by)), 0o600))
}

// said waits until the records hold a text.
func (n *node) said(text string) {
	n.t.Helper()
	require.Eventually(n.t, func() bool {
		raw, _ := os.ReadFile(n.at("/var/log/openshift/dayone-bootstrap.json"))
		return strings.Contains(string(raw), text)
	}, patience, 50*time.Millisecond, text)
}

// disk makes the state directory one of its own.
func (n *node) disk(size string) {
	require.NoError(n.t, os.MkdirAll(n.order.State, 0o700))
	require.NoError(n.t, unix.Mount("dayone-test", n.order.State, "tmpfs", 0, "mode=0700,size="+size))
	n.t.Cleanup(func() { assert.NoError(n.t, unix.Unmount(n.order.State, unix.MNT_DETACH)) })
}

// scenario is one way in which an installation may go; the flow itself makes it, and the bundle is gathered from what
// it leaves.
type scenario struct {
	config func(c *installconfig.Config)
	// make brings the node to where it is gathered; a run that is under way is killed afterwards. Default: MCO renders and
	// the flow runs.
	make func(n *node)
	// running says that the bundle is of a node at work.
	running bool

	status       analyze.Status
	phase, cause string
	// evidence is a part of the line that is shown, file a part of the name of its file, next a part of what to do.
	evidence, file, next string
	// timeline is a regular expression that one event's text must match; empty: none need.
	timeline string
}

// onePool saves time: one image is built.
func onePool(c *installconfig.Config) {
	c.Pools[1].BuildAt = installconfig.BuildAtCluster
}

func scenarios(t *testing.T) map[string]scenario {
	port := phasetest.FreePort(t)
	rendered := func(n *node) { require.NoError(n.t, n.mco()) }
	const records = "services/dayone-bootstrap.json"
	return map[string]scenario{
		"everything goes well": {status: analyze.StatusHandedOver},
		"the build is slower than the soft limit": {running: true,
			make: func(n *node) {
				rendered(n)
				n.edit("RUN GREETING", "RUN sleep 280 && GREETING")
				n.order.Limits = openshift.Limits{API: time.Hour, Soft: time.Second, Hard: time.Hour}
				n.start("", "")
				n.said("time-soft")
				n.said(`"stage": "build-master"`)
			},
			status: analyze.StatusWaiting, phase: "build-master", cause: "slow-build", evidence: "cluster-bootstrap",
			file: records, next: "wait"},
		"masters fetch early, are held by the gate and go on": {
			make: func(n *node) {
				rendered(n)
				m := n.earlyMaster()
				n.cluster()
				end := n.run("", "")
				require.NoError(n.t, end.Err, end.Log)
				m.gets(n.result().Configs["master"])
			},
			status:   analyze.StatusHandedOver,
			timeline: `^gate-refused: .* were refused \d+ times by the gate until \d\d:\d\d:\d\dZ, .* now they get their configs$`},
		"masters fetch early, and the API server is not up yet": {running: true,
			make: func(n *node) {
				rendered(n)
				n.earlyMaster()
				n.order.Kubeconfig = filepath.Join(n.t.TempDir(), "kubeconfig-loopback")
				n.start("", "")
				n.said("wait-cluster")
				n.said("gate-refused")
				require.False(n.t, n.open())
			},
			status: analyze.StatusWaiting, phase: "cluster", cause: "api-not-up", evidence: "API server does not answer",
			file: records, next: "bootkube",
			timeline: `^gate-refused: .* were refused (once|\d+ times) by the gate so far`},
		"MCO renders late": {running: true,
			make:   func(n *node) { n.start("", ""); n.said("wait-render-first") },
			status: analyze.StatusWaiting, phase: "render-first", cause: "mco-not-rendered", evidence: "not rendered",
			file: records, next: "crictl"},
		"a MachineOSConfig without an image among MCO's manifests": {running: true,
			make: func(n *node) {
				raw, err := os.ReadFile(filepath.Join(n.order.Dir, "layering/worker.yaml"))
				require.NoError(n.t, err)
				n.put("/etc/mcc/bootstrap/worker-layering.yaml", raw)
				n.start("", "")
				n.said("mosc-set-aside")
				n.said("wait-render-first")
			},
			status: analyze.StatusWaiting, phase: "render-first", cause: "mco-not-rendered", evidence: "not rendered",
			file: records, next: "crictl"},
		"one that cannot be set aside": {
			make: func(n *node) {
				raw, err := os.ReadFile(filepath.Join(n.order.Dir, "layering/worker.yaml"))
				require.NoError(n.t, err)
				n.put("/etc/mcc/bootstrap/worker-layering.yaml",
					append(raw, []byte("\n---\napiVersion: v1\nkind: Secret\nmetadata: {name: a, namespace: b}\n")...))
				require.Error(n.t, n.run("", "").Err)
			},
			status: analyze.StatusFailed, phase: "render-first", cause: "mosc-without-image", evidence: "worker-layering.yaml",
			file: "journal.json", next: "take it out"},
		"the registry's port is taken": {config: func(c *installconfig.Config) { c.BootstrapRegistry.Port = port },
			make: func(n *node) {
				l, err := net.Listen("tcp", ":"+strconv.Itoa(port))
				require.NoError(n.t, err)
				defer l.Close()
				require.Error(n.t, n.run("", "").Err)
			},
			status: analyze.StatusFailed, phase: "registry", cause: "port-taken", evidence: "cannot listen on port",
			file: "journal.json", next: "another port"},
		"the disk is full": {make: func(n *node) { rendered(n); n.disk("768k"); require.Error(n.t, n.run("", "").Err) },
			status: analyze.StatusFailed, phase: "base", cause: "disk-full", evidence: "nsufficient", file: "journal.json",
			next: "room"},
		"the disk is so full that the journal cannot say so": {make: func(
			n *node) {
			rendered(n)
			n.disk("32k")
			require.Error(n.t, n.run("", "").Err)
		},
			status: analyze.StatusFailed, cause: "disk-full", evidence: "no space left", next: "room"},
		"the API server does not come up": {running: true,
			make: func(n *node) {
				rendered(n)
				n.order.Kubeconfig = filepath.Join(n.t.TempDir(), "kubeconfig-loopback")
				n.order.Limits = openshift.Limits{API: 2 * time.Second, Soft: time.Hour, Hard: time.Hour}
				n.start("", "")
				n.said("wait-cluster")
				n.said("time-api")
			},
			status: analyze.StatusWaiting, phase: "cluster", cause: "api-not-up", evidence: "API server does not answer",
			file: records, next: "bootkube"},
		"the final registry is down at the hand-over": {running: true,
			make: func(n *node) {
				rendered(n)
				n.cluster()
				n.final.Stop(n.t)
				n.start("", "")
				n.said("connection refused")
			},
			status: analyze.StatusWaiting, phase: "hand-over", cause: "registry-unreachable", evidence: "connection refused",
			file: records, next: "check that the registry runs"},
		"a command of the Containerfile fails": {make: func(n *node) {
			rendered(n)
			n.breakBuild()
			require.Error(n.t,
				n.run("", "").Err)
		},
			status: analyze.StatusFailed, phase: "build-master", cause: "containerfile", evidence: "about-to-fail",
			file: "build-logs/", next: ""},
		"it fails, and the policy is to fall back": {config: func(
			c *installconfig.Config) {
			c.OnFailure = installconfig.OnFailureFallback
		},
			make: func(n *node) {
				rendered(n)
				n.breakBuild()
				end := n.run("", "")
				require.NoError(n.t, end.Err, end.Log)
			},
			status: analyze.StatusFellBack, phase: "build-master", cause: "containerfile", evidence: "about-to-fail",
			file: "build-logs/", next: ""},
		"the input is wrong": {make: func(n *node) {
			require.NoError(n.t, os.Remove(filepath.Join(n.order.Dir, "layering/master.yaml")))
			require.Error(n.t, n.run("", "").Err)
		}, status: analyze.StatusRefused, phase: "start", cause: "refused-input", evidence: "MachineOSConfig",
			file: "outcome.json", next: "MachineOSConfig"},
		"it is told to stop": {
			make: func(n *node) {
				wait := n.start("", "")
				n.said("wait-render-first")
				n.process.Terminate()
				require.Error(n.t, wait().Err)
			},
			status: analyze.StatusStopped, phase: "render-first", evidence: "context canceled", file: "journal.json",
			next: "run dayone bootstrap again"},
	}
}

// TestAnalyzeScenarios costs about a minute: each scenario is a run of the real flow.
func TestAnalyzeScenarios(t *testing.T) {
	for name, s := range scenarios(t) {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, func(c *installconfig.Config) {
				onePool(c)
				if s.config != nil {
					s.config(c)
				}
			})
			if s.make == nil {
				require.NoError(t, n.mco())
				n.cluster()
				end := n.run("", "")
				require.NoError(t, end.Err, end.Log)
			} else {
				s.make(n)
			}
			r, installers := n.verdict(), n.installersVerdict()
			if s.running {
				n.process.Kill()
			}
			n.judge(r, s)
			n.judge(installers, s)
		})
	}
}

func (n *node) judge(r *analyze.Report, s scenario) {
	t := n.t
	var text, html strings.Builder
	require.NoError(t, r.WriteText(&text))
	require.NoError(t, page.Write(&html, r))
	v := r.Verdict
	assert.Equal(t, s.status, v.Status, text.String())
	assert.Equal(t, s.cause, v.Cause, text.String())
	if s.phase != "" {
		assert.Equal(t, s.phase, v.Phase, text.String())
	}
	assert.Contains(t, v.Evidence.Text, s.evidence, text.String())
	assert.Contains(t, v.Evidence.File, s.file, text.String())
	assert.Contains(t, v.Next, s.next, text.String())
	assert.NotEmpty(t, v.Next, text.String())
	if s.cause != "" {
		assert.Positive(t, v.Evidence.Line, text.String())
	}
	if s.timeline != "" {
		match := regexp.MustCompile(s.timeline)
		assert.True(t, slices.ContainsFunc(r.Timeline, func(e analyze.Event) bool { return match.MatchString(e.Text) }),
			"%s: %s", s.timeline, text.String())
	}
	if s.status == analyze.StatusHandedOver {
		require.Len(t, r.Builds, 1)
		assert.NotEmpty(t, r.Builds[0].Steps)
		assert.NotEmpty(t, r.Builds[0].Layers)
		fields := map[string]bool{}
		for _, d := range r.Differences {
			fields[d.Field] = true
		}
		assert.True(t, fields["osImageURL"] && fields["name"], "%v", r.Differences)
		assert.Len(t, fields, len(r.Differences), "one pool was built")
	}
}

// TestAnalyzeAfterKill kills the flow as each phase begins; a node that loses power leaves the
// same behind.
func TestAnalyzeAfterKill(t *testing.T) {
	n := newNode(t, onePool)
	require.NoError(t, n.mco())
	n.cluster() // what the cluster is given goes with the test
	for _, phase := range []string{"identity", "registry", "render-first", "base", "build-master", "render-second",
		"cluster", "pull", "served", "gate", "hand-over"} {
		end := n.run(phase, "started")
		require.ErrorContains(t, end.Err, "killed", end.Log)
		n.judge(n.verdict(), scenario{status: analyze.StatusCutOff, phase: phase, cause: "killed", evidence: "no process is",
			file: "journal.json", next: "continues where it ended"})
	}
	end := n.run("pull", "recorded")
	require.ErrorContains(t, end.Err, "killed", end.Log)
	n.judge(n.verdict(), scenario{status: analyze.StatusCutOff, cause: "killed", evidence: "no outcome",
		file: "journal.json", next: "continues where it ended",
		timeline: `^hand-over \(.*\) was cut off \(1 times so far\) and runs again$`})
	j, err := journal.Open(n.order.State)
	require.NoError(t, err)
	assert.Equal(t, journal.StatusInterrupted, j.Find("hand-over").
		Status, "no process is at it, and the last one has not come to it")
	assert.Equal(t, 1, j.Find("gate").Interruptions)
	n.closedRecords()
}

// TestAnalyzeInstallersBundle has the service records alone.
func TestAnalyzeInstallersBundle(t *testing.T) {
	n := newNode(t, onePool)
	require.NoError(t, n.mco())
	n.breakBuild()
	require.Error(t, n.run("", "").Err)
	dir := t.TempDir()
	require.NoError(t, os.CopyFS(filepath.Join(dir, "bootstrap/services"), os.DirFS(n.at("/var/log/openshift"))))
	b, err := bundle.Open(dir)
	require.NoError(t, err)
	n.judge(analyze.Bundle(b), scenario{status: analyze.StatusFailed, phase: "dayone-bootstrap/build-master",
		cause: "containerfile", evidence: "exit 7", file: "services/dayone-bootstrap.json"})
}
