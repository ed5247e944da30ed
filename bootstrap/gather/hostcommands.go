package gather

import (
	"bytes"
	"context"
	"errors"
	"os/exec"
	"path"
	"strings"
)

// output runs a program of the host, bounded in time and size; ok is false when it is missing or prints nothing.
func (h *hostGatherer) output(ctx context.Context, name string, args ...string) (out []byte, ok bool) {
	if h.NoCommands || h.Root != "" {
		return nil, false
	}
	program, err := exec.LookPath(name)
	if err != nil {
		return nil, false
	}
	ctx, cancel := context.WithTimeout(ctx, commandLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	kept := &tail{limit: int(h.MaxFile)}
	complaint := &tail{limit: 300}
	cmd.Stdout, cmd.Stderr = kept, complaint
	cmd.WaitDelay = commandLimit
	if err := cmd.Run(); err != nil && kept.Len() == 0 {
		why := strings.TrimSuffix(err.Error()+": "+strings.Join(strings.Fields(complaint.String()), " "), ": ")
		h.archive.note("%s %s: %s", name, strings.Join(args, " "), why)
		return nil, false
	}
	return kept.Bytes(), kept.Len() > 0
}

// tail keeps the end of what is written.
type tail struct {
	bytes.Buffer
	limit int
}

func (t *tail) Write(p []byte) (int, error) {
	n := len(p)
	if len(p) > t.limit {
		p = p[len(p)-t.limit:]
	}
	if over := t.Len() + len(p) - t.limit; over > 0 {
		t.Next(over)
	}
	t.Buffer.Write(p)
	return n, nil
}

// command gathers what a program of the host prints.
func (h *hostGatherer) command(ctx context.Context, to, name string, args ...string) error {
	if out, ok := h.output(ctx, name, args...); ok {
		return h.archive.add(to, out)
	}
	return nil
}

// host gathers the network and the room of the host.
func (h *hostGatherer) host(ctx context.Context) error {
	return errors.Join(
		h.command(ctx, path.Join(dirNetwork, "ip-addr.txt"), "ip", "addr"),
		h.command(ctx, path.Join(dirNetwork, "ip-route.txt"), "ip", "route"),
		h.command(ctx, path.Join(dirNetwork, "hostname.txt"), "hostname"),
		h.command(ctx, path.Join(dirNetwork, "listening.txt"), "ss", "-tlnp"),
		h.command(ctx, path.Join(dirNetwork, "nftables.txt"), "nft", "list", "ruleset"),
		h.file(h.Root+"/etc/resolv.conf", path.Join(dirNetwork, "resolv.conf")),
		h.command(ctx, path.Join(dirDayone, "disk.txt"), "df", "-h", "-i", h.StateDir),
		h.file(h.Root+"/proc/meminfo", path.Join(dirDayone, "meminfo.txt")),
		h.file(h.Root+"/etc/os-release", path.Join(dirDayone, "os-release.txt")),
	)
}

// journalServices are the units whose journals are gathered: dayone's, and those that openshift-install's script
// gathers.
func journalServices() []string {
	return []string{"dayone-bootstrap", "dayone-gate", "dayone-fetch", "dayone-registry", "release-image",
		"crio-configure", "bootkube", "progress", "kubelet", "crio", "approve-csr"}
}

// journals gathers the units' journals of this boot.
func (h *hostGatherer) journals(ctx context.Context) error {
	for _, unit := range journalServices() {
		out, ok := h.output(ctx, "journalctl", "--boot", "--no-pager", "--output=short", "--lines=20000",
			"--unit="+unit+".service")
		if !ok || bytes.HasPrefix(bytes.TrimSpace(out), []byte("-- No entries")) {
			continue
		}
		if err := h.archive.add(path.Join(dirJournals, unit+".log"), out); err != nil {
			return err
		}
	}
	// A kill for want of memory is in no unit's journal.
	out, ok := h.output(ctx, "journalctl", "--boot", "--no-pager", "--dmesg",
		"--grep=Out of memory|oom-kill|I/O error|No space", "--lines=200")
	if ok && !bytes.HasPrefix(bytes.TrimSpace(out), []byte("-- No entries")) {
		return h.archive.add(path.Join(dirJournals, "kernel.log"), out)
	}
	return nil
}

// maxUnits bounds the failed units that are gathered.
const maxUnits = 100

// units gathers what systemd says of failed units, as the installer's script does.
func (h *hostGatherer) units(ctx context.Context) error {
	out, ok := h.output(ctx, "systemctl", "list-units", "--state=failed", "--no-legend", "--plain", "--no-pager")
	if !ok {
		return nil
	}
	if err := h.archive.add("failed-units.txt", out); err != nil {
		return err
	}
	for n, line := range strings.Split(strings.TrimSpace(string(out)), "\n") {
		unit, _, _ := strings.Cut(strings.TrimSpace(line), " ")
		if unit == "" || n >= maxUnits || strings.ContainsAny(unit, "/ ") {
			continue
		}
		if err := errors.Join(
			h.command(ctx, path.Join("unit-status", unit+".txt"), "systemctl", "status", "--no-pager", "--full", "--lines=0",
				"--", unit),
			h.command(ctx, path.Join("unit-status", unit+".log"), "journalctl", "--boot", "--no-pager", "--lines=20000",
				"--unit="+unit)); err != nil {
			return err
		}
	}
	return nil
}
