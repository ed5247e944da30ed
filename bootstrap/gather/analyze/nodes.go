package analyze

import (
	"time"

	"dayone.dev/dayone/bootstrap/nodes"
)

// Causes of nodes that do not get on.
const (
	causeNodeFailed = "node-failed"
	causeNodeStuck  = "node-stuck"
)

// readNodes gives the nodes as they were when the bundle was made. Where it does not say when, it was when its host
// last heard of one.
func readNodes(f *facts, notes *[]string) []nodes.View {
	file := f.bundle.Get(at(f.bundle, nodesName))
	if file == nil {
		return nil
	}
	rows, err := nodes.Parse(file.Content)
	if err != nil {
		*notes = append(*notes, shorten(err.Error()))
		return nil
	}
	var now time.Time
	for i := range rows {
		r := &rows[i]
		for _, text := range []*string{&r.Address, &r.Name, &r.Pool, &r.Image, &r.Class, &r.Reason, &r.Next} {
			*text = shorten(*text)
		}
		if r.Seen.After(now) {
			now = r.Seen
		}
	}
	if f.status != nil && f.status.Gathered.After(now) {
		now = f.status.Gathered
	}
	return nodes.Views(rows, now)
}

// nodeInTrouble applies where a node has failed or does not get on while this host serves it.
func nodeInTrouble(f *facts) (Verdict, bool) {
	var worst *nodes.View
	for i := range f.nodes {
		v := &f.nodes[i]
		if v.Stuck && (worst == nil || v.Stage == nodes.StageFailed && worst.Stage != nodes.StageFailed) {
			worst = v
		}
	}
	if worst == nil {
		return Verdict{}, false
	}
	v := Verdict{Status: StatusWaiting, Phase: "node " + worst.Who(), Cause: causeNodeStuck,
		Summary: "node " + worst.Who() + " does not get on: " + shorten(worst.Text), Next: shorten(worst.Hint)}
	if worst.Stage == nodes.StageFailed {
		c := explain(worst.Reason)
		v.Status, v.Cause, v.Summary = StatusFailed, causeNodeFailed, "node "+worst.Who()+" failed: "+shorten(worst.Text)
		if worst.Next == "" && c.id != causeUnknown {
			v.Next = c.next
		}
	}
	v.Evidence = f.evidence(nodesName, `"`+worst.Address+`"`, shorten(worst.Text))
	return v, true
}
