package releasejob

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/manifests/assets/cluster"
)

const (
	nodeName = "stand-in"
	// every is how often pods are looked at.
	every = 100 * time.Millisecond
	// messageLimit is what a kubelet takes of a termination message, in bytes.
	messageLimit = 4096
)

// Kubelet stands in for a node's kubelet and scheduler in dayone's namespace. It runs the containers of a pod one after
// the other, each with the pod's own command, arguments, environment and volumes, as processes of this machine. Like
// the real one it does not start a container whose image it cannot get or whose Secret is missing, and answers 404 for
// logs that it does not have.
type Kubelet struct {
	t      testing.TB
	client client.Client
	mu     sync.Mutex
	// programs are the directories with an image's programs.
	programs map[string]string
	logs     map[string][]byte
	ran      map[string]int
	// running are the pods whose containers run, and what ends them.
	running map[string]context.CancelFunc
}

// Start runs it until the test ends.
func Start(t testing.TB, c client.Client) *Kubelet {
	t.Helper()
	k := &Kubelet{t: t, client: c, programs: map[string]string{}, logs: map[string][]byte{}, ran: map[string]int{},
		running: map[string]context.CancelFunc{}}
	server := httptest.NewTLSServer(k)
	t.Cleanup(server.Close)
	u, err := url.Parse(server.URL)
	require.NoError(t, err)
	port, err := strconv.Atoi(u.Port())
	require.NoError(t, err)
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName}}
	require.NoError(t, c.Create(t.Context(), n))
	n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: u.Hostname()}}
	n.Status.DaemonEndpoints.KubeletEndpoint.Port = int32(port)
	require.NoError(t, c.Status().Update(t.Context(), n))
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		k.work(ctx)
	}()
	t.Cleanup(func() { stop(); <-ended })
	return k
}

// Image gives an image the programs of a directory; without one it cannot be pulled.
func (k *Kubelet) Image(name, dir string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.programs[name] = dir
}

// Ran is how often a container of an image was started.
func (k *Kubelet) Ran(image string) int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.ran[image]
}

// ServeHTTP answers the API server's requests for logs.
func (k *Kubelet) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	k.mu.Lock()
	text, found := k.logs[strings.TrimPrefix(r.URL.Path, "/containerLogs/")]
	k.mu.Unlock()
	if !found {
		http.NotFound(w, r)
		return
	}
	_, _ = w.Write(text) // the API server has gone, else
}

func (k *Kubelet) work(ctx context.Context) {
	var pods sync.WaitGroup
	defer pods.Wait()
	for ; ctx.Err() == nil; time.Sleep(every) {
		var list corev1.PodList
		if k.client.List(ctx, &list, client.InNamespace(cluster.DefaultNamespace)) != nil {
			continue
		}
		for i := range list.Items {
			p := &list.Items[i]
			k.mu.Lock()
			end, running := k.running[p.Name]
			k.mu.Unlock()
			switch {
			case p.DeletionTimestamp != nil && running:
				end()
			case p.DeletionTimestamp != nil:
				_ = k.client.Delete(ctx, p, client.GracePeriodSeconds(0)) // the next round tries again
			case p.Status.Phase == corev1.PodPending && !running:
				one, end := context.WithCancel(ctx)
				k.mu.Lock()
				k.running[p.Name] = end
				k.mu.Unlock()
				pods.Go(func() { k.run(one, p) })
			}
		}
	}
}

