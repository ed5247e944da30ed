package board

import "time"

// Board is everything that status shows at one time. Lists that a host or a cluster does not have are empty.
type Board struct {
	// Head says what is looked at.
	Head []string `json:"head,omitempty"`
	// Phases are the steps of a bootstrap, in their order.
	Phases []Row `json:"phases,omitempty"`
	// Programs are the controllers in a cluster.
	Programs []Row `json:"programs,omitempty"`
	// Conditions say how dayone in a cluster is as a whole.
	Conditions []Row `json:"conditions,omitempty"`
	// Pools are those that get an image.
	Pools []Row `json:"pools,omitempty"`
	// Nodes are in the order of urgency in a cluster, and in the order in which they came on a bootstrap host.
	Nodes []Row `json:"nodes,omitempty"`
	// Builds are those that run.
	Builds []Row `json:"builds,omitempty"`
	// Notes are findings, and what comes next.
	Notes []string `json:"notes,omitempty"`
	// colour is set by InColour.
	colour bool
}

// Progress is how a row does.
type Progress string

// The values of Progress.
const (
	Pending Progress = "pending"
	Running Progress = "running"
	Done    Progress = "done"
	// Failed also marks what needs a look.
	Failed Progress = "failed"
)

// Row is one phase, program, condition, pool, node or build.
type Row struct {
	// Name is the thing's own; Pool is the pool of a node.
	Name string `json:"name"`
	Pool string `json:"pool,omitempty"`
	// State is a word for what it does now, Progress the same in one of four words.
	State    string   `json:"state"`
	Progress Progress `json:"progress"`
	// Since is when the state began; Seconds are how long that has lasted, or how long the work took.
	Since   time.Time `json:"since,omitzero"`
	Seconds float64   `json:"seconds,omitempty"`
	// Bytes is the size of an image, or how much of Total a node has pulled.
	Bytes int64 `json:"bytes,omitempty"`
	Total int64 `json:"total,omitempty"`
	// Text says what it does or waits for.
	Text string `json:"text,omitempty"`
	// Says is the last line of a build's output, or an error.
	Says string `json:"says,omitempty"`
	// Next is what to do about it.
	Next string `json:"next,omitempty"`
	// steady is Text without what changes by itself, such as ages.
	steady string
}

// Steady gives the row a text that stays the same while nothing happens: it tells whether the row has changed.
func (r Row) Steady(text string) Row {
	r.steady = text
	return r
}

// list is rows under a heading.
type list struct {
	name string
	rows []Row
}

// lists are all that have rows, in the order in which people read them.
func (b Board) lists() (out []list) {
	for _, l := range []list{{"phases", b.Phases}, {"programs", b.Programs}, {"conditions", b.Conditions},
		{"pools", b.Pools}, {"builds", b.Builds}, {"nodes", b.Nodes}} {
		if len(l.rows) > 0 {
			out = append(out, l)
		}
	}
	return out
}
