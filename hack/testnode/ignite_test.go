package testnode_test

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/hack/baseimage"
	"dayone.dev/dayone/hack/testnode"
	"dayone.dev/dayone/registry/certs"
)

const served = `{"ignition":{"version":"3.3.0"},
 "passwd":{"users":[{"name":"core","sshAuthorizedKeys":["ssh-ed25519 AAAA test"]}]},
 "storage":{"files":[
  {"path":"/etc/from-ignition","mode":416,"contents":{"source":"data:,canary-secret%0A"}},
  {"path":"/usr/local/bin/agent","mode":493,"contents":{
   "source":"data:,%23!%2Fbin%2Fsh%0Aecho%20agent%20ran%20%3E%3E%2Fvar%2Flog%2Fran%0A"}}]},
 "systemd":{"units":[{"name":"dayone-firstboot.service","enabled":true,
  "contents":"[Unit]\nConditionPathExists=!/etc/never\n` +
	`[Service]\nType=oneshot\nExecStart=/usr/local/bin/agent\n[Install]\nWantedBy=multi-user.target\n"}]}}`

// serve starts an HTTPS server on the bootstrap host and gives a pointer config to it.
func serve(t *testing.T, lab *testnode.Lab) (pointer []byte) {
	t.Helper()
	addr := lab.Network.Bootstrap().String()
	ca, err := certs.NewCA(certs.CAOptions{})
	require.NoError(t, err)
	pair, err := ca.ServerCertificate([]string{addr}, certs.ServerOptions{})
	require.NoError(t, err)
	var l net.Listener
	require.NoError(t, lab.Network.Do(func() (err error) {
		l, err = tls.Listen("tcp", net.JoinHostPort(addr, "22623"), &tls.Config{Certificates: []tls.Certificate{pair},
			MinVersion: tls.VersionTLS12})
		return err
	}))
	s := &http.Server{ReadHeaderTimeout: time.Minute,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			assert.Contains(t, r.UserAgent(), "Ignition/")
			_, err := w.Write([]byte(served))
			assert.NoError(t, err)
		})}
	go func() { assert.ErrorIs(t, s.Serve(l), http.ErrServerClosed) }()
	t.Cleanup(func() { assert.NoError(t, s.Close()) })
	trust := base64.StdEncoding.EncodeToString(ca.CertificatePEM())
	return fmt.Appendf(nil, `{"ignition":{"version":"3.3.0","config":{"merge":[{"source":"https://%s/config/master"}]},
 "security":{"tls":{"certificateAuthorities":[{"source":"data:;base64,%s"}]}}}}`, l.Addr(), trust)
}

// limited bounds what talks to a server: Ignition asks for ever.
func limited(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func TestIgnitionOnThreeNodes(t *testing.T) {
	lab := newLab(t)
	pointer := serve(t, lab)
	var nodes []*testnode.Node
	for i := range 3 {
		nodes = append(nodes, newNode(t, lab, fmt.Sprintf("master-%d", i), baseimage.Tiny))
	}
	var wg sync.WaitGroup
	for _, n := range nodes {
		wg.Go(func() {
			assert.NoError(t, n.Ignite(limited(t), pointer))
			assert.NoError(t, n.Start(t.Context()))
			assert.NoError(t, n.WaitReady(t.Context()))
		})
	}
	wg.Wait()
	for _, n := range nodes {
		assertIgnited(t, n)
		log, err := n.Log()
		require.NoError(t, err)
		assert.Contains(t, log, "ignition: INFO")
		assert.NotContains(t, log, "canary-secret")
	}
}

func assertIgnited(t *testing.T, n *testnode.Node) {
	t.Helper()
	assert.Equal(t, "canary-secret", output(t, n, "cat", "/etc/from-ignition"))
	assert.Equal(t, "640 0:0", output(t, n, "stat", "-c", "%a %u:%g", "/etc/from-ignition"))
	assert.Contains(t, output(t, n, "cat", "/etc/passwd"), "core:")
	assert.Contains(t, output(t, n, "sh", "-c", "cat /var/home/core/.ssh/authorized_keys.d/ignition"),
		"ssh-ed25519 AAAA test")
	assert.Equal(t, "/etc/systemd/system/dayone-firstboot.service",
		output(t, n, "readlink", "/etc/systemd/system/multi-user.target.wants/dayone-firstboot.service"),
		"the preset was applied in systemd's form")
	require.Eventually(t, func() bool {
		r, err := n.Exec(t.Context(), "cat", "/var/log/ran")
		return err == nil && strings.TrimSpace(r.Stdout) == "agent ran"
	}, 2*time.Minute, 20*time.Millisecond, "the unit ran")
	assert.NotEqual(t, "uninitialized", output(t, n, "cat", "/etc/machine-id"))
	r, err := n.Exec(t.Context(), "test", "-e", "/etc/selinux/config")
	require.NoError(t, err)
	assert.Equal(t, 1, r.ExitCode, "the harness's help for Ignition is not in the node")
}

func TestIgnitionEndsWithTheContext(t *testing.T) {
	lab := newLab(t)
	n := newNode(t, lab, "m0", baseimage.Tiny)
	ctx, cancel := context.WithCancel(limited(t))
	defer cancel()
	const refused = "connection refused"
	go func() { // it asks, and would go on for ever
		for ctx.Err() == nil {
			if log, err := n.Log(); err == nil && strings.Contains(log, refused) {
				cancel()
			}
			time.Sleep(20 * time.Millisecond)
		}
	}()
	pointer := fmt.Appendf(nil,
		`{"ignition":{"version":"3.3.0","config":{"merge":[{"source":"http://%s:1/config/master"}]}}}`,
		lab.Network.Bootstrap())
	assert.ErrorIs(t, n.Ignite(ctx, pointer), context.Canceled)
}

func TestSystemdNodeLife(t *testing.T) {
	lab := newLab(t)
	n := newNode(t, lab, "master-0", baseimage.Debian)
	require.NoError(t, n.Ignite(limited(t), serve(t, lab)))
	start(t, n)
	assert.Equal(t, "running", output(t, n, "systemctl", "is-system-running"))
	assert.Equal(t, "master-0", output(t, n, "cat", "/proc/sys/kernel/hostname"))
	assertIgnited(t, n)
	output(t, n, "sh", "-c", stageSecond)
	require.Eventually(t, func() bool {
		r, err := n.Exec(t.Context(), "systemctl", "is-active", "ostree-finalize-staged.service")
		return err == nil && r.ExitCode == 0
	}, 2*time.Minute, 20*time.Millisecond, "a path unit starts it: on a busy machine a reboot may be quicker")
	require.NoError(t, n.Reboot(t.Context()))
	assert.Equal(t, "two", output(t, n, "cat", "/etc/second"))
	assert.Equal(t, "running", output(t, n, "systemctl", "is-system-running"))
	assert.Contains(t, output(t, n, "journalctl", "-b", "-1", "-u", "ostree-finalize-staged.service", "--no-pager"),
		"Finalize")
	require.NoError(t, n.Stop(t.Context()))
}
