package nodes

import (
	"cmp"
	"fmt"
	"time"

	"dayone.dev/dayone/bootstrap/board"
	"dayone.dev/dayone/rebase/firstboot"
)

// Limits after which a node that says nothing counts as stuck.
const (
	// byteLimit is without a byte of the image while it is pulled: registry and deployers give up a silent connection
	// after a minute.
	byteLimit = time.Minute
	// fetchLimit is between a config and the first request for an image: Ignition writes disks meanwhile.
	fetchLimit = 5 * time.Minute
	// rebootLimit is a reboot; bare metal takes more than 15 minutes with its firmware's tests.
	rebootLimit = 20 * time.Minute
	// verifyLimit is firstboot's limit for health (rebase/firstboot) and a little more.
	verifyLimit = 11 * time.Minute
	// stageLimit is from a staged image to the reboot.
	stageLimit = 5 * time.Minute
)

// View is a row as people read it at one time.
type View struct {
	Row
	// Text says in one line how the node is.
	Text string `json:"text"`
	// Stuck says that the node needs a look; Hint is where to look.
	Stuck bool   `json:"stuck,omitempty"`
	Hint  string `json:"hint,omitempty"`
}

// Who is the node's name, or its address.
func (r Row) Who() string { return cmp.Or(r.Name, r.Address) }

// At is the row as people read it.
func (r Row) At(now time.Time) View {
	if r.ByMCO {
		return r.byMCO(now)
	}
	v := View{Row: r}
	stage, silent := now.Sub(r.Since), now.Sub(r.LastByte)
	switch r.Stage {
	case StageAsked:
		v.Text = fmt.Sprintf("asks for its config since %s, and none is served: %s", age(stage), r.Reason)
		v.Stuck, v.Hint = stage > fetchLimit, "look at the phases above: configs are served after the last build"
	case StageFetching:
		v.Text = fmt.Sprintf("has its config since %s", age(stage))
		v.Stuck = stage > fetchLimit
		v.Hint = "look at the node's console: Ignition cannot write the config, or the node cannot reach the registry"
	case StagePulling:
		v.Text = fmt.Sprintf("pulls since %s, %s", age(stage), amount(r.Bytes, r.Total))
		if silent >= time.Minute/6 && !r.LastByte.IsZero() {
			v.Text += fmt.Sprintf(", no byte for %s", age(silent))
		}
		if r.Reason != "" {
			v.Text += "; before: " + r.Reason
		}
		v.Stuck = !r.LastByte.IsZero() && silent > byteLimit
		v.Hint = "check the network from the node to this host's registry, then journalctl -u dayone-firstboot on the node"
	case StageStaged:
		v.Text = fmt.Sprintf("has staged its image since %s", age(stage))
		v.Stuck, v.Hint = stage > stageLimit, "journalctl -u dayone-firstboot on the node says what holds the reboot"
	case StageRebooting:
		v.Text = fmt.Sprintf("reboots since %s", age(stage))
		v.Stuck, v.Hint = stage > rebootLimit, "look at the node's console: it may hang in its firmware or boot loader"
	case StageVerifying:
		v.Text = fmt.Sprintf("runs its image and waits until it is healthy, since %s", age(stage))
		v.Stuck, v.Hint = stage > verifyLimit, "systemctl --failed on the node"
	case StageBooted:
		v.Text = fmt.Sprintf("runs its image since %s, %s", age(stage), firstboot.BootsInWords(r.Boots, r.SoftReboots))
	case StageFailed:
		v.Text = fmt.Sprintf("failed %s ago: %s", age(stage), cmp.Or(r.Reason, r.Class))
		if r.Attempts > 1 {
			v.Text += fmt.Sprintf(" (attempt %d)", r.Attempts)
		}
		v.Stuck = true
		v.Hint = cmp.Or(r.Next, "journalctl -u dayone-firstboot on the node has the whole story; it tries again by itself")
	}
	if !v.Stuck {
		v.Hint = ""
	}
	return v
}

// Views are the rows as people read them.
func Views(rows []Row, now time.Time) []View {
	unasked := map[string]bool{} // pools of whose nodes some never asked for a config
	for _, r := range rows {
		unasked[r.Pool] = unasked[r.Pool] || r.Asked == 0
	}
	out := make([]View, 0, len(rows))
	for _, r := range rows {
		v := r.At(now)
		if r.Stage == StageFetching && r.Name == "" && unasked[r.Pool] {
			v.Text += fmt.Sprintf("; asked %d times: it may be a load balancer, whose nodes are other rows", r.Asked)
			v.Stuck, v.Hint = false, ""
		}
		out = append(out, v)
	}
	return out
}

// OnBoard are the nodes as status shows them.
func OnBoard(views []View) []board.Row {
	out := make([]board.Row, 0, len(views))
	for _, v := range views {
		r := board.Row{Name: v.Who(), Pool: v.Pool, State: string(v.Stage), Progress: board.Running, Since: v.Since,
			Bytes: v.Bytes, Total: v.Total, Text: v.Text, Next: v.Hint}
		switch {
		case v.Stuck:
			r.Progress = board.Failed
		case v.Stage == StageBooted:
			r.Progress = board.Done
		}
		tenths := int64(0)
		if v.Total > 0 {
			tenths = 10 * v.Bytes / v.Total
		}
		out = append(out, r.Steady(fmt.Sprint(tenths, v.Tries, v.Attempts, v.Reason, v.Says)))
	}
	return out
}

// amount is how much was sent, in megabytes as registries and disks count them.
func amount(n, total int64) string {
	const mb = 1_000_000
	if total <= 0 {
		return fmt.Sprintf("%d MB", n/mb)
	}
	return fmt.Sprintf("%d of %d MB", n/mb, (total+mb-1)/mb)
}

// age is a time span in its largest unit.
func age(d time.Duration) string {
	switch {
	case d < 0:
		return "0s"
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	}
	return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
}
