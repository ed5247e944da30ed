package wholesystem

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	ign35 "github.com/coreos/ignition/v2/config/v3_5/types"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/machineconfig"
	"dayone.dev/dayone/rebase/deploy/deploytest"
)

// content is what a config puts on a host; its units are enabled.
type content struct{ files, units map[string]string }

// service is a unit that keeps what it was started with below /run.
func service(version, reads string) string {
	return fmt.Sprintf("[Unit]\nDescription=%s\n[Service]\nExecStart=/bin/sh -c 'echo %s $(cat %s) >/run/%%N; exec sleep infinity'\n[Install]\nWantedBy=multi-user.target\n", version, version, reads)
}

func firstContent() *content {
	return &content{files: map[string]string{"/etc/app/conf": "one\n", "/etc/app/gone": "one\n"}, units: map[string]string{"app.service": service("v1", "/etc/app/conf")}}
}

func secondContent() *content {
	return &content{files: map[string]string{"/etc/app/conf": "two\n", "/etc/app/new": "two\n"},
		units: map[string]string{"app.service": service("v2", "/etc/app/conf"), "late.service": service("v2", "/etc/app/new")}}
}

func ptr[T any](v T) *T { return &v }

// render makes a pool's rendered config.
func (w *world) render(name string, c *content) *mcfgv1.MachineConfig {
	w.t.Helper()
	ign := ign35.Config{Ignition: ign35.Ignition{Version: machineconfig.Version}}
	for _, path := range sortedKeys(c.files) {
		ign.Storage.Files = append(ign.Storage.Files, ign35.File{Node: ign35.Node{Path: path},
			FileEmbedded1: ign35.FileEmbedded1{Mode: ptr(0o644), Contents: machineconfig.Inline([]byte(c.files[path]))}})
	}
	for _, unit := range sortedKeys(c.units) {
		ign.Systemd.Units = append(ign.Systemd.Units, ign35.Unit{Name: unit, Enabled: ptr(true), Contents: ptr(c.units[unit])})
	}
	raw, err := machineconfig.EncodeAny(ign)
	require.NoError(w.t, err)
	mc := &mcfgv1.MachineConfig{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: mcfgv1.MachineConfigSpec{OSImageURL: w.stock, Config: runtime.RawExtension{Raw: raw}}}
	w.create(mc.DeepCopy())
	return mc
}

// image builds what a layered build would: the base, the config's files and units with their links, and a mark.
func (w *world) image(mark string, c *content, noise int) string {
	w.t.Helper()
	entries := []deploytest.Entry{{Name: "etc/os-mark", Body: mark + "\n"}, {Name: "usr/share/mark", Body: mark + "\n"}}
	for _, path := range sortedKeys(c.files) {
		entries = append(entries, deploytest.Entry{Name: path[1:], Body: c.files[path]})
	}
	for _, unit := range sortedKeys(c.units) {
		entries = append(entries, deploytest.Entry{Name: "etc/systemd/system/" + unit, Body: c.units[unit]},
			deploytest.Entry{Name: "etc/systemd/system/multi-user.target.wants/" + unit, Link: "/etc/systemd/system/" + unit})
	}
	if noise > 0 {
		random := make([]byte, noise)
		_, _ = rand.NewChaCha8([32]byte([]byte(fmt.Sprintf("%32s", mark)))).Read(random) // never fails
		entries = append(entries, deploytest.Entry{Name: "usr/share/noise", Body: string(random)})
	}
	img, err := mutate.AppendLayers(w.base, deploytest.Layer(w.t, entries...))
	require.NoError(w.t, err)
	return w.registry.Push(w.t, img, "os/worker")
}

// unbootable is an image without the labels of a bootable one.
func (w *world) unbootable() string {
	w.t.Helper()
	config, err := w.base.ConfigFile()
	require.NoError(w.t, err)
	config = config.DeepCopy()
	config.Config.Labels = map[string]string{}
	var img v1.Image
	img, err = mutate.ConfigFile(w.base, config)
	require.NoError(w.t, err)
	return w.registry.Push(w.t, img, "os/worker")
}

