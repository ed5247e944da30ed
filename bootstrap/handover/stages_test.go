package handover_test

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/bootstrap/handover"
	"dayone.dev/dayone/bootstrap/nodes"
	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/registry/transfer"
)

// Each node with an agent is asked once, and the hand-over waits for those that have not answered.
func TestEndTrust(t *testing.T) {
	s := newSmall(t)
	m := newMemory(t)
	stranger := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "without-agent"}}
	earlier := agreed(s).Nodes[0].DeepCopy()
	earlier.Name = "asked-before"
	earlier.Annotations[manifests.AnnotationEndTrust] = s.boot.Addr
	ended := earlier.DeepCopy()
	ended.Name = "answered-before"
	ended.Annotations[manifests.AnnotationTrustEnded] = s.boot.Addr
	another := earlier.DeepCopy()
	another.Name = "of-another-registry"
	another.Annotations = map[string]string{manifests.AnnotationCurrentConfig: s.pool.Config,
		manifests.AnnotationDesiredConfig: s.pool.Config,
		manifests.AnnotationCurrentImage:  s.pool.Image, manifests.AnnotationDesiredImage: s.pool.Image,
		manifests.AnnotationState: manifests.StateDone, manifests.AnnotationEndTrust: "192.0.2.9:5000",
		manifests.AnnotationTrustEnded: "192.0.2.9:5000"}
	o := s.options(m)
	var waited []string
	o.Observe = func(e handover.Event) {
		if e.Stage == handover.StageAgree && e.Waiting == "" && !e.Done {
			for _, n := range []*corev1.Node{stranger, earlier, ended, another} {
				require.NoError(t, m.Create(t.Context(), n))
			}
		}
		if e.Stage == handover.StageTrust && e.Waiting != "" {
			waited = append(waited, e.Waiting)
			assert.Zero(t, s.revoked, "no node asks with an account that has ended")
		}
		s.plays(m)(e)
	}
	require.NoError(t, handover.Run(t.Context(), o))
	require.NotEmpty(t, waited)
	assert.Contains(t, waited[0], "in "+s.boot.Addr+" yet: a, asked-before, b, of-another-registry: ")
	assert.NotContains(t, m.asked, "patch Node asked-before", "it is asked already")
	assert.NotContains(t, m.asked, "patch Node answered-before")
	assert.NotContains(t, m.asked, "patch Node without-agent")
	assert.Contains(t, m.asked, "patch Node of-another-registry")
	assert.Equal(t, s.boot.Addr,
		find(m, &corev1.Node{}, "of-another-registry").Annotations[manifests.AnnotationTrustEnded])
}

// Where the trust is part of the nodes' rendered config, no node is asked.
func TestKeepTrust(t *testing.T) {
	s := newSmall(t)
	s.plan.KeepTrust = true
	m := newMemory(t)
	o := s.options(m)
	o.Observe = s.plays(m)
	require.NoError(t, handover.Run(t.Context(), o))
	assert.NotContains(t, find(m, &corev1.Node{}, "a").Annotations, manifests.AnnotationEndTrust)
}

