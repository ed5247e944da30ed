package handover

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/manifests"
)

// Kubeconfig reaches the cluster of a kubeconfig file, which may come later than the hand-over begins. An empty context
// is its current one.
func Kubeconfig(file, kubeContext string) func(context.Context) (client.Client, error) {
	return func(context.Context) (client.Client, error) {
		if _, err := os.Stat(file); errors.Is(err, fs.ErrNotExist) {
			return nil, waitsFor{fmt.Sprintf("the kubeconfig %s does not exist yet", file)}
		}
		rules := &clientcmd.ClientConfigLoadingRules{ExplicitPath: file}
		config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules,
			&clientcmd.ConfigOverrides{CurrentContext: kubeContext}).ClientConfig()
		if err != nil {
			return nil, fmt.Errorf("read kubeconfig %s: %w", file, err)
		}
		scheme, err := manifests.Scheme()
		if err != nil {
			return nil, err
		}
		c, err := client.New(config, client.Options{Scheme: scheme})
		if err != nil {
			return nil, fmt.Errorf("reach the cluster of %s: %w", file, err)
		}
		return c, nil
	}
}
