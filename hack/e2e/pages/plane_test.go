package pages

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/bootstrap/handover"
	"dayone.dev/dayone/hack/kube/kubetest"
	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/assets/cluster"
	"dayone.dev/dayone/manifests/render"
	"dayone.dev/dayone/rebase/fleet/registrystatus"
	"dayone.dev/dayone/registry/certs"
	"dayone.dev/dayone/registry/poolaccounts"
	"dayone.dev/dayone/registry/wanted"
)

// plane is the cluster: a real API server with Kubernetes' own controllers, and dayone's programs as they run in pods.
// The kubelet and the nodes' agents are played: pods are ready at once, and a node has what it is told to have.
type plane struct {
	w   *world
	env *kubetest.Env
	// running are dayone's programs by their Deployments, with what they were started with.
	running map[string]*played
	// held: the Deployment's program does not run.
	mu   sync.Mutex
	held map[string]bool
	// agents are what the nodes' agents keep of the control plane's registries.
	agents map[string]agent
}

// agent is a played one: its node's files, and its account.
type agent struct {
	root string
	own  *poolaccounts.Node
}

// played is a pod's program.
type played struct {
	line   string
	server *server
}

// kubeconfigFile is where programs of this machine find the cluster.
func (w *world) kubeconfigFile() string { return filepath.Join(w.home, ".kube/config") }

// startCluster makes the cluster, with the administrator's kubeconfig in the user's home and here.
func (w *world) startCluster() {
	w.Helper()
	e := kubetest.Start(w.whole, kubetest.Options{ControllerManager: true,
		CRDPaths: kubetest.APICRDs(w.whole, "config/v1/*_clusteroperators")})
	raw, err := os.ReadFile(e.Kubeconfig(w.whole))
	require.NoError(w, err)
	w.write(w.kubeconfigFile(), string(raw))
	w.write("admin.kubeconfig", string(raw))
	own := *w
	own.T = w.whole // its programs outlive the chapter
	w.plane = &plane{w: &own, env: e, running: map[string]*played{}, held: map[string]bool{},
		agents: map[string]agent{}}
	ctx, cancel := context.WithCancel(context.WithoutCancel(w.whole.Context()))
	ended := make(chan struct{})
	w.whole.Cleanup(func() { cancel(); <-ended })
	go func() {
		defer close(ended)
		for ; ctx.Err() == nil; time.Sleep(2 * waitEvery) {
			w.plane.pods(ctx)
			w.plane.programs(ctx)
			w.plane.nodes(ctx)
		}
	}()
}

// pods makes all pods ready, and lets those go that are to end.
func (p *plane) pods(ctx context.Context) {
	var list corev1.PodList
	if p.env.Client.List(ctx, &list) != nil {
		return
	}
	for i := range list.Items {
		pod := &list.Items[i]
		switch {
		case pod.DeletionTimestamp != nil:
			_ = p.env.Client.Delete(ctx, pod, client.GracePeriodSeconds(0))
		case pod.Status.Phase != corev1.PodRunning:
			pod.Status.Phase = corev1.PodRunning
			pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue,
				LastTransitionTime: metav1.Now()}}
			_ = p.env.Client.Status().Update(ctx, pod)
		}
	}
}

// hold stops the program of a Deployment for good, or lets it go on.
func (p *plane) hold(name string, is bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.held[name] = is
}

// programs runs dayone's, one of each Deployment, with the arguments of its pods.
func (p *plane) programs(ctx context.Context) {
	var list appsv1.DeploymentList
	if p.env.Client.List(ctx, &list, client.MatchingLabels{}) != nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	wants := map[string]string{}
	for _, d := range list.Items {
		c := d.Spec.Template.Spec.Containers[0]
		if len(c.Command) > 0 && !p.held[d.Name] {
			wants[d.Name] = p.line(d.Namespace, c)
		}
	}
	for name, was := range p.running {
		if wants[name] != was.line {
			_ = was.server.cmd.Process.Signal(syscall.SIGTERM)
			<-was.server.done
			delete(p.running, name)
		}
	}
	for name, line := range wants {
		if p.running[name] == nil {
			p.running[name] = &played{line, p.w.start(line)}
		}
	}
}

// line is how a container's program runs here.
func (p *plane) line(namespace string, c corev1.Container) string {
	args := strings.Join(slices.Concat(c.Command, c.Args), " ")
	args = strings.NewReplacer("$(POD_NAMESPACE)", namespace, "$(NODE_NAME)", "master-0").Replace(args)
	return args + " --kubeconfig " + p.w.kubeconfigFile() + " --no-leader-election --metrics-address 0 --probe-address 0"
}

