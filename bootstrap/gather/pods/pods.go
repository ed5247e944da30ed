package pods

import (
	"context"
	"fmt"
	"io"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
)

// Client reads pods of one cluster.
type Client struct{ core *rest.RESTClient }

// New makes a client. It asks the cluster nothing.
func New(config *rest.Config) (*Client, error) {
	c := rest.CopyConfig(config)
	c.APIPath, c.GroupVersion = "/api", &corev1.SchemeGroupVersion
	c.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
	if c.UserAgent == "" {
		c.UserAgent = rest.DefaultKubernetesUserAgent()
	}
	core, err := rest.RESTClientFor(c)
	if err != nil {
		return nil, fmt.Errorf("make client for pods: %w", err)
	}
	return &Client{core: core}, nil
}

// Version is what the cluster answers about itself, as JSON.
func (c *Client) Version(ctx context.Context) ([]byte, error) {
	return c.core.Get().AbsPath("/version").Do(ctx).Raw()
}

// List gives at most limit pods of a namespace. The error is the API's own.
func (c *Client) List(ctx context.Context, namespace string, limit int64) ([]corev1.Pod, error) {
	var list corev1.PodList
	err := c.core.Get().Namespace(namespace).Resource("pods").
		VersionedParams(&metav1.ListOptions{Limit: limit}, scheme.ParameterCodec).Do(ctx).Into(&list)
	return list.Items, err
}

// Log gives the log of a container of a pod; the caller closes it. The error is the API's own.
func (c *Client) Log(ctx context.Context, namespace, pod string, o *corev1.PodLogOptions) (io.ReadCloser, error) {
	return c.core.Get().Namespace(namespace).Resource("pods").Name(pod).SubResource("log").
		VersionedParams(o, scheme.ParameterCodec).Stream(ctx)
}
