package handover_test

import (
	"context"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/bootstrap/handover"
	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/registry"
	"dayone.dev/dayone/registry/transfer"
)

// listener remembers what a hand-over waited for.
type listener struct {
	mu   sync.Mutex
	said []string
}

func (l *listener) hear(e handover.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.said = append(l.said, string(e.Stage)+": "+e.Waiting)
}

func (l *listener) heard(stage handover.Stage, text string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.said {
		if strings.HasPrefix(s, string(stage)+": ") && strings.Contains(s, text) {
			return true
		}
	}
	return false
}

func (l *listener) hears(t *testing.T, stage handover.Stage, text string) {
	t.Helper()
	require.Eventually(t, func() bool { return l.heard(stage, text) }, waitLimit, waitEvery, "it waits for: %s", text)
}

// The final registry is down, the kubeconfig late, the API server away in the middle, and a master late: each is waited
// for.
func TestRunWaits(t *testing.T) {
	s := newSmall(t)
	w := newWorld(t, s.final.CAFile)
	defer w.controllers()()
	s.final.Stop(t)
	late := filepath.Join(t.TempDir(), "kubeconfig")
	l := &listener{}
	o := s.options(nil)
	o.Connect, o.Observe = handover.Kubeconfig(late, ""), l.hear
	ended := make(chan error, 1)
	go func() { ended <- handover.Run(t.Context(), o) }()
	l.hears(t, handover.StageImages, "connection refused")
	s.final.Restart(t)
	l.hears(t, handover.StageObjects, "does not exist yet")
	raw, err := os.ReadFile(w.env.Kubeconfig(t))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(late, raw, 0o600))
	l.hears(t, handover.StageAgree, "0 of 2 nodes have joined")
	defer s.joined(w)()
	require.NoError(t, within(t, ended))
	w.nothingChanged()
	assert.Equal(t, 1, s.revoked)
}

// A registry that starts between the library's two requests, with TLS and then without, answers the second one as a
// registry with a wrong certificate does. The hand-over asks again and goes on.
func TestRegistryThatStartsBetweenTwoRequests(t *testing.T) {
	var connections atomic.Int32
	s := newSmallBehind(t, func(final string) string {
		front, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		t.Cleanup(func() { front.Close() })
		go relay(front, final, &connections)
		return front.Addr().String()
	})
	l := &listener{}
	o := s.options(nil)
	o.Connect, o.Observe = handover.Kubeconfig(filepath.Join(t.TempDir(), "kubeconfig"), ""), l.hear
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- handover.Run(ctx, o) }()
	l.hears(t, handover.StageObjects, "does not exist yet")
	cancel()
	require.ErrorIs(t, within(t, ended), context.Canceled)
	assert.Greater(t, connections.Load(), int32(2))
}

// relay passes connections on to the address to, but answers the first one without TLS.
func relay(front net.Listener, to string, connections *atomic.Int32) {
	for {
		near, err := front.Accept()
		if err != nil {
			return
		}
		if connections.Add(1) == 1 {
			_, _ = io.WriteString(near, "not TLS yet\n")
			near.Close()
			continue
		}
		go func() {
			defer near.Close()
			far, err := net.Dial("tcp", to)
			if err != nil {
				return
			}
			defer far.Close()
			go func() {
				_, _ = io.Copy(far, near)
				far.Close()
			}()
			_, _ = io.Copy(near, far)
		}()
	}
}

// A deadline ends it with what it was waiting for, and nothing is revoked. A busy machine may need more than the first
// to ask the registry at all.
func TestDeadlineNamesReason(t *testing.T) {
	s := newSmall(t)
	s.final.Stop(t)
	var err error
	l, o := &listener{}, s.options(nil)
	o.Observe = l.hear
	for o.Deadline = time.Second; !l.heard(handover.StageImages, "connection refused"); o.Deadline *= 2 {
		require.Less(t, o.Deadline, waitLimit)
		err = handover.Run(t.Context(), o)
		require.ErrorContains(t, err, "not done within "+o.Deadline.String())
	}
	require.ErrorContains(t, err, "connection refused")
	require.ErrorContains(t, err, "dayone handover")
	assert.Zero(t, s.revoked)
}