// join makes the nodes that Day 1 has made: a master that runs its image and a worker that runs the base.
func (p *plane) join() {
	t := p.w.whole
	t.Helper()
	plan, err := handover.Read("/var/lib/dayone/handover")
	require.NoError(t, err)
	for _, pool := range plan.Pools {
		if pool.Name != "master" && pool.Name != "worker" {
			continue
		}
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: pool.Name + "-0", Labels: map[string]string{
			"node-role.kubernetes.io/" + pool.Name: ""}, Annotations: map[string]string{
			manifests.AnnotationCurrentConfig: pool.Config, manifests.AnnotationDesiredConfig: pool.Config,
			manifests.AnnotationState: manifests.StateDone}}}
		if pool.Name == "master" {
			n.Labels["node-role.kubernetes.io/control-plane"] = ""
		}
		if pool.Image != "" {
			n.Annotations[manifests.AnnotationCurrentImage] = pool.Image
			n.Annotations[manifests.AnnotationDesiredImage] = pool.Image
		}
		require.NoError(t, p.env.Client.Create(t.Context(), n))
		root := t.TempDir()
		own, err := poolaccounts.OpenNode(root, n.Name)
		require.NoError(t, err)
		p.mu.Lock()
		p.agents[n.Name] = agent{root, own}
		p.mu.Unlock()
	}
}

// nodes are ready and follow what they are told.
func (p *plane) nodes(ctx context.Context) {
	var list corev1.NodeList
	if p.env.Client.List(ctx, &list) != nil {
		return
	}
	trusted := p.trusted(ctx)
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range list.Items {
		n := &list.Items[i]
		has, is := p.agents[n.Name]
		if !is {
			continue
		}
		before := n.DeepCopy()
		a := n.Annotations
		for from, to := range map[string]string{manifests.AnnotationEndTrust: manifests.AnnotationTrustEnded,
			manifests.AnnotationDesiredConfig: manifests.AnnotationCurrentConfig,
			manifests.AnnotationDesiredImage:  manifests.AnnotationCurrentImage} {
			if a[from] != "" {
				a[to] = a[from]
			}
		}
		_, _ = has.own.Take(poolaccounts.Read[poolaccounts.Sealed](a[manifests.AnnotationRegistryAccount]))
		_, _ = has.own.TakeShared(has.root, poolaccounts.Read[poolaccounts.Sealed](a[manifests.AnnotationRegistryShared]))
		says := has.own.Word()
		says.Trusts = trusted
		if word, err := poolaccounts.Annotation(says); err == nil {
			a[manifests.AnnotationRegistryKey] = word
		}
		if strings.HasPrefix(n.Name, "master") {
			p.report(ctx, n, has.root)
		}
		_ = p.env.Client.Patch(ctx, n, client.MergeFrom(before))
		p.beat(ctx, n)
	}
}

// trusted are the CAs that nodes trust, as the ControllerConfig says.
func (p *plane) trusted(ctx context.Context) (out []string) {
	var c mcfgv1.ControllerConfig
	if p.env.Client.Get(ctx, client.ObjectKey{Name: render.ControllerConfigName}, &c) != nil {
		return nil
	}
	for _, b := range c.Spec.ImageRegistryBundleUserData {
		for _, ca := range certs.Bundle(b.Data) {
			out = append(out, certs.Fingerprint(ca))
		}
	}
	return out
}

// report says for a master's registry that it accepts the accounts that the controllers have published, and has the CA
// that its agent has got.
func (p *plane) report(ctx context.Context, n *corev1.Node, root string) {
	var m corev1.ConfigMap
	if p.env.Client.Get(ctx, client.ObjectKey{Namespace: cluster.DefaultNamespace, Name: cluster.RegistryName},
		&m) != nil {
		return
	}
	r := wanted.Report{Accounts: wanted.AccountsHash([]byte(m.Data[wanted.AccountsFile])),
		Shared: poolaccounts.ReadShared(filepath.Join(root, wanted.Dir)).Hash()}
	if text, err := r.Encode(); err == nil {
		n.Annotations[manifests.AnnotationRegistry] = text
	}
}

// beat says once a few seconds that the node is there, as a kubelet does.
func (p *plane) beat(ctx context.Context, n *corev1.Node) {
	const every = 5 * time.Second
	if c := n.Status.Conditions; len(c) > 0 && time.Since(c[0].LastHeartbeatTime.Time) < every {
		return
	}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue,
		LastHeartbeatTime: metav1.Now(), LastTransitionTime: n.CreationTimestamp}}
	address := "192.0.2.1"
	if strings.HasPrefix(n.Name, "master") {
		address = bootstrapHost
	}
	n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: address}}
	_ = p.env.Client.Status().Update(ctx, n)
}

// accountsAre waits until pools and builders have accounts at the control plane's registries.
func accountsAre(w *world) {
	w.Helper()
	w.eventually("accounts of pools", func() bool {
		have, err := registrystatus.ReadPublished(w.Context(), w.plane.env.Client, cluster.DefaultNamespace)
		return err == nil && len(have.Accounts["worker"]) == 1 && len(have.Accounts["master"]) == 1 &&
			len(have.Accounts[""]) == 1
	})
}

// eventually waits for a condition.
func (w *world) eventually(what string, is func() bool) {
	w.Helper()
	assert.Eventually(w, is, waitLimit, waitEvery, what)
	if w.Failed() && w.plane != nil {
		for name, r := range w.plane.running {
			w.Logf("%s: %s", name, regexp.MustCompile(`(?m)^.*level":"(warning|error).*$`).FindAllString(
				r.server.printed(), 20))
		}
		w.FailNow()
	}
}
