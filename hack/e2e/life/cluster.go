package life

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"dayone.dev/dayone/bootstrap/clusterregistry"
	"dayone.dev/dayone/build/appendengine"
	"dayone.dev/dayone/build/job"
	"dayone.dev/dayone/hack/e2e/fleet"
	"dayone.dev/dayone/hack/images"
	kubecluster "dayone.dev/dayone/hack/kube/cluster"
	"dayone.dev/dayone/hack/kube/kubetest"
	"dayone.dev/dayone/hack/kube/process"
	"dayone.dev/dayone/manifests/assets"
	"dayone.dev/dayone/manifests/assets/cluster"
)

// nodePull is the Secret with which the images of pods are pulled. Those are Kubernetes' matter: the OS images are in
// the masters' own registries.
const nodePull = "node-pull"

// makeCluster starts Kubernetes and puts dayone into it as an administrator does.
func makeCluster(ctx context.Context, l *life) (err error) {
	l.kube, err = kubecluster.Up(ctx, kubecluster.Options{Name: "demo", LogDir: filepath.Join(l.o.Work, "logs",
		"kubernetes")})
	if err != nil {
		return err
	}
	l.ends = append(l.ends, l.kube.Down)
	scheme, err := kubetest.NewScheme()
	if err != nil {
		return err
	}
	if l.client, err = client.New(l.kube.Config, client.Options{Scheme: scheme}); err != nil {
		return fmt.Errorf("reach the API: %w", err)
	}
	l.o.View.Line("Kubernetes is up; its pods' images are in %s", kubecluster.RegistryName)
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: cluster.DefaultNamespace}}
	if err := create(ctx, l, namespace); err != nil {
		return err
	}
	pull, err := l.kube.PullSecret(cluster.DefaultNamespace, nodePull)
	if err != nil {
		return err
	}
	if err := create(ctx, l, pull); err != nil {
		return err
	}
	return install(ctx, l)
}

func create(ctx context.Context, l *life, o client.Object) error {
	if err := l.client.Create(ctx, o); err != nil {
		return fmt.Errorf("create %T %s: %w", o, o.GetName(), err)
	}
	return nil
}

// install runs dayone cluster install, and adds what nodes with agents, and registries of the control plane, need but
// for the DaemonSets: the hosts have no kubelet, so their agents are systemd's.
func install(ctx context.Context, l *life) error {
	version, err := dayoneVersion(ctx, l)
	if err != nil {
		return err
	}
	refs := map[string]string{}
	for _, program := range []string{cluster.Controller, job.Program} {
		if refs[program], err = push(ctx, l, program, version); err != nil {
			return err
		}
		l.o.View.Line("image %s", refs[program])
	}
	if err := runDayone(ctx, l, "cluster", "install", "--kubeconfig", l.kube.Kubeconfig, "--image-pull-secret", nodePull,
		"--replicas", "1",
		"--image", "controller="+refs[cluster.Controller], "--image", "builder="+refs[job.Program]); err != nil {
		return err
	}
	objects, err := cluster.Objects(cluster.Options{Version: version, NodeAgent: true, ImagePullSecret: nodePull,
		Replicas: 1, Registry: ownRegistry,
		Images: cluster.Images{Controller: refs[cluster.Controller], Builder: refs[job.Program],
			Daemon: refs[cluster.Controller]}})
	if err != nil {
		return err
	}
	for _, o := range objects {
		if o.GetKind() == "DaemonSet" {
			continue
		}
		if err := l.client.Apply(ctx, client.ApplyConfigurationFromUnstructured(o), client.FieldOwner("dayone-cluster"),
			client.ForceOwnership); err != nil {
			return fmt.Errorf("apply %s %s: %w", o.GetKind(), o.GetName(), err)
		}
	}
	return nil
}

// version is dayone's: who renders on the bootstrap host and who does in the cluster are of one build.
func dayoneVersion(ctx context.Context, l *life) (string, error) {
	out, err := exec.CommandContext(ctx, filepath.Join(l.o.Bin, "dayone"), "--version").Output()
	words := strings.Fields(string(out))
	if err != nil || len(words) == 0 {
		return "", fmt.Errorf("ask dayone for its version: it says %q: %v", out, err)
	}
	return words[len(words)-1], nil
}

// push builds one of dayone's programs and pushes its image; the reference is as pods know it.
func push(ctx context.Context, l *life, program, version string) (string, error) {
	p, err := images.Find(program)
	if err != nil {
		return "", err
	}
	binary, err := p.Build(ctx, l.o.Source, l.o.Work, version)
	if err != nil {
		return "", err
	}
	defer os.Remove(binary)
	r := l.kube.Registry
	c, err := appendengine.NewClient(appendengine.Access{CAFile: r.CAFile, AuthFile: r.PushAuthFile})
	if err != nil {
		return "", err
	}
	defer c.Close()
	reference, err := images.Push(ctx, c, p, binary, r.Address+"/dayone/"+program, images.Options{Version: version})
	return strings.Replace(reference, r.Address, kubecluster.RegistryName, 1), err
}

