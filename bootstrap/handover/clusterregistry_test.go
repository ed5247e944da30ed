package handover_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dayone.dev/dayone/bootstrap/handover"
	"dayone.dev/dayone/installconfig"
	"dayone.dev/dayone/manifests/assets/cluster"
	"dayone.dev/dayone/registry"
	"dayone.dev/dayone/registry/certs"
	"dayone.dev/dayone/registry/peers"
	"dayone.dev/dayone/registry/registrytest"
	"dayone.dev/dayone/registry/replica"
	"dayone.dev/dayone/registry/storage"
	"dayone.dev/dayone/registry/transfer"
	"dayone.dev/dayone/registry/wanted"
)

// masters are control-plane nodes whose registries have one CA, one set of accounts and one port, as the cluster's own
// have. Each is on an address of loopback of its own.
type masters struct {
	*small
	name    string
	port    string
	dir     string
	servers []*registrytest.Registry
}

func masterAddress(i int) string { return fmt.Sprintf("127.0.0.%d", 10+i) }

// newMasters has a plan for such registries; none runs yet.
func newMasters(t *testing.T) *masters {
	t.Helper()
	m := &masters{dir: t.TempDir(), port: strconv.Itoa(registrytest.Port(t))}
	m.name = "registry.cluster.test:" + m.port
	m.small = newSmallBehind(t, func(string) string { return m.name })
	_, err := certs.LoadOrCreateCA(m.dir, certs.CAOptions{})
	require.NoError(t, err)
	ca, err := os.ReadFile(filepath.Join(m.dir, certs.CACertFile))
	require.NoError(t, err)
	m.plan.ClusterRegistry, m.plan.FinalCA, m.final.CAFile = m.name, string(ca), filepath.Join(m.dir, certs.CACertFile)
	return m
}

// start runs the registry of a node, with what works beside it.
func (m *masters) start(i int, beside func(context.Context, *storage.Store)) {
	m.t.Helper()
	dir := filepath.Join(m.dir, strconv.Itoa(i))
	require.NoError(m.t, os.MkdirAll(dir, 0o700))
	for _, name := range []string{certs.CACertFile, certs.CAKeyFile} {
		raw, err := os.ReadFile(filepath.Join(m.dir, name))
		require.NoError(m.t, err)
		require.NoError(m.t, os.WriteFile(filepath.Join(dir, name), raw, 0o600))
	}
	m.servers = append(m.servers, registrytest.Start(m.t, func(o *registry.Options) {
		o.Listen, o.TLSDir, o.Beside = net.JoinHostPort(masterAddress(i), m.port), dir, beside
		o.Users = []registry.User{m.final.Push, m.final.Pull}
	}))
}

// replicates is the replica of a node: it shall have the plan's images, and knows the first two nodes.
func (m *masters) replicates(i int) func(context.Context, *storage.Store) {
	dir := filepath.Join(m.dir, fmt.Sprintf("replica-%d", i))
	var list []wanted.Image
	for _, image := range m.plan.Images {
		list = append(list, wanted.Image{Repository: installconfig.RepositoryPath(image.Repository),
			Digest: digest.Digest(image.Digest), By: []string{"the plan"}})
	}
	raw, err := wanted.New(time.Now(), list).Encode()
	require.NoError(m.t, err)
	require.NoError(m.t, os.MkdirAll(dir, 0o700))
	_, err = wanted.WriteFile(filepath.Join(dir, wanted.ListFile), raw)
	require.NoError(m.t, err)
	auth := filepath.Join(dir, "auth.json")
	require.NoError(m.t, m.final.Pull.WriteAuthFile(auth, m.name))
	all := peers.List{Registry: m.name}
	for k := range 2 {
		all.Peers = append(all.Peers, peers.Peer{Name: fmt.Sprintf("m%d", k),
			Address: net.JoinHostPort(masterAddress(k), m.port)})
	}
	return func(ctx context.Context, s *storage.Store) {
		replica.Run(ctx, s, replica.Options{Dir: dir, Self: fmt.Sprintf("m%d", i), CAFile: m.final.CAFile, AuthFile: auth,
			Peers: func() (peers.List, error) { return all, nil }})
	}
}

// nodes are in the cluster from the start, with their addresses.
func (m *masters) nodes(c *memory, count int) {
	for i := range count {
		n := agreed(m.small).Nodes[0].DeepCopy()
		n.Name = fmt.Sprintf("m%d", i)
		n.Status = corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP,
			Address: masterAddress(i)}}, Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady,
			Status: corev1.ConditionTrue}}}
		require.NoError(m.t, c.WithWatch.Create(m.t.Context(), n))
	}
}

// published is what the cluster's controllers say of the registries that they look after.
func (m *masters) published(c *memory, name string) {
	raw, err := peers.List{Registry: name}.Encode()
	require.NoError(m.t, err)
	require.NoError(m.t, c.WithWatch.Create(m.t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Namespace: cluster.DefaultNamespace, Name: cluster.RegistryPeersName},
		Data: map[string]string{wanted.PeersFile: string(raw)}}))
}

// holds says whether a node's registry has every image.
func (m *masters) holds(i int) bool {
	for _, image := range m.plan.Images {
		at := net.JoinHostPort(masterAddress(i), m.port)
		auth := filepath.Join(m.t.TempDir(), "auth.json")
		require.NoError(m.t, m.final.Pull.WriteAuthFile(auth, at))
		_, err := transfer.Inspect(m.t.Context(), transfer.Endpoint{CAFile: m.final.CAFile, AuthFile: auth,
			Reference: at + "/" + installconfig.RepositoryPath(image.Repository) + "@" + image.Digest}, platform)
		if err != nil {
			return false
		}
	}
	return true
}

