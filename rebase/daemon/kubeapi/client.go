package kubeapi

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	opv1 "github.com/openshift/api/operator/v1"
	"github.com/sirupsen/logrus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"dayone.dev/dayone/installconfig/report"
	"dayone.dev/dayone/manifests/assets/cluster"
)

// requestLimit bounds one request: a node whose API does not answer goes on without.
const requestLimit = 15 * time.Second

// Client speaks for one node.
type Client struct {
	node string
	rest rest.Interface
	log  *logrus.Entry
	// watch and watchConfig are for watches of nodes and of ControllerConfigs.
	watch, watchConfig metadata.ResourceInterface
}

// New makes a client; nothing is asked yet. A nil log says nothing.
func New(cfg *rest.Config, node string, log *logrus.Entry) (*Client, error) {
	if node == "" {
		return nil, errors.New("make API client: the node has no name")
	}
	log = cmp.Or(log, report.NoLog())
	c := &Client{node: node, log: log}
	watching := rest.CopyConfig(cfg)
	watching.Timeout = 0 // A watch is one long answer.
	asking := rest.CopyConfig(cfg)
	asking.Timeout = requestLimit
	nodes := schema.GroupVersionResource{Version: "v1", Resource: "nodes"}
	meta, err := metadata.NewForConfig(watching)
	if err != nil {
		return nil, fmt.Errorf("make API client: %w", err)
	}
	c.watch, c.watchConfig = meta.Resource(nodes), meta.Resource(mcfgv1.GroupVersion.WithResource("controllerconfigs"))
	// Only the API's own Status has to be known: it is what errors come as. Objects are decoded here.
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	asking.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	asking.GroupVersion, asking.APIPath = &schema.GroupVersion{}, "/"
	if c.rest, err = rest.RESTClientFor(asking); err != nil {
		return nil, fmt.Errorf("make API client: %w", err)
	}
	return c, nil
}

// Node reads this node's object without its spec and status.
func (c *Client) Node(ctx context.Context) (*metav1.PartialObjectMetadata, error) {
	n := &metav1.PartialObjectMetadata{}
	if err := c.ask(ctx, n, func() *rest.Request {
		return c.rest.Get().AbsPath(nodePath, c.node).
			SetHeader("Accept", metadataOnly)
	}); err != nil {
		return nil, fmt.Errorf("read node %s: %w", c.node, err)
	}
	return n, nil
}

const (
	nodePath = "/api/v1/nodes"
	// metadataOnly is how a node is asked for without its spec and status. Source: Kubernetes, API concepts, receiving
	// resources as metadata.
	metadataOnly = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
	plainJSON    = "application/json"
)

// PatchNode changes this node's object by a JSON merge patch and gives what it has become.
func (c *Client) PatchNode(ctx context.Context, patch []byte) (*metav1.PartialObjectMetadata, error) {
	n := &metav1.PartialObjectMetadata{}
	err := c.ask(ctx, n, func() *rest.Request {
		return c.rest.Patch(types.MergePatchType).AbsPath(nodePath, c.node).Param("fieldManager", fieldManager).
			SetHeader("Accept", metadataOnly).Body(patch)
	})
	if err != nil {
		return nil, fmt.Errorf("change node %s: %w", c.node, err)
	}
	return n, nil
}

// Config reads a rendered config.
func (c *Client) Config(ctx context.Context, name string) (*mcfgv1.MachineConfig, error) {
	mc := &mcfgv1.MachineConfig{}
	if err := c.get(ctx, mcfgv1.GroupVersion, "machineconfigs", name, mc); err != nil {
		return nil, fmt.Errorf("read rendered config %s: %w", name, err)
	}
	return mc, nil
}

// Policies reads the MachineConfiguration with the admin's disruption policies; nil when the cluster has none.
func (c *Client) Policies(ctx context.Context) (*opv1.MachineConfiguration, error) {
	o := &opv1.MachineConfiguration{}
	err := c.get(ctx, opv1.GroupVersion, "machineconfigurations", "cluster", o)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil //nolint:nilnil // there is none
	case err != nil:
		return nil, fmt.Errorf("read disruption policies: %w", err)
	}
	return o, nil
}