func TestRunFailsAtOnce(t *testing.T) {
	for _, c := range []struct {
		name  string
		spoil func(*small, *handover.Options)
		says  []string
	}{
		{"a push Secret that the registry does not take", func(s *small, _ *handover.Options) {
			s.secret(registry.User{Name: "push", Password: "wrong"})
		}, []string{"os-push", "correct the Secret"}},
		{"a push Secret that may only pull", func(s *small, _ *handover.Options) { s.secret(s.final.Pull) },
			[]string{"os-push", "correct the Secret"}},
		{"a registry of an unknown authority", func(s *small, o *handover.Options) {
			o.FinalCAFile,
				s.plan.FinalCA = "", ""
		}, []string{"--final-ca"}},
		{"nothing may be copied, and it is not there", func(_ *small, o *handover.Options) { o.Policy = handover.PolicySkip },
			[]string{"not in its final registry", "policy"}},
		{"an image that nobody has", func(s *small, _ *handover.Options) {
			s.plan.Images[1].Digest = "sha256:" + strings.Repeat("1", 64)
		}, []string{"neither in its final registry nor in the bootstrap registry"}},
		{"a final registry that is the bootstrap registry", func(s *small, _ *handover.Options) {
			s.plan.Images[1].Repository = s.boot.Addr + "/ocp/master-os"
		}, []string{"which goes"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newSmall(t)
			o := s.options(nil)
			c.spoil(s, &o)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			o.Observe = func(e handover.Event) {
				if e.Waiting != "" {
					cancel() // waiting does not mend it
				}
			}
			err := handover.Run(ctx, o)
			for _, says := range c.says {
				require.ErrorContains(t, err, says)
			}
			assert.NotContains(t, err.Error(), s.final.Push.Password)
			assert.Zero(t, s.revoked)
		})
	}
}

// secret gives the plan another account.
func (s *small) secret(u registry.User) {
	s.plan.Set.Secrets[0].Object.Data[corev1.DockerConfigJsonKey] = []byte(`{"auths":{"` + s.final.Addr + `":{"auth":"` +
		encoded(u) + `"}}}`)
}

// Somebody adds a MachineConfig while the hand-over is under way: the cluster renders another name, and the host stays.
func TestRunWaitsForAgreement(t *testing.T) {
	s := newSmall(t)
	w := newWorld(t, s.final.CAFile)
	l := &listener{}
	defer w.controllers()()
	o := s.options(w.client)
	o.Observe = l.hear
	extra := &mcfgv1.MachineConfig{ObjectMeta: metav1.ObjectMeta{Name: "99-somebody",
		Labels: map[string]string{manifests.LabelRole: "master"}},
		Spec: mcfgv1.MachineConfigSpec{KernelArguments: []string{"somebody=1"}}}
	require.NoError(t, w.client.Create(t.Context(), extra))
	ended := make(chan error, 1)
	go func() { ended <- handover.Run(t.Context(), o) }()
	l.hears(t, handover.StageAgree, "kernelArguments")
	require.NoError(t, w.client.Delete(t.Context(), extra))
	l.hears(t, handover.StageAgree, "0 of 2 nodes have joined")
	defer s.joined(w)()
	require.NoError(t, within(t, ended))
	w.nothingChanged()
}

// A node still runs the image of an earlier build on the bootstrap host, which only that host has.
func TestRunAdoptsOrphans(t *testing.T) {
	s := newSmall(t)
	earlier := s.final.Addr + "/ocp/master-os@" + s.push("ocp/master-os")
	w := newWorld(t, s.final.CAFile)
	defer w.controllers()()
	defer s.joined(w)()
	straggler := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "straggler",
		Annotations: map[string]string{manifests.AnnotationCurrentImage: earlier}}}
	require.NoError(t, w.client.Create(t.Context(), straggler))
	require.NoError(t, handover.Run(t.Context(), s.options(w.client)))
	_, err := transfer.Inspect(t.Context(), transfer.Endpoint{Reference: earlier, CAFile: s.final.CAFile,
		AuthFile: s.final.PullAuthFile}, platform)
	require.NoError(t, err, "it was copied, too")
}

