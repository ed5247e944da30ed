package buildcontroller

import (
	"context"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/build/decide"
	"dayone.dev/dayone/build/machineosbuild"
	"dayone.dev/dayone/build/poolrequest"
	"dayone.dev/dayone/installconfig"
	"dayone.dev/dayone/manifests"
)

// besideSteps are those of a MachineOSConfig beside a running MCO. MCO makes the MachineOSBuilds, takes the image of a
// successful one for the pool and rolls it out; dayone builds, and writes the MachineOSBuild's status. What else either
// of both writes is in docs/operators/builder-contract.md.
func besideSteps(o observation) []step {
	if o.gone() { // MCO deletes the MachineOSBuilds, and their objects go with them
		return []step{{"forget", forgetBeside}}
	}
	return []step{
		{"take build over", takeOver},
		{"follow Jobs", followClaimed},
		{"announce build", announceClaimed},
		{"replace builds", replaceOthers},
		{"take image", takeImage},
		{"start build", startClaimed},
		{"delete Jobs", deleteClaimedJobs},
	}
}

func forgetBeside(_ context.Context, x scope, s state) (state, error) {
	x.memory.slots.release(x.name, s.builds)
	x.memory.setQueued(x.name, false)
	if s.config != nil {
		x.memory.desired.Delete(s.config.UID)
	}
	x.recorder.metrics.forget(x.name)
	return s, nil
}

// claimed reports whether MCO made the build and dayone builds it.
func claimed(b *mcfgv1.MachineOSBuild) bool { return b.Annotations[manifests.AnnotationClaimed] != "" }

// wanted is the build that MCO made last for the pool's rendered config; nil when there is none.
func wanted(o observation) *mcfgv1.MachineOSBuild {
	if o.pool == nil {
		return nil
	}
	var last *mcfgv1.MachineOSBuild
	for _, b := range o.builds {
		if b.DeletionTimestamp != nil || b.Spec.MachineConfig.Name != o.pool.Spec.Configuration.Name {
			continue
		}
		if last == nil || later(b, last) {
			last = b
		}
	}
	return last
}

// later reports whether MCO made a build after another. The API keeps whole seconds: of two builds within one second,
// the one that has not begun is the later one.
func later(b, than *mcfgv1.MachineOSBuild) bool {
	if !b.CreationTimestamp.Equal(&than.CreationTimestamp) {
		return than.CreationTimestamp.Before(&b.CreationTimestamp)
	}
	if fresh(b) != fresh(than) {
		return fresh(b)
	}
	return b.Name > than.Name
}

// takeOver marks the wanted build as dayone's, before MCO gives it a Job: MCO starts no build that has the label of a
// pre-built image. Builds that MCO has begun, and images that it is about to take over, are left to it.
func takeOver(ctx context.Context, x scope, s state) (state, error) {
	b := wanted(s.observation)
	if b == nil || claimed(b) || !fresh(b) || isPreBuilt(b) || awaitsSeeding(s.config) {
		return s, nil
	}
	j, err := x.api.jobNamed(ctx, x.api.live, b)
	if err != nil {
		return s, err
	}
	if j != nil && !ownJob(j) && metav1.IsControlledBy(j, b) {
		return s, nil // MCO was first, before dayone was installed
	}
	_, forced := s.config.Annotations[manifests.AnnotationRebuild]
	next, err := patched(ctx, x.api, b, func(b *mcfgv1.MachineOSBuild) {
		metav1.SetMetaDataLabel(&b.ObjectMeta, manifests.AnnotationPreBuiltImage, "true")
		annotate(b, manifests.AnnotationClaimed, "true")
		if forced {
			annotate(b, manifests.AnnotationBuildForced, "true")
		}
	})
	if err != nil {
		return s, err
	}
	x.log.WithField("machineosbuild", b.Name).WithField("forced", forced).Info("build is dayone's")
	s.observation = s.with(next)
	return s, nil
}

// awaitsSeeding reports whether MCO will take over a pre-built image: then it makes a successful build itself.
func awaitsSeeding(c *mcfgv1.MachineOSConfig) bool {
	return c.Annotations[manifests.AnnotationPreBuiltImage] != "" && c.Annotations[manifests.AnnotationCurrentBuild] == ""
}

// toStart is the wanted build when dayone has claimed it and not begun it; otherwise nil.
func toStart(s state) *mcfgv1.MachineOSBuild {
	if b := wanted(s.observation); b != nil && claimed(b) && fresh(b) && s.held == "" {
		return b
	}
	return nil
}

// announceClaimed does what MCO does when it starts a build: it names the build on the MachineOSConfig, so that MCO
// reports this build's failure on the pool.
func announceClaimed(ctx context.Context, x scope, s state) (state, error) {
	b := toStart(s)
	if b == nil {
		return s, nil
	}
	var err error
	s.config, err = patched(ctx, x.api, s.config, func(c *mcfgv1.MachineOSConfig) {
		annotate(c, manifests.AnnotationCurrentBuild, b.Name)
	})
	return s, err
}

