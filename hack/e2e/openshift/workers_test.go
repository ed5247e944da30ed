package openshift_test

import (
	"context"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/bombsimon/logrusr/v4"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"dayone.dev/dayone/build/job"
	"dayone.dev/dayone/hack/baseimage"
	"dayone.dev/dayone/hack/e2e"
	"dayone.dev/dayone/hack/e2e/fleet"
	"dayone.dev/dayone/hack/kube/kubetest"
	"dayone.dev/dayone/hack/program"
	"dayone.dev/dayone/hack/testnode"
	"dayone.dev/dayone/installconfig"
	"dayone.dev/dayone/manifests/assets/cluster"
	"dayone.dev/dayone/manifests/machineconfig"
	"dayone.dev/dayone/rebase/disruptioncontroller"
	"dayone.dev/dayone/rebase/draincontroller"
	"dayone.dev/dayone/rebase/nodecontroller"
	"dayone.dev/dayone/rebase/nodedisk"
	"dayone.dev/dayone/rebase/target"
)

// namespace is where builds run.
const namespace = cluster.DefaultNamespace

// workersAfterPivot lets a node of each pool that the cluster builds join when the bootstrap node has done its work.
// The real builder makes its image and pushes it to a master's registry, and the node goes to it with one reboot. The
// pods of the Jobs are played, and in the place of MCO's controllers of nodes and its daemon are dayone's, the real
// ones.
func (w *world) workersAfterPivot() {
	ctx, t := w.t.Context(), w.t
	shared.Env(t).InstallRights(t)
	defer w.nodeControllers()()
	f := w.newFleet()
	watching, stop := context.WithCancel(ctx)
	var kubelets sync.WaitGroup
	kubelets.Go(func() { f.Kubelets(watching) })
	defer func() {
		stop()
		kubelets.Wait()
		assert.NoError(t, f.CloseAPI())
	}()
	images := map[string]string{}
	for _, pool := range []string{"worker", "infra"} {
		images[pool] = w.builtInCluster(pool)
		w.joins(f, pool)
	}
	for _, h := range f.Hosts {
		image := images[h.Pool]
		w.eventually(h.Name+" runs the image of its pool", func() bool {
			return h.Has(ctx, target.Target{Config: w.configOf(h.Pool), Image: image})
		})
		booted, err := e2e.BootedDigest(ctx, h.Node)
		require.NoError(t, err)
		assert.True(t, strings.HasSuffix(image, "@"+booted), "%s: %s, %s", h.Name, image, booted)
		boots, err := h.Node.Boots()
		require.NoError(t, err)
		assert.Equal(t, 2, boots, h.Name)
		text, err := h.Node.Output(ctx, "cat", "/usr/share/demo-worker.txt")
		require.NoError(t, err)
		assert.Equal(t, "workers are built by the cluster", text, h.Name)
	}
}

// builtInCluster runs the Job of a pool's build, and gives the image when the pool's MachineOSConfig names it.
func (w *world) builtInCluster(pool string) (image string) {
	api := shared.Env(w.t).Client
	var build batchv1.Job
	w.eventually("the Job of pool "+pool, func() bool {
		var builds mcfgv1.MachineOSBuildList
		if api.List(w.t.Context(), &builds) != nil {
			return false
		}
		for _, b := range builds.Items {
			if b.Spec.MachineOSConfig.Name == pool && api.Get(w.t.Context(), client.ObjectKey{Namespace: namespace,
				Name: job.JobName(b.Name)}, &build) == nil {
				return true
			}
		}
		return false
	})
	w.runPod(&build)
	w.eventually("the image of pool "+pool, func() bool {
		var m mcfgv1.MachineOSConfig
		if api.Get(w.t.Context(), client.ObjectKey{Name: pool}, &m) != nil {
			return false
		}
		image = string(m.Status.CurrentImagePullSpec)
		return image != ""
	})
	assert.True(w.t, strings.HasPrefix(image, ownRegistry+"/"), image)
	assert.Contains(w.t, image, "/"+pool+"-os@sha256:")
	return image
}

// hostsFile leads the registries' name to the first master, as the cluster's DNS leads it to one that runs.
func (w *world) hostsFile() string {
	name, _, _ := strings.Cut(ownRegistry, ":")
	return "127.0.0.1 localhost\n" + w.masterAddress(0) + " " + name + "\n"
}