// A node still runs the image of an earlier build, which only the bootstrap registry has.
func TestOrphansAreCopied(t *testing.T) {
	s := newSmall(t)
	earlier := s.final.Addr + "/ocp/master-os@" + s.push("ocp/master-os")
	_, digest, _ := strings.Cut(earlier, "@")
	lost := s.final.Addr + "/ocp/master-os@sha256:" + strings.Repeat("7", 64)
	elsewhere := "quay.io/else/where@sha256:" + strings.Repeat("5", 64)
	straggler := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "straggler",
		Annotations: map[string]string{manifests.AnnotationCurrentImage: earlier,
			manifests.AnnotationDesiredImage: elsewhere}}}
	m := newMemory(t, straggler)
	o := s.options(m)
	o.Observe = s.plays(m)
	require.NoError(t, handover.Run(t.Context(), o))
	found, err := transfer.Inspect(t.Context(), transfer.Endpoint{CAFile: s.final.CAFile, AuthFile: s.final.PullAuthFile,
		Reference: s.final.Addr + "/ocp/master-os:dayone-" + strings.TrimPrefix(digest, "sha256:")[:12]}, platform)
	require.NoError(t, err)
	assert.Equal(t, digest, found.Digest.String())

	for _, c := range []struct {
		name string
		have client.Object
		says string
	}{
		{"of a node", &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "lost",
			Annotations: map[string]string{manifests.AnnotationDesiredImage: lost}}},
			"node lost: annotation " + manifests.AnnotationDesiredImage + " refers to an image"},
		{"of a config", &mcfgv1.MachineConfig{ObjectMeta: metav1.ObjectMeta{Name: "lost"},
			Spec: mcfgv1.MachineConfigSpec{OSImageURL: lost}}, "MachineConfig lost: spec.osImageURL refers to an image"},
		{"of a config's extensions", &mcfgv1.MachineConfig{ObjectMeta: metav1.ObjectMeta{Name: "lost"},
			Spec: mcfgv1.MachineConfigSpec{BaseOSExtensionsContainerImage: lost}},
			"MachineConfig lost: spec.baseOSExtensionsContainerImage refers to an image"},
		{"of the controllers", &mcfgv1.ControllerConfig{ObjectMeta: metav1.ObjectMeta{Name: "lost"},
			Spec: mcfgv1.ControllerConfigSpec{BaseOSContainerImage: lost}},
			"ControllerConfig lost: spec.baseOSContainerImage refers to an image"},
		{"of the controllers' extensions", &mcfgv1.ControllerConfig{ObjectMeta: metav1.ObjectMeta{Name: "lost"},
			Spec: mcfgv1.ControllerConfigSpec{BaseOSExtensionsContainerImage: lost}},
			"ControllerConfig lost: spec.baseOSExtensionsContainerImage refers to an image"},
		{"of a build", &mcfgv1.MachineOSBuild{ObjectMeta: metav1.ObjectMeta{Name: "lost"},
			Status: mcfgv1.MachineOSBuildStatus{DigestedImagePushSpec: mcfgv1.ImageDigestFormat(lost)}},
			"MachineOSBuild lost: status.digestedImagePushSpec refers to an image"},
		{"of a pool's opt-in", &mcfgv1.MachineOSConfig{ObjectMeta: metav1.ObjectMeta{Name: "lost",
			Annotations: map[string]string{manifests.AnnotationPreBuiltImage: lost}}},
			"MachineOSConfig lost: annotation " + manifests.AnnotationPreBuiltImage + " refers to an image"},
		{"of a pool", &mcfgv1.MachineOSConfig{ObjectMeta: metav1.ObjectMeta{Name: "lost"},
			Status: mcfgv1.MachineOSConfigStatus{CurrentImagePullSpec: mcfgv1.ImageDigestFormat(lost)}},
			"MachineOSConfig lost: status.currentImagePullSpec refers to an image"},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := newMemory(t, c.have)
			o := s.options(m)
			o.Observe = s.plays(m)
			require.ErrorContains(t, handover.Run(t.Context(), o), c.says)
		})
	}
}

// noNetwork is what a client gives back when the API server has moved.
func noNetwork() error {
	return &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("no route to host")}
}

// The connection is made anew when the API server does not answer, and only then.
func TestRunConnectsAgain(t *testing.T) {
	s := newSmall(t)
	for _, c := range []struct {
		name string
		err  error
		want int
		says string
	}{
		{"the server is away", noNetwork(), 3, "the cluster does not answer: "},
		{"the server is busy", errors.New("too much to do"), 2, "too much to do"},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := newMemory(t)
			m.refuse = once("apply MachineConfig 50-master-0", c.err)
			o := s.options(m)
			var said []string
			o.Observe = func(e handover.Event) {
				said = append(said, e.Waiting)
				s.plays(m)(e)
			}
			connections := 0
			o.Connect = func(context.Context) (client.Client, error) {
				if connections++; connections == 1 {
					return nil, noNetwork()
				}
				return m, nil
			}
			require.NoError(t, handover.Run(t.Context(), o))
			assert.Equal(t, c.want, connections)
			assert.Contains(t, strings.Join(said, "\n"), c.says)
		})
	}
}