// ControllerConfig reads what every node of the cluster has beside its config; nil when the cluster has none.
func (c *Client) ControllerConfig(ctx context.Context) (*mcfgv1.ControllerConfig, error) {
	o := &mcfgv1.ControllerConfig{}
	err := c.get(ctx, mcfgv1.GroupVersion, "controllerconfigs", controllerConfig, o)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil //nolint:nilnil // there is none
	case err != nil:
		return nil, fmt.Errorf("read ControllerConfig: %w", err)
	}
	return o, nil
}

// PinnedImageSet reads a set of images that nodes keep; nil when there is none of that name.
func (c *Client) PinnedImageSet(ctx context.Context, name string) (*mcfgv1.PinnedImageSet, error) {
	o := &mcfgv1.PinnedImageSet{}
	err := c.get(ctx, mcfgv1.GroupVersion, "pinnedimagesets", name, o)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil //nolint:nilnil // there is none
	case err != nil:
		return nil, fmt.Errorf("read PinnedImageSet %s: %w", name, err)
	}
	return o, nil
}

// RegistryFiles reads what the registries of the control plane work by: the ConfigMap with that name; nil when the
// cluster publishes nothing.
func (c *Client) RegistryFiles(ctx context.Context, name string) (map[string]string, error) {
	var o struct {
		Data map[string]string `json:"data"`
	}
	err := c.ask(ctx, &o, func() *rest.Request {
		return c.rest.Get().AbsPath("/api/v1/namespaces", cluster.DefaultNamespace, "configmaps", name).
			SetHeader("Accept", plainJSON)
	})
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read ConfigMap %s: %w", name, err)
	}
	return o.Data, nil
}

// controllerConfig is the only one. Source: MCO.
const controllerConfig = "machine-config-controller"

// fieldManager owns what the agent writes.
const fieldManager = "dayone-daemon"

// MachineConfigNode reads this node's; nil when no controller has made it.
func (c *Client) MachineConfigNode(ctx context.Context) (*mcfgv1.MachineConfigNode, error) {
	o := &mcfgv1.MachineConfigNode{}
	err := c.get(ctx, mcfgv1.GroupVersion, "machineconfignodes", c.node, o)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil //nolint:nilnil // there is none
	case err != nil:
		return nil, fmt.Errorf("read MachineConfigNode %s: %w", c.node, err)
	}
	return o, nil
}

// ApplyMachineConfigNode applies the status of this node's MachineConfigNode; conditions of other types stay their
// writers'.
func (c *Client) ApplyMachineConfigNode(ctx context.Context, o *mcfgv1.MachineConfigNode) error {
	gv := mcfgv1.GroupVersion
	raw, err := json.Marshal(map[string]any{"apiVersion": gv.String(), "kind": "MachineConfigNode",
		"metadata": map[string]any{"name": c.node}, "status": o.Status})
	if err != nil {
		return fmt.Errorf("encode status: %w", err)
	}
	err = c.ask(ctx, nil, func() *rest.Request {
		return c.rest.Patch(types.ApplyPatchType).AbsPath("/apis", gv.Group, gv.Version, "machineconfignodes", c.node,
			"status").
			Param("fieldManager", fieldManager).Param("force", "true").SetHeader("Accept", plainJSON).Body(raw)
	})
	if err != nil {
		return fmt.Errorf("write status of MachineConfigNode %s: %w", c.node, err)
	}
	return nil
}

func (c *Client) get(ctx context.Context, gv schema.GroupVersion, resource, name string, into any) error {
	return c.ask(ctx, into, func() *rest.Request {
		return c.rest.Get().AbsPath("/apis", gv.Group, gv.Version, resource, name).SetHeader("Accept", plainJSON)
	})
}

// Event makes an event about this node. One that is there already stays as it is.
func (c *Client) Event(ctx context.Context, e Event) error {
	raw, err := e.body(c.node)
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
