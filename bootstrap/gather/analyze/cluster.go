package analyze

import (
	"cmp"
	"encoding/json"
	"strings"
	"time"

	"dayone.dev/dayone/rebase/nodestate"
)

// clusterObject is an object of a cluster's bundle as far as it is read.
type clusterObject struct {
	Metadata struct {
		Name        string            `json:"name"`
		Created     time.Time         `json:"creationTimestamp"`
		Annotations map[string]string `json:"annotations"`
	} `json:"metadata"`
	Spec struct {
		MachineOSConfig struct {
			Name string `json:"name"`
		} `json:"machineOSConfig"`
	} `json:"spec"`
	Status struct {
		Conditions []struct{ Type, Status, Reason, Message string } `json:"conditions"`
	} `json:"status"`
}

// ofCluster judges a cluster by the conditions of its layering objects and by what its nodes say, the cause before its
// consequences.
func (f *facts) ofCluster() Verdict {
	for _, kind := range []struct{ file, what string }{{"machineosconfigs", "machineosconfig"},
		{"machineconfigpools", "pool"}, {"nodes", "node"}} {
		name := "resources/" + kind.file + ".json"
		for _, o := range f.objects(name) {
			message := degraded(o)
			if message == "" {
				continue
			}
			// The build itself says more than the object that asks for it.
			if cause := f.failedBuild(o.Metadata.Name); kind.file == "machineosconfigs" && cause != "" {
				return f.degradedVerdict(buildsFile, kind.what+" "+o.Metadata.Name, cause)
			}
			return f.degradedVerdict(name, kind.what+" "+o.Metadata.Name, message)
		}
	}
	return Verdict{Status: StatusCluster, Summary: "the bundle is of a cluster: no pool and no node in it is degraded",
		Next: "dayone cluster status shows how the pools are"}
}

const buildsFile = "resources/machineosbuilds.json"

// failedBuild is what the last build of a MachineOSConfig that failed says.
func (f *facts) failedBuild(config string) (message string) {
	var last time.Time
	for _, b := range f.objects(buildsFile) {
		for _, c := range b.Status.Conditions {
			if b.Spec.MachineOSConfig.Name == config && c.Type == "Failed" && c.Status == "True" &&
				!b.Metadata.Created.Before(last) {
				last, message = b.Metadata.Created, c.Message
			}
		}
	}
	return message
}

func (f *facts) objects(name string) []clusterObject {
	var list struct{ Items []clusterObject }
	file := f.bundle.Get(name)
	if file == nil {
		return nil
	}
	if err := json.Unmarshal(file.Content, &list); err != nil {
		f.notes = append(f.notes, name+" cannot be read: "+err.Error())
	}
	return list.Items
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

func (f *facts) degradedVerdict(file, phase, message string) Verdict {
	c := explain(message)
	v := Verdict{Status: StatusDegraded, Phase: shorten(phase), Cause: c.id, Summary: c.summary, Next: c.next,
		Evidence: Evidence{File: file, Text: quote(message)}}
	if c.id == "other" {
		v.Cause, v.Summary, v.Next = "degraded", "an object of the cluster is degraded",
			"dayone cluster why NODE, or dayone cluster status; pods/ in the bundle has the controllers' logs"
	}
	if next := nextOf(message); next != "" {
		v.Next = shorten(next)
	}
	if raw, err := json.Marshal(message); err == nil {
		if e, ok := f.find(file, string(raw)); ok {
			v.Evidence.Line = e.Line
		}
	}
	return v
}
