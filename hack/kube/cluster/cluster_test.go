package cluster_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"dayone.dev/dayone/hack/kube/cluster"
	"dayone.dev/dayone/hack/program"
)

const (
	// What other processes do is looked at this often and this long: a limit for machines that are very busy.
	waitLimit = 3 * time.Minute
	waitEvery = 50 * time.Millisecond
	// upForever makes this program start a cluster and then wait to be killed.
	upForever = "DAYONE_TEST_CLUSTER"
)

func TestMain(m *testing.M) {
	cluster.Init()
	if dir := os.Getenv(upForever); dir != "" {
		c, err := cluster.Up(context.Background(), cluster.Options{CacheDir: dir})
		if err != nil {
			fmt.Println("error", err)
			os.Exit(1)
		}
		fmt.Println("up", c.Config.Host)
		select {}
	}
	os.Exit(m.Run())
}

// need skips what this machine or -short cannot run; in CI that is a failure.
func need(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("needs a cluster, which is left out with -short")
	}
	if err := cluster.Missing(); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
}

// left lists what is there of the clusters of a cache directory: directories, control groups, and processes with these
// process numbers.
func left(t *testing.T, cacheDir, numbers string) []string {
	t.Helper()
	dirs, err := filepath.Glob(filepath.Join(cacheDir, "kube-clusters", "node-*"))
	require.NoError(t, err)
	found := dirs
	for _, dir := range dirs {
		groups, err := filepath.Glob("/sys/fs/cgroup/*/dayone-kube-" + filepath.Base(dir))
		require.NoError(t, err)
		found = append(found, groups...)
	}
	processes, err := filepath.Glob("/proc/[0-9]*/ns/pid")
	require.NoError(t, err)
	for _, p := range processes {
		if link, err := os.Readlink(p); err == nil && link == numbers {
			found = append(found, p)
		}
	}
	return found
}

// processNumbers names the PID namespace of a cluster.
func processNumbers(t *testing.T, c *cluster.Cluster) string {
	t.Helper()
	out, err := c.NodeExec(t.Context(), "readlink", "/proc/1/ns/pid").Output()
	require.NoError(t, err)
	return strings.TrimSpace(string(out))
}

func TestClusterLife(t *testing.T) {
	need(t)
	ctx := t.Context()
	cache := t.TempDir()
	c, err := cluster.Up(ctx, cluster.Options{Name: "test", CacheDir: cache})
	require.NoError(t, err)
	defer func() { assert.NoError(t, c.Down(context.WithoutCancel(ctx))) }()
	client, err := kubernetes.NewForConfig(c.Config)
	require.NoError(t, err)

	probe := filepath.Join(t.TempDir(), "probe")
	require.NoError(t, program.Build(ctx, "",
		program.Options{Package: "dayone.dev/dayone/hack/kube/cluster/testdata/probe"}, probe))
	image, err := c.Push(ctx, cluster.Image{Repository: "tools/probe", Files: map[string]string{"probe": probe},
		Entrypoint: []string{"/probe"}})
	require.NoError(t, err)
	secret, err := c.PullSecret("default", "pull")
	require.NoError(t, err)
	_, err = client.CoreV1().Secrets("default").Create(ctx, secret, metav1.CreateOptions{})
	require.NoError(t, err)

	run(t, client, "with-secret", image, corev1.LocalObjectReference{Name: "pull"})
	run(t, client, "without-secret", image)
	waitFor(t, func() (string, bool) {
		j, err := client.BatchV1().Jobs("default").Get(ctx, "with-secret", metav1.GetOptions{})
		require.NoError(t, err)
		return fmt.Sprint(j.Status), j.Status.Succeeded == 1 || j.Status.Failed > 0
	})
	pod := podOf(t, client, "with-secret")
	text, err := client.CoreV1().Pods("default").GetLogs(pod.Name, &corev1.PodLogOptions{}).DoRaw(ctx)
	require.NoError(t, err, "logs come from kubelet by way of the API server")
	require.Equal(t, corev1.PodSucceeded, pod.Status.Phase, "%s", text)
	assert.Contains(t, string(text), "registry [10.99.0.1] <nil>\napi 200 OK <nil>\n")

	waitFor(t, func() (string, bool) {
		pod = podOf(t, client, "without-secret")
		state := fmt.Sprint(pod.Status.ContainerStatuses)
		return state, strings.Contains(state, "401 Unauthorized")
	})

	killAndStart(t, c)
	numbers := processNumbers(t, c)
	require.Greater(t, len(left(t, cache, numbers)), 10, "what is looked for is there")
	require.NoError(t, c.Down(ctx))
	waitFor(t, func() (string, bool) { // a process that is dead is listed until its parent has asked for its end
		rest := left(t, cache, numbers)
		return fmt.Sprint(rest), len(rest) == 0
	})
}

