package daemon_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	ign35 "github.com/coreos/ignition/v2/config/v3_5/types"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	opv1 "github.com/openshift/api/operator/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/manifests/assets/cluster"
	"dayone.dev/dayone/manifests/machineconfig"
	"dayone.dev/dayone/manifests/render"
	"dayone.dev/dayone/rebase/daemon"
	"dayone.dev/dayone/rebase/daemon/kubeapi"
	"dayone.dev/dayone/rebase/daemon/trustfiles"
	"dayone.dev/dayone/rebase/deploy"
	"dayone.dev/dayone/rebase/deploy/deploytest"
	"dayone.dev/dayone/rebase/nodedisk"
	"dayone.dev/dayone/rebase/nodestate"
)

// change makes another config of a rendered one.
func change(mc *mcfgv1.MachineConfig, how func(*ign35.Config)) *mcfgv1.MachineConfig {
	c, err := machineconfig.ParseRendered(mc.Spec.Config.Raw)
	if err != nil {
		panic(err)
	}
	how(&c)
	if mc.Spec.Config.Raw, err = machineconfig.Encode(c); err != nil {
		panic(err)
	}
	return mc
}

func withKeys(mc *mcfgv1.MachineConfig, keys ...ign35.SSHAuthorizedKey) *mcfgv1.MachineConfig {
	return change(mc, func(c *ign35.Config) {
		c.Passwd.Users = []ign35.PasswdUser{{Name: "core", SSHAuthorizedKeys: keys}}
	})
}

// core gives the node the user that Ignition made, with the ids of whoever runs the test.
func (f *fixture) core() string {
	f.Helper()
	require.NoError(f, os.MkdirAll(filepath.Join(f.m.root, "etc"), 0o755))
	require.NoError(f, os.MkdirAll(filepath.Join(f.m.root, "home/core"), 0o755))
	line := fmt.Sprintf("core:x:%d:%d::/home/core:/bin/bash\n", os.Getuid(), os.Getgid())
	require.NoError(f, os.WriteFile(filepath.Join(f.m.root, "etc/passwd"), []byte(line), 0o644))
	return "/home/core/.ssh/authorized_keys.d/ignition"
}

// adminPolicies are what an admin has given.
func (f *fixture) adminPolicies(p opv1.NodeDisruptionPolicyConfig) {
	if p.SSHKey.Actions == nil {
		p.SSHKey.Actions = []opv1.NodeDisruptionPolicySpecAction{{Type: opv1.NoneSpecAction}}
	}
	f.create(&opv1.MachineConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "cluster"},
		Spec: opv1.MachineConfigurationSpec{
			StaticPodOperatorSpec: opv1.StaticPodOperatorSpec{OperatorSpec: opv1.OperatorSpec{ManagementState: opv1.Managed}},
			NodeDisruptionPolicy:  p}})
}

func TestKeysOfARunningNode(t *testing.T) {
	f := newFixture(t)
	at := f.core()
	f.join(rendered("rendered-keys-1"), "")
	f.aim(withKeys(rendered("rendered-keys-2"), "ssh-ed25519 AAA one"), "")
	f.settle()
	assert.Equal(t, "ssh-ed25519 AAA one\n", f.read(at))
	f.aim(rendered("rendered-keys-1"), "")
	f.settle()
	assert.Empty(t, f.read(at))
	assert.Zero(t, f.m.boots)
	assert.Empty(t, f.m.calls, "the cluster's policy for keys is None")
}

func TestKeysOfALayeredNodeByPolicy(t *testing.T) {
	f := newFixture(t)
	at := f.core()
	f.adminPolicies(opv1.NodeDisruptionPolicyConfig{SSHKey: opv1.NodeDisruptionPolicySpecSSHKey{
		Actions: []opv1.NodeDisruptionPolicySpecAction{{Type: opv1.RestartSpecAction,
			Restart: &opv1.RestartService{ServiceName: "sshd.service"}}}}})
	first, second := rendered("rendered-policykeys-1", "/etc/a=1"), withKeys(rendered("rendered-policykeys-2", "/etc/a=1"),
		"ssh-ed25519 AAA one")
	f.join(first, image(1))
	f.aim(second, image(1)) // no image holds keys
	f.settle()
	assert.Equal(t, "ssh-ed25519 AAA one\n", f.read(at))
	assert.Equal(t, []string{"restart sshd.service"}, f.m.calls)
	f.aim(withKeys(rendered("rendered-policykeys-3", "/etc/a=3"), "ssh-ed25519 BBB two"), image(3)) // with another image
	f.settle()
	assert.Equal(t, "ssh-ed25519 BBB two\n", f.read(at))
	assert.Equal(t, 1, f.m.boots)
}

