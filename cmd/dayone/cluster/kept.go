package cluster

import (
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/build/machineosbuild"
	"dayone.dev/dayone/build/mcobuild"
	"dayone.dev/dayone/cmd/internal/cli"
	"dayone.dev/dayone/manifests/assets/cluster"
	"dayone.dev/dayone/manifests/clusterinstall"
)

// keptBuild is what an advisor keeps of the pool's newest build, or of the one of that name; nil: nothing. Who may not
// read ConfigMaps there gets nothing either.
func keptBuild(ctx context.Context, api client.Reader, namespace, pool, build string) (*mcobuild.Record, error) {
	var found *corev1.ConfigMap
	for _, n := range slices.Compact([]string{namespace, cluster.AdvisorNamespace}) {
		var list corev1.ConfigMapList
		err := api.List(ctx, &list, client.InNamespace(n), client.MatchingLabels(mcobuild.Records(pool)))
		if err != nil && !apierrors.IsForbidden(err) {
			return nil, fmt.Errorf("list records of builds in namespace %s: %w", n, err)
		}
		for i := range list.Items {
			m := &list.Items[i]
			if build != "" && m.Name != mcobuild.RecordName(build) {
				continue
			}
			if found == nil || found.CreationTimestamp.Before(&m.CreationTimestamp) {
				found = m
			}
		}
	}
	if found == nil {
		return nil, nil
	}
	r, err := mcobuild.Parse(found)
	return &r, err
}

// printKept prints the log and, below it, what is known of the build.
func printKept(cmd *cobra.Command, r *mcobuild.Record) error {
	text, err := mcobuild.Unpack(r.Log)
	if err != nil {
		return fmt.Errorf("show log of MachineOSBuild %s: %w", r.Build, err)
	}
	if cli.Output(cmd) == "text" {
		text += "\n" + r.Summary
	}
	return printLog(cmd, map[string]any{"machineOSBuild": r.Build, "pool": r.Pool, "outcome": r.Outcome,
		"cause": r.Cause, "attempts": r.Attempts, "summary": r.Summary, "text": text})
}

// explainPools says of a pool whose newest build failed beside a running Machine Config Operator why it did.
func explainPools(ctx context.Context, api client.Reader, s *clusterinstall.Status) error {
	for i := range s.Pools {
		p := &s.Pools[i]
		r, err := keptBuild(ctx, api, s.Namespace, p.Pool, "")
		if err != nil {
			return err
		}
		if r != nil && r.Cause != nil && r.Outcome == string(machineosbuild.Failed) {
			p.State, p.Build = "BuildFailed", r.Build
			p.Detail = r.Cause.Error() + " (dayone cluster logs " + p.Pool + ")"
		}
	}
	return nil
}
