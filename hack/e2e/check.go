package e2e

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"sigs.k8s.io/yaml"

	"dayone.dev/dayone/bootstrap/journal"
	"dayone.dev/dayone/bootstrap/nodes"
	"dayone.dev/dayone/bootstrap/preflight"
	"dayone.dev/dayone/build/sign"
	"dayone.dev/dayone/hack/testnode"
	"dayone.dev/dayone/rebase/deploy/pull"
	"dayone.dev/dayone/rebase/firstboot"
)

// expectedBoots is the promise: the disk image once, then the layered image.
const expectedBoots = 2

// rowLimit is how long the last report of a node may take, on a very busy machine, too.
const rowLimit = time.Minute

// statusFile is the node agent's record of the first boot.
const statusFile = firstboot.StateDir + "/status.json"

// waitAgain waits until the node has come up a second time, whichever way.
func waitAgain(ctx context.Context, n *testnode.Node) error {
	return poll(ctx, n.Name+" to reboot", func() (bool, error) {
		soft, err := n.SoftReboots()
		if err != nil || soft > 0 {
			return soft > 0, err
		}
		boots, err := n.Boots()
		if err != nil {
			return false, err
		}
		on, err := n.Running()
		if err != nil || on && boots < expectedBoots {
			return false, err
		}
		return true, n.WaitBoot(ctx, expectedBoots) // it names why a node is off
	})
}

// waitDone waits until the node agent has verified the second boot.
func waitDone(ctx context.Context, n *testnode.Node) error {
	return poll(ctx, n.Name+" to verify its image", func() (bool, error) {
		rec, err := FirstBootRecord(ctx, n)
		if err != nil {
			return false, nil // not written yet, or the node is between two boots
		}
		if rec.State == firstboot.StateRolledBack {
			return false, fmt.Errorf("%s went back to its base OS: %s", n.Name, rec.Message)
		}
		return rec.State == firstboot.StateDone, nil
	})
}

// FirstBootRecord reads what the node agent says of itself.
func FirstBootRecord(ctx context.Context, n *testnode.Node) (firstboot.Record, error) {
	var rec firstboot.Record
	raw, err := n.Output(ctx, "cat", statusFile)
	if err != nil {
		return rec, err
	}
	return rec, json.Unmarshal([]byte(raw), &rec)
}

// checkMasters looks inside every master, fills the report and fails when a fact does not hold.
func checkMasters(ctx context.Context, r *Run, rep *Report) error {
	built, err := Built(r.State, "master")
	if err != nil {
		return err
	}
	config, err := RenderedConfig(r.State, "master")
	if err != nil {
		return err
	}
	rep.Image = config.Spec.OSImageURL
	layered, err := layeredFiles(r.State, built)
	if err != nil {
		return err
	}
	key, err := r.signer()
	if err != nil {
		return err
	}
	rep.SignedBy = key.Fingerprint()
	for _, n := range r.Masters {
		c := inspector{ctx: ctx, node: n, report: rep}
		c.booted(built.Digest)
		if r.sidecar.Config.Signing.Required() {
			c.verified(key)
		}
		c.boots()
		c.kernelArguments(config.Spec.KernelArguments)
		c.rendered(config)
		c.containerfile(layered)
		c.row(r.State, built.Digest)
		if rep.Status == "" {
			rep.Status, _ = n.Output(ctx, "ostree", "admin", "status")
		}
	}
	raw, err := json.MarshalIndent(rep, "", "  ")
	if err != nil {
		return fmt.Errorf("encode report: %w", err)
	}
	if err := os.WriteFile(filepath.Join(r.Work, "report.json"), append(raw, '\n'), 0o644); err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	if bad := rep.Failed(); len(bad) > 0 {
		return fmt.Errorf("%d of %d checks do not hold, the first on %s: %s: %s", len(bad), len(rep.Checks), bad[0].Node,
			bad[0].What, bad[0].Detail)
	}
	return nil
}

// RenderedConfig reads the final rendered config of a pool from a state directory, as the Ignition server has it.
func RenderedConfig(stateDir, pool string) (*mcfgv1.MachineConfig, error) {
	j, err := journal.Open(stateDir)
	if err != nil {
		return nil, err
	}
	var final struct {
		Configs map[string]string `json:"configs"`
	}
	if rec := j.Find("render-final"); rec == nil || json.Unmarshal(rec.Output, &final) != nil {
		return nil, fmt.Errorf("the bootstrap has no final rendering")
	}
	raw, err := os.ReadFile(filepath.Join(stateDir, "rendered", "machine-configs", final.Configs[pool]+".yaml"))
	if err != nil {
		return nil, fmt.Errorf("read rendered config: %w", err)
	}
	config := &mcfgv1.MachineConfig{}
	if err := yaml.Unmarshal(raw, config); err != nil {
		return nil, fmt.Errorf("read rendered config: %w", err)
	}
	return config, nil
}

// inspector adds what it finds in one node to a report.
type inspector struct {
	ctx    context.Context
	node   *testnode.Node
	report *Report
}

