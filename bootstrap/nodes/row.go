package nodes

import (
	"cmp"
	"strings"
	"time"

	"dayone.dev/dayone/rebase/firstboot"
)

// Stage says how far a node is.
type Stage string

// The stages, in the order of a node's way.
const (
	// StageAsked: it asked for its config and got none yet.
	StageAsked Stage = "asked"
	// StageFetching: it has its config and fetches what that names.
	StageFetching Stage = "fetching"
	// StagePulling: it pulls its image.
	StagePulling Stage = "pulling"
	// StageStaged: the image is its next boot's.
	StageStaged Stage = "staged"
	// StageRebooting: it reboots into the image.
	StageRebooting Stage = "rebooting"
	// StageVerifying: it runs the image and waits until it is healthy.
	StageVerifying Stage = "verifying"
	// StageBooted: it runs its image.
	StageBooted Stage = "booted"
	// StageFailed: an attempt failed; Reason says why.
	StageFailed Stage = "failed"
)

// Row is one node. Times are the bootstrap host's.
type Row struct {
	// Address is the node's as this host sees it; Name is what the node calls itself.
	Address string `json:"address"`
	Name    string `json:"name,omitempty"`
	Pool    string `json:"pool,omitempty"`
	Stage   Stage  `json:"stage"`
	// Since is when the stage began, Seen when this host last heard of the node.
	Since time.Time `json:"since"`
	Seen  time.Time `json:"seen"`
	// Asked counts the requests for a config.
	Asked int `json:"asked,omitempty"`
	// Image is the digest that the node pulls or runs; Bytes of Total were sent. Layers that the node has already are not
	// pulled, so Bytes may end below Total.
	Image string `json:"image,omitempty"`
	Bytes int64  `json:"bytes,omitempty"`
	Total int64  `json:"total,omitempty"`
	// LastByte is when a part of the image was sent last.
	LastByte time.Time `json:"lastByte,omitzero"`
	// Class, Reason and Next are of the last failure, until the node gets further.
	Class  string `json:"class,omitempty"`
	Reason string `json:"reason,omitempty"`
	Next   string `json:"next,omitempty"`
	// Attempts counts failures of the same kind in a row.
	Attempts int `json:"attempts,omitempty"`
	// Boots counts the boots that the node saw, SoftReboots those of them in which its hardware ran on.
	Boots       int `json:"boots,omitempty"`
	SoftReboots int `json:"softReboots,omitempty"`
	// ByMCO says that MCO's own first boot is at work on the node. It reports nothing: stages are what MCO's config
	// server, the registry and, once the node has joined, the cluster show.
	ByMCO bool `json:"byMCO,omitempty"`
	// AskedAt is when it asked for its config last, by MCO's log.
	AskedAt time.Time `json:"askedAt,omitzero"`
	// Tries counts how often a node of MCO's came for its image.
	Tries int `json:"tries,omitempty"`
	// Says is what the cluster says of a node that has joined and is not done.
	Says string `json:"says,omitempty"`
}

func (r Row) enter(s Stage, at time.Time) Row {
	if r.Stage != s {
		r.Stage, r.Since = s, at
	}
	return r
}

// asked is a request for a config; refused says why none was served.
func (r Row) asked(at time.Time, pool, refused string) Row {
	r.Asked++
	r.Pool = pool
	if refused != "" {
		r.Reason = refused
		return r.enter(StageAsked, at)
	}
	r.Reason, r.Class, r.Next = "", "", ""
	return r.enter(StageFetching, at)
}

// wants is a request for an image's manifest; a look at the image that the node runs already is no new pull.
func (r Row) wants(at time.Time, pool, digest string, total int64) Row {
	r.Pool = cmp.Or(r.Pool, pool)
	if r.Image == digest && (r.Stage == StageBooted || r.Stage == StageVerifying || r.Stage == StageRebooting ||
		r.Stage == StageStaged) {
		return r
	}
	if r.Stage != StagePulling || r.Image != digest {
		r.Tries = 1
	} else if at.Sub(r.LastByte) >= tryPause {
		r.Tries++
		r.LastByte = at
	}
	if r.Image != digest || r.Total == 0 { // the node may have named its image before it came for it
		r.Image, r.Bytes, r.Total, r.LastByte = digest, 0, total, at
	}
	return r.enter(StagePulling, at)
}

// tryPause is without a byte before the manifest is asked for again: a client asks for it several times in one pull,
// and MCO's daemon pauses 10 seconds or more between two.
const tryPause = 10 * time.Second

// got are bytes of an image that were sent.
func (r Row) got(at time.Time, n int64) Row {
	r.Bytes += n
	if r.Total > 0 {
		r.Bytes = min(r.Bytes, r.Total) // a repeated layer does not make more than the whole
	}
	r.LastByte = at
	switch r.Stage {
	case StageStaged, StageRebooting, StageVerifying, StageBooted:
		return r
	}
	return r.enter(StagePulling, at)
}

// stageOf maps what a node reports of itself.
func stageOf(s firstboot.State) (Stage, bool) {
	switch s {
	case firstboot.StateStarting:
		return StageFetching, true
	case firstboot.StateWaiting, firstboot.StateRolledBack:
		return StageFailed, true
	case firstboot.StateStaging:
		return StagePulling, true
	case firstboot.StateStaged:
		return StageStaged, true
	case firstboot.StateRebooting:
		return StageRebooting, true
	case firstboot.StateVerifying:
		return StageVerifying, true
	case firstboot.StateDone:
		return StageBooted, true
	}
	return "", false
}

// reported is what the node says of itself; it knows best.
func (r Row) reported(at time.Time, report firstboot.Report) Row {
	stage, known := stageOf(report.State)
	if !known {
		return r
	}
	r.Name, r.Boots, r.SoftReboots = report.Node, report.Boots, report.SoftReboots
	if pool, ok := poolOf(report.Config); ok {
		r.Pool = pool
	}
	if _, digest, ok := strings.Cut(report.Image, "@"); ok {
		if r.Image != digest && r.Image != "" {
			r.Bytes, r.Total = 0, 0
		}
		r.Image = digest
	}
	r.Class, r.Reason, r.Next, r.Attempts = report.Class, report.Message, "", report.Attempts
	if reason, next, ok := strings.Cut(report.Message, "; next: "); ok {
		r.Reason, r.Next = reason, next
	}
	if stage == StagePulling && r.Stage != StagePulling {
		r.LastByte = at
	}
	return r.enter(stage, at)
}

// poolOf is the pool of a rendered config's name: rendered-POOL-HASH.
func poolOf(config string) (string, bool) {
	rest, ok := strings.CutPrefix(config, "rendered-")
	at := strings.LastIndexByte(rest, '-')
	if !ok || at <= 0 {
		return "", false
	}
	return rest[:at], true
}
