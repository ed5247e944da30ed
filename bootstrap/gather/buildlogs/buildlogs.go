package buildlogs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/bootstrap/gather/pods"
	"dayone.dev/dayone/build/appendengine"
	"dayone.dev/dayone/build/buildlog"
	"dayone.dev/dayone/build/job"
	"dayone.dev/dayone/build/mcobuild"
	"dayone.dev/dayone/build/poolrequest"
	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/render"
	"dayone.dev/dayone/registry/credentials"
)

// Newest returns the pool's newest build, or the one of that name.
func Newest(ctx context.Context, c client.Reader, pool, build string) (*mcfgv1.MachineOSBuild, error) {
	var list mcfgv1.MachineOSBuildList
	err := c.List(ctx, &list, client.MatchingLabels{manifests.LabelTargetPool: manifests.LabelValue(pool)})
	if meta.IsNoMatchError(err) {
		return nil, errors.New("find build: the cluster has no kind MachineOSBuild: is it the right cluster? " +
			"dayone cluster install adds the kind")
	}
	if err != nil {
		return nil, fmt.Errorf("list builds of pool %s: %w", pool, err)
	}
	builds := list.Items
	if build != "" {
		builds = slices.DeleteFunc(builds, func(b mcfgv1.MachineOSBuild) bool { return b.Name != build })
	}
	switch {
	case len(builds) == 0 && build != "":
		return nil, fmt.Errorf("find build: pool %s has no MachineOSBuild %s; kubectl get machineosbuilds lists them", pool,
			build)
	case len(builds) == 0:
		return nil, fmt.Errorf("find build: pool %s has no MachineOSBuild: dayone cluster status shows whether the pool is "+
			"opted in and the builder runs", pool)
	}
	newest := slices.MaxFunc(builds,
		func(a, b mcfgv1.MachineOSBuild) int { return a.CreationTimestamp.Compare(b.CreationTimestamp.Time) })
	return &newest, nil
}

// Follow copies the log of an active build's newest pod to out; with follow it goes on until the pod ends.
func Follow(ctx context.Context, c client.Reader, config *rest.Config, namespace string, b *mcfgv1.MachineOSBuild,
	follow bool, out io.Writer) error {
	return copyLog(ctx, c, config, namespace, b, corev1.PodLogOptions{Follow: follow}, out)
}

// tailLines is how much of a log Last reads: a step may print a lot.
const tailLines = 200

// stepLine is how a step begins: of a build pod of ours (build/buildpod), or of buildah in one of the Machine Config
// Operator's.
var stepLine = regexp.MustCompile(`^(PHASE |STEP: |LINE \d+: |(\[\d+/\d+\] )?STEP \d+/\d+: )`)

// Last gives the step that an active build is at, as far as the end of its log names it, and what that printed last.
func Last(ctx context.Context, c client.Reader, config *rest.Config, namespace string,
	b *mcfgv1.MachineOSBuild) (step, line string, err error) {
	var out strings.Builder
	if err := copyLog(ctx, c, config, namespace, b, corev1.PodLogOptions{TailLines: new(int64(tailLines))},
		&out); err != nil {
		return "", "", err
	}
	step, line = last(out.String())
	return step, line, nil
}

func last(log string) (step, line string) {
	for text := range strings.Lines(log) {
		text = strings.TrimSpace(text)
		switch {
		case stepLine.MatchString(text):
			step, line = text, ""
		case text != "":
			line = text
		}
	}
	return step, line
}

func copyLog(ctx context.Context, c client.Reader, config *rest.Config, namespace string, b *mcfgv1.MachineOSBuild,
	o corev1.PodLogOptions, out io.Writer) error {
	var list corev1.PodList
	if err := c.List(ctx, &list, client.InNamespace(namespace),
		client.MatchingLabels{batchv1.JobNameLabel: job.JobName(b.Name)}); err != nil {
		return fmt.Errorf("list pods of MachineOSBuild %s: %w", b.Name, err)
	}
	if len(list.Items) == 0 {
		return fmt.Errorf("show log of MachineOSBuild %s: it is being prepared and has no pod yet; try again", b.Name)
	}
	newest := slices.MaxFunc(list.Items,
		func(a, b corev1.Pod) int { return a.CreationTimestamp.Compare(b.CreationTimestamp.Time) })
	o.Container = job.Container
	if len(newest.Spec.InitContainers) > 0 && newest.Spec.InitContainers[0].Name == mcobuild.BuildContainer {
		o.Container = mcobuild.BuildContainer
	}
	running, err := pods.New(config)
	if err != nil {
		return err
	}
	body, err := running.Log(ctx, namespace, newest.Name, &o)
	if err != nil {
		return fmt.Errorf("read log of pod %s: %w", newest.Name, err)
	}
	defer body.Close()
	if _, err := io.Copy(out, body); err != nil {
		return fmt.Errorf("read log of pod %s: %w", newest.Name, err)
	}
	return nil
}

