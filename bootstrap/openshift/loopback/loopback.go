package loopback

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/assets/bootstrapnode"
	"dayone.dev/dayone/registry/credentials"
)

// callLimit bounds one request to the API server, which is on this host.
const callLimit = 30 * time.Second

// fieldOwner is who owns the fields that are applied.
const fieldOwner = client.FieldOwner("dayone-bootstrap")

// Cluster is the API server behind a kubeconfig, which may come later than this value.
type Cluster struct {
	// Kubeconfig is the file's path.
	Kubeconfig string
}

func (c Cluster) client() (client.Client, error) { return connect(c.Kubeconfig) }

func connect(kubeconfig string) (client.Client, error) {
	raw, err := os.ReadFile(kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig: %w", err)
	}
	config, err := clientcmd.RESTConfigFromKubeConfig(raw)
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig: %w", err)
	}
	config.Timeout = callLimit
	scheme, err := manifests.Scheme()
	if err != nil {
		return nil, err
	}
	return client.New(config, client.Options{Scheme: scheme})
}

// Up says whether the API server answers an administrator.
func (c Cluster) Up(ctx context.Context) error {
	api, err := c.client()
	if err != nil {
		return err
	}
	return answers(ctx, api)
}

// Connect gives the first API server that answers an administrator. On a bootstrap node it is the one there, as long as
// bootkube keeps it, and then the masters'.
func Connect(kubeconfigs ...string) func(context.Context) (client.Client, error) {
	return func(ctx context.Context) (client.Client, error) {
		var errs []error
		for _, file := range kubeconfigs {
			api, err := connect(file)
			if err == nil {
				if err = answers(ctx, api); err == nil {
					return api, nil
				}
			}
			errs = append(errs, fmt.Errorf("%s: %w", file, err))
		}
		return nil, fmt.Errorf("no API server answers: %w", errors.Join(errs...))
	}
}

func answers(ctx context.Context, api client.Client) error {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	return api.Get(ctx, client.ObjectKey{Name: "kube-system"}, &corev1.Namespace{})
}

// Give merges credentials (auth.json), if there are any, into the cluster's pull secret, which must be there: the
// installer's manifests have it. Then it applies the set's Secrets, ConfigMaps, MachineConfigs and MachineOSConfigs.
func (c Cluster) Give(ctx context.Context, set *manifests.Set, auth []byte) error {
	if len(auth) > 0 {
		err := c.changePullSecret(ctx, func(have []byte) ([]byte, error) { return credentials.Merge(have, auth) })
		if err != nil {
			return err
		}
	}
	api, err := c.client()
	if err != nil {
		return err
	}
	var list []client.Object
	for _, s := range set.Secrets {
		list = append(list, s.Object)
	}
	for _, m := range set.ConfigMaps {
		list = append(list, m.Object)
	}
	for _, m := range set.MachineConfigs {
		list = append(list, m.Object)
	}
	for _, m := range set.MachineOSConfigs {
		list = append(list, m.Object)
	}
	for _, o := range list {
		if err := apply(ctx, api, o); err != nil {
			return err
		}
	}
	return nil
}

// apply sends what o says and nothing else: no status, and no null for a list that is not there, which the API would
// refuse.
func apply(ctx context.Context, api client.Client, o client.Object) error {
	kind, err := api.GroupVersionKindFor(o)
	if err != nil {
		return err
	}
	raw, err := json.Marshal(o)
	if err != nil {
		return fmt.Errorf("encode %s %s: %w", kind.Kind, o.GetName(), err)
	}
	plain := map[string]any{}
	if err := json.Unmarshal(raw, &plain); err != nil {
		return fmt.Errorf("encode %s %s: %w", kind.Kind, o.GetName(), err)
	}
	withoutNull(plain)
	delete(plain, "status")
	object := &unstructured.Unstructured{Object: plain}
	object.SetGroupVersionKind(kind)
	if err := api.Apply(ctx, client.ApplyConfigurationFromUnstructured(object), fieldOwner,
		client.ForceOwnership); err != nil {
		return fmt.Errorf("apply %s %s: %w", kind.Kind, o.GetName(), err)
	}
	return nil
}

func withoutNull(m map[string]any) {
	for key, value := range m {
		switch v := value.(type) {
		case nil:
			delete(m, key)
		case map[string]any:
			withoutNull(v)
		}
	}
}

// Where OpenShift keeps the cluster's pull secret.
const (
	pullNamespace = "openshift-config"
	pullName      = "pull-secret"
)

func (c Cluster) changePullSecret(ctx context.Context, change func([]byte) ([]byte, error)) error {
	api, err := c.client()
	if err != nil {
		return err
	}
	secret := &corev1.Secret{}
	if err := api.Get(ctx, types.NamespacedName{Namespace: pullNamespace, Name: pullName}, secret); err != nil {
		return fmt.Errorf("read the cluster's pull secret: %w", err)
	}
	have := secret.Data[corev1.DockerConfigJsonKey]
	if len(have) == 0 {
		return errors.New("read the cluster's pull secret: it is empty")
	}
	changed, err := change(have)
	if err != nil || bytes.Equal(have, changed) {
		return err
	}
	secret.Data[corev1.DockerConfigJsonKey] = changed
	if err := api.Update(ctx, secret); err != nil {
		return fmt.Errorf("write the cluster's pull secret: %w", err)
	}
	return nil
}

// Cluster-bootstrap tries a manifest again each second, and ends the API server some seconds after the last one.
const (
	heldLimit    = 10 * time.Second
	heldInterval = 100 * time.Millisecond
)

// Release lets cluster-bootstrap create its last manifest, after which it ends this API server, and takes both objects
// away again before that. An API server that is gone is an error.
func (c Cluster) Release(ctx context.Context) error {
	api, err := c.client()
	if err != nil {
		return err
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: bootstrapnode.HoldNamespace}}
	if err := client.IgnoreAlreadyExists(api.Create(ctx, namespace)); err != nil {
		return fmt.Errorf("let cluster-bootstrap end: %w", err)
	}
	held := &corev1.ConfigMap{}
	key := client.ObjectKey{Namespace: bootstrapnode.HoldNamespace, Name: bootstrapnode.HoldName}
	err = wait.PollUntilContextTimeout(ctx, heldInterval, heldLimit, true, func(ctx context.Context) (bool, error) {
		err := api.Get(ctx, key, held)
		return err == nil, client.IgnoreNotFound(err)
	})
	if err != nil {
		return fmt.Errorf("wait for cluster-bootstrap to create its last manifest: %w", err)
	}
	if err := client.IgnoreNotFound(api.Delete(ctx, namespace)); err != nil {
		return fmt.Errorf("remove what held cluster-bootstrap: %w", err)
	}
	return nil
}

// Withdraw deletes the set's MachineConfigs and MachineOSConfigs and takes the registry's credentials out of the
// cluster's pull secret.
func (c Cluster) Withdraw(ctx context.Context, set *manifests.Set, registry string) error {
	api, err := c.client()
	if err != nil {
		return err
	}
	var list []client.Object
	for _, m := range set.MachineOSConfigs {
		list = append(list, m.Object)
	}
	for _, m := range set.MachineConfigs {
		list = append(list, m.Object)
	}
	for _, o := range list {
		if err := client.IgnoreNotFound(api.Delete(ctx, o)); err != nil {
			return fmt.Errorf("take back %T %s: %w", o, o.GetName(), err)
		}
	}
	return c.changePullSecret(ctx, func(have []byte) ([]byte, error) { return credentials.Remove(have, registry) })
}
