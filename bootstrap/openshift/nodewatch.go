package openshift

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"time"

	"dayone.dev/dayone/bootstrap/handover"
	"dayone.dev/dayone/bootstrap/nodes"
)

// serverLogs are the logs of MCO's config server, a container of the static pod, as kubelet lays them out: the pod's
// directory is NAMESPACE_NAME-NODE_UID.
const serverLogs = "/var/log/pods/openshift-machine-config-operator_bootstrap-machine-config-operator-*/" +
	"machine-config-server/*.log"

// maxLog bounds what is read of one log at a time, in bytes. Kubelet begins a new one after 10 MiB.
const maxLog = 1 << 20

// asked is the line that MCO's server logs for each request (pkg/server/api.go); releases add more at its end. Before
// it stands what the container runtime adds: time, stream, F for a whole line.
var asked = regexp.MustCompile(`^(\S+) std(?:err|out) F .*\bPool ([a-z0-9.-]+) requested by address:"([^"]+)" ` +
	`User-Agent:"Ignition/`)

// watchNodes keeps the rows of the nodes until the returned function is called, which takes a last look unless parent
// has ended. MCO's own first boot is at work there and reports nothing: so the log of its config server and the
// cluster's API are read. The registry tells of pulls by itself.
func watchNodes(parent context.Context, f finisher, plan *handover.Plan) (end func()) {
	ctx, cancel := context.WithCancel(parent)
	ended := make(chan struct{})
	w := nodeWatch{f: f, plan: plan, read: map[string]int64{}}
	go func() {
		defer close(ended)
		for {
			w.look(ctx)
			select {
			case <-ctx.Done():
				return
			case <-time.After(2 * f.Interval):
			}
		}
	}()
	return func() {
		cancel()
		<-ended
		last, done := context.WithTimeout(parent, lastLook)
		defer done()
		if parent.Err() == nil {
			w.look(last)
		}
	}
}

// lastLook bounds the look at the end; the bootstrap waits for it.
const lastLook = 10 * time.Second

type nodeWatch struct {
	f    finisher
	plan *handover.Plan
	// read is how far each log was read, in bytes.
	read map[string]int64
}

// look reads the logs and the API. It only logs an error: the rows inform people, and the bootstrap decides nothing by
// them.
func (w nodeWatch) look(ctx context.Context) {
	tracker := w.f.layered.Registry.Nodes
	logs, err := filepath.Glob(w.f.at(serverLogs))
	for _, file := range logs {
		w.read[file], err = readAsked(file, w.read[file], tracker)
		if err != nil {
			break
		}
	}
	if err == nil {
		err = joined(ctx, w.f, w.plan, tracker)
	}
	if err != nil && ctx.Err() == nil {
		w.f.Log.WithError(err).Debug("state of the nodes is incomplete for now")
	}
}

// readAsked tells of the requests in a log from an offset on, and gives where the next read begins.
func readAsked(file string, from int64, tracker *nodes.Tracker) (int64, error) {
	log, err := os.Open(file)
	if err != nil {
		return from, fmt.Errorf("read the log of MCO's config server: %w", err)
	}
	defer log.Close()
	if info, err := log.Stat(); err == nil && info.Size() < from {
		from = 0 // a new log under the old name
	}
	raw, err := io.ReadAll(io.NewSectionReader(log, from, maxLog))
	if err != nil {
		return from, fmt.Errorf("read the log of MCO's config server: %w", err)
	}
	whole := raw[:bytes.LastIndexByte(raw, '\n')+1]
	if len(whole) == 0 && len(raw) == maxLog {
		return from + maxLog, nil // no line of MCO's is that long
	}
	for line := range bytes.Lines(whole) {
		m := asked.FindSubmatch(line)
		if m == nil {
			continue
		}
		if at, err := time.Parse(time.RFC3339Nano, string(m[1])); err == nil {
			tracker.Asked(at.UTC(), string(m[3]), string(m[2]))
		}
	}
	return from + int64(len(whole)), nil
}

// joined tells of the nodes that the cluster has.
func joined(ctx context.Context, f finisher, plan *handover.Plan, tracker *nodes.Tracker) error {
	api, err := f.HandOver.Connect(ctx)
	if err != nil {
		return err
	}
	members, err := handover.Members(ctx, api, plan)
	if err != nil {
		return err
	}
	for _, m := range members {
		tracker.Joined(m)
	}
	return nil
}
