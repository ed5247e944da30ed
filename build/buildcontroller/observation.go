package buildcontroller

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/build/decide"
	"dayone.dev/dayone/build/machineosbuild"
	"dayone.dev/dayone/installconfig"
	"dayone.dev/dayone/manifests"
)

// observation is a MachineOSConfig with what belongs to it. Objects are not changed in place: who writes one puts the
// written copy in its place.
type observation struct {
	// config and pool are nil when they do not exist.
	config *mcfgv1.MachineOSConfig
	pool   *mcfgv1.MachineConfigPool
	builds []*mcfgv1.MachineOSBuild
}

// gone reports whether the MachineOSConfig is deleted or being deleted.
func (o observation) gone() bool { return o.config == nil || o.config.DeletionTimestamp != nil }

// poolName is that of the MachineOSConfig's pool.
func (o observation) poolName() string { return o.config.Spec.MachineConfigPool.Name }

// build finds a build by name; nil when there is none.
func (o observation) build(name string) *mcfgv1.MachineOSBuild {
	for _, b := range o.builds {
		if b.Name == name {
			return b
		}
	}
	return nil
}

// with puts a build in the place of the one of its name, or adds it.
func (o observation) with(b *mcfgv1.MachineOSBuild) observation {
	o.builds = slices.Clone(o.builds)
	at := slices.IndexFunc(o.builds, func(other *mcfgv1.MachineOSBuild) bool { return other.Name == b.Name })
	if at < 0 {
		o.builds = append(o.builds, b)
	} else {
		o.builds[at] = b
	}
	return o
}

// inUse names the build whose image the pool uses; empty when there is none.
func (o observation) inUse() string {
	ref := o.config.Status.MachineOSBuild
	if ref == nil || o.config.Status.CurrentImagePullSpec == "" {
		return ""
	}
	if b := o.build(ref.Name); b != nil && b.Status.DigestedImagePushSpec == o.config.Status.CurrentImagePullSpec {
		return b.Name
	}
	return ""
}

// known lists the builds as decisions see them.
func (o observation) known() []decide.Known {
	var list []decide.Known
	for _, b := range o.builds {
		list = append(list, known(b))
	}
	return list
}

func known(b *mcfgv1.MachineOSBuild) decide.Known {
	cause := machineosbuild.CauseOf(b)
	message := cause.Message
	if cause.Line > 0 {
		message += fmt.Sprintf(" (line %d of the Containerfile)", cause.Line)
	}
	return decide.Known{
		Name: b.Name, Owner: b.Spec.MachineOSConfig.Name, Address: b.Annotations[manifests.AnnotationBuildAddress],
		Repository: installconfig.Repository(string(b.Spec.RenderedImagePushSpec)), State: machineosbuild.StateOf(b),
		Class: cause.Class, Message: message, Image: string(b.Status.DigestedImagePushSpec),
		Attempt: number(b, manifests.AnnotationBuildAttempt), Retries: number(b, manifests.AnnotationBuildRetries),
		Forced: b.Annotations[manifests.AnnotationBuildForced] != "", Deleting: b.DeletionTimestamp != nil,
		Ended: endOf(b),
	}
}

// endOf is when a build ended; zero when it has not.
func endOf(b *mcfgv1.MachineOSBuild) time.Time {
	if b.Status.BuildEnd == nil {
		return time.Time{}
	}
	return b.Status.BuildEnd.Time
}

// number reads a counter; it is 0 when the annotation is no number.
func number(o client.Object, key string) int {
	n, err := strconv.Atoi(o.GetAnnotations()[key])
	if err != nil {
		return 0
	}
	return max(n, 0)
}

func terminal(b *mcfgv1.MachineOSBuild) bool { return machineosbuild.StateOf(b).Terminal() }

// fresh reports whether a build has no Job yet.
func fresh(b *mcfgv1.MachineOSBuild) bool {
	return machineosbuild.StateOf(b) == machineosbuild.Initial && b.DeletionTimestamp == nil
}

// isPreBuilt reports whether bootstrap or an admin built the image, not this controller.
func isPreBuilt(b *mcfgv1.MachineOSBuild) bool {
	_, marked := b.Labels[manifests.AnnotationPreBuiltImage]
	return marked
}
