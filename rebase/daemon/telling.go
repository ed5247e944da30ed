package daemon

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/sirupsen/logrus"
	"k8s.io/client-go/util/flowcontrol"

	"dayone.dev/dayone/rebase/daemon/kubeapi"
	"dayone.dev/dayone/rebase/nodestate"
)

// Reasons of events about the node: MCO's own, at the same moments. Source: MCO, pkg/daemon/{daemon,drain,update}.go.
const (
	eventBootResync       = "BootResync"
	eventDriftFound       = "ConfigDriftDetected"
	eventDriftWatched     = "ConfigDriftMonitorStarted"
	eventDriftUnwatched   = "ConfigDriftMonitorStopped"
	eventUnlikeConfig     = "OnDiskStateValidationFailed"
	eventUnreconcilable   = "FailedToReconcile"
	eventCordon           = "Cordon"
	eventDrain            = "Drain"
	eventDrainFailed      = "FailedToDrain"
	eventUpgrade          = "InClusterUpgrade"
	eventOSUpdateStarted  = "OSUpdateStarted"
	eventOSUpdateStaged   = "OSUpdateStaged"
	eventOSUpgradeApplied = "OSUpgradeApplied"
	eventOSUpgradeSkipped = "OSUpgradeSkipped"
	eventServiceReload    = "ServiceReload"
	eventReloadFailed     = "FailedServiceReload"
	eventServiceRestart   = "ServiceRestart"
	eventRestartFailed    = "FailedServiceRestart"
	eventSkipReboot       = "SkipReboot"
	eventReboot           = "Reboot"
	eventUncordon         = "Uncordon"
	eventUncordonFailed   = "FailedToUncordon"
	eventNodeDone         = "NodeDone"
)

const (
	// eventsAtOnce and eventsASecond bound what the agent tells: a way to a target has about fifteen events, and a node
	// that fails in ever new words gets no more than two a minute.
	eventsAtOnce  = 50
	eventsASecond = 1.0 / 30
	// maxRemembered is how many of its events an agent remembers, about 40 bytes each.
	maxRemembered = 500
	// drainLimit and uncordonLimit are when a wait for the drain controller is told. Source: MCO, pkg/daemon.
	drainLimit    = time.Hour
	uncordonLimit = 10 * time.Minute
	// maxEventNode and nameHash bound an event's name: bytes of the node's, digits of the occasion's hash.
	maxEventNode = 200
	nameHash     = 16
)

// occasion is something that has happened to the node.
type occasion struct {
	reason  string
	warning bool
	// once tells it from others of its reason. An agent that was killed and comes to the same occasion again makes no
	// second event. Empty: it is new each time.
	once    string
	message string
}

// of makes an occasion of one way to a target.
func (in observed) of(reason, format string, args ...any) occasion {
	return occasion{reason: reason, once: fmt.Sprintf("%d %s", in.journal.Journey, in.journal.Target),
		message: fmt.Sprintf(format, args...)}
}

// warns makes it a warning.
func (o occasion) warns() occasion {
	o.warning = true
	return o
}

// also tells it from others of the same way and reason.
func (o occasion) also(what string) occasion {
	o.once += " " + what
	return o
}

// teller makes events about the node. They are for people and programs that watch: what fails is logged and left.
type teller struct {
	node    string
	cluster ownEvents
	bound   flowcontrol.RateLimiter
	told    map[string]bool // names of this process's events
	now     func() time.Time
	log     *logrus.Entry
}

func newTeller(o Options) *teller {
	return &teller{node: o.Node, cluster: o.Cluster, now: o.Now, log: o.Log, told: map[string]bool{},
		bound: flowcontrol.NewTokenBucketRateLimiter(eventsASecond, eventsAtOnce)}
}

// tell makes an event of each occasion that this process has not told yet.
func (t *teller) tell(ctx context.Context, n node, all ...occasion) {
	for _, o := range all {
		now := t.now()
		once := o.once
		if once == "" {
			once = now.Format(time.RFC3339Nano) + o.message
		}
		name := eventName(t.node, o.reason, once)
		if n.away || t.told[name] {
			continue
		}
		log := t.log.WithFields(logrus.Fields{"event": o.reason, "message": o.message})
		if !t.bound.TryAccept() {
			log.Warn("too many events: this one is only here")
			continue
		}
		err := t.cluster.Event(ctx, kubeapi.Event{Name: name, Node: n.object.UID, Reason: o.reason, Message: o.message,
			Warning: o.warning, At: now})
		if err != nil {
			log.WithError(err).Warn("cannot make an event")
			continue
		}
		if len(t.told) >= maxRemembered {
			clear(t.told)
		}
		t.told[name] = true
	}
}

func eventName(node, reason, once string) string {
	sum := sha256.Sum256([]byte(reason + "\n" + once))
	return strings.TrimRight(node[:min(len(node), maxEventNode)], ".-") + "." + hex.EncodeToString(sum[:])[:nameHash]
}

// tellFailure tells of a failure whose text the node's record does not have yet, if it is of a kind that others watch.
func (t *teller) tellFailure(ctx context.Context, n node, failure error) {
	var said nodestate.Record
	said.SetReason(failure.Error())
	if said.Reason == n.record.Reason {
		return
	}
	o := occasion{message: failure.Error(), warning: true}
	switch {
	case errors.Is(failure, errImpossible):
		o.reason = eventUnreconcilable
	case errors.Is(failure, errDrift):
		o.reason = eventDriftFound
	case errors.Is(failure, errUnlike):
		o.reason = eventUnlikeConfig
	default:
		return
	}
	t.tell(ctx, n, o)
}
