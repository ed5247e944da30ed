package analyze

import (
	"cmp"
	"encoding/json"
	"strings"
	"time"

	"dayone.dev/dayone/rebase/nodestate"
)

// cluster applies to a cluster's bundle. It judges by the conditions of the layering objects and by what the nodes say,
// the cause before its consequences.
func cluster(f *facts) (Verdict, bool) {
	if !f.absent || len(f.bundle.Below("resources")) == 0 || len(f.services) > 0 {
		return Verdict{}, false
	}
	for _, kind := range []struct{ file, what string }{{configsFile, "machineosconfig"}, {poolsFile, "pool"},
		{nodesFile, "node"}} {
		for _, o := range f.objects[kind.file] {
			file, message := kind.file, degraded(o)
			if message == "" {
				continue
			}
			// The build itself says more than the object that asks for it.
			if cause := failedBuild(f.objects[buildsFile], o.Metadata.Name); kind.file == configsFile && cause != "" {
				file, message = buildsFile, cause
			}
			return degradedVerdict(f, file, kind.what+" "+o.Metadata.Name, message), true
		}
	}
	return Verdict{Status: StatusCluster, Summary: "the bundle is of a cluster: no pool and no node in it is degraded",
		Next: "dayone cluster status shows how the pools are"}, true
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
