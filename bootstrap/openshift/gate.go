package openshift

import (
	"context"
	"fmt"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"dayone.dev/dayone/manifests/assets/bootstrapnode"
)

// Nftables is the gate that dayone-gate.service closed.
type Nftables struct {
	// Program is nft's path; default nft.
	Program string
}

func (n Nftables) command(ctx context.Context, args ...string) *exec.Cmd {
	program := n.Program
	if program == "" {
		program = "nft"
	}
	return exec.CommandContext(ctx, program, args...)
}

// Open deletes the gate's table, if it is there. It is added first, in the same transaction: so its absence is no
// error, and every error means that the gate may be shut.
func (n Nftables) Open(ctx context.Context) error {
	const transaction = "add table " + bootstrapnode.GateTable + "; delete table " + bootstrapnode.GateTable
	if out, err := n.command(ctx, transaction).CombinedOutput(); err != nil {
		return fmt.Errorf("open the gate (nft list ruleset shows whether it is shut): %w: %s", err, lastLines(string(out)))
	}
	return nil
}

// packets is the state of a counter as nft prints it.
var packets = regexp.MustCompile(`packets (\d+)`)

// Refused reads the gate's counter. An open gate counts nothing.
func (n Nftables) Refused(ctx context.Context) (uint64, error) {
	counter := append([]string{"list", "counter"}, strings.Fields(bootstrapnode.GateTable)...)
	out, err := n.command(ctx, append(counter, bootstrapnode.GateCounter)...).Output()
	if err != nil {
		return 0, fmt.Errorf("read the gate's counter: %w", err)
	}
	m := packets.FindSubmatch(out)
	if m == nil {
		return 0, fmt.Errorf("read the gate's counter: no packets in %q", lastLines(string(out)))
	}
	return strconv.ParseUint(string(m[1]), 10, 64)
}

// noteRefused is the name of what is noted of nodes that come before the gate is open.
const noteRefused = "gate-refused"

// watchGate notes that nodes ask for their configs already, and again when they have asked ten times as often, until
// the gate opens: an admin who sees masters wait on their consoles finds why.
func watchGate(ctx context.Context, f flow, open *atomic.Bool) {
	said := uint64(0)
	ticks := time.NewTicker(f.Interval)
	defer ticks.Stop()
	for !open.Load() {
		// An error is a gate that is open, or none that could count.
		if n, err := f.Gate.Refused(ctx); err == nil && n > 0 && n >= 10*said {
			said = n
			f.records.note(noteRefused,
				fmt.Sprintf(
					"nodes, or a load balancer's checks, were refused %s by the gate so far: they ask again, and get their "+
						"configs when it opens", times(n)))
		}
		select {
		case <-ctx.Done():
			return
		case <-ticks.C:
		}
	}
}

// openGate lets nodes fetch their configs, and notes how often some have asked too early.
func openGate(ctx context.Context, f flow) error {
	n, err := f.Gate.Refused(ctx)
	if err := f.Gate.Open(ctx); err != nil {
		return err
	}
	if err == nil && n > 0 {
		text := fmt.Sprintf(
			"nodes, or a load balancer's checks, were refused %s by the gate until %s, since this host booted; now they "+
				"get their configs", times(n), time.Now().UTC().Format("15:04:05Z"))
		f.Log.Info(text)
		f.records.note(noteRefused, text)
	}
	return nil
}

func times(n uint64) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}