// runPod plays what a cluster does with a Job: the pod's real program runs on this machine, in the nodes' network, with
// what the Job mounts.
func (w *world) runPod(j *batchv1.Job) {
	ctx, t, api, dir := w.t.Context(), w.t, shared.Env(w.t).Client, w.t.TempDir()
	builder, message, hosts := filepath.Join(dir, job.Program), filepath.Join(dir, "message"), filepath.Join(dir, "hosts")
	require.NoError(t, program.Build(ctx, "", program.Options{Package: "dayone.dev/dayone/cmd/" + job.Program, Cgo: true},
		builder))
	require.NoError(t, os.WriteFile(hosts, []byte(w.hostsFile()), 0o644))
	work := t.TempDir()
	require.NoError(t, os.Chmod(work, 0o777))
	out, err := w.lab.Network.Command(ctx, "unshare", "--mount", "sh", "-c",
		`mount --bind "$1" /etc/hosts && shift && exec "$@"`, "sh", hosts, builder, "build", "--input", w.mounted(j),
		"--work", work, "--user-namespace", job.UserNamespaceNone, "--termination-log", message).CombinedOutput()
	require.NoError(t, err, string(out))
	raw, err := os.ReadFile(message)
	require.NoError(t, err)
	c := j.Spec.Template.Spec.Containers[0]
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: j.Namespace, Name: j.Name + "-played",
		Labels: maps.Clone(j.Spec.Template.Labels), Annotations: j.Spec.Template.Annotations,
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(j,
			batchv1.SchemeGroupVersion.WithKind("Job"))}},
		Spec: corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever,
			Containers: []corev1.Container{{Name: c.Name, Image: c.Image}}}}
	metav1.SetMetaDataLabel(&pod.ObjectMeta, batchv1.JobNameLabel, j.Name)
	require.NoError(t, api.Create(ctx, pod))
	pod.Status = corev1.PodStatus{Phase: corev1.PodSucceeded, ContainerStatuses: []corev1.ContainerStatus{{Name: c.Name,
		Image: c.Image, State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: "Completed",
			FinishedAt: metav1.Now(), Message: string(raw)}}}}}
	require.NoError(t, api.Status().Update(ctx, pod))
}

// mounted lays out what a Job's pod mounts for its program.
func (w *world) mounted(j *batchv1.Job) (dir string) {
	t := w.t
	dir = t.TempDir()
	volumes := map[string]corev1.Volume{}
	for _, v := range j.Spec.Template.Spec.Volumes {
		volumes[v.Name] = v
	}
	for _, m := range j.Spec.Template.Spec.Containers[0].VolumeMounts {
		to, input := strings.CutPrefix(m.MountPath, job.DirInput+"/")
		if !input {
			continue
		}
		to = filepath.Join(dir, to)
		require.NoError(t, os.MkdirAll(to, 0o755))
		for name, raw := range w.volume(volumes[m.Name]) {
			require.NoError(t, os.WriteFile(filepath.Join(to, name), raw, 0o600))
		}
	}
	return dir
}

// volume is what one has: the files of its Secrets and ConfigMaps, of which the optional ones may be missing.
func (w *world) volume(v corev1.Volume) map[string][]byte {
	ctx, t, api, files := w.t.Context(), w.t, shared.Env(w.t).Client, map[string][]byte{}
	get := func(name string, optional *bool, o client.Object) {
		err := api.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, o)
		if optional != nil && *optional {
			err = client.IgnoreNotFound(err)
		}
		require.NoError(t, err, v.Name)
	}
	secret := func(name string, optional *bool) {
		var s corev1.Secret
		get(name, optional, &s)
		maps.Copy(files, s.Data)
	}
	switch {
	case v.Secret != nil:
		secret(v.Secret.SecretName, v.Secret.Optional)
	case v.ConfigMap != nil:
		var c corev1.ConfigMap
		get(v.ConfigMap.Name, v.ConfigMap.Optional, &c)
		for name, text := range c.Data {
			files[name] = []byte(text)
		}
	default:
		require.NotNil(t, v.Projected, v.Name)
		for _, s := range v.Projected.Sources {
			require.NotNil(t, s.Secret, v.Name)
			secret(s.Secret.Name, s.Secret.Optional)
		}
	}
	return files
}