// An object names the bootstrap registry itself: no copy helps, and the host stays.
func TestRunWaitsForDanglingReference(t *testing.T) {
	s := newSmall(t)
	w := newWorld(t, s.final.CAFile)
	defer w.controllers()()
	defer s.joined(w)()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "wrong", Annotations: map[string]string{
		manifests.AnnotationCurrentImage: s.boot.Addr + "/ocp/master-os@sha256:" + strings.Repeat("2", 64)}}}
	require.NoError(t, w.client.Create(t.Context(), node))
	l := &listener{}
	o := s.options(w.client)
	o.Observe = l.hear
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- handover.Run(ctx, o) }()
	l.hears(t, handover.StageOrphans, "node wrong")
	assert.Zero(t, s.revoked)
	require.NoError(t, w.client.Delete(t.Context(), node, client.GracePeriodSeconds(0)))
	require.NoError(t, within(t, ended))
	assert.Equal(t, 1, s.revoked)
}

// The policy to copy nothing is content with images that somebody else has brought.
func TestSkipUsesExistingImages(t *testing.T) {
	s := newSmall(t)
	w := newWorld(t, s.final.CAFile)
	defer w.controllers()()
	defer s.joined(w)()
	for _, i := range s.plan.Images {
		s.mirror(i, i.Repository+":mirrored")
	}
	o := s.options(w.client)
	o.Policy = handover.PolicySkip
	require.NoError(t, handover.Run(t.Context(), o))
	w.nothingChanged()
}

// An image that is there already gets the tags that it lacks: one was mirrored by digest, of the other a copy ended
// between its tags. An account that may only pull holds up nothing.
func TestRunTagsExistingImage(t *testing.T) {
	for name, mayPush := range map[string]bool{"account that may push": true, "account that may only pull": false} {
		t.Run(name, func(t *testing.T) {
			s := newSmall(t)
			w := newWorld(t, s.final.CAFile)
			defer w.controllers()()
			defer s.joined(w)()
			base, built := s.plan.Images[0], s.plan.Images[1]
			signature := strings.Replace(built.Digest, ":", "-", 1) + ".sig"
			s.putTag("ocp/master-os", signature)
			s.mirror(base, base.Reference())
			s.mirror(built, built.Reference())
			s.mirror(built, built.Repository+":"+built.Tags[0])
			other := handover.Image{Repository: built.Repository, Digest: s.push("ocp/master-os")}
			s.mirror(other, built.Repository+":"+built.Tags[1])
			if !mayPush {
				s.secret(s.final.Pull)
			}
			require.NoError(t, handover.Run(t.Context(), s.options(w.client)))
			w.nothingChanged()
			if !mayPush {
				return
			}
			_, err := transfer.Inspect(t.Context(), transfer.Endpoint{Reference: built.Repository + ":" + signature,
				CAFile: s.final.CAFile, AuthFile: s.final.PullAuthFile}, platform)
			assert.NoError(t, err, "the signature came to an image that was there already")
			for _, i := range s.plan.Images {
				for _, tag := range i.Tags {
					found, err := transfer.Inspect(t.Context(), transfer.Endpoint{Reference: i.Repository + ":" + tag,
						CAFile: s.final.CAFile, AuthFile: s.final.PullAuthFile}, platform)
					if assert.NoError(t, err, tag) {
						assert.Equal(t, i.Digest, found.Digest.String(), tag)
					}
				}
			}
		})
	}
}

// mirror brings an image of the bootstrap registry to where somebody else wants it.
func (s *small) mirror(i handover.Image, to string) {
	s.t.Helper()
	_, err := transfer.Copy(s.t.Context(), transfer.Endpoint{Reference: s.boot.Addr +
		strings.TrimPrefix(i.Reference(), s.final.Addr), CAFile: s.boot.CAFile, AuthFile: s.boot.PullAuthFile},
		transfer.Endpoint{Reference: to, CAFile: s.final.CAFile, AuthFile: s.final.PushAuthFile}, transfer.Options{})
	require.NoError(s.t, err)
}
