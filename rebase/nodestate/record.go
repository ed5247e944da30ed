package nodestate

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"strings"
	"unicode/utf8"

	"github.com/containers/image/v5/docker/reference"
	"k8s.io/apimachinery/pkg/util/validation"

	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/rebase/target"
)

// State is the agent's state on a node.
type State string

// The states. Source: MCO, pkg/daemon/constants/constants.go.
const (
	StateWorking        State = "Working"
	StateDone           State = manifests.StateDone
	StateDegraded       State = "Degraded"
	StateRebooting      State = "Rebooting"
	StateUnreconcilable State = "Unreconcilable"
)

// Limits of a record.
const (
	// maxReason is where a reason is cut, in bytes; MCO's limit.
	maxReason = 2000
	// maxValue bounds every other value of the record, in bytes: names and references are far shorter.
	maxValue = 1024
	// maxTotal bounds keys and values of all annotations of an object. Source: Kubernetes, apimachinery,
	// TotalAnnotationSizeLimitB.
	maxTotal = 256 << 10
)

// The verbs of a drain request.
const (
	Drain    = "drain"
	Uncordon = "uncordon"
)

// Keys of the record that manifests does not name. Source: as State.
const (
	keyDesiredDrain     = manifests.MCOPrefix + "desiredDrain"
	keyLastAppliedDrain = manifests.MCOPrefix + "lastAppliedDrain"
)

// Record is what a node has and what it should have. An empty string means that the annotation is not there.
type Record struct {
	// CurrentConfig is the rendered config that the agent has applied; the agent writes it.
	CurrentConfig string
	// DesiredConfig is the rendered config to go to; the node controller writes it.
	DesiredConfig string
	// FirstPivotConfig is the rendered config of the first boot; written once.
	FirstPivotConfig string
	// CurrentImage is the image that runs, host/path@sha256:…; the agent writes it.
	CurrentImage string
	// DesiredImage is the image to go to; empty: the node is not layered. It stands under two keys with equal values.
	DesiredImage string
	// State of the agent; empty before its first run.
	State State
	// Reason of the last failure.
	Reason string
	// PostConfigAction is what the agent is about to do after it has applied a config.
	PostConfigAction string
	// Progress is what the agent is doing at the moment, in words and bytes.
	Progress string
	// SoftReboot is what the agent found before the drain of a pool with a reboot policy: "soft", which means likely, or
	// "hard: REASON". LastBoot is how the node came into what it runs, in the same words.
	SoftReboot, LastBoot string
	// DesiredDrain is the agent's request, "drain-CONFIG" or "uncordon-CONFIG"; LastAppliedDrain is the drain controller's
	// echo of it.
	DesiredDrain, LastAppliedDrain string
}

// field ties a key to its place in a record.
type field struct {
	key string
	at  func(*Record) *string
}

// fields lists the record's keys, each once; the alias of the desired image is treated apart.
func fields() []field {
	return []field{
		{manifests.AnnotationCurrentConfig, func(r *Record) *string { return &r.CurrentConfig }},
		{manifests.AnnotationDesiredConfig, func(r *Record) *string { return &r.DesiredConfig }},
		{manifests.AnnotationFirstPivotConfig, func(r *Record) *string { return &r.FirstPivotConfig }},
		{manifests.AnnotationCurrentImage, func(r *Record) *string { return &r.CurrentImage }},
		{manifests.AnnotationDesiredImage, func(r *Record) *string { return &r.DesiredImage }},
		{manifests.AnnotationState, func(r *Record) *string { return (*string)(&r.State) }},
		{manifests.AnnotationReason, func(r *Record) *string { return &r.Reason }},
		{manifests.AnnotationPostConfigAction, func(r *Record) *string { return &r.PostConfigAction }},
		{manifests.AnnotationAgentProgress, func(r *Record) *string { return &r.Progress }},
		{manifests.AnnotationSoftReboot, func(r *Record) *string { return &r.SoftReboot }},
		{manifests.AnnotationLastBoot, func(r *Record) *string { return &r.LastBoot }},
		{keyDesiredDrain, func(r *Record) *string { return &r.DesiredDrain }},
		{keyLastAppliedDrain, func(r *Record) *string { return &r.LastAppliedDrain }},
	}
}

// Parse reads a node's annotations; what is not the record's is left aside. desiredOSimage counts where desiredImage is
// missing; where both are there desiredImage counts, because unmodified MCO controllers write that one only. The record
// is validated.
func Parse(annotations map[string]string) (Record, error) {
	var r Record
	for _, f := range fields() {
		*f.at(&r) = annotations[f.key]
	}
	r.DesiredImage = cmp.Or(r.DesiredImage, annotations[manifests.AnnotationDesiredOSImage])
	return r, r.Validate()
}

// Broken lists the keys of the agent's own that have values which a record cannot have. The agent knows what belongs
// there; what others ask of it, it does not.
func Broken(annotations map[string]string) (keys []string) {
	var r Record
	for _, f := range fields() {
		switch f.key {
		case manifests.AnnotationDesiredConfig, manifests.AnnotationDesiredImage, keyLastAppliedDrain:
			continue
		}
		*f.at(&r) = annotations[f.key]
		if r.validateField(f.key, annotations[f.key]) != nil {
			keys = append(keys, f.key)
		}
	}
	return keys
}