// aim points the pool at a config.
func (w *world) aim(config string) {
	w.t.Helper()
	p := &mcfgv1.MachineConfigPool{}
	w.until("pool aimed at "+config, func() bool {
		require.NoError(w.t, w.env.Client.Get(w.t.Context(), client.ObjectKey{Name: pool}, p))
		p.Spec.Configuration = mcfgv1.MachineConfigPoolStatusConfiguration{ObjectReference: corev1.ObjectReference{Name: config}}
		err := w.env.Client.Update(w.t.Context(), p)
		if apierrors.IsConflict(err) {
			return false
		}
		require.NoError(w.t, err)
		return true
	})
}

// layer opts the pool in with an image that a build has brought, or gives it another one.
func (w *world) layer(build, config, image string) {
	t, c := w.t, w.env.Client
	t.Helper()
	spec, _, _ := strings.Cut(image, "@")
	b := &mcfgv1.MachineOSBuild{ObjectMeta: metav1.ObjectMeta{Name: "worker-" + build, Labels: map[string]string{manifests.LabelRenderedMachineConfig: config}},
		Spec: mcfgv1.MachineOSBuildSpec{MachineConfig: mcfgv1.MachineConfigReference{Name: config}, MachineOSConfig: mcfgv1.MachineOSConfigReference{Name: pool},
			RenderedImagePushSpec: mcfgv1.ImageTagFormat(spec + ":x")}}
	w.create(b)
	start, end := metav1.NewTime(time.Now().Add(-time.Minute)), metav1.Now()
	b.Status = mcfgv1.MachineOSBuildStatus{BuildStart: &start, BuildEnd: &end, DigestedImagePushSpec: mcfgv1.ImageDigestFormat(image),
		Builder:    &mcfgv1.MachineOSBuilderReference{ImageBuilderType: mcfgv1.JobBuilder, Job: &mcfgv1.ObjectReference{Group: "batch", Resource: "jobs", Namespace: "x", Name: "y"}},
		Conditions: []metav1.Condition{{Type: string(mcfgv1.MachineOSBuildSucceeded), Status: metav1.ConditionTrue, Reason: "Ready", LastTransitionTime: end}}}
	require.NoError(t, c.Status().Update(t.Context(), b))
	m := &mcfgv1.MachineOSConfig{}
	err := c.Get(t.Context(), client.ObjectKey{Name: pool}, m)
	if apierrors.IsNotFound(err) {
		m = &mcfgv1.MachineOSConfig{ObjectMeta: metav1.ObjectMeta{Name: pool}, Spec: mcfgv1.MachineOSConfigSpec{MachineConfigPool: mcfgv1.MachineConfigPoolReference{Name: pool},
			ImageBuilder: mcfgv1.MachineOSImageBuilder{ImageBuilderType: mcfgv1.JobBuilder}, RenderedImagePushSecret: mcfgv1.ImageSecretObjectReference{Name: "push"},
			RenderedImagePushSpec: mcfgv1.ImageTagFormat(spec + ":x")}}
		w.create(m)
	} else {
		require.NoError(t, err)
	}
	m.Status.CurrentImagePullSpec = mcfgv1.ImageDigestFormat(image)
	m.Status.MachineOSBuild = &mcfgv1.ObjectReference{Group: mcfgv1.GroupName, Resource: "machineosbuilds", Name: b.Name}
	require.NoError(t, c.Status().Update(t.Context(), m))
}

// pods puts a pod onto every node that has to leave before a reboot; it ends at once.
func (w *world) pods(round string) {
	w.t.Helper()
	for _, h := range w.hosts {
		w.create(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: h.name + "-" + round},
			Spec: corev1.PodSpec{NodeName: h.name, TerminationGracePeriodSeconds: ptr(int64(0)), Containers: []corev1.Container{{Name: "c", Image: "r.example.com/x"}}}})
	}
}

func (w *world) podsLeft() int {
	var pods corev1.PodList
	require.NoError(w.t, w.env.Client.List(w.t.Context(), &pods, client.InNamespace("default")))
	return len(pods.Items)
}
