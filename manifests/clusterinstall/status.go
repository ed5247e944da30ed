package clusterinstall

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	operatorv1 "github.com/openshift/api/operator/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/assets/cluster"
)

// Status is how an installation and the pools that it builds for are.
type Status struct {
	Namespace string `json:"namespace"`
	// Installed says that there is an installation, Mode and Version which one.
	Installed bool         `json:"installed"`
	Mode      cluster.Mode `json:"mode,omitempty"`
	Version   string       `json:"version,omitempty"`
	// Conditions say how dayone as a whole is; none before it has said so.
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// Findings say what is in dayone's way, each with what to do.
	Findings []string `json:"findings,omitempty"`
	// Programs are the controllers' Deployments.
	Programs []Program `json:"programs"`
	// Pools are those of the MachineOSConfigs.
	Pools []Pool `json:"pools"`
}

// Program is the state of one Deployment.
type Program struct {
	Name      string `json:"name"`
	Available bool   `json:"available"`
	Detail    string `json:"detail"`
}

// Pool is the state of a pool with a MachineOSConfig.
type Pool struct {
	Pool    string `json:"pool"`
	OptedIn bool   `json:"optedIn"`
	// State is the most urgent thing that the MachineOSConfig's conditions say, Detail its message.
	State  string `json:"state"`
	Detail string `json:"detail,omitempty"`
	Build  string `json:"build,omitempty"`
	Image  string `json:"image,omitempty"`
}

// ReadStatus reads the state of the installation in a namespace, and without one where Installed looks for it.
func ReadStatus(ctx context.Context, c client.Reader, namespace string) (*Status, error) {
	d, err := controllerIn(ctx, c, places(namespace))
	if err != nil || d == nil {
		return absent(ctx, c, namespace), err
	}
	detail, ok := deploymentState(d)
	s := &Status{Namespace: d.Namespace, Installed: true, Mode: modeIn(d), Version: d.Labels[cluster.LabelVersion],
		Programs: []Program{{cluster.Controller, ok, detail}}, Pools: []Pool{}}
	if s.Mode == cluster.Full {
		builder, err := builderState(ctx, c, s.Namespace)
		if err != nil {
			return nil, err
		}
		s.Programs = append(s.Programs, builder)
	}
	if s.Conditions, err = said(ctx, c, s.Namespace); err != nil {
		return nil, err
	}
	if s.Mode == cluster.Full {
		if s.Findings, err = rivalFindings(ctx, c, s.Namespace); err != nil {
			return nil, err
		}
	}
	if d.Status.AvailableReplicas == 0 {
		s.Findings = append(s.Findings, cluster.Controller+" does not run, so what conditions and pools say may be over: "+
			"see why with kubectl -n "+s.Namespace+" describe deployment "+cluster.Controller)
	}
	var configs mcfgv1.MachineOSConfigList
	if err := c.List(ctx, &configs); err != nil {
		return nil, fmt.Errorf("list MachineOSConfigs: %w", err)
	}
	for i := range configs.Items {
		s.Pools = append(s.Pools, poolState(&configs.Items[i], s.Mode))
	}
	return s, nil
}

// absent is the state where no controller is. An installation that is noted still, by a record that this user may read,
// was not removed, or not installed, to the end.
func absent(ctx context.Context, c client.Reader, namespace string) *Status {
	s := &Status{Namespace: cmp.Or(namespace, cluster.DefaultNamespace), Programs: []Program{}, Pools: []Pool{}}
	for _, n := range places(namespace) {
		r, err := readRecord(ctx, c, n)
		if err != nil || r == nil {
			continue
		}
		s.Findings = append(s.Findings, fmt.Sprintf("ConfigMap %s/%s notes an installation of %d objects without %s: an "+
			"installation or a removal is under way or was interrupted: repeat dayone cluster install or uninstall", n,
			recordName, len(r.Objects), cluster.Controller))
	}
	return s
}

// said reads the conditions that the installation publishes. Who may not read them sees the rest.
func said(ctx context.Context, c client.Reader, namespace string) (conditions []metav1.Condition, err error) {
	var m corev1.ConfigMap
	err = c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: cluster.StatusName}, &m)
	switch {
	case apierrors.IsNotFound(err) || apierrors.IsForbidden(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read ConfigMap %s: %w", cluster.StatusName, err)
	}
	if err := json.Unmarshal([]byte(m.Data[cluster.StatusConditions]), &conditions); err != nil {
		return nil, fmt.Errorf("read ConfigMap %s: key %s: %w (delete it: dayone-controller makes it anew)",
			cluster.StatusName, cluster.StatusConditions, err)
	}
	return conditions, nil
}