// Patch gives the changes that make annotations say what the record says: a value to set, or nil to remove. Keys that
// are not the record's are never in it. It is what a JSON merge patch of metadata.annotations takes.
func (r Record) Patch(annotations map[string]string) (map[string]*string, error) {
	if err := r.Validate(); err != nil {
		return nil, err
	}
	patch := map[string]*string{}
	set := func(key, value string) {
		switch old, there := annotations[key]; {
		case value == "" && there:
			patch[key] = nil
		case value != "" && old != value:
			patch[key] = &value
		}
	}
	for _, f := range fields() {
		set(f.key, *f.at(&r))
	}
	set(manifests.AnnotationDesiredOSImage, r.DesiredImage)
	return patch, checkTotal(Apply(annotations, patch))
}

// Apply gives annotations with a patch applied, as the API server does; the argument is not changed.
func Apply(annotations map[string]string, patch map[string]*string) map[string]string {
	result := maps.Clone(annotations)
	if result == nil {
		result = map[string]string{}
	}
	for key, value := range patch {
		if value == nil {
			delete(result, key)
		} else {
			result[key] = *value
		}
	}
	return result
}

// SetReason stores a failure's text, cut at maxReason bytes without breaking a character.
func (r *Record) SetReason(text string) { r.Reason = bounded(text, maxReason) }

// SetSoftReboot and SetLastBoot store what is said of reboots, cut like a reason.
func (r *Record) SetSoftReboot(text string) { r.SoftReboot = bounded(text, maxValue) }

// SetLastBoot is described with SetSoftReboot.
func (r *Record) SetLastBoot(text string) { r.LastBoot = bounded(text, maxValue) }

func bounded(text string, limit int) string {
	text = strings.ToValidUTF8(text, "�")
	if len(text) <= limit {
		return text
	}
	const mark = "…"
	cut := limit - len(mark)
	for cut > 0 && !utf8.RuneStart(text[cut]) {
		cut--
	}
	return text[:cut] + mark
}

// Current is what the node runs.
func (r Record) Current() target.Target {
	return target.Target{Config: r.CurrentConfig, Image: r.CurrentImage}
}

// Desired is what the node should run.
func (r Record) Desired() target.Target {
	return target.Target{Config: r.DesiredConfig, Image: r.DesiredImage}
}

// DrainRequest makes the value of DesiredDrain.
func DrainRequest(verb, config string) string { return verb + "-" + config }

// Drained tells that the drain controller has done what the agent asked for last.
func (r Record) Drained() bool { return r.DesiredDrain != "" && r.DesiredDrain == r.LastAppliedDrain }

// Converged tells that the node has what it should have, and that its agent says so.
func (r Record) Converged() bool {
	return r.State == StateDone && r.CurrentConfig != "" && r.Current() == r.Desired()
}

// isConfig tells whether a text is an object's name.
func isConfig(s string) bool { return len(validation.IsDNS1123Subdomain(s)) == 0 }

// isDrain tells whether a text is a request to the drain controller.
func isDrain(s string) bool {
	verb, config, _ := strings.Cut(s, "-")
	return (verb == Drain || verb == Uncordon) && isConfig(config)
}

// Validate names the first key with a value that it cannot have.
func (r Record) Validate() error {
	for _, f := range fields() {
		if err := r.validateField(f.key, *f.at(&r)); err != nil {
			return fmt.Errorf("node annotation %s: %w", f.key, err)
		}
	}
	return nil
}

func (r Record) validateField(key, value string) error {
	limit := maxValue
	if key == manifests.AnnotationReason {
		limit = maxReason
	}
	switch {
	case value == "":
		return nil
	case len(value) > limit:
		return fmt.Errorf("%d bytes, at most %d", len(value), limit)
	case !utf8.ValidString(value):
		return errors.New("it is not UTF-8")
	}
	switch key {
	case manifests.AnnotationCurrentConfig, manifests.AnnotationDesiredConfig, manifests.AnnotationFirstPivotConfig:
		return match(value, isConfig, "the name of a rendered config")
	case keyDesiredDrain, keyLastAppliedDrain:
		return match(value, isDrain, "drain-CONFIG or uncordon-CONFIG")
	case manifests.AnnotationCurrentImage, manifests.AnnotationDesiredImage:
		return validateImage(value)
	case manifests.AnnotationState:
		return r.State.validate()
	}
	return nil
}

func match(value string, is func(string) bool, what string) error {
	if !is(value) {
		return fmt.Errorf("%q is not %s", value, what)
	}
	return nil
}

func (s State) validate() error {
	switch s {
	case StateWorking, StateDone, StateDegraded, StateRebooting, StateUnreconcilable:
		return nil
	}
	return fmt.Errorf("%q is no state of the agent", string(s))
}

func validateImage(value string) error {
	named, err := reference.ParseNamed(value)
	if err != nil {
		return fmt.Errorf("%q: %w", value, err)
	}
	if _, ok := named.(reference.Canonical); !ok {
		return fmt.Errorf("%q names no digest", value)
	}
	if _, tagged := named.(reference.Tagged); tagged {
		return fmt.Errorf("%q names a tag beside the digest", value)
	}
	return nil
}

func checkTotal(annotations map[string]string) error {
	total := 0
	for key, value := range annotations {
		total += len(key) + len(value)
	}
	if total > maxTotal {
		return fmt.Errorf("node annotations: %d bytes in all, at most %d", total, maxTotal)
	}
	return nil
}