func (f *fixture) controllerConfig(ca []byte) *mcfgv1.ControllerConfig {
	f.Helper()
	c := &mcfgv1.ControllerConfig{ObjectMeta: metav1.ObjectMeta{Name: render.ControllerConfigName},
		Spec: mcfgv1.ControllerConfigSpec{
			BaseOSContainerImage: image(9), ImageRegistryBundleData: []mcfgv1.ImageRegistryBundle{{File: "registry.svc..5000",
				Data: ca}},
			ImageRegistryBundleUserData: []mcfgv1.ImageRegistryBundle{}, Images: map[string]string{},
			KubeAPIServerServingCAData: ca,
			RootCAData:                 ca, ReleaseImage: "release", IPFamilies: mcfgv1.IPFamiliesIPv4,
			InternalRegistryPullSecret: []byte(`{"auths":{"registry.svc:5000":{"auth":"t1"}}}`)}}
	f.create(c)
	return c
}

// checking is a machine that looks, before it stages, at what a pull would find.
type checking struct {
	*machine
	look func()
}

func (c checking) Stage(ctx context.Context, image deploy.Image, o deploy.StageOptions) error {
	c.look()
	return c.machine.Stage(ctx, image, o)
}

func TestCertificatesAndPullSecretsOfARunningNode(t *testing.T) {
	f := newRealFixture(t)
	one, two := deploytest.NewAuthority(t).PEM, deploytest.NewAuthority(t).PEM
	c := f.controllerConfig(one)
	// The config has an older CA at the path that is the cluster's.
	first := rendered("rendered-trust-1", "/etc/a=1", nodedisk.KubeletCA+"=older")
	first.Spec.OSImageURL = image(9)
	f.join(first, image(1))
	require.NoError(t, f.step())
	assert.Equal(t, string(one), f.read(nodedisk.KubeletCA))
	assert.Equal(t, string(one), f.read("/etc/docker/certs.d/registry.svc:5000/ca.crt"))
	assert.Contains(t, f.read(trustfiles.PullAuthPath), "t1")
	assert.Equal(t, nodestate.StateDone, f.record().State, "that is no drift")

	rotate := func(ca []byte, token string) {
		was := c.DeepCopy()
		c.Spec.KubeAPIServerServingCAData = ca
		c.Spec.InternalRegistryPullSecret = []byte(`{"auths":{"registry.svc:5000":{"auth":"` + token + `"}}}`)
		require.NoError(t, f.env.Client.Patch(t.Context(), c, client.MergeFrom(was)))
	}
	// A rotation wakes the agent, which otherwise would look in minutes.
	ctx, cancel := context.WithCancel(t.Context())
	f.through(func(o *daemon.Options) {
		api, err := kubeapi.New(f.env.As(t, cluster.DefaultNamespace, cluster.Daemon), f.name, nil)
		require.NoError(t, err)
		o.Wake = api.Wake(ctx)
	})
	over := make(chan error, 1)
	go func() { over <- f.agent.Run(ctx) }()
	rotate(two, "t2")
	require.Eventually(t, func() bool { return f.read(nodedisk.KubeletCA) == string(two) }, time.Minute,
		10*time.Millisecond)
	cancel()
	require.NoError(t, <-over)
	assert.Zero(t, f.m.boots)
	assert.Empty(t, f.m.calls)

	// What changed just before an update is there before its image is pulled.
	looked := false
	f.through(func(o *daemon.Options) {
		o.Deployer = checking{f.m, func() {
			looked = true
			assert.Contains(t, f.read(trustfiles.PullAuthPath), "t3")
			assert.Equal(t, string(one), f.read(nodedisk.KubeletCA))
		}}
	})
	f.aim(rendered("rendered-trust-2", "/etc/a=2"), image(2))
	for f.record().DesiredDrain == "" {
		require.NoError(t, f.step())
	}
	rotate(one, "t3")
	for !looked {
		require.NoError(t, f.step())
	}
	f.settle()
	assert.Equal(t, string(one), f.read(nodedisk.KubeletCA), "a config that drops the path does not take it away")
	f.aim(first, "") // opting out
	f.settle()
	assert.Equal(t, string(one), f.read(nodedisk.KubeletCA))

	boots := f.m.boots
	third := rendered("rendered-trust-3", "/etc/a=1", nodedisk.KubeletCA+"=newer")
	third.Spec.OSImageURL = image(9)
	f.aim(third, "")
	f.settle()
	assert.Equal(t, "rendered-trust-3", f.record().Current().Config)
	assert.Equal(t, boots, f.m.boots, "what a config says of the cluster's certificate disturbs nothing")
	assert.Equal(t, string(one), f.read(nodedisk.KubeletCA))
}