func run(t *testing.T, client kubernetes.Interface, name, image string, secrets ...corev1.LocalObjectReference) {
	t.Helper()
	never := int32(0)
	_, err := client.BatchV1().Jobs("default").Create(t.Context(), &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: batchv1.JobSpec{BackoffLimit: &never, Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyNever, ImagePullSecrets: secrets,
			Containers: []corev1.Container{{Name: "main", Image: image}},
		}}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
}

func podOf(t *testing.T, client kubernetes.Interface, job string) corev1.Pod {
	t.Helper()
	pods, err := client.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{LabelSelector: "job-name=" + job})
	require.NoError(t, err)
	if len(pods.Items) == 0 {
		return corev1.Pod{}
	}
	return pods.Items[0]
}

func waitFor(t *testing.T, done func() (state string, ok bool)) {
	t.Helper()
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		state, ok := done()
		assert.True(c, ok, state)
	}, waitLimit, waitEvery)
}

// killAndStart ends programs of the node as crashes do and brings them back.
func killAndStart(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	for _, name := range []string{cluster.APIServer, cluster.Kubelet} {
		require.NoError(t, c.Kill(t.Context(), name))
		programs, err := c.Programs(t.Context())
		require.NoError(t, err)
		assert.Contains(t, programs, name+": "+name+" ended with signal: killed")
		require.NoError(t, c.Start(t.Context(), name))
		require.ErrorContains(t, c.Start(t.Context(), name), "it runs")
		require.NoError(t, c.WaitReady(t.Context()))
	}
	require.ErrorContains(t, c.Kill(t.Context(), "docker"), "no such program")
	out, err := c.NodeExec(t.Context(), "hostname").CombinedOutput()
	require.NoError(t, err)
	assert.Equal(t, cluster.NodeName+"\n", string(out))
	out, err = c.Kubectl(t.Context(), "get", "nodes").CombinedOutput()
	require.NoError(t, err)
	assert.Contains(t, string(out), cluster.NodeName)
}

func TestClusterAfterAKill(t *testing.T) {
	need(t)
	cache := t.TempDir()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), upForever+"="+cache)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	require.Contains(t, line, "up https://127.0.0.1:")
	require.NoError(t, cmd.Process.Kill())
	_ = cmd.Wait() // it was killed
	running := func() int {
		found, err := cluster.Find(cluster.Options{CacheDir: cache})
		require.NoError(t, err)
		return len(found)
	}
	require.Eventually(t, func() bool { return running() == 0 }, waitLimit, waitEvery, "the kernel ends the processes")
	require.Greater(t, len(left(t, cache, "")), 1, "directory and control groups")

	next, err := cluster.Up(t.Context(), cluster.Options{CacheDir: cache})
	require.NoError(t, err)
	numbers := processNumbers(t, next)
	assert.Equal(t, 1, running())
	require.NoError(t, next.Down(t.Context()))
	assert.Empty(t, left(t, cache, numbers))
}
