package failurecontroller

import (
	"cmp"
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/build/mcobuild"
	"dayone.dev/dayone/manifests"
)

const (
	// followTries is how often a log is asked for that the kubelet does not give.
	followTries = 5
	// followPause is the pause between two tries; it grows with each.
	followPause = time.Second
)

// opener asks for a container's log, from its beginning to the end of the container.
type opener func(ctx context.Context, pod, container string) (io.ReadCloser, error)

// collector holds the pods of builds and their logs from the first sight of a pod on: MCO deletes both when it begins
// the next build. It is safe for concurrent use.
type collector struct {
	ctx  context.Context // the manager's: a log is followed for longer than any reconciliation lasts
	open opener
	from origin
	// wake gets the name of a MachineOSConfig when the log of one of its builds has ended.
	wake func(config string)

	mu   sync.Mutex
	pods map[types.UID]*attempt
	// jobs are the UIDs of Jobs by that of their build: a rebuild has the names of the build before it, and its pod may be
	// seen before the build is.
	jobs map[types.UID]types.UID
}

// maxJobs bounds jobs. Without an entry a build's pods are told by name and age.
const maxJobs = 4096

// attempt is one pod of a build. It changes under the collector's lock.
type attempt struct {
	job     string
	pod     *corev1.Pod
	streams map[string]*stream
}

// stream is the log of a container.
type stream struct {
	log *mcobuild.Log
	// done means that no more comes; err is why what came is not all.
	done bool
	err  error
}

func newCollector(ctx context.Context, from origin, open opener, wake func(config string)) *collector {
	return &collector{ctx: ctx, from: from, open: open, wake: wake, pods: map[types.UID]*attempt{},
		jobs: map[types.UID]types.UID{}}
}

// seeJob takes down whose Job it is.
func (c *collector) seeJob(j client.Object) {
	if owner := metav1.GetControllerOf(j); owner != nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		if len(c.jobs) >= maxJobs {
			clear(c.jobs)
		}
		c.jobs[owner.UID] = j.GetUID()
	}
}

// see takes what the API says of a pod now, and follows the logs of containers that have started.
func (c *collector) see(p *corev1.Pod) {
	if !c.from.isPod(p) {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	a := c.pods[p.UID]
	if a == nil {
		a = &attempt{job: jobOf(p), streams: map[string]*stream{}}
		c.pods[p.UID] = a
	}
	a.pod = p
	for _, list := range [][]corev1.ContainerStatus{p.Status.InitContainerStatuses, p.Status.ContainerStatuses} {
		for _, s := range list {
			if a.streams[s.Name] == nil && (s.State.Running != nil || s.State.Terminated != nil) {
				a.streams[s.Name] = &stream{log: &mcobuild.Log{}}
				go c.follow(a.streams[s.Name], p, s.Name)
			}
		}
	}
}

// follow reads a log to its end. A connection that breaks is made again, and the log read from its beginning.
func (c *collector) follow(s *stream, p *corev1.Pod, container string) {
	var err error
	log := s.log
	for try := range followTries {
		if err = c.read(log, p.Name, container); err == nil || apierrors.IsNotFound(err) || c.ctx.Err() != nil {
			break
		}
		c.sleep(time.Duration(try+1) * followPause)
		log = &mcobuild.Log{}
	}
	c.mu.Lock()
	if s.done, s.err = true, err; log.Len() > s.log.Len() {
		s.log = log
	}
	c.mu.Unlock()
	c.wake(c.from.config(p))
}

func (c *collector) read(into *mcobuild.Log, pod, container string) error {
	body, err := c.open(c.ctx, pod, container)
	if err != nil {
		return err
	}
	_, err = io.Copy(into, body)
	return errors.Join(err, body.Close())
}

func (c *collector) sleep(d time.Duration) {
	select {
	case <-c.ctx.Done():
	case <-time.After(d):
	}
}

// sight is what the collector knows of one pod.
type sight struct {
	pod *corev1.Pod
	// logs are by container. size is their length, with what was left out of them.
	logs map[string]string
	size int64
	// reading means that more may come; err is why what came is not all.
	reading bool
	err     error
}

// of gives the pods of a build, the oldest first. Where nobody saw its Job, its pods are those of the Job's name that
// are not older than the build. Texts of logs are given with text only.
func (c *collector) of(build metav1.Object, text bool) (list []sight) {
	c.mu.Lock()
	defer c.mu.Unlock()
	uid := cmp.Or(c.jobs[build.GetUID()], types.UID(build.GetAnnotations()[manifests.AnnotationJobUID]))
	born := build.GetCreationTimestamp()
	for _, a := range c.pods {
		if a.job != c.from.job(build.GetName()) || uid != "" && !ownedBy(a.pod, uid) ||
			uid == "" && a.pod.CreationTimestamp.Before(&born) {
			continue
		}
		x := sight{pod: a.pod, logs: map[string]string{}}
		for name, s := range a.streams {
			if text {
				x.logs[name] = s.log.Text()
			}
			x.size += s.log.Len()
			x.reading = x.reading || !s.done
			x.err = errors.Join(x.err, s.err)
		}
		list = append(list, x)
	}
	slices.SortFunc(list, func(a, b sight) int {
		if d := a.pod.CreationTimestamp.Compare(b.pod.CreationTimestamp.Time); d != 0 {
			return d
		}
		return c.startOf(a.pod).Compare(c.startOf(b.pod))
	})
	return list
}

// startOf is when the pod's build began.
func (c *collector) startOf(p *corev1.Pod) time.Time {
	if s := mcobuild.ContainerOf(p, c.from.container); s != nil && s.State.Terminated != nil {
		return s.State.Terminated.StartedAt.Time
	}
	return p.CreationTimestamp.Time
}

func ownedBy(p *corev1.Pod, uid types.UID) bool {
	owner := metav1.GetControllerOf(p)
	return owner != nil && owner.UID == uid
}

// forget drops pods, but for those that are read.
func (c *collector) forget(seen []sight) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range seen {
		if !s.reading {
			delete(c.pods, s.pod.UID)
		}
	}
}

func reading(list []sight) bool {
	return slices.ContainsFunc(list, func(s sight) bool { return s.reading })
}

// text is the log of the pod's containers, each below its name. Without one there is what the kubelet says of them.
func (s sight) text() string {
	var out strings.Builder
	for _, list := range [][]corev1.ContainerStatus{s.pod.Status.InitContainerStatuses, s.pod.Status.ContainerStatuses} {
		for _, c := range list {
			text := s.logs[c.Name]
			if text == "" && c.State.Terminated != nil {
				text = c.State.Terminated.Message
			}
			if text != "" {
				out.WriteString("==> pod " + s.pod.Name + ", container " + c.Name + " <==\n" + strings.TrimRight(text, "\n") + "\n")
			}
		}
	}
	return out.String()
}
