package target

import (
	"cmp"
	"strings"
)

// Target is a rendered config with an image. Two are the same when they are equal (==). Its JSON is in annotations, in
// the agent's journal and in what commands print: the keys stay.
type Target struct {
	// Config is the rendered MachineConfig's name.
	Config string `json:"config"`
	// Image is the layered image by digest; empty: the node is not layered.
	Image string `json:"image,omitempty"`
}

// String names config and image for people. Conditions of pools begin with it, and readers look for it there.
func (t Target) String() string {
	if t.Image == "" {
		return t.Config
	}
	return t.Config + " in image " + t.Image
}

// Compare orders targets by config, then by image: -1, 0 or 1.
func Compare(a, b Target) int {
	return cmp.Or(strings.Compare(a.Config, b.Config), strings.Compare(a.Image, b.Image))
}
