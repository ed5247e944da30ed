package disruption

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"

	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/rebase/softreboot"
)

// ErrPlanChanged is the error of an agent whose own plan is not the one that its node was promised.
var ErrPlanChanged = errors.New("plan changed")

// Hash is the identity of what a plan does: its level, its steps, and each change with its actions; not the words. The
// image is in it as the reboot that it makes. Controller and agent compute it each for itself.
func (p Plan) Hash() string {
	type change struct {
		Kind    Kind     `json:"kind"`
		Name    string   `json:"name"`
		Actions []Action `json:"actions"`
	}
	content := struct {
		Level   Level    `json:"level"`
		Steps   []Action `json:"steps"`
		Changes []change `json:"changes"`
	}{Level: p.Level, Steps: p.Steps}
	for _, c := range p.Changes {
		if c.Kind != kindImage {
			content.Changes = append(content.Changes, change{c.Kind, c.Name, c.Actions})
		}
	}
	raw, err := json.Marshal(content)
	if err != nil {
		return "" // Strings and numbers only: it cannot fail.
	}
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:])[:hashDigits]
}

// hashDigits are enough of a hash to tell the few plans of a pool apart: 128 bits.
const hashDigits = 32

// Promise is what a node was promised that its transition to a target does to it: the annotation dayone.dev/plan on the
// Node, which stands there in one patch with the target.
type Promise struct {
	// Config and Image are the target that it is about.
	Config string `json:"config"`
	Image  string `json:"image,omitempty"`
	// Hash is the plan's.
	Hash  string `json:"hash"`
	Level Level  `json:"level"`
	// Change says how the image differs from the one that the node has.
	Change ImageChange `json:"change,omitempty"`
	// Reboot is the pool's reboot policy; empty: Hard.
	Reboot softreboot.Policy `json:"reboot,omitempty"`
	// Sent is when the node got its target, RFC 3339.
	Sent string `json:"told,omitempty"`
}

// maxPromise bounds what is read from a node's annotation, in bytes: names, a digest and a hash are far shorter.
const maxPromise = 4 << 10

// Encode gives the annotation's value.
func (p Promise) Encode() (string, error) {
	raw, err := json.Marshal(p)
	if err != nil {
		return "", fmt.Errorf("encode plan: %w", err)
	}
	return string(raw), nil
}

// PromiseOf reads the promise of a node for a target; nil: nothing was promised for it, and the node does what it
// finds. That is so where somebody else than dayone's controller tells the nodes.
func PromiseOf(annotations map[string]string, config, image string) (*Promise, error) {
	text, found := annotations[manifests.AnnotationPlan]
	if !found {
		return nil, nil
	}
	if len(text) > maxPromise {
		return nil, fmt.Errorf("read annotation %s: longer than %d bytes", manifests.AnnotationPlan, maxPromise)
	}
	var p Promise
	if err := json.Unmarshal([]byte(text), &p); err != nil {
		return nil, fmt.Errorf("read annotation %s: %w", manifests.AnnotationPlan, err)
	}
	if p.Config != config || p.Image != image {
		return nil, nil
	}
	return &p, nil
}

// Check compares a plan with the promise; nil, and one without a hash, promises everything.
func (p *Promise) Check(plan Plan) error {
	if p == nil || p.Hash == "" || p.Hash == plan.Hash() {
		return nil
	}
	return fmt.Errorf(
		"%w: the node was promised %s, and it would be %s now (%s): the agent waits until the pool's plan says so too",
		ErrPlanChanged, p.Level, plan.Level, plan.Summary())
}

// Summary says the steps in words.
func (p Plan) Summary() string {
	if len(p.Steps) == 0 {
		return "no step"
	}
	out := p.Steps[0].String()
	for _, s := range p.Steps[1:] {
		out += ", " + s.String()
	}
	return out
}

// CompareImages says how the image to go to differs from the one that a node has, by the MachineOSBuilds that made
// them. ImageConfig is said only when both builds are known, were made of the same base, Containerfile and extensions,
// and nobody has asked for a rebuild since the first: a rebuild is wanted for what it fetches anew.
func CompareImages(builds []mcfgv1.MachineOSBuild, was, is string) ImageChange {
	if was == is {
		return ImageSame
	}
	before, after := buildOf(builds, was), buildOf(builds, is)
	if was == "" || is == "" || before == nil || after == nil {
		return ImageContent
	}
	ground := after.Annotations[manifests.AnnotationBuildGround]
	if ground == "" || before.Annotations[manifests.AnnotationBuildGround] != ground {
		return ImageContent
	}
	rebuilt := func(b mcfgv1.MachineOSBuild) bool {
		return b.Name != before.Name && b.Annotations[manifests.AnnotationBuildForced] != "" &&
			b.Annotations[manifests.AnnotationBuildGround] == ground &&
			!b.CreationTimestamp.Before(&before.CreationTimestamp)
	}
	if slices.ContainsFunc(builds, rebuilt) ||
		before.Annotations[manifests.AnnotationBuildAddress] == after.Annotations[manifests.AnnotationBuildAddress] {
		return ImageContent
	}
	return ImageConfig
}

// buildOf is the build that made an image; the newest where several did.
func buildOf(builds []mcfgv1.MachineOSBuild, image string) (out *mcfgv1.MachineOSBuild) {
	for i := range builds {
		b := &builds[i]
		if string(b.Status.DigestedImagePushSpec) == image &&
			(out == nil || out.CreationTimestamp.Before(&b.CreationTimestamp)) {
			out = b
		}
	}
	return out
}