func (c inspector) add(what string, ok bool, format string, args ...any) {
	c.report.Checks = append(c.report.Checks, Check{Node: c.node.Name, What: what, OK: ok,
		Detail: fmt.Sprintf(format, args...)})
}

func (c inspector) booted(want string) {
	const what = "booted digest is the built one"
	got, err := BootedDigest(c.ctx, c.node)
	if err != nil {
		c.add(what, false, "%v", err)
		return
	}
	c.add(what, got == want, "%s", got)
}

// signer is the public key whose signature the images have.
func (r *Run) signer() (sign.PublicKey, error) {
	return sign.ReadPublicKey(filepath.Join(r.Dir, preflight.SigningDir, sign.PublicFile))
}

// verified looks for the key in the node's policy, and for the policy in the node's own record of what it verified.
func (c inspector) verified(key sign.PublicKey) {
	rec, err := FirstBootRecord(c.ctx, c.node)
	if err != nil {
		c.add("the image is signed", false, "%v", err)
		return
	}
	policy, err := c.node.Output(c.ctx, "cat", pull.PolicyPath)
	if err != nil {
		c.add("the image is signed", false, "%v", err)
		return
	}
	ok := rec.Image == c.report.Image && slices.Contains(rec.Verified, pull.PolicyPath) &&
		strings.Contains(policy, base64.StdEncoding.EncodeToString(key))
	if ok {
		c.report.VerifiedBy++
	}
	c.add("the image is signed", ok, "by the keys of %s", strings.Join(rec.Verified, ", "))
}

// BootedDigest asks ostree inside the node which image's deployment is booted.
func BootedDigest(ctx context.Context, n *testnode.Node) (string, error) {
	status, err := n.Output(ctx, "ostree", "admin", "status")
	if err != nil {
		return "", err
	}
	for _, line := range strings.Split(status, "\n") {
		fields := strings.Fields(line)
		if len(fields) < 3 || fields[0] != "*" {
			continue
		}
		commit, _, _ := strings.Cut(fields[2], ".")
		digest, err := n.Output(ctx, "ostree", "show", "--repo=/sysroot/ostree/repo",
			"--print-metadata-key=ostree.manifest-digest", commit)
		return strings.Trim(strings.TrimSpace(digest), "'"), err
	}
	return "", fmt.Errorf("no deployment of %s is booted: %s", n.Name, status)
}

// boots compares what the node counted with what the lab did, and says why its reboot was not soft.
func (c inspector) boots() {
	hardware, err := c.node.Boots()
	soft, softErr := c.node.SoftReboots()
	rec, readErr := FirstBootRecord(c.ctx, c.node)
	seen := rec.Counts()
	ok := errors.Join(err, softErr, readErr) == nil && hardware+soft == expectedBoots &&
		seen == firstboot.BootsInWords(expectedBoots, soft)
	if soft == 0 {
		seen += "; no soft reboot: " + rec.Hard
	}
	c.add("one reboot, no more", ok, "%s", seen)
}

// row checks what the bootstrap host says of the node: by its pulls, and by its own reports.
func (c inspector) row(stateDir, digest string) {
	const what = "the bootstrap host knows how far the node is"
	ctx, cancel := context.WithTimeout(c.ctx, rowLimit)
	defer cancel()
	var row nodes.Row
	// The node's record is final a moment before its report is here.
	err := poll(ctx, "the row of "+c.node.Name, func() (bool, error) {
		rows, err := nodes.Read(stateDir)
		at := slices.IndexFunc(rows, func(r nodes.Row) bool { return r.Name == c.node.Name })
		if at >= 0 {
			row = rows[at]
		}
		return row.Stage == nodes.StageBooted, err
	})
	c.add(what, err == nil && row.Pool == "master" && row.Image == digest && row.Boots == expectedBoots && row.Asked > 0 &&
		row.Bytes > 0 && row.Total >= row.Bytes && row.Reason == "", "%s", seen(row, err))
}

// seen is a row in one line, with what is wrong.
func seen(row nodes.Row, err error) string {
	text := fmt.Sprintf("%s in pool %s, asked for its config %d times, got %d bytes of %s (%d in all), %s", row.Stage,
		row.Pool, row.Asked, row.Bytes, row.Image, row.Total, firstboot.BootsInWords(row.Boots, row.SoftReboots))
	if row.Reason != "" {
		text += ", " + row.Reason
	}
	if err != nil {
		text += ": " + err.Error()
	}
	return text
}

func (c inspector) kernelArguments(want []string) {
	line, err := c.node.Output(c.ctx, "cat", "/proc/cmdline")
	have := map[string]bool{}
	for _, a := range strings.Fields(line) {
		have[a] = true
	}
	var missing []string
	for _, a := range want {
		if !have[a] {
			missing = append(missing, a)
		}
	}
	if len(missing) > 0 {
		c.add("kernel arguments", false, "missing %v (%v)", missing, err)
		return
	}
	c.add("kernel arguments", err == nil, "%s", strings.Join(want, " "))
}