// Registry says how to reach the registry with the logs; the zero value is as the cluster does.
type Registry struct {
	// Address is HOST:PORT in place of the one in the image's name.
	Address string
	// CAFile is a PEM file; default: what the cluster's builds trust. AuthFile is an auth.json; default: the push Secret.
	CAFile, AuthFile string
}

// Stored reads the log that the registry keeps beside the image of a build that has ended; buildlog.ErrNotFound when it
// has none. namespace has the push Secret.
func Stored(ctx context.Context, c client.Reader, namespace string, b *mcfgv1.MachineOSBuild,
	r Registry) (*buildlog.Log, error) {
	ref, err := name.ParseReference(string(b.Spec.RenderedImagePushSpec))
	if err != nil {
		return nil, fmt.Errorf("read push spec of MachineOSBuild %s: %w", b.Name, err)
	}
	named := ref.Context().Name()
	repository := named
	if r.Address != "" {
		repository = r.Address + "/" + ref.Context().RepositoryStr()
	}
	dir, err := os.MkdirTemp("", "dayone-logs-")
	if err != nil {
		return nil, fmt.Errorf("make directory for credentials: %w", err)
	}
	defer os.RemoveAll(dir)
	access := appendengine.Access{CAFile: r.CAFile, AuthFile: r.AuthFile}
	if access.AuthFile == "" {
		auth, err := pushSecret(ctx, c, namespace, b)
		if err == nil {
			auth, err = credentials.ForName(auth, named, repository)
		}
		if err == nil {
			access.AuthFile, err = credentials.File(dir, "auth.json", auth)
		}
		if err != nil {
			return nil, fmt.Errorf("%w; or pass credentials with --registry-auth", err)
		}
	}
	if access.CAFile == "" {
		if access.CAFile, err = credentials.File(dir, "ca.crt", trustedCAs(ctx, c)); err != nil {
			return nil, err
		}
	}
	registry, err := appendengine.NewClient(access)
	if err != nil {
		return nil, err
	}
	defer registry.Close()
	_, digest, _ := strings.Cut(string(b.Status.DigestedImagePushSpec), "@")
	return buildlog.Read(ctx, registry, repository, b.Name, digest)
}

// trustedCAs are those of the cluster's builds. Without the right to read them, this machine's own CAs may be enough.
func trustedCAs(ctx context.Context, c client.Reader) []byte {
	var cc mcfgv1.ControllerConfig
	if err := c.Get(ctx, client.ObjectKey{Name: render.ControllerConfigName}, &cc); err != nil {
		return nil
	}
	return poolrequest.TrustedCAs(nil, &cc)
}

func pushSecret(ctx context.Context, c client.Reader, namespace string, b *mcfgv1.MachineOSBuild) ([]byte, error) {
	var config mcfgv1.MachineOSConfig
	if err := c.Get(ctx, client.ObjectKey{Name: b.Spec.MachineOSConfig.Name}, &config); err != nil {
		return nil, fmt.Errorf("read MachineOSConfig %s: %w", b.Spec.MachineOSConfig.Name, err)
	}
	var s corev1.Secret
	key := client.ObjectKey{Namespace: namespace, Name: config.Spec.RenderedImagePushSecret.Name}
	if err := c.Get(ctx, key, &s); err != nil {
		return nil, fmt.Errorf("read push Secret %s: %w", key, err)
	}
	auth, err := credentials.Canonical(s.Data)
	if err != nil {
		return nil, fmt.Errorf("read push Secret %s: %w", key, err)
	}
	return auth, nil
}
