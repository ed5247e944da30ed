package mcobuild

import (
	"cmp"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dayone.dev/dayone/build/job"
	"dayone.dev/dayone/manifests"
)

// Keys of a record's ConfigMap.
const (
	keyCause    = "cause.json"
	keyAttempts = "attempts"
	keySummary  = "summary"
	keyLog      = "log.gz"
)

// A record has this label beside those that name its MachineOSBuild, MachineOSConfig and pool.
const labelManagedBy, managedBy = "app.kubernetes.io/managed-by", "dayone"

// OutcomeGone is that of a build that was deleted before it ended.
const OutcomeGone = "Gone"

// Limits of a record.
const (
	maxName = 253
	// maxPods are the pods of one build that are kept: MCO's Job makes four.
	maxPods = 12
)

// RecordName is the name of a build's ConfigMap.
func RecordName(machineOSBuild string) string {
	return manifests.Shorten("dayone-build-"+machineOSBuild, maxName)
}

// Record is what is kept of a build. A rebuild has its name again, and its record.
type Record struct {
	Build, Config, Pool string
	// Cause is why it failed; nil while it has not.
	Cause *Cause
	Attempts
	Summary string
	// Log is the packed log of the last pod.
	Log []byte
}

// Attempts is what was tried.
type Attempts struct {
	// UID is the MachineOSBuild's, Outcome its state: Prepared, Building, Failed, Interrupted, Succeeded or OutcomeGone.
	UID     string `json:"uid"`
	Outcome string `json:"outcome"`
	// Ended is when it ended.
	Ended *metav1.Time `json:"ended,omitempty"`
	// Pods are those of this build that ended, the newest last.
	Pods []pod `json:"pods,omitempty"`
	// Lost says in a sentence what of the log could not be kept.
	Lost string `json:"lost,omitempty"`
	// Retries counts the rebuilds that dayone asked for in a row. Asked is the UID of the failed build for which it asked
	// last, AskedAt is when.
	Retries int          `json:"retries,omitempty"`
	Asked   string       `json:"asked,omitempty"`
	AskedAt *metav1.Time `json:"askedAt,omitempty"`
}

// pod is one attempt of the build's Job.
type pod struct {
	Name      string       `json:"name"`
	Node      string       `json:"node,omitempty"`
	Container string       `json:"container,omitempty"`
	ExitCode  int32        `json:"exitCode,omitempty"`
	Reason    string       `json:"reason,omitempty"`
	Ended     *metav1.Time `json:"ended,omitempty"`
}

// podOf is a pod that has ended, as it is kept.
func podOf(p *corev1.Pod) pod {
	kept := pod{Name: p.Name, Node: p.Spec.NodeName, Reason: p.Status.Reason}
	for _, name := range []string{BuildContainer, digestContainer, job.Container} {
		if s := ContainerOf(p, name); s != nil && s.State.Terminated != nil {
			t := s.State.Terminated
			kept.Container, kept.ExitCode, kept.Ended = name, t.ExitCode, &t.FinishedAt
			kept.Reason = cmp.Or(kept.Reason, t.Reason)
			if t.ExitCode != 0 {
				break
			}
		}
	}
	return kept
}

// Add takes a pod that has ended, once, and keeps the newest.
func (a *Attempts) Add(ended *corev1.Pod) {
	p := podOf(ended)
	for i := range a.Pods {
		if a.Pods[i].Name == p.Name {
			a.Pods[i] = p
			return
		}
	}
	if a.Pods = append(a.Pods, p); len(a.Pods) > maxPods {
		a.Pods = a.Pods[len(a.Pods)-maxPods:]
	}
}

// ConfigMap writes the record into one.
func (r Record) ConfigMap(namespace string) (*corev1.ConfigMap, error) {
	attempts, err := json.Marshal(r.Attempts)
	if err != nil {
		return nil, fmt.Errorf("write record of %s: %w", r.Build, err)
	}
	m := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: RecordName(r.Build), Labels: r.labels(),
			Annotations: map[string]string{manifests.LabelMachineOSBuild: r.Build, manifests.LabelMachineOSConfig: r.Config,
				manifests.LabelTargetPool: r.Pool, manifests.AnnotationBuildOutcome: r.Outcome}},
		Data: map[string]string{keyAttempts: string(attempts), keySummary: r.Summary},
	}
	if r.Cause != nil {
		cause, err := json.Marshal(r.Cause)
		if err != nil {
			return nil, fmt.Errorf("write record of %s: %w", r.Build, err)
		}
		m.Data[keyCause] = string(cause)
	}
	if len(r.Log) > 0 {
		m.BinaryData = map[string][]byte{keyLog: r.Log}
	}
	return m, nil
}

func (r Record) labels() map[string]string {
	labels := Records("")
	labels[manifests.LabelMachineOSBuild] = manifests.LabelValue(r.Build)
	labels[manifests.LabelMachineOSConfig] = manifests.LabelValue(r.Config)
	labels[manifests.LabelTargetPool] = manifests.LabelValue(r.Pool)
	return labels
}

// Records are the labels of a MachineOSConfig's records, or of all.
func Records(config string) map[string]string {
	labels := map[string]string{labelManagedBy: managedBy, manifests.LabelBuildRecord: ""}
	if config != "" {
		labels[manifests.LabelMachineOSConfig] = manifests.LabelValue(config)
	}
	return labels
}

// Parse reads what ConfigMap wrote.
func Parse(m *corev1.ConfigMap) (Record, error) {
	r := Record{Build: m.Annotations[manifests.LabelMachineOSBuild], Config: m.Annotations[manifests.LabelMachineOSConfig],
		Pool: m.Annotations[manifests.LabelTargetPool], Summary: m.Data[keySummary], Log: m.BinaryData[keyLog]}
	if err := json.Unmarshal([]byte(m.Data[keyAttempts]), &r.Attempts); err != nil {
		return r, fmt.Errorf("read ConfigMap %s/%s, key %s: %w", m.Namespace, m.Name, keyAttempts, err)
	}
	if text := m.Data[keyCause]; text != "" {
		r.Cause = &Cause{}
		if err := json.Unmarshal([]byte(text), r.Cause); err != nil {
			return r, fmt.Errorf("read ConfigMap %s/%s, key %s: %w", m.Namespace, m.Name, keyCause, err)
		}
	}
	return r, nil
}

// when is a time as people read it.
func when(t time.Time) string { return t.UTC().Format("2006-01-02 15:04 UTC") }
