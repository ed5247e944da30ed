package nodes

import (
	"cmp"
	"fmt"
	"strings"
	"time"
)

// Member is a node of the cluster as its API shows it.
type Member struct {
	Name, Pool string
	Addresses  []string
	// Image is the one that its agent says it runs, by digest.
	Image string
	// Failed says that its agent gave up; Reason says why.
	Failed bool
	Reason string
	// Says is what keeps the node from being done; empty: it is done.
	Says string
}

// Asked is a request for a pool's config that MCO's server logged. What a row knows already changes nothing: the log is
// read again after a restart.
func (t *Tracker) Asked(logged time.Time, address, pool string) {
	t.change(address, func(at time.Time, r Row) Row {
		if !logged.After(r.AskedAt) {
			return r
		}
		r.AskedAt = logged
		if r.Stage != StageFetching && logged.Before(r.Seen) { // it has got further before the log was read
			r.Asked++
			return r
		}
		r = r.asked(logged, bounded(pool), "")
		r.Since = logged
		return r
	})
}

// Joined is a node that the cluster shows. It continues the row of one of its addresses.
func (t *Tracker) Joined(m Member) {
	t.mu.Lock()
	defer t.mu.Unlock()
	key := ""
	for _, a := range m.Addresses {
		a = plain(a)
		if _, known := t.table.rows[a]; known {
			key = a
			break
		}
		key = cmp.Or(key, a)
	}
	m.Name, m.Pool = bounded(m.Name), bounded(m.Pool)
	if key != "" {
		t.table.move(m.Name, key) // the cluster may have shown the node before it knew an address
	}
	m.Reason, m.Says = bounded(t.o.Scrub(m.Reason)), bounded(t.o.Scrub(m.Says))
	t.apply(cmp.Or(key, m.Name), func(at time.Time, r Row) Row { return r.joined(at, m) })
}

// joined is what the cluster says of the node.
func (r Row) joined(at time.Time, m Member) Row {
	r.Name, r.Pool = m.Name, m.Pool
	if _, digest, ok := strings.Cut(m.Image, "@"); ok && r.Image != digest {
		r.Image, r.Bytes, r.Total = bounded(digest), 0, 0
	}
	r.Class, r.Next, r.Reason, r.Says = "", "", "", ""
	switch {
	case m.Failed:
		r.Reason = cmp.Or(m.Reason, m.Says)
		return r.enter(StageFailed, at)
	case m.Says != "":
		r.Says = m.Says
		return r.enter(StageVerifying, at)
	}
	return r.enter(StageBooted, at)
}

// triesLimit is how often MCO's first boot may come for its image before it needs a look. A good one comes up to three
// times: it inspects the image, pulls it, and may pull it again for its kernel.
const triesLimit = 4

// Where to look on nodes of MCO's.
const (
	lookFirstBoot = "check the network from the node to this host's registry, then journalctl -u " +
		"machine-config-daemon-firstboot on the node"
	lookDaemon = "oc describe node %s, and the log of its machine-config-daemon: oc logs -n " +
		"openshift-machine-config-operator -c machine-config-daemon -l k8s-app=machine-config-daemon --prefix"
)

// byMCO is At for a node of which only others tell. Each text says who does.
func (r Row) byMCO(now time.Time) View {
	v := View{Row: r}
	stage, silent := now.Sub(r.Since), now.Sub(r.LastByte)
	switch r.Stage {
	case StageFetching:
		v.Text = fmt.Sprintf("asked MCO's config server for its config %s ago", age(stage))
		v.Stuck = stage > fetchLimit
		v.Hint = "look at the node's console: Ignition cannot write the config, or the node cannot reach the registry"
	case StagePulling:
		v.Text = fmt.Sprintf("pulls since %s, %s", age(stage), amount(r.Bytes, r.Total))
		if r.Tries > 1 {
			v.Text += fmt.Sprintf(", came for it %d times", r.Tries)
		}
		if silent >= tryPause {
			v.Text += fmt.Sprintf(", no byte for %s (this host does not see whether it stages or reboots)", age(silent))
		}
		v.Stuck, v.Hint = silent > rebootLimit || r.Tries > triesLimit, lookFirstBoot
	case StageVerifying:
		v.Text = fmt.Sprintf("joined the cluster %s ago, which says: %s", age(stage), r.Says)
		v.Stuck, v.Hint = stage > verifyLimit, fmt.Sprintf(lookDaemon, r.Name)
	case StageBooted:
		v.Text = fmt.Sprintf("runs its image since %s, says MCO's daemon on it", age(stage))
	case StageFailed:
		v.Text = fmt.Sprintf("failed %s ago, says MCO's daemon on it: %s", age(stage), r.Reason)
		v.Stuck, v.Hint = true, fmt.Sprintf(lookDaemon, r.Name)
	}
	if !v.Stuck {
		v.Hint = ""
	}
	return v
}
