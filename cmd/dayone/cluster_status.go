package main

import (
	"context"
	"fmt"
	"io"
	"text/tabwriter"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	operatorv1 "github.com/openshift/api/operator/v1"
	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/build/optin"
	"dayone.dev/dayone/cmd/internal/cli"
	"dayone.dev/dayone/cmd/internal/connect"
	"dayone.dev/dayone/manifests/assets/cluster"
)

// clusterStatus is what dayone cluster status prints.
type clusterStatus struct {
	Namespace string `json:"namespace"`
	// Installed says that there is an installation, Version which one.
	Installed bool   `json:"installed"`
	Version   string `json:"version,omitempty"`
	// Programs are the controllers' Deployments.
	Programs []programStatus `json:"programs"`
	// Pools are the MachineOSConfigs.
	Pools []poolStatus `json:"pools"`
}

type programStatus struct {
	Name      string `json:"name"`
	Available bool   `json:"available"`
	Detail    string `json:"detail"`
}

type poolStatus struct {
	Pool    string `json:"pool"`
	OptedIn bool   `json:"optedIn"`
	// State is the most urgent thing that the MachineOSConfig's conditions say, Detail its message.
	State  string `json:"state"`
	Detail string `json:"detail,omitempty"`
	Build  string `json:"build,omitempty"`
	Image  string `json:"image,omitempty"`
}

func newClusterStatus(f *connect.Flags) *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "Show the controllers and every pool that is opted in or wants to be",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			api, _, err := f.Client()
			if err != nil {
				return err
			}
			s, err := readClusterStatus(cmd.Context(), api, f.Namespace)
			if err != nil {
				return err
			}
			return cli.Print(cmd, s, s.print)
		},
	}
}

func readClusterStatus(ctx context.Context, api client.Client, namespace string) (*clusterStatus, error) {
	s := &clusterStatus{Namespace: namespace, Programs: []programStatus{}, Pools: []poolStatus{}}
	var d appsv1.Deployment
	err := api.Get(ctx, client.ObjectKey{Namespace: namespace, Name: cluster.Controller}, &d)
	if apierrors.IsNotFound(err) {
		return s, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read Deployment %s: %w", cluster.Controller, err)
	}
	s.Installed, s.Version = true, d.Labels[cluster.LabelVersion]
	detail, ok := deploymentState(&d)
	s.Programs = append(s.Programs, programStatus{cluster.Controller, ok, detail})
	if err := s.readBuilder(ctx, api); err != nil {
		return nil, err
	}
	var configs mcfgv1.MachineOSConfigList
	if err := api.List(ctx, &configs); err != nil {
		return nil, fmt.Errorf("list MachineOSConfigs: %w", err)
	}
	for i := range configs.Items {
		s.Pools = append(s.Pools, statusOfPool(&configs.Items[i]))
	}
	return s, nil
}

// readBuilder takes the operator's word: only it knows what is waited for.
func (s *clusterStatus) readBuilder(ctx context.Context, api client.Client) error {
	var mc operatorv1.MachineConfiguration
	err := api.Get(ctx, client.ObjectKey{Name: cluster.MachineConfiguration}, &mc)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("read MachineConfiguration %s: %w", cluster.MachineConfiguration, err)
	}
	p := programStatus{Name: cluster.Builder, Detail: "nothing is known yet"}
	if c := meta.FindStatusCondition(mc.Status.Conditions, optin.ConditionBuilderAvailable); c != nil {
		p.Available, p.Detail = c.Status == metav1.ConditionTrue, c.Reason+": "+c.Message
	}
	s.Programs = append(s.Programs, p)
	return nil
}

// statusOfPool puts the most urgent condition first: not opted in, degraded, progressing, available.
func statusOfPool(c *mcfgv1.MachineOSConfig) poolStatus {
	p := poolStatus{Pool: c.Spec.MachineConfigPool.Name, Image: string(c.Status.CurrentImagePullSpec), State: "Unknown"}
	if c.Status.MachineOSBuild != nil {
		p.Build = c.Status.MachineOSBuild.Name
	}
	in := meta.FindStatusCondition(c.Status.Conditions, optin.ConditionOptedIn)
	if in == nil {
		p.Detail = "dayone-controller has not looked at it yet"
		return p
	}
	p.OptedIn, p.State = in.Status == metav1.ConditionTrue, in.Reason
	if !p.OptedIn {
		p.Detail = in.Message
		return p
	}
	for _, kind := range []string{"Degraded", "Progressing", "Available"} {
		if condition := meta.FindStatusCondition(c.Status.Conditions, kind); condition != nil &&
			condition.Status == metav1.ConditionTrue {
			p.State, p.Detail = kind, condition.Reason+": "+condition.Message
			return p
		}
	}
	return p
}

func (s *clusterStatus) print(w io.Writer) error {
	if !s.Installed {
		_, err := fmt.Fprintf(w, "dayone is not installed in namespace %s\n", s.Namespace)
		return err
	}
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	fmt.Fprintf(t, "dayone %s in namespace %s\n\nPROGRAM\tAVAILABLE\tDETAIL\n", s.Version, s.Namespace)
	for _, p := range s.Programs {
		fmt.Fprintf(t, "%s\t%t\t%s\n", p.Name, p.Available, p.Detail)
	}
	fmt.Fprint(t, "\nPOOL\tOPTED IN\tSTATE\tIMAGE\tDETAIL\n")
	for _, p := range s.Pools {
		image := p.Image
		if image == "" {
			image = "-"
		}
		fmt.Fprintf(t, "%s\t%t\t%s\t%s\t%s\n", p.Pool, p.OptedIn, p.State, image, p.Detail)
	}
	return t.Flush()
}

// isNoKind tells that the cluster does not know a kind.
func isNoKind(err error) bool { return meta.IsNoMatchError(err) }