// An API server that has just started refuses good credentials for a while; bad ones it refuses for ever.
func TestRunWithRefusedCredentials(t *testing.T) {
	s := newSmall(t)
	refused := apierrors.NewUnauthorized("who are you")
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, "", errors.New("not you"))
	for _, c := range []struct {
		name  string
		says  []error // by the connection, then it is good
		grace time.Duration
		fails bool
	}{
		{"for a moment", []error{refused, refused}, time.Hour, false},
		{"for longer", []error{refused, forbidden, forbidden}, time.Nanosecond, true},
		{"now and then", []error{refused, errors.New("busy"), forbidden}, time.Nanosecond, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := newMemory(t)
			o := s.options(m)
			o.Observe, o.Grace = s.plays(m), c.grace
			left := c.says
			o.Connect = func(context.Context) (client.Client, error) {
				if len(left) == 0 {
					return m, nil
				}
				err := left[0]
				left = left[1:]
				return nil, err
			}
			err := handover.Run(t.Context(), o)
			if !c.fails {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, "hand over (objects): ")
			require.ErrorContains(t, err, "correct --kubeconfig and run it again")
		})
	}
}

// An object that the API can never take ends the hand-over and says what to correct.
func TestRunEndsAtAnInvalidObject(t *testing.T) {
	s := newSmall(t)
	m := newMemory(t)
	m.refuse = once("apply MachineConfig 50-master-0", apierrors.NewBadRequest("spec.kernelType: no such type"))
	require.ErrorContains(t, s.objectsWritten(m), "spec.kernelType: no such type: correct the object in the install "+
		"directory and run dayone bootstrap again")
}

// Stopped while it waits, or before: it says for what.
func TestRunStops(t *testing.T) {
	s := newSmall(t)
	m := newMemory(t)
	ctx, cancel := context.WithCancel(t.Context())
	o := s.options(m)
	o.Observe = func(e handover.Event) {
		if e.Stage == handover.StageAgree && e.Waiting != "" {
			cancel()
		}
	}
	err := handover.Run(ctx, o)
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorContains(t, err, "hand over (agree): stopped, the next run goes on: pool master: ")
	require.ErrorContains(t, handover.Run(ctx, o), "hand over (images): stopped, the next run goes on: it had just begun")
	assert.Zero(t, s.revoked)
}

// The accounts' end is tried again like everything else.
func TestRunRevokesAgain(t *testing.T) {
	s := newSmall(t)
	m := newMemory(t)
	o := s.options(m)
	o.Observe = s.plays(m)
	fails := errors.New("the state directory is full")
	o.Revoke = func(context.Context) error {
		defer func() { fails = nil }()
		return fails
	}
	require.NoError(t, handover.Run(t.Context(), o))
	assert.NoError(t, fails)
}

func TestRunValidatesOptions(t *testing.T) {
	s := newSmall(t)
	for _, c := range []struct {
		name  string
		spoil func(*handover.Options)
		says  string
	}{
		{"no plan", func(o *handover.Options) { o.Plan = nil }, "there is no plan"},
		{"no source", func(o *handover.Options) { o.Source.Host = "" }, "the bootstrap registry is not named"},
		{"no connection", func(o *handover.Options) { o.Connect = nil }, "give a kubeconfig"},
		{"a policy of another program", func(o *handover.Options) { o.Policy = "soon" }, `policy "soon" is none of`},
		{"a plan that cannot be carried out", func(o *handover.Options) { o.Plan = &handover.Plan{} },
			"hand-over plan: the bootstrap registry is missing"},
		{"a CA file that is not there", func(o *handover.Options) { o.FinalCAFile = "none.crt" },
			"read CAs of the final registries"},
		{"a temporary directory that is not there", func(o *handover.Options) { o.TempDir = "none" },
			"make temporary directory"},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := s.options(newMemory(t))
			c.spoil(&o)
			require.ErrorContains(t, handover.Run(t.Context(), o), c.says)
			assert.Zero(t, s.revoked)
		})
	}
}

