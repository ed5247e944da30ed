package clusterinstall

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/manifests/assets/cluster"
)

// minimumMinor is of Kubernetes 1.31: the CRDs' rules use optionalOldSelf and the format library, the policies are v1
// since 1.30.
const minimumMinor = 31

// preflight refuses what cannot work before anything is changed.
func preflight(ctx context.Context, t Target, o Options) error {
	d, err := discovery.NewDiscoveryClientForConfig(t.Config)
	if err != nil {
		return unreachable(t.Config.Host, err)
	}
	v, err := d.ServerVersion()
	if err != nil {
		return unreachable(t.Config.Host, err)
	}
	if minor, err := strconv.Atoi(strings.TrimRight(v.Minor, "+")); err == nil && v.Major == "1" && minor < minimumMinor {
		return fmt.Errorf("the cluster is Kubernetes %s; dayone needs 1.%d or newer, whose validation rules its kinds use",
			v.GitVersion, minimumMinor)
	}
	other, err := otherInstallation(ctx, t.Client, t.Namespace)
	if err != nil {
		return unreachable(t.Config.Host, err)
	}
	if other != "" {
		return fmt.Errorf("dayone is installed in namespace %s already and a cluster can have it once: use --namespace "+
			"%s, "+
			"or uninstall that one first", other, other)
	}
	if modeOf(o.Options) != cluster.Full {
		return needOperator(ctx, t.Client, o.Mode)
	}
	return nil
}

// KeepMode refuses another mode than that of an installation: its rights and its objects are of that mode.
func KeepMode(installed cluster.Options, mode cluster.Mode) error {
	if modeOf(installed) == mode {
		return nil
	}
	return fmt.Errorf("dayone is installed in mode %s, and an installation keeps its mode: for mode %s run dayone "+
		"cluster uninstall first, then install with --mode %s", modeOf(installed), mode, mode)
}

// needOperator refuses a cluster in which no Machine Config Operator rolls out what dayone advises or builds.
func needOperator(ctx context.Context, c client.Reader, mode cluster.Mode) error {
	running, err := runningRivals(ctx, c, cluster.DefaultNamespace)
	if err != nil {
		return err
	}
	if len(running) == 0 {
		return fmt.Errorf("mode %s works beside a running Machine Config Operator, and none runs in namespace %s: start "+
			"it, or install with --mode %s, which does its work", mode, cluster.DefaultNamespace, cluster.Full)
	}
	return nil
}

// Suggest is the mode that fits a cluster without an installation: beside a Machine Config Operator, an advisor.
func Suggest(ctx context.Context, t Target) (mode cluster.Mode, err error) {
	err = t.within(ctx, func(ctx context.Context) error {
		version, err := clusterVersion(ctx, t.Client)
		if err != nil {
			return unreachable(t.Config.Host, err)
		}
		running, err := runningRivals(ctx, t.Client, cluster.DefaultNamespace)
		mode = cluster.Full
		if version != nil || len(running) > 0 {
			mode = cluster.Advisor
		}
		return err
	})
	return mode, err
}

func unreachable(host string, err error) error {
	switch {
	case apierrors.IsUnauthorized(err):
		return fmt.Errorf("log in at %s: %w", host, err)
	case apierrors.IsForbidden(err):
		return fmt.Errorf("look at the cluster at %s: %w", host, err)
	}
	return fmt.Errorf("reach the cluster at %s: %w", host, err)
}

// besideError says that a Machine Config Operator works beside dayone, or will.
type besideError string

func (e besideError) Error() string { return string(e) }

// refuseRivals keeps two sets of controllers from writing the same objects.
func refuseRivals(ctx context.Context, c client.Reader, namespace string) error {
	running, err := runningRivals(ctx, c, slices.Compact([]string{namespace, cluster.DefaultNamespace})...)
	if err != nil {
		return err
	}
	if len(running) > 0 {
		return besideError(fmt.Sprintf("the Machine Config Operator's own controllers run here (%s): they and dayone's "+
			"would write the same objects against each other. Install beside them with --mode %s or --mode %s. To put dayone "+
			"in their place, run dayone cluster install --mode %s --take-over", strings.Join(running, ", "), cluster.Advisor,
			cluster.Building, cluster.Full))
	}
	version, err := clusterVersion(ctx, c)
	if err != nil {
		return fmt.Errorf("look for other controllers: %w", err)
	}
	if version != nil && !cluster.Overridden(version) {
		return besideError(fmt.Sprintf("ClusterVersion %s has no override for the Machine Config Operator: the "+
			"cluster-version operator would start it again. Run dayone cluster install --mode %s --take-over, which sets it, "+
			"or install with --mode %s", version.Name, cluster.Full, cluster.Advisor))
	}
	return nil
}

// runningRivals names the Machine Config Operator's workloads that are not scaled to nothing.
func runningRivals(ctx context.Context, c client.Reader, namespaces ...string) ([]string, error) {
	var running []string
	for _, namespace := range namespaces {
		var deployments appsv1.DeploymentList
		var daemonSets appsv1.DaemonSetList
		err := errors.Join(c.List(ctx, &deployments, client.InNamespace(namespace)),
			c.List(ctx, &daemonSets, client.InNamespace(namespace)))
		if err != nil {
			return nil, fmt.Errorf("look for other controllers: %w", err)
		}
		running = append(running, cluster.RunningRivals(deployments.Items, daemonSets.Items)...)
	}
	return running, nil
}