// run takes a pod one step further.
func (k *Kubelet) run(ctx context.Context, p *corev1.Pod) {
	// Whoever deletes a pod or changes it meanwhile is seen in the next round.
	if err := k.pod(ctx, p); err != nil && ctx.Err() == nil && !apierrors.IsConflict(err) {
		k.t.Logf("pod %s: %v", p.Name, err)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.running[p.Name]()
	delete(k.running, p.Name)
}

// pod takes a pod one step further: to the node, or through its containers.
func (k *Kubelet) pod(ctx context.Context, p *corev1.Pod) error {
	if p.Spec.NodeName == "" {
		return k.client.SubResource("binding").Create(ctx, p,
			&corev1.Binding{Target: corev1.ObjectReference{Kind: "Node", Name: nodeName}})
	}
	dir, err := os.MkdirTemp("", "dayone-pod-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if err := k.volumes(ctx, p, dir); err != nil {
		return client.IgnoreNotFound(err) // FailedMount: it waits for the Secret
	}
	p.Status.Phase = corev1.PodSucceeded
	for i, list := range [][]corev1.Container{p.Spec.InitContainers, p.Spec.Containers} {
		to := []*[]corev1.ContainerStatus{&p.Status.InitContainerStatuses, &p.Status.ContainerStatuses}[i]
		*to = nil
		for _, c := range list {
			s := corev1.ContainerStatus{Name: c.Name, Image: c.Image}
			if p.Status.Phase == corev1.PodSucceeded {
				p.Status.Phase = k.container(ctx, p, c, dir, &s)
			}
			*to = append(*to, s)
		}
	}
	return k.client.Status().Update(ctx, p)
}

// volumes lays out what a pod's containers mount, one folder for each.
func (k *Kubelet) volumes(ctx context.Context, p *corev1.Pod, dir string) error {
	for _, v := range p.Spec.Volumes {
		to := filepath.Join(dir, v.Name)
		if err := os.Mkdir(to, 0o700); err != nil {
			return err
		}
		if v.Secret == nil {
			continue
		}
		var s corev1.Secret
		if err := k.client.Get(ctx, client.ObjectKey{Namespace: p.Namespace, Name: v.Secret.SecretName}, &s); err != nil {
			return err
		}
		for _, item := range v.Secret.Items {
			if err := os.WriteFile(filepath.Join(to, item.Path), s.Data[item.Key], 0o600); err != nil {
				return err
			}
		}
	}
	return nil
}

// container runs one to its end, and says in which phase the pod is then.
func (k *Kubelet) container(ctx context.Context, p *corev1.Pod, c corev1.Container, dir string,
	s *corev1.ContainerStatus) corev1.PodPhase {
	k.mu.Lock()
	programs, found := k.programs[c.Image]
	if found {
		k.ran[c.Image]++
	}
	k.mu.Unlock()
	if !found {
		s.State.Waiting = &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff",
			Message: fmt.Sprintf("Back-off pulling image %q", c.Image)}
		return corev1.PodPending
	}
	message := filepath.Join(dir, c.Name+".message")
	cmd := command(ctx, c, programs, dir, message)
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	err := cmd.Run()
	s.State.Terminated = ended(err, c, message, log.String())
	k.mu.Lock()
	k.logs[p.Namespace+"/"+p.Name+"/"+c.Name] = log.Bytes()
	k.mu.Unlock()
	if s.State.Terminated.ExitCode != 0 {
		return corev1.PodFailed
	}
	return corev1.PodSucceeded
}

// command is a container's process: paths of its volumes and of its termination message lie below the pod's folder.
func command(ctx context.Context, c corev1.Container, programs, dir, message string) *exec.Cmd {
	places := []string{corev1.TerminationMessagePathDefault, message}
	for _, m := range c.VolumeMounts {
		places = append(places, m.MountPath, filepath.Join(dir, m.Name))
	}
	here := func(text string) string { // a path of the container at the beginning, or after "="
		for i := 0; i < len(places); i += 2 {
			before, rest, cut := strings.Cut(text, places[i])
			if cut && (before == "" || strings.HasSuffix(before, "=")) && (rest == "" || rest[0] == '/') {
				return before + places[i+1] + rest
			}
		}
		return text
	}
	var args []string
	for _, arg := range append(c.Command, c.Args...) {
		args = append(args, here(arg))
	}
	env := []string{"PATH=" + programs + ":/usr/bin:/bin"}
	for _, e := range c.Env {
		env = append(env, e.Name+"="+here(e.Value))
	}
	if file := filepath.Join(programs, args[0]); args[0][0] != '/' {
		args[0] = file
	}
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Env, cmd.Dir = env, dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	return cmd
}

// ended is the state of a container whose process has ended.
func ended(err error, c corev1.Container, message, log string) *corev1.ContainerStateTerminated {
	state := &corev1.ContainerStateTerminated{FinishedAt: metav1.Now(), Reason: "Completed"}
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		state.ExitCode, state.Reason = int32(max(exit.ExitCode(), 1)), "Error"
	} else if err != nil {
		state.ExitCode, state.Reason, state.Message = 128, "StartError", err.Error()
	}
	if text, err := os.ReadFile(message); err == nil {
		state.Message = string(text[:min(len(text), messageLimit)])
	} else if state.ExitCode != 0 && c.TerminationMessagePolicy == corev1.TerminationMessageFallbackToLogsOnError {
		state.Message = log[max(0, len(log)-messageLimit/2):]
	}
	return state
}