// dayone runs the program on this machine; what it says is in the log.
func runDayone(ctx context.Context, l *life, args ...string) error {
	l.o.View.Line("dayone %s", strings.Join(args[:2], " "))
	return runLogged(l, exec.CommandContext(ctx, filepath.Join(l.o.Bin, "dayone"), args...), args[0])
}

// logged runs a program whose output goes to a log as it comes; its last lines are part of the error.
func runLogged(l *life, cmd *exec.Cmd, name string) error {
	file := filepath.Join(l.o.Work, "logs", name+".log")
	log, err := os.OpenFile(file, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("keep log: %w", err)
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	if err := runSaying(l, cmd, file); err != nil {
		return fmt.Errorf("dayone %s: %w: %s", name, err, process.LastLines(file, 8))
	}
	return nil
}

// sayEvery is after how long a program's last line is shown again and again: it says what the program waits for.
const sayEvery = 30 * time.Second

// runSaying runs a program, and shows the last line of its log as long as it takes.
func runSaying(l *life, cmd *exec.Cmd, file string) error {
	ended := make(chan error, 1)
	if err := cmd.Start(); err != nil {
		return err
	}
	go func() { ended <- cmd.Wait() }()
	tick := time.NewTicker(sayEvery)
	defer tick.Stop()
	for {
		select {
		case err := <-ended:
			return err
		case <-tick.C:
			l.o.View.Line("  still: %s", process.LastLines(file, 1))
		}
	}
}

// appConfig brings workers a service and a file that it reads.
const appConfig = "80-app"

// appContent is its content; the service is restarted when it changes: its owner says so. Where there is no systemd the
// owner has no service.
func appContent(l *life, text string) fleet.Content {
	c := fleet.Content{Files: map[string]string{"/etc/app.conf": text + "\n"}, Actions: "None"}
	if l.hasSystemd() {
		c.Units = map[string]string{"app.service": fleet.Service("app", "/etc/app.conf")}
		c.Actions = "DaemonReload, Restart app.service"
	}
	return c
}

// infraPool is one of the user's own, with MachineConfigs of its own only.
const infraPool = `apiVersion: machineconfiguration.openshift.io/v1
kind: MachineConfigPool
metadata: {name: infra}
spec:
  machineConfigSelector: {matchLabels: {machineconfiguration.openshift.io/role: infra}}
  nodeSelector: {matchLabels: {node-role.kubernetes.io/infra: ""}}
`

// writeInstallDirectory writes the sample, with a pool of the user's own beside masters and workers, and the
// MachineOSConfigs of all three, for the registries of the masters: their name, and the Secrets that dayone makes.
func writeInstallDirectory(l *life) (string, error) {
	dir := filepath.Join(l.o.Work, "install")
	if err := assets.WriteSample(dir); err != nil {
		return "", err
	}
	own := []string{"registry.example.com", ownRegistry, "os-push", clusterregistry.PushSecret, "base-pull",
		clusterregistry.PullSecret}
	for _, f := range []struct {
		from, to string
		change   []string
	}{
		{"layering/worker.yaml", "layering/infra.yaml",
			append([]string{"name: worker\n", "name: infra\n", "worker-os", "infra-os"}, own...)},
		{"layering/worker.yaml", "layering/worker.yaml", own},
		{"layering/master.yaml", "layering/master.yaml", own},
		{"install-config.yaml", "install-config.yaml", []string{"  replicas: 3\n",
			fmt.Sprintf("  replicas: %d\n", l.o.Masters), "  - name: worker\n", "  - name: worker\n  - name: infra\n",
			"  bootstrapRegistry:\n",
			"  registry:\n    type: cluster\n    name: " + ownRegistry + "\n  bootstrapRegistry:\n"}},
	} {
		raw, err := os.ReadFile(filepath.Join(dir, f.from))
		if err != nil {
			return "", err
		}
		text := strings.NewReplacer(f.change...).Replace(string(raw))
		if err := os.WriteFile(filepath.Join(dir, f.to), []byte(text), 0o600); err != nil {
			return "", err
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "openshift/20-infra-pool.yaml"), []byte(infraPool), 0o600); err != nil {
		return "", err
	}
	return dir, errors.Join(os.Remove(filepath.Join(dir, "layering/secrets.yaml")),
		writeConfig(dir, appConfig, worker, appContent(l, "one")))
}

func writeConfig(dir, name, pool string, c fleet.Content) error {
	mc, err := c.MachineConfig(name+"-"+pool, pool)
	if err != nil {
		return err
	}
	raw, err := yaml.Marshal(mc)
	if err != nil {
		return fmt.Errorf("encode MachineConfig %s: %w", name, err)
	}
	return os.WriteFile(filepath.Join(dir, "openshift", mc.Name+".yaml"), raw, 0o600)
}
