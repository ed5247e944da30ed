package buildahengine

import (
	"encoding/json"
	"io"
	"sync"

	"dayone.dev/dayone/build"
)

// order is what the parent writes to the child's standard input, once. Only paths of secrets are in it.
type order struct {
	Root   string `json:"root"`
	Driver string `json:"driver"`
	// Isolation is what the engine was asked for.
	Isolation string `json:"isolation"`
	// Runtime is the only OCI runtime to try; empty tries the known ones.
	Runtime string `json:"runtime,omitempty"`
	Run     string `json:"run"`
	// Group is the control group for containers of an OCI runtime, relative to the worker's own; empty leaves it to the
	// runtime.
	Group   string `json:"group,omitempty"`
	Recover bool   `json:"recover"`
	// Limit is how many bytes storage may have when a build begins; negative none.
	Limit int64               `json:"limit"`
	Job   *build.ContainerJob `json:"job,omitempty"` // nil: recover only
	// Base is the image to take in; the job then only says how to reach it.
	Base string `json:"base,omitempty"`
	// Layers says that layersDescriptor takes the layers of Base.
	Layers bool `json:"layers,omitempty"`
	// Scrub holds values that must not get into the log: passwords, and what secret files hold.
	Scrub []string `json:"scrub,omitempty"`
}

// Kinds of messages from child to parent.
const (
	kindReady  = "ready"  // storage is open and clean
	kindFrom   = "from"   // a stage begins; Text is its image
	kindStep   = "step"   // an instruction begins; Text is it
	kindOutput = "output" // a line of output
	kindPhase  = "phase"  // Text is the phase
	kindBytes  = "bytes"  // a transfer moved on
	// kindIsolation tells how RUN is run: Text is the isolation, Reason says why.
	kindIsolation = "isolation"
	kindDone      = "done" // the end: Digest or Error
)

// message is one line of JSON on the child's standard output.
type message struct {
	Kind   string     `json:"kind"`
	Text   string     `json:"text,omitempty"`
	Reason string     `json:"reason,omitempty"`
	Bytes  int64      `json:"bytes,omitempty"`
	Total  int64      `json:"total,omitempty"`
	Digest string     `json:"digest,omitempty"`
	Error  *childFail `json:"error,omitempty"`
}

// childFail is an error in the child with what its type said there.
type childFail struct {
	Text     string `json:"text"`
	Phase    string `json:"phase"`
	ExitCode int    `json:"exitCode,omitempty"`
	Kind     string `json:"kind,omitempty"`
}

// sender writes messages; buildah calls it from several goroutines.
type sender struct {
	mu  sync.Mutex
	enc *json.Encoder
}

func newSender(w io.Writer) *sender { return &sender{enc: json.NewEncoder(w)} }

func (s *sender) send(m message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	// The only reader is the parent. When it is gone, the kernel is killing this process.
	_ = s.enc.Encode(m)
}
