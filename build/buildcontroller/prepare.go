package buildcontroller

import (
	"context"
	"errors"
	"slices"

	"dayone.dev/dayone/build/decide"
)

// prepare makes sure that the decision can be carried out; otherwise it makes another one.
func prepare(ctx context.Context, x scope, s state) (state, error) {
	if s.decision.Action == decide.Reuse {
		var err error
		if s, err = checkImage(ctx, x, s); err != nil {
			return s, err
		}
	}
	if !s.decision.Action.Starts() {
		return s, nil
	}
	keys, err := x.images.keys(ctx, s.config, s.desired.repository)
	if err == nil {
		err = roomFor(ctx, x, s, keys)
	}
	if err == nil && s.decision.Forced {
		err = pinInUse(ctx, x, s)
	}
	if p := problemOf(err); p != nil {
		s.input.Blocked = p
		s.decision = decide.Decide(s.input)
		return s, nil
	}
	if err != nil {
		return s, err
	}
	s.keys = keys
	return takeSlot(ctx, x, s)
}

// checkImage makes sure that an image that the pool shall use again is still there. Only a registry that says that it
// has lost the image changes the decision; one that refuses or fails does not.
func checkImage(ctx context.Context, x scope, s state) (state, error) {
	b := s.build(s.decision.BuildName)
	if b == nil {
		return s, nil
	}
	access, err := x.images.access(ctx, b)
	if errors.Is(err, errNoAccess) {
		return s, nil
	}
	if err != nil {
		return s, err
	}
	exists, err := x.images.registries.Exists(ctx, s.decision.Image, access)
	if err != nil {
		x.log.WithError(err).WithField("image", s.decision.Image).Warn("image cannot be checked and counts as existing")
		return s, nil
	}
	if !exists {
		s.input.Own = slices.Clone(s.input.Own)
		for i := range s.input.Own {
			s.input.Own[i].Gone = s.input.Own[i].Name == b.Name
		}
		s.decision = decide.Decide(s.input)
	}
	return s, nil
}

// pinInUse tags the image in use before a rebuild takes the tag of the content address away from it. The rebuild waits
// for the registry: an image that nodes run must not lose its last tag.
func pinInUse(ctx context.Context, x scope, s state) error {
	b := s.build(s.input.InUse)
	if b == nil {
		return nil
	}
	if err := pin(ctx, x, b); err != nil {
		return waiting(retrySecret, reasonRegistry,
			"the image in use must keep a tag before it is built again, and its registry does not take one: %s", err)
	}
	return nil
}

// takeSlot takes a slot for the build, or decides again when another MachineOSConfig was quicker.
func takeSlot(ctx context.Context, x scope, s state) (state, error) {
	active, _, err := runningBuilds(ctx, x)
	if err != nil {
		return s, err
	}
	replaces := 0
	for _, name := range s.decision.Interrupt {
		if active[name] {
			replaces++
		}
	}
	if x.memory.slots.take(s.decision.BuildName, claim{x.name, s.desired.content()}, active, replaces) {
		return s, nil
	}
	if s.input, err = withOthers(ctx, x, s.input, s.desired); err != nil {
		return s, err
	}
	s.input.Free = min(s.input.Free, 0)
	s.decision = decide.Decide(s.input)
	if s.decision.Action.Starts() {
		return s, overtaken("the queue")
	}
	return s, nil
}