func TestConditionsOfTheMachineConfigNode(t *testing.T) {
	f := newFixture(t)
	record := &mcfgv1.MachineConfigNode{ObjectMeta: metav1.ObjectMeta{Name: f.name}, Spec: mcfgv1.MachineConfigNodeSpec{
		Node: mcfgv1.MCOObjectReference{Name: f.name}, Pool: mcfgv1.MCOObjectReference{Name: "worker"},
		ConfigVersion: mcfgv1.MachineConfigNodeSpecMachineConfigVersion{Desired: "rendered-conditions-1"}}}
	f.create(record)
	f.join(rendered("rendered-conditions-1", "/etc/a=1"), image(1))
	require.NoError(t, f.step())
	get := func() *mcfgv1.MachineConfigNode {
		n := &mcfgv1.MachineConfigNode{}
		require.NoError(t, f.env.Client.Get(t.Context(), client.ObjectKey{Name: f.name}, n))
		return n
	}
	is := func(n *mcfgv1.MachineConfigNode, kind mcfgv1.StateProgress) metav1.ConditionStatus {
		c := meta.FindStatusCondition(n.Status.Conditions, string(kind))
		require.NotNil(t, c, kind)
		return c.Status
	}
	n := get()
	assert.Equal(t, metav1.ConditionTrue, is(n, mcfgv1.MachineConfigNodeUpdated))
	assert.Equal(t, "rendered-conditions-1", n.Status.ConfigVersion.Current)
	assert.Equal(t, image(1), string(n.Status.ConfigImage.CurrentImage))
	assert.Equal(t, n.Generation, n.Status.ObservedGeneration)

	f.aim(rendered("rendered-conditions-2", "/etc/a=2"), image(2))
	seen := map[string]bool{}
	for f.record().CurrentConfig != "rendered-conditions-2" ||
		is(get(), mcfgv1.MachineConfigNodeUpdated) != metav1.ConditionTrue {
		require.NoError(t, f.step())
		n = get()
		for _, c := range n.Status.Conditions {
			if c.Status == metav1.ConditionTrue {
				seen[c.Type] = true
			}
			assert.False(t, c.LastTransitionTime.IsZero(), c.Type)
		}
		if c := meta.FindStatusCondition(n.Status.Conditions,
			string(mcfgv1.MachineConfigNodeUpdatePrepared)); c.Status == metav1.ConditionTrue {
			assert.Equal(t, "actions: Drain, Reboot", c.Message)
		}
	}
	for _, kind := range []mcfgv1.StateProgress{mcfgv1.MachineConfigNodeUpdatePrepared,
		mcfgv1.MachineConfigNodeUpdateExecuted, mcfgv1.MachineConfigNodeUpdateOS,
		mcfgv1.MachineConfigNodeImagePulledFromRegistry, mcfgv1.MachineConfigNodeUpdateFiles,
		mcfgv1.MachineConfigNodeUpdateRebooted,
		mcfgv1.MachineConfigNodeUpdatePostActionComplete, mcfgv1.MachineConfigNodeUpdateComplete,
		// the last two are the drain controller's, and stay so
		mcfgv1.MachineConfigNodeUpdateDrained, mcfgv1.MachineConfigNodeUpdateUncordoned} {
		assert.True(t, seen[string(kind)], "%s was never true", kind)
	}
	before := get().ResourceVersion
	for range 3 {
		require.NoError(t, f.step())
	}
	assert.Equal(t, before, get().ResourceVersion, "nothing new, nothing written")

	require.NoError(t, os.WriteFile(filepath.Join(f.m.root, "/etc/a"), []byte("local"), 0o644))
	f.restart()
	require.Error(t, f.step())
	c := meta.FindStatusCondition(get().Status.Conditions, string(mcfgv1.MachineConfigNodeNodeDegraded))
	assert.Equal(t, metav1.ConditionTrue, c.Status)
	assert.Contains(t, c.Message, "drift")
}

func TestAServiceThatTheChangeRemovesIsNotRestartedForEver(t *testing.T) {
	unit := func(name string, units ...ign35.Unit) *mcfgv1.MachineConfig {
		return change(rendered(name), func(c *ign35.Config) { c.Systemd.Units = units })
	}
	restart := []opv1.NodeDisruptionPolicySpecAction{{Type: opv1.DaemonReloadSpecAction},
		{Type: opv1.RestartSpecAction, Restart: &opv1.RestartService{ServiceName: "app.service"}}}
	app := ign35.Unit{Name: "app.service", Contents: new("[Service]\nExecStart=/bin/app\n")}
	for _, c := range []struct {
		name  string
		after []ign35.Unit
		fails bool
	}{
		{"removed", nil, false},
		{"masked", []ign35.Unit{{Name: "app.service", Mask: new(true)}}, false},
		{"kept", []ign35.Unit{{Name: "app.service", Contents: new("[Service]\nExecStart=/bin/none\n")}}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFixture(t)
			f.name = "removes-" + c.name
			f.restart()
			f.adminPolicies(opv1.NodeDisruptionPolicyConfig{Units: []opv1.NodeDisruptionPolicySpecUnit{{Name: "app.service",
				Actions: restart}}})
			f.join(unit("rendered-removes-"+c.name+"-1", app), "")
			f.m.fails = map[string]error{"restart app.service": errors.New("exit status 5: Unit app.service not found.")}
			f.aim(unit("rendered-removes-"+c.name+"-2", c.after...), "")
			if c.fails {
				require.ErrorContains(t, f.fails(), "Unit app.service not found")
				assert.NotContains(t, f.m.calls, "stop app.service")
				return
			}
			f.settle()
			assert.Equal(t, []string{"daemon-reload", "restart app.service", "stop app.service"}, f.m.calls)
		})
	}
}
