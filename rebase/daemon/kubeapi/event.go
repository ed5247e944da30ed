package kubeapi

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
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

// Event makes an event about this node. One that is there already stays as it is.
func (c *Client) Event(ctx context.Context, e Event) error {
	at := metav1.NewTime(e.At)
	kind := corev1.EventTypeNormal
	if e.Warning {
		kind = corev1.EventTypeWarning
	}
	raw, err := json.Marshal(corev1.Event{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Event"},
		ObjectMeta:     metav1.ObjectMeta{Namespace: eventNamespace, Name: e.Name},
		InvolvedObject: corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: c.node, UID: e.Node},
		Reason:         e.Reason, Message: cut(e.Message), Type: kind, FirstTimestamp: at, LastTimestamp: at, Count: 1,
		Source:              corev1.EventSource{Component: fieldManager, Host: c.node},
		ReportingController: fieldManager, ReportingInstance: c.node})
	if err != nil {
		return fmt.Errorf("encode event: %w", err)
	}
	err = c.ask(ctx, nil, func() *rest.Request {
		return c.rest.Post().AbsPath("/api/v1/namespaces", eventNamespace, "events").Param("fieldManager", fieldManager).
			SetHeader("Accept", plainJSON).SetHeader("Content-Type", plainJSON).Body(raw)
	})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("make event %s of node %s: %w", e.Reason, c.node, err)
	}
	return nil
}

func cut(message string) string {
	return strings.ToValidUTF8(message[:min(len(message), maxEventMessage)], "")
}