// newFleet has the nodes with an agent. They find the masters' registries by their name, and have the cluster's pull
// secret, as the cluster's nodes do.
func (w *world) newFleet() *fleet.Fleet {
	ctx, t := w.t.Context(), w.t
	agent := filepath.Join(t.TempDir(), "dayone-daemon")
	require.NoError(t, program.Build(ctx, "", program.Options{Package: "dayone.dev/dayone/cmd/dayone-daemon"}, agent))
	pull := &corev1.Secret{}
	require.NoError(t, shared.Env(t).Client.Get(ctx, client.ObjectKeyFromObject(w.secret()), pull))
	f, err := fleet.New(fleet.Options{Lab: w.lab, Client: shared.Env(t).Client, Config: shared.Env(t).Config,
		Agent: agent, Files: []fleet.File{{Path: "/etc/hosts", Text: w.hostsFile(), Mode: 0o644},
			{Path: "/etc/ostree/auth.json", Text: string(pull.Data[corev1.DockerConfigJsonKey]), Mode: 0o600}}})
	require.NoError(t, err)
	return f
}

// joins makes a node of a pool: the release's OS with the pool's config, as MCO's server and Ignition leave it.
func (w *world) joins(f *fleet.Fleet, pool string) {
	ctx, t := w.t.Context(), w.t
	layout, err := baseimage.Ensure(ctx, baseimage.Tiny, "")
	require.NoError(t, err)
	machine, err := w.lab.NewNode(ctx, pool[:1]+"0", testnode.NodeOptions{Sysroot: testnode.SysrootOptions{Base: layout,
		Reference: installconfig.Repository(w.base)}})
	require.NoError(t, err)
	h, err := f.Join(ctx, machine, pool)
	require.NoError(t, err)
	config := &mcfgv1.MachineConfig{}
	require.NoError(t, shared.Env(t).Client.Get(ctx, client.ObjectKey{Name: w.configOf(pool)}, config))
	parsed, err := machineconfig.ParseRendered(config.Spec.Config.Raw)
	require.NoError(t, err)
	require.Empty(t, parsed.Systemd.Units, "a tiny node has no systemd")
	for _, file := range parsed.Storage.Files {
		raw, err := machineconfig.Contents(file.Contents)
		require.NoError(t, err)
		require.NotNil(t, file.Mode, file.Path)
		require.NoError(t, h.Put(ctx, fleet.File{Path: file.Path, Text: string(raw), Mode: fs.FileMode(*file.Mode)}))
	}
	root, err := h.Outside("/")
	require.NoError(t, err)
	require.NoError(t, nodedisk.WriteCurrent(root, nodedisk.Current{Config: config}))
	require.NoError(t, machine.Start(ctx))
}

func (w *world) configOf(pool string) string {
	p := &mcfgv1.MachineConfigPool{}
	_ = shared.Env(w.t).Client.Get(w.t.Context(), client.ObjectKey{Name: pool}, p) // it is asked again
	return p.Spec.Configuration.Name
}

// nodeControllers runs dayone's controllers of nodes until the returned function is called.
func (w *world) nodeControllers() (stop func()) {
	t, env := w.t, shared.Env(w.t)
	ctx, cancel := context.WithCancel(context.Background())
	log := logrus.NewEntry(logrus.New())
	log.Logger.SetOutput(t.Output())
	m, err := ctrl.NewManager(env.Config, ctrl.Options{Logger: logrusr.New(log), Scheme: env.Scheme,
		Metrics: metricsserver.Options{BindAddress: "0"}, Controller: kubetest.Controllers()})
	require.NoError(t, err)
	require.NoError(t, nodecontroller.SetupWithManager(m, nodecontroller.Options{Log: log}))
	require.NoError(t, draincontroller.SetupWithManager(m, draincontroller.Options{Log: log}))
	require.NoError(t, disruptioncontroller.SetupWithManager(m, disruptioncontroller.Options{Log: log}))
	var all sync.WaitGroup
	all.Go(func() { assert.NoError(t, m.Start(ctx)) })
	return func() {
		cancel()
		all.Wait()
	}
}