// replaceOthers deletes the builds that the wanted one replaces and that have no image, as MCO does when it starts a
// build: one that stayed would keep MCO from making it again when its inputs come back.
func replaceOthers(ctx context.Context, x scope, s state) (state, error) {
	b := toStart(s)
	if b == nil {
		return s, nil
	}
	for _, other := range s.builds {
		seeding := isPreBuilt(other) && !claimed(other)
		if other.Name == b.Name || seeding || machineosbuild.StateOf(other) == machineosbuild.Succeeded {
			continue
		}
		if err := x.api.deleteBuild(ctx, other); err != nil {
			return s, err
		}
	}
	return s, nil
}

// takeImage finds out what the wanted build must contain, and gives it the image that exists already. A rebuild takes
// none.
func takeImage(ctx context.Context, x scope, s state) (state, error) {
	b := toStart(s)
	if b == nil {
		return s, nil
	}
	var err error
	if s.desired, err = findDesired(ctx, x, s.observation); err != nil {
		return s, err
	}
	p := s.desired.problem
	if at := installconfig.Repository(string(b.Spec.RenderedImagePushSpec)); p == nil && at != s.desired.repository {
		p = problemOf(waiting(0, poolrequest.ReasonPushSpec,
			"the MachineOSConfig names %s, this build still %s: MCO makes another one",
			s.desired.repository, at))
	}
	if p != nil {
		return hold(x, s, b, p), nil
	}
	b, err = patched(ctx, x.api, b, func(b *mcfgv1.MachineOSBuild) {
		annotate(b, manifests.AnnotationBuildAddress, s.desired.address)
		annotate(b, manifests.AnnotationBuildGround, s.desired.ground)
	})
	if err != nil {
		return s, err
	}
	s.observation = s.with(b)
	s.keys, err = x.images.keys(ctx, s.config, s.desired.repository)
	if p = problemOf(err); p != nil {
		return hold(x, s, b, p), nil
	}
	if err != nil || b.Annotations[manifests.AnnotationBuildForced] != "" {
		return s, err
	}
	image, err := findImage(ctx, x, s)
	if err != nil || image == "" {
		return s, err
	}
	b = b.DeepCopy()
	annotate(b, manifests.AnnotationReusedImage, image)
	return reuseImage(ctx, x, s, b)
}

// hold says why a build does not begin, and waits.
func hold(x scope, s state, b *mcfgv1.MachineOSBuild, p *decide.Problem) state {
	s.held = p.Message
	x.log.WithField("machineosbuild", b.Name).WithField("reason", p.Reason).Warn(p.Message)
	x.recorder.event(b, corev1.EventTypeWarning, eventBuildHeld, "%s: %s", p.Reason, note(p.Message))
	return s.again(max(p.After, retrySecret))
}

// findImage looks for an image of the desired content, among the builds and in the registry. A registry that refuses or
// fails has none: the build pod asks again.
func findImage(ctx context.Context, x scope, s state) (string, error) {
	var list mcfgv1.MachineOSBuildList
	if err := x.api.client.List(ctx, &list, client.MatchingFields{indexContent: s.desired.content().index()}); err != nil {
		return "", wrap(err, "list MachineOSBuilds of the same content")
	}
	access := Access{Auth: s.keys.push, CA: s.keys.ca}
	for i := range list.Items {
		image := string(list.Items[i].Status.DigestedImagePushSpec)
		if image == "" || list.Items[i].DeletionTimestamp != nil {
			continue
		}
		if there, err := x.o.Images.Exists(ctx, image, access); err == nil && there {
			return image, nil
		}
	}
	if x.o.Finder == nil {
		return "", nil
	}
	image, err := x.o.Finder.Find(ctx, s.desired.repository, s.desired.address, access)
	if err != nil {
		x.log.WithError(err).WithField("repository", s.desired.repository).Warn("no image of this content is found")
	}
	return image, nil
}

// startClaimed gives the wanted build its Job, once it has a slot.
func startClaimed(ctx context.Context, x scope, s state) (state, error) {
	b := toStart(s)
	if b == nil {
		return s, nil
	}
	ok, err := takeSlotBeside(ctx, x, s, b)
	x.memory.setQueued(x.name, err == nil && !ok)
	if err != nil || !ok {
		return s.again(x.o.Poll), err
	}
	return launch(ctx, x, s, b)
}

// takeSlotBeside bounds the builds that run at once, and lets one build of a content do for all who want it.
func takeSlotBeside(ctx context.Context, x scope, s state, b *mcfgv1.MachineOSBuild) (bool, error) {
	var list mcfgv1.MachineOSBuildList
	if err := x.api.client.List(ctx, &list, client.MatchingFields{indexActive: "true"}); err != nil {
		return false, wrap(err, "list running MachineOSBuilds")
	}
	active := map[string]bool{}
	for i := range list.Items {
		if b := &list.Items[i]; claimed(b) && !fresh(b) {
			active[b.Name] = true
		}
	}
	x.memory.slots.release(x.name, s.builds)
	return x.memory.slots.take(b.Name, claim{x.name, s.desired.content()}, active, 0), nil
}
