package handover_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/bootstrap/handover"
	"dayone.dev/dayone/build"
	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/render"
	"dayone.dev/dayone/registry"
	"dayone.dev/dayone/registry/registrytest"
)

const containerfile = "FROM configs AS final\nRUN true\n"

// small is what a bootstrap host leaves, made without one: two real registries, and objects that were really rendered.
// The image is random; nobody boots it.
type small struct {
	t               *testing.T
	boot, final     *registrytest.Registry
	plan            *handover.Plan
	rendered        *mcfgv1.MachineConfig
	pool            handover.Pool
	revoked, writes int
}

func newSmall(t *testing.T) *small {
	t.Helper()
	return newSmallBehind(t, func(final string) string { return final })
}

// newSmallBehind reaches the final registry by the address that front makes of its own.
func newSmallBehind(t *testing.T, front func(final string) string) *small {
	t.Helper()
	s := &small{t: t, boot: registrytest.Start(t), final: registrytest.Start(t)}
	s.final.Addr = front(s.final.Addr)
	base, image := s.push("ocp/base-os"), s.push("ocp/master-os")
	set := s.objects(s.final.Push)
	render.StandaloneInputs(set, s.final.Addr+"/ocp/base-os@"+base, versions())
	options := render.Options{Versions: versions(), Unbuilt: render.IgnoreUnbuilt, Strict: true}
	first, err := render.Render(set, options)
	require.NoError(t, err)
	request := build.Request{Pool: "master", Base: build.Image{Reference: s.boot.Addr + "/ocp/base-os@" + base},
		Config: first.Config("master"), Platform: platform,
		Containerfile: containerfile, Target: s.boot.Addr + "/ocp/master-os"}
	address, err := request.Address()
	require.NoError(t, err)
	ground, err := request.Ground()
	require.NoError(t, err)
	metav1.SetMetaDataAnnotation(&set.MachineOSConfigs[0].Object.ObjectMeta, manifests.AnnotationPreBuiltImage,
		s.final.Addr+"/ocp/master-os@"+image)
	last, err := render.Render(set, options)
	require.NoError(t, err)
	ca, err := os.ReadFile(s.final.CAFile)
	require.NoError(t, err)
	s.plan, err = handover.Make(handover.Outcome{Registry: s.boot.Addr, FinalCA: string(ca), Platform: platform,
		Base: s.final.Addr + "/ocp/base-os@" + base, Set: set, Result: last,
		Built: map[string]handover.Built{"master": {Repository: s.final.Addr + "/ocp/master-os", Ground: ground,
			Result: &build.Result{Digest: image, Address: address, Kernels: []string{"6.1.0"}}}},
		Nodes: map[string]int{"master": 2}})
	require.NoError(t, err)
	s.rendered, s.pool = last.Config("master"), s.plan.Pools[0]
	return s
}

// push puts an image into the bootstrap registry and gives its digest.
func (s *small) push(repository string) string { return s.putTag(repository, "x") }

// putTag puts an image into the bootstrap registry under a tag and gives its digest.
func (s *small) putTag(repository, tag string) string {
	s.t.Helper()
	image, err := random.Image(1<<12, 2)
	require.NoError(s.t, err)
	config, err := image.ConfigFile()
	require.NoError(s.t, err)
	config = config.DeepCopy()
	config.OS, config.Architecture = "linux", "amd64"
	image, err = mutate.ConfigFile(image, config)
	require.NoError(s.t, err)
	s.put(repository, tag, image)
	digest, err := image.Digest()
	require.NoError(s.t, err)
	return digest.String()
}

func (s *small) put(repository, tag string, image v1.Image) {
	s.t.Helper()
	ref, err := name.ParseReference(s.boot.Addr + "/" + repository + ":" + tag)
	require.NoError(s.t, err)
	require.NoError(s.t, remote.Write(ref, image, s.boot.Pusher(s.t)...))
}

