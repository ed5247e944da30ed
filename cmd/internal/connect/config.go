package connect

import (
	"errors"
	"fmt"
	"os"

	configv1 "github.com/openshift/api/config/v1"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	operatorv1 "github.com/openshift/api/operator/v1"
	operatorv1alpha1 "github.com/openshift/api/operator/v1alpha1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Scheme knows Kubernetes' own kinds and OpenShift's that dayone reads or writes.
func Scheme() (*runtime.Scheme, error) {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, mcfgv1.Install, configv1.Install,
		operatorv1.Install, operatorv1alpha1.Install} {
		if err := add(s); err != nil {
			return nil, fmt.Errorf("register API kinds: %w", err)
		}
	}
	return s, nil
}

// RESTConfig finds the cluster as kubectl does: kubeconfig when it is set, otherwise KUBECONFIG, ~/.kube/config, or
// inside of a pod its service account. An empty kubeContext is the kubeconfig's current one.
func RESTConfig(kubeconfig, kubeContext string) (*rest.Config, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = kubeconfig
	if kubeconfig != "" {
		raw, err := os.ReadFile(kubeconfig)
		if err != nil {
			return nil, fmt.Errorf("read the kubeconfig: %w", err)
		}
		if _, err := clientcmd.Load(raw); err != nil {
			return nil, fmt.Errorf("read the kubeconfig: %s is not a kubeconfig: %w", kubeconfig, err)
		}
	}
	loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules,
		&clientcmd.ConfigOverrides{CurrentContext: kubeContext})
	cfg, err := loader.ClientConfig()
	if clientcmd.IsEmptyConfig(err) {
		if kubeconfig != "" {
			return nil, fmt.Errorf("read the kubeconfig: %s names no cluster", kubeconfig)
		}
		return nil, errors.New("find the cluster: there is no kubeconfig: set KUBECONFIG or pass --kubeconfig")
	}
	if err != nil {
		return nil, fmt.Errorf("read the kubeconfig: %w", err)
	}
	return cfg, nil
}