// rivalFindings say what brings the Machine Config Operator back while dayone does its work.
func rivalFindings(ctx context.Context, c client.Reader, namespace string) ([]string, error) {
	err := refuseRivals(ctx, c, namespace)
	var beside besideError
	switch {
	case errors.As(err, &beside):
		return []string{beside.Error()}, nil
	case apierrors.IsForbidden(err):
		return []string{"whether the Machine Config Operator is aside is unknown: " + err.Error()}, nil
	}
	return nil, err
}

// controllerIn is the operator's Deployment in the first namespace that has one; nil when none has.
func controllerIn(ctx context.Context, c client.Reader, namespaces []string) (*appsv1.Deployment, error) {
	for _, namespace := range namespaces {
		d := &appsv1.Deployment{}
		err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: cluster.Controller}, d)
		if err == nil {
			return d, nil
		}
		if !apierrors.IsNotFound(err) {
			return nil, fmt.Errorf("read Deployment %s: %w", cluster.Controller, err)
		}
	}
	return nil, nil
}

// modeIn is the mode that the operator is told; that of an earlier version is told none.
func modeIn(d *appsv1.Deployment) cluster.Mode {
	for _, c := range d.Spec.Template.Spec.Containers {
		for _, arg := range c.Args {
			if mode, found := strings.CutPrefix(arg, "--mode="); found {
				return cluster.Mode(mode)
			}
		}
	}
	return cluster.Full
}

// builderState is what the operator says about the builder: the operator alone knows what it waits for. Whether its
// copies run does not depend on an operator that says so.
func builderState(ctx context.Context, c client.Reader, namespace string) (Program, error) {
	var mc operatorv1.MachineConfiguration
	err := c.Get(ctx, client.ObjectKey{Name: cluster.MachineConfiguration}, &mc)
	if client.IgnoreNotFound(err) != nil {
		return Program{}, fmt.Errorf("read MachineConfiguration %s: %w", cluster.MachineConfiguration, err)
	}
	p := Program{Name: cluster.Builder, Detail: "nothing is known yet"}
	says := meta.FindStatusCondition(mc.Status.Conditions, manifests.ConditionBuilderAvailable)
	if says == nil {
		return p, nil
	}
	p.Available, p.Detail = says.Status == metav1.ConditionTrue, says.Reason+": "+says.Message
	if !p.Available {
		return p, nil
	}
	var d appsv1.Deployment
	err = c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: cluster.Builder}, &d)
	switch {
	case apierrors.IsNotFound(err):
		p.Available, p.Detail = false, "its Deployment is gone: "+cluster.Controller+" makes it anew"
	case err != nil:
		return Program{}, fmt.Errorf("read Deployment %s: %w", cluster.Builder, err)
	case d.Status.AvailableReplicas == 0:
		p.Available = false
		p.Detail, _ = deploymentState(&d)
	}
	return p, nil
}

// poolState puts the most urgent condition first: not opted in, degraded, progressing, available. Those of an earlier
// generation say nothing about what is wanted now. Beside a Machine Config Operator the object alone opts its pool
// in, and the image is all that it says.
func poolState(c *mcfgv1.MachineOSConfig, mode cluster.Mode) Pool {
	p := Pool{Pool: c.Spec.MachineConfigPool.Name, Image: string(c.Status.CurrentImagePullSpec), State: "Unknown"}
	if c.Status.MachineOSBuild != nil {
		p.Build = c.Status.MachineOSBuild.Name
	}
	in := meta.FindStatusCondition(c.Status.Conditions, manifests.ConditionOptedIn)
	if mode != cluster.Full {
		in = &metav1.Condition{Status: metav1.ConditionTrue, Reason: "NoImageYet"}
		if p.Image != "" {
			in.Reason = "Available"
		}
	}
	if in == nil {
		p.Detail = "dayone-controller has not looked at it yet"
		return p
	}
	p.OptedIn, p.State = in.Status == metav1.ConditionTrue, in.Reason
	if !p.OptedIn {
		p.Detail = in.Message
		return p
	}
	if seen := c.Status.ObservedGeneration; mode == cluster.Full && seen > 0 && seen < c.Generation {
		p.State = "Unseen"
		p.Detail = fmt.Sprintf("%s has not looked at the latest change yet (generation %d, it has seen %d)", cluster.Builder,
			c.Generation, seen)
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