func (s *small) objects(push registry.User) *manifests.Set {
	s.t.Helper()
	role := map[string]string{manifests.LabelRole: "master"}
	set := &manifests.Set{}
	for i := range 2 {
		raw := fmt.Sprintf(
			`{"ignition":{"version":"3.4.0"},"storage":{"files":[{"path":"/etc/file-%d","mode":420,"contents":{"source":"data:,%d"}}]}}`,
			i,
			i,
		)
		set.MachineConfigs = append(set.MachineConfigs,
			manifests.NewItem(&mcfgv1.MachineConfig{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("50-master-%d", i),
				Labels: role},
				Spec: mcfgv1.MachineConfigSpec{Config: runtime.RawExtension{Raw: []byte(raw)}}}))
	}
	set.Pools = append(set.Pools,
		manifests.NewItem(&mcfgv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Name: "master"},
			Spec: mcfgv1.MachineConfigPoolSpec{
				MachineConfigSelector: &metav1.LabelSelector{MatchLabels: role},
				NodeSelector: &metav1.LabelSelector{
					MatchLabels: map[string]string{"node-role.kubernetes.io/master": ""},
				}}}))
	set.MachineOSConfigs = append(set.MachineOSConfigs,
		manifests.NewItem(&mcfgv1.MachineOSConfig{ObjectMeta: metav1.ObjectMeta{Name: "master"},
			Spec: mcfgv1.MachineOSConfigSpec{
				MachineConfigPool:       mcfgv1.MachineConfigPoolReference{Name: "master"},
				ImageBuilder:            mcfgv1.MachineOSImageBuilder{ImageBuilderType: mcfgv1.JobBuilder},
				RenderedImagePushSecret: mcfgv1.ImageSecretObjectReference{Name: "os-push"},
				RenderedImagePushSpec:   mcfgv1.ImageTagFormat(s.final.Addr + "/ocp/master-os:latest"),
				Containerfile: []mcfgv1.MachineOSContainerfile{
					{ContainerfileArch: mcfgv1.NoArch, Content: containerfile},
				}}}))
	auth := fmt.Sprintf(`{"auths":{%q:{"username":%q,"password":%q,"auth":%q}}}`, s.final.Addr, push.Name, push.Password,
		encoded(push))
	set.Secrets = append(set.Secrets, manifests.NewItem(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "os-push",
		Namespace: "openshift-machine-config-operator"},
		Type: corev1.SecretTypeDockerConfigJson, StringData: map[string]string{corev1.DockerConfigJsonKey: auth}}))
	return set
}

func (s *small) options(c client.Client) handover.Options {
	log := logrus.New()
	log.SetOutput(s.t.Output())
	every := waitEvery
	if _, ok := c.(*memory); ok {
		every = time.Millisecond // nobody else works meanwhile
	}
	return handover.Options{Plan: s.plan, Source: handover.Source{Host: s.boot.Addr, CAFile: s.boot.CAFile,
		AuthFile: s.boot.PullAuthFile},
		Connect:     func(context.Context) (client.Client, error) { return c, nil },
		FinalCAFile: s.final.CAFile, TempDir: s.t.TempDir(), Policy: handover.PolicyDeadline, Deadline: waitLimit,
		Interval: every, RetryMin: every, RetryMax: 10 * every,
		Revoke: func(context.Context) error { s.revoked++; return nil }, Log: logrus.NewEntry(log)}
}

// joined has two masters with their agents on what was handed over.
func (s *small) joined(w *world) (stop func()) {
	w.watches(s.pool.Config, s.pool.Image)
	w.joins(2, s.rendered, s.pool.Image, s.boot.Addr)
	return w.agents()
}

// errKilled is the end of a process, as far as the API and registries see it: nothing comes after it.
var errKilled = errors.New("killed")

// mortal kills a hand-over before or after its n-th write to the API.
type mortal struct {
	client.Client
	left  int
	after bool
	count int
	kill  context.CancelFunc
}

func (m *mortal) write(do func() error) error {
	m.count++
	m.left--
	if m.left != 0 {
		return do()
	}
	var err error
	if m.after {
		err = do()
	}
	m.kill()
	return errors.Join(errKilled, err)
}

func (m *mortal) Create(ctx context.Context, o client.Object, opts ...client.CreateOption) error {
	return m.write(func() error { return m.Client.Create(ctx, o, opts...) })
}

func (m *mortal) Patch(ctx context.Context, o client.Object, p client.Patch, opts ...client.PatchOption) error {
	return m.write(func() error { return m.Client.Patch(ctx, o, p, opts...) })
}

func (m *mortal) Apply(ctx context.Context, o runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
	return m.write(func() error { return m.Client.Apply(ctx, o, opts...) })
}

func (m *mortal) Status() client.SubResourceWriter { return mortalStatus{m.Client.Status(), m} }

type mortalStatus struct {
	client.SubResourceWriter
	m *mortal
}

func (s mortalStatus) Update(ctx context.Context, o client.Object, opts ...client.SubResourceUpdateOption) error {
	return s.m.write(func() error { return s.SubResourceWriter.Update(ctx, o, opts...) })
}

// dies runs a hand-over that is killed at its n-th write; it is false when there are not so many.
func (s *small) dies(c client.Client, n int, after bool) bool {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), waitLimit)
	defer cancel()
	m := &mortal{Client: c, left: n, after: after, kill: cancel}
	err := handover.Run(ctx, s.options(m))
	s.writes = m.count
	if m.left > 0 {
		require.NoError(s.t, err)
		return false
	}
	require.Error(s.t, err)
	return true
}

// within waits for a hand-over that runs elsewhere.
func within(t *testing.T, ended <-chan error) error {
	t.Helper()
	select {
	case err := <-ended:
		return err
	case <-time.After(waitLimit):
		require.Fail(t, "the hand-over does not end")
		return nil
	}
}
