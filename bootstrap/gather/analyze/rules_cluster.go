package analyze

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/rebase/nodestate"
)

// cluster applies to a cluster's bundle. It judges by the conditions of the layering objects and by what the nodes say,
// the cause before its consequences.
func cluster(f *facts) (Verdict, bool) {
	if !f.absent || len(f.bundle.Below("resources")) == 0 || len(f.services) > 0 {
		return Verdict{}, false
	}
	if faults := clusterFaults(f); len(faults) > 0 {
		return faults[0], true
	}
	return Verdict{Status: StatusCluster, Summary: "the bundle is of a cluster: no pool and no node in it is degraded",
		Next: "dayone cluster status shows how the pools are"}, true
}

// maxFaults bounds how many objects of a cluster a report names: the others may have one cause.
const maxFaults = 10

// clusterFaults are the degraded objects, each cause without its consequences: a pool repeats what its MachineOSConfig
// says, and a node what its pool does.
func clusterFaults(f *facts) (faults []Verdict) {
	var said []string
	for _, kind := range []struct{ file, what string }{{configsFile, "machineosconfig"}, {poolsFile, "pool"},
		{nodesFile, "node"}} {
		for _, o := range f.objects[kind.file] {
			file, message := kind.file, degraded(o)
			repeats := func(s string) bool { return strings.Contains(s, message) || strings.Contains(message, s) }
			if message == "" || len(faults) == maxFaults || slices.ContainsFunc(said, repeats) {
				continue
			}
			said = append(said, message)
			if kind.file == configsFile && !o.out() { // the build itself says more than the object that asks for it
				if cause := failedBuild(f.objects[buildsFile], o.Metadata.Name); cause != "" {
					file, message = buildsFile, cause
				}
			}
			faults = append(faults, degradedVerdict(f, file, kind.what+" "+o.Metadata.Name, message))
		}
	}
	return faults
}

// out tells that a MachineOSConfig is not opted in: what it lacks must be mended, whatever a former build died of.
func (o clusterObject) out() bool {
	return slices.ContainsFunc(o.Status.Conditions, func(c clusterCondition) bool {
		return c.Type == manifests.ConditionOptedIn && c.Status == "False"
	})
}

// failedBuild is what the last build of a MachineOSConfig that failed says.
func failedBuild(builds []clusterObject, config string) (message string) {
	var last time.Time
	for _, b := range builds {
		for _, c := range b.Status.Conditions {
			if b.Spec.MachineOSConfig.Name == config && c.Type == "Failed" && c.Status == "True" &&
				!b.Metadata.Created.Before(last) {
				last, message = b.Metadata.Created, c.Message
			}
		}
	}
	return message
}

// degraded is what an object says when it is: a condition of that kind, or a node's own state.
func degraded(o clusterObject) string {
	for _, c := range o.Status.Conditions {
		if strings.HasSuffix(c.Type, "Degraded") && c.Status == "True" && c.Message != "" {
			return c.Message
		}
	}
	node, err := nodestate.Parse(o.Metadata.Annotations)
	if err != nil || node.State != nodestate.StateDegraded && node.State != nodestate.StateUnreconcilable {
		return ""
	}
	return cmp.Or(node.Reason, "the node's state is "+string(node.State))
}

func degradedVerdict(f *facts, file, phase, message string) Verdict {
	v := explained(StatusDegraded, phase, message)
	if v.Cause == causeUnknown {
		v.Cause, v.Summary = "degraded", "an object of the cluster is degraded"
		v.Next = cmp.Or(shorten(nextOf(message)),
			"dayone cluster why NODE, or dayone cluster status; pods/ in the bundle has the controllers' logs")
	}
	v.Evidence = Evidence{File: file, Text: quote(message)}
	if raw, err := json.Marshal(message); err == nil {
		v.Evidence.Line = f.line(file, string(raw))
	}
	return v
}
