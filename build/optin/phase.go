package optin

import (
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"dayone.dev/dayone/manifests/assets/cluster"
)

// phase is where the builder is between start and stop. The zero value is no phase.
type phase string

// The phases, which are also the reasons of the conditions.
const (
	// Idle: no pool is opted in and nothing runs.
	phaseIdle phase = "NoPoolOptedIn"
	// Starting: it is needed and not available yet.
	phaseStarting phase = "Starting"
	// Running: it is needed and available.
	phaseRunning phase = "Running"
	// Stopping: no pool is opted in any more; it cleans up and ends when nothing of its builds remains.
	phaseStopping phase = "Stopping"
	// Replacing: the builder of an earlier version ends first, so that two never work at once.
	phaseReplacing phase = "Replacing"
	// Blocked: a Deployment of its name is not dayone's.
	phaseBlocked phase = "ForeignDeployment"
)

func phases() []phase {
	return []phase{phaseIdle, phaseStarting, phaseRunning, phaseStopping, phaseReplacing, phaseBlocked}
}

// view is everything that decides about the builder.
type view struct {
	// configs counts MachineOSConfigs that are not being deleted, optedIn those whose condition OptedIn is True.
	configs, optedIn int
	// remaining names the objects of builds that remain, in order; it is filled in only when configs is 0.
	remaining []string
	// deployment is the builder's, or nil; former is the one that an earlier version of dayone made, or nil.
	deployment, former *appsv1.Deployment
}

// plan is what follows from a view.
type plan struct {
	// run: the builder is needed. When it is false and there is a Deployment, the Deployment is deleted.
	run     bool
	phase   phase
	message string
}

// decide is pure. The first pool that opts in starts the builder; a MachineOSConfig that becomes invalid does not stop
// it; the deletion of the last one does, when nothing remains of its builds.
func decide(v view) plan {
	d := v.deployment
	run := v.optedIn > 0 || (v.configs > 0 && d != nil) || len(v.remaining) > 0
	count := fmt.Sprintf("%d of %d MachineOSConfigs opted in", v.optedIn, v.configs)
	switch {
	case v.former != nil:
		return plan{phase: phaseReplacing, message: fmt.Sprintf("%s; %s starts when Deployment %s/%s, which an earlier "+
			"version made, has ended", count, cluster.Builder, v.former.Namespace, v.former.Name)}
	case d != nil && !ours(d):
		return plan{phase: phaseBlocked,
			message: fmt.Sprintf("Deployment %s/%s was not made by dayone: end what made it, then delete it", d.Namespace,
				d.Name)}
	case !run && d == nil:
		return plan{phase: phaseIdle, message: count}
	case !run:
		return plan{phase: phaseStopping, message: "nothing is left of any build; " + cluster.Builder + " ends"}
	case v.configs == 0:
		return plan{run: true, phase: phaseStopping, message: "no MachineOSConfig is left; before " + cluster.Builder +
			" is stopped it waits for " + enumerate(v.remaining)}
	case d != nil && d.DeletionTimestamp != nil:
		return plan{run: true, phase: phaseStarting, message: count + "; waits for the old " + cluster.Builder + " to end"}
	case d != nil && d.Status.ObservedGeneration >= d.Generation && d.Status.AvailableReplicas > 0:
		return plan{run: true, phase: phaseRunning, message: count}
	}
	return plan{run: true, phase: phaseStarting, message: count + "; " + cluster.Builder + " is not available yet" +
		obstacle(d)}
}

// obstacle says what keeps a Deployment from being available, as far as its own status knows.
func obstacle(d *appsv1.Deployment) string {
	if d == nil {
		return ""
	}
	for _, c := range d.Status.Conditions {
		failing := c.Type == appsv1.DeploymentReplicaFailure && c.Status == corev1.ConditionTrue
		stuck := c.Type == appsv1.DeploymentProgressing && c.Status == corev1.ConditionFalse
		if failing || stuck {
			return ": " + c.Reason + ": " + c.Message
		}
	}
	return ""
}

// maxNamed bounds how many objects a message names.
const maxNamed = 8

func enumerate(names []string) string {
	if len(names) <= maxNamed {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:maxNamed], ", "), len(names)-maxNamed)
}
