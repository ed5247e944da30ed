package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/spf13/cobra"
	"golang.org/x/term"
	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"dayone.dev/dayone/cmd/internal/cli"
	"dayone.dev/dayone/cmd/internal/connect"
	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/assets/cluster"
)

func newClusterUninstall(f *connect.Flags) *cobra.Command {
	var yes, crds bool
	w := &waiting{}
	cmd := &cobra.Command{
		Use:   "uninstall",
		Short: "Remove dayone's controllers from a cluster",
		Long: "Uninstall removes what install made. MachineOSConfigs, pools, users' Secrets, images and namespaces " +
			"stay, and nodes go on running their images. " +
			"With --crds the kinds that install defined go, too, and with them every object of those kinds.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			api, _, err := f.Client()
			if err != nil {
				return err
			}
			in := &installer{client: api, namespace: f.Namespace, out: cmd.ErrOrStderr()}
			ctx, cancel := context.WithTimeout(cmd.Context(), w.limit())
			defer cancel()
			if err := in.confirm(ctx, cmd.InOrStdin(), yes, crds); err != nil {
				return err
			}
			return w.explain(ctx, in.uninstall(ctx, crds))
		},
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	cmd.Flags().BoolVar(&crds, "crds", false, "also remove the kinds that install defined, with all their objects")
	cmd.Flags().DurationVar(&w.timeout, "timeout", defaultWait, "how long to wait for the cluster in all")
	return cmd
}

// confirm says what goes and what stays and asks.
func (in *installer) confirm(ctx context.Context, from io.Reader, yes, crds bool) error {
	var configs mcfgv1.MachineOSConfigList
	err := in.client.List(ctx, &configs)
	if err != nil && !apierrors.IsNotFound(err) && !isNoKind(err) {
		return fmt.Errorf("list MachineOSConfigs: %w", err)
	}
	in.say("dayone's controllers in namespace %s will be removed.", in.namespace)
	var names []string
	for _, c := range configs.Items {
		names = append(names, c.Name+" (pool "+c.Spec.MachineConfigPool.Name+")")
	}
	if len(names) > 0 {
		in.say("Nothing will build or roll out images any more; nodes of opted-in pools keep theirs. Opted in by "+
			"MachineOSConfigs: %s.", strings.Join(names, ", "))
		if crds {
			in.say("Their MachineOSConfigs, all pools and all MachineConfigs will be deleted with their kinds.")
		}
	}
	if yes {
		return nil
	}
	if file, ok := from.(interface{ Fd() uintptr }); ok && !term.IsTerminal(int(file.Fd())) {
		return cli.Usagef("uninstall asks first and there is no terminal: say --yes")
	}
	fmt.Fprint(in.out, "Go on? [y/N] ")
	answer, err := bufio.NewReader(from).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("read answer: %w", err)
	}
	if a := strings.ToLower(strings.TrimSpace(answer)); a != "y" && a != "yes" {
		return errors.New("uninstall: not confirmed, nothing was changed")
	}
	return nil
}

// uninstall goes backwards: first who would make things anew, then what they made, then the rest.
func (in *installer) uninstall(ctx context.Context, crds bool) error {
	list, err := in.inventory(ctx)
	if err != nil {
		return err
	}
	if len(list) == 0 {
		in.say("no installation is noted in namespace %s; what bears dayone's mark is removed", in.namespace)
	}
	for _, w := range []client.Object{
		&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: cluster.Controller}},
		&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: cluster.Builder}},
		&appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: cluster.ConfigServer}},
	} {
		if err := in.end(ctx, w); err != nil {
			return err
		}
	}
	if err := in.removeMade(ctx); err != nil {
		return err
	}
	for _, e := range slices.Backward(list) {
		if err := in.removeEntry(ctx, e); err != nil {
			return err
		}
	}
	if crds {
		if err := in.removeCRDs(ctx); err != nil {
			return err
		}
	}
	// Last: a run that is interrupted finds it and goes on.
	if err := in.removeEntry(ctx, entry{"v1", "ConfigMap", in.namespace, inventoryName}); err != nil {
		return err
	}
	in.say("dayone is removed")
	return nil
}

// end deletes a workload of ours and waits until its pods are gone.
func (in *installer) end(ctx context.Context, w client.Object) error {
	key := client.ObjectKey{Namespace: in.namespace, Name: w.GetName()}
	err := in.client.Get(ctx, key, w)
	if apierrors.IsNotFound(err) || (err == nil && w.GetLabels()[cluster.LabelManagedBy] != cluster.ManagedBy) {
		return nil
	}
	uid := w.GetUID()
	if err == nil {
		err = in.client.Delete(ctx, w, client.Preconditions{UID: &uid},
			client.PropagationPolicy(metav1.DeletePropagationForeground))
	}
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete %T %s: %w", w, key, err)
	}
	return in.await(ctx, key.String(), func(ctx context.Context) (bool, string, error) {
		err := in.client.Get(ctx, key, w)
		return apierrors.IsNotFound(err), "ends", client.IgnoreNotFound(err)
	})
}

// removeCRDs removes the kinds that are ours. Builds would wait for a builder that is gone: they are let go, their
// images stay.
func (in *installer) removeCRDs(ctx context.Context) error {
	var builds mcfgv1.MachineOSBuildList
	if err := in.client.List(ctx, &builds); err != nil && !isNoKind(err) {
		return fmt.Errorf("list MachineOSBuilds: %w", err)
	}
	for i := range builds.Items {
		b := &builds.Items[i]
		old := b.DeepCopy()
		if controllerutil.RemoveFinalizer(b, manifests.FinalizerMachineOSBuild) {
			if err := in.client.Patch(ctx, b, client.MergeFrom(old)); client.IgnoreNotFound(err) != nil {
				return fmt.Errorf("let MachineOSBuild %s go: %w", b.Name, err)
			}
		}
	}
	crds, err := cluster.CRDs()
	if err != nil {
		return err
	}
	for _, crd := range crds {
		if err := in.removeEntry(ctx, entry{"apiextensions.k8s.io/v1", "CustomResourceDefinition", "",
			crd.Name}); err != nil {
			return err
		}
	}
	return nil
}
