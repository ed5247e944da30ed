package cluster

import (
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/net/dns/dnsmessage"
)

func TestDNSNames(t *testing.T) {
	for _, want := range []struct {
		name    string
		code    dnsmessage.RCode
		answers int
		kind    dnsmessage.Type
	}{
		{name: "registry.dayone.test.", answers: 1, kind: dnsmessage.TypeA},
		{name: "Kubernetes.default.svc.cluster.local.", answers: 1, kind: dnsmessage.TypeA},
		{name: "kubernetes.default.svc.cluster.local.", kind: dnsmessage.TypeAAAA},
		{name: "example.com.", code: dnsmessage.RCodeNameError, kind: dnsmessage.TypeA},
	} {
		query := dnsmessage.Message{Header: dnsmessage.Header{ID: 7}, Questions: []dnsmessage.Question{
			{Name: dnsmessage.MustNewName(want.name), Type: want.kind, Class: dnsmessage.ClassINET}}}
		raw, err := query.Pack()
		require.NoError(t, err)
		var reply dnsmessage.Message
		require.NoError(t, reply.Unpack(answer(raw)))
		assert.Equal(t, uint16(7), reply.ID)
		assert.Equal(t, want.code, reply.RCode, want.name)
		assert.Len(t, reply.Answers, want.answers, want.name)
	}
	assert.Nil(t, answer([]byte("no query")))
}

func FuzzDNSAnswersNoGarbage(f *testing.F) {
	f.Add([]byte("\x00\x07\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x01a\x00\x00\x01\x00\x01"))
	f.Fuzz(func(t *testing.T, query []byte) {
		if reply := answer(query); reply != nil {
			var m dnsmessage.Message
			assert.NoError(t, m.Unpack(reply))
		}
	})
}

func TestControlGroups(t *testing.T) {
	make := func(files map[string]string) string {
		root := t.TempDir()
		for name, text := range files {
			require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(root, name)), 0o755))
			require.NoError(t, os.WriteFile(filepath.Join(root, name), []byte(text), 0o644))
		}
		return root
	}
	c, err := findCgroups(make(map[string]string{"cgroup.controllers": "cpuset cpu io memory hugetlb pids\n"}))
	require.NoError(t, err, "version 2")
	assert.True(t, c.unified)
	_, err = findCgroups(make(map[string]string{"cgroup.controllers": "cpu io memory\n"}))
	require.ErrorContains(t, err, "cgroup v2 controllers cpuset, pids: enable them")
	v1 := map[string]string{"cpu,cpuacct/cgroup.procs": "", "cpuset/cgroup.procs": "", "memory/cgroup.procs": "",
		"pids/cgroup.procs":    "",
		"devices/cgroup.procs": "", "freezer/cgroup.procs": "", "blkio/cgroup.procs": "", "unified/cgroup.procs": ""}
	c, err = findCgroups(make(v1))
	require.NoError(t, err, "hybrid")
	assert.False(t, c.unified)
	delete(v1, "memory/cgroup.procs")
	_, err = findCgroups(make(v1))
	require.ErrorContains(t, err, "cgroup v1 hierarchies memory: mount each")
}

func TestEqualFilesGiveAnEqualImage(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "a"), []byte("x"), 0o755))
	i := Image{Repository: "r", Files: map[string]string{"/usr/bin/a": filepath.Join(dir, "a")},
		Links: map[string]string{"bin": "usr/bin"},
		Dirs:  []string{"/var/tmp"}, Entrypoint: []string{"/bin/a"}}
	first, err := i.build()
	require.NoError(t, err)
	second, err := i.build()
	require.NoError(t, err)
	one, err := first.Digest()
	require.NoError(t, err)
	two, err := second.Digest()
	require.NoError(t, err)
	assert.Equal(t, one, two)
	assert.Equal(t, []string{"usr", "usr/bin", "var", "var/tmp"}, i.directories())
}

func TestForwardingEndsBothWays(t *testing.T) {
	server, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	front, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	go forward(front, server.Addr().String())
	go func() {
		conn, err := server.Accept()
		if err == nil {
			buf := make([]byte, 4)
			n, _ := conn.Read(buf)
			_, _ = conn.Write(buf[:n])
			_ = conn.Close()
		}
	}()
	conn, err := net.Dial("tcp", front.Addr().String())
	require.NoError(t, err)
	_, err = conn.Write([]byte("ping"))
	require.NoError(t, err)
	buf := make([]byte, 8)
	n, err := conn.Read(buf)
	require.NoError(t, err)
	assert.Equal(t, "ping", string(buf[:n]))
	_, err = conn.Read(buf)
	require.Error(t, err, "the server's end is passed on")
	require.NoError(t, front.Close())
	require.NoError(t, server.Close())
}
