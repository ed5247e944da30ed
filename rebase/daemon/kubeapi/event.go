package kubeapi

import (
	"encoding/json"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Event is what people read about the node beside its object.
type Event struct {
	// Name is unique for its occasion: a second event of one name is not made.
	Name string
	// Node is the UID of the node's object.
	Node            types.UID
	Reason, Message string
	Warning         bool
	At              time.Time
}

const (
	// eventNamespace is where events about objects without a namespace are. Source: Kubernetes, events of nodes.
	eventNamespace = metav1.NamespaceDefault
	// maxEventMessage is the limit of events.k8s.io, in bytes.
	maxEventMessage = 1024
)

func cut(message string) string {
	return strings.ToValidUTF8(message[:min(len(message), maxEventMessage)], "")
}

// body is the event as the API takes it.
func (e Event) body(node string) ([]byte, error) {
	at := metav1.NewTime(e.At)
	kind := corev1.EventTypeNormal
	if e.Warning {
		kind = corev1.EventTypeWarning
	}
	return json.Marshal(corev1.Event{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Event"},
		ObjectMeta:     metav1.ObjectMeta{Namespace: eventNamespace, Name: e.Name},
		InvolvedObject: corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: node, UID: e.Node},
		Reason:         e.Reason, Message: cut(e.Message), Type: kind, FirstTimestamp: at, LastTimestamp: at, Count: 1,
		Source:              corev1.EventSource{Component: fieldManager, Host: node},
		ReportingController: fieldManager, ReportingInstance: node})
}
