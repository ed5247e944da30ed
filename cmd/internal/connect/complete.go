package connect

import (
	"context"
	"slices"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// completionLimit is how long a person who pressed the tab key waits for the API server.
const completionLimit = 3 * time.Second

// Nodes are completed with the names of nodes.
func Nodes() schema.GroupVersionKind { return corev1.SchemeGroupVersion.WithKind("NodeList") }

// Pools are completed with the names of MachineConfigPools.
func Pools() schema.GroupVersionKind { return mcfgv1.GroupVersion.WithKind("MachineConfigPoolList") }

// LayeredPools are completed with the names of MachineOSConfigs, which are those of their pools.
func LayeredPools() schema.GroupVersionKind {
	return mcfgv1.GroupVersion.WithKind("MachineOSConfigList")
}

// Builds are completed with the names of MachineOSBuilds.
func Builds() schema.GroupVersionKind { return mcfgv1.GroupVersion.WithKind("MachineOSBuildList") }

// Argument completes the one argument of a command with the names of the cluster's objects. Without a cluster there are
// none.
func (f *Flags) Argument(kinds ...schema.GroupVersionKind) cobra.CompletionFunc {
	complete := f.Value(kinds...)
	return func(cmd *cobra.Command, args []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return complete(cmd, args, begun)
	}
}

// Value completes the value of a flag as Argument does.
func (f *Flags) Value(kinds ...schema.GroupVersionKind) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		ctx, cancel := context.WithTimeout(cmd.Context(), completionLimit)
		defer cancel()
		return f.names(ctx, kinds), cobra.ShellCompDirectiveNoFileComp
	}
}

func (f *Flags) names(ctx context.Context, kinds []schema.GroupVersionKind) (out []string) {
	api, _, err := f.Client()
	if err != nil {
		return nil
	}
	for _, kind := range kinds {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(kind)
		if api.List(ctx, list, client.Limit(maxCompletions)) != nil {
			continue // another kind may be allowed
		}
		for i := range list.Items {
			out = append(out, list.Items[i].Name)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// maxCompletions of a kind are asked for: nobody reads more.
const maxCompletions = 500