// TestOwnRegistries: the images go to the first two masters that answer, by address; nothing ends before controllers
// look after the registries and every ready master has all, which the third fetches from the others.
func TestOwnRegistries(t *testing.T) {
	m := newMasters(t)
	c := newMemory(t)
	m.nodes(c, 3)
	o := m.options(c)
	c.refuse = once("get ConfigMap "+cluster.RegistryPeersName, errors.New("the disk of etcd is slow"))
	said := map[handover.Stage][]string{}
	o.Observe = func(e handover.Event) {
		if e.Waiting == "" {
			return
		}
		said[e.Stage] = append(said[e.Stage], e.Waiting)
		assert.Zero(t, m.revoked, "the accounts end last")
		switch e.Stage {
		case handover.StageImages:
			if len(m.servers) == 0 {
				m.start(1, nil)
			} else {
				m.start(0, nil)
			}
		case handover.StageReplicas:
			m.plays(c)(e)
			switch {
			case strings.Contains(e.Waiting, "etcd"): // it is asked again
			case strings.Contains(e.Waiting, "no controller looks after"):
				m.published(c, m.name)
			case len(m.servers) == 2:
				m.start(2, nil) // it is empty, and nothing fills it
			case strings.Contains(e.Waiting, "has not fetched"):
				assert.Contains(t, e.Waiting, "node m2")
				m.servers[2].Stop(t)
				m.servers = m.servers[:2]
				m.start(2, m.replicates(2))
			}
		default:
			m.plays(c)(e)
		}
	}
	o.RetryMax = 20 * time.Millisecond
	require.NoError(t, handover.Run(t.Context(), o))
	assert.Equal(t, 1, m.revoked)
	for i := range 3 {
		assert.True(t, m.holds(i), "node m%d", i)
	}
	assert.Contains(t, said[handover.StageImages][0], "0 of the registries of 3 control-plane nodes answer, and 2 must")
	assert.Contains(t, said[handover.StageImages][0], "m0: dial tcp "+masterAddress(0))
	assert.Contains(t, said[handover.StageImages][0], "see systemctl status dayone-registry on the node")
	assert.Equal(t, "read ConfigMap "+cluster.RegistryPeersName+": the disk of etcd is slow",
		said[handover.StageReplicas][0])
	assert.Contains(t, said[handover.StageReplicas][1], "--cluster-registry "+m.name)
}

// TestOwnRegistriesOfMastersToCome: one master has joined of the two that the plan has, and its registry answers.
func TestOwnRegistriesOfMastersToCome(t *testing.T) {
	m := newMasters(t)
	c := newMemory(t)
	m.nodes(c, 1)
	m.start(0, nil)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	o := m.options(c)
	var said string
	o.Observe = func(e handover.Event) {
		if e.Waiting != "" {
			said = e.Waiting
			cancel()
		}
	}
	require.ErrorIs(t, handover.Run(ctx, o), context.Canceled)
	assert.Equal(t, "1 of the registries of 1 control-plane nodes answer, and 2 must have the images", said)
	assert.True(t, m.holds(0), "it has them already")
}

// TestOwnRegistryOfAnotherName: the controllers look after other names than those that the images have.
func TestOwnRegistryOfAnotherName(t *testing.T) {
	m := newMasters(t)
	c := newMemory(t)
	m.nodes(c, 2)
	m.start(0, nil)
	m.start(1, nil)
	m.published(c, "other.cluster.test:1000")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	o := m.options(c)
	var said string
	o.Observe = func(e handover.Event) {
		if e.Stage == handover.StageReplicas && e.Waiting != "" {
			said = e.Waiting
			cancel()
		}
		m.plays(c)(e)
	}
	require.ErrorIs(t, handover.Run(ctx, o), context.Canceled)
	assert.Contains(t, said, "other.cluster.test:1000")
	assert.Zero(t, m.revoked)
}

// TestOwnRegistriesBesideMCO: where nobody brings the registries a list, every master gets the images from here.
func TestOwnRegistriesBesideMCO(t *testing.T) {
	m := newMasters(t)
	m.plan.Controllers = handover.MCO
	c := newMemory(t, agreed(m.small).Pools[0])
	m.nodes(c, 3)
	m.start(0, nil)
	m.start(1, nil)
	o := m.options(c)
	var said []string
	o.Observe = func(e handover.Event) {
		switch {
		case e.Waiting == "":
		case e.Stage == handover.StageImages:
			said = append(said, e.Waiting)
			m.start(2, nil)
		case e.Stage == handover.StageAgree:
			found := find(c, &mcfgv1.MachineOSConfig{}, "master")
			found.Status.CurrentImagePullSpec = mcfgv1.ImageDigestFormat(m.pool.Image)
			found.Status.Conditions = seededCondition()
			require.NoError(t, c.Status().Update(t.Context(), found))
			m.renders(c)
		default:
			m.plays(c)(e)
		}
	}
	o.RetryMax = 20 * time.Millisecond
	require.NoError(t, handover.Run(t.Context(), o))
	require.Len(t, said, 1)
	assert.Contains(t, said[0], "2 of the registries of 3 control-plane nodes answer, and 3 must have the images")
	assert.Equal(t, 1, m.revoked)
	for i := range 3 {
		assert.True(t, m.holds(i), "node m%d", i)
	}
}