func TestKubeconfig(t *testing.T) {
	file := filepath.Join(t.TempDir(), "kubeconfig")
	connect := handover.Kubeconfig(file, "")
	_, err := connect(t.Context())
	require.EqualError(t, err, "the kubeconfig "+file+" does not exist yet")
	require.NoError(t, os.WriteFile(file, []byte("{"), 0o600))
	_, err = connect(t.Context())
	require.ErrorContains(t, err, "read kubeconfig "+file)
	const one = `{"apiVersion":"v1","kind":"Config","current-context":"a","clusters":[{"name":"a","cluster":{"server":` +
		`"https://127.0.0.1:1"}}],"contexts":[{"name":"a","context":{"cluster":"a"}}]}`
	require.NoError(t, os.WriteFile(file, []byte(one), 0o600))
	c, err := connect(t.Context())
	require.NoError(t, err)
	require.NotNil(t, c)
	_, err = handover.Kubeconfig(file, "b")(t.Context())
	require.ErrorContains(t, err, `context "b" does not exist`)
	require.NoError(t, os.WriteFile(file, []byte(strings.Replace(one, "https://127.0.0.1:1", "http://[::", 1)), 0o600))
	_, err = connect(t.Context())
	require.Error(t, err)
}

func TestMark(t *testing.T) {
	dir := t.TempDir()
	m, err := handover.ReadMark(dir)
	require.NoError(t, err)
	require.Nil(t, m)
	written := handover.Mark{Time: time.Unix(1_700_000_000, 0).UTC(), Registry: "192.0.2.1:5000", Instead: "no nodes"}
	require.NoError(t, written.Write(dir))
	m, err = handover.ReadMark(dir)
	require.NoError(t, err)
	require.Equal(t, &written, m)
	file := filepath.Join(dir, handover.MarkFile)
	require.NoError(t, os.WriteFile(file, []byte("{"), 0o600))
	_, err = handover.ReadMark(dir)
	require.ErrorContains(t, err, "read "+file)
	require.NoError(t, os.Remove(file))
	require.NoError(t, os.Mkdir(file, 0o700))
	_, err = handover.ReadMark(dir)
	require.ErrorContains(t, err, "read the mark of the hand-over")
	require.ErrorContains(t, written.Write(dir), "write the mark of the hand-over")
}

// What keeps a node from being done, as the status page shows it.
func TestMembers(t *testing.T) {
	s := newSmall(t)
	v := agreed(s)
	late, broken := v.Nodes[0], v.Nodes[1]
	late.Annotations[manifests.AnnotationState] = "Working"
	late.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: "a"},
		{Type: corev1.NodeInternalIP, Address: "192.0.2.7"}}
	late.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionFalse,
		Message: "no network plugin"}, {Type: corev1.NodeMemoryPressure, Status: corev1.ConditionFalse, Message: "none"}}
	broken.Annotations[manifests.AnnotationState] = "Degraded"
	broken.Annotations[manifests.AnnotationReason] = "the disk is full"
	done := late.DeepCopy()
	done.Name, done.Annotations[manifests.AnnotationState] = "c", manifests.StateDone
	m := newMemory(t, v.Pools[0], late, broken, done,
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "of-no-pool"}})
	list, err := handover.Members(t.Context(), m, s.plan)
	require.NoError(t, err)
	assert.Equal(t, []nodes.Member{
		{Name: "a", Pool: "master", Addresses: []string{"192.0.2.7"}, Image: s.pool.Image,
			Says: "its agent is at work: Working; its kubelet is not ready: no network plugin"},
		{Name: "b", Pool: "master", Image: s.pool.Image, Failed: true, Reason: "the disk is full",
			Says: "its agent gave up: the disk is full"},
		{Name: "c", Pool: "master", Addresses: []string{"192.0.2.7"}, Image: s.pool.Image},
	}, list)
	m.refuse = once("list NodeList", noNetwork())
	_, err = handover.Members(t.Context(), m, s.plan)
	require.ErrorContains(t, err, "the cluster does not answer: list *v1.NodeList")
}
