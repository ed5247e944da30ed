package openshift_test

import (
	"bytes"
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dayone.dev/dayone/bootstrap/gather"
	"dayone.dev/dayone/bootstrap/gather/bundle"
	"dayone.dev/dayone/bootstrap/phasetest"
	"dayone.dev/dayone/hack/cmdlines"
	"dayone.dev/dayone/registry/credentials"
)

// plant puts the canaries wherever the installer's bootstrap node has secrets, and lets a RUN print those that it can
// read. The accounts of the registries are canaries as they are.
func (n *node) plant(c phasetest.Canaries) {
	t := n.t
	n.put("/etc/mcc/bootstrap/70-canary.yaml", c.MachineConfig(t))
	n.object("/etc/mcc/bootstrap/machineconfigcontroller-pull-secret",
		&corev1.Secret{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
			ObjectMeta: metav1.ObjectMeta{Namespace: "openshift-config", Name: "pull-secret"},
			Type:       corev1.SecretTypeDockerConfigJson,
			Data:       map[string][]byte{corev1.DockerConfigJsonKey: []byte(phasetest.Auths(c["cluster"]))}})
	require.NoError(t, os.Chmod(n.at("/etc/mcc/bootstrap/machineconfigcontroller-pull-secret"), 0o644)) // the installer's
	n.put("/opt/openshift/auth/kubeconfig-loopback", []byte("apiVersion: v1\nkind: Config\nusers:\n- name: a\n"+
		"  user: {token: "+c["kubeconfig"]+"}\n"))
	n.put("/opt/openshift/tls/root-ca.key", []byte(c["key"]+"\n"))
	n.edit("RUN GREETING", phasetest.PrintCanaries+"\n      RUN GREETING")
	c["push"], c["pull"] = n.final.Push.Password, n.final.Pull.Password
	accounts, err := credentials.Read(n.at("/root/.docker/config.json"))
	require.NoError(t, err)
	account, found, err := accounts.Find(n.order.Base)
	require.NoError(t, err)
	require.True(t, found)
	c["base"] = account.Password
	t.Setenv("HTTP_PROXY", "http://proxy:"+strings.NewReplacer("+", "%2B", "/", "%2F").Replace(c["proxy"])+
		"@192.0.2.1:3128")
	t.Setenv("NO_PROXY", "127.0.0.1,"+phasetest.HostAddress(t))
}

// closed says that no file below a directory that other users can open has a canary.
func closed(t *testing.T, c phasetest.Canaries, dir string) {
	t.Helper()
	none(t, c, dir, func(file string) bool { return phasetest.OthersRead(t, dir, file) })
}

// none says that no file below a directory has a canary, of those that take takes.
func none(t *testing.T, c phasetest.Canaries, dir string, take func(file string) bool) (files int) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(dir, func(file string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() || !take(file) {
			return err
		}
		raw, err := os.ReadFile(file)
		assert.Empty(t, c.Found(string(raw)), file)
		files++
		return err
	}))
	return files
}

// TestCanariesStayInside runs Day 1 on a bootstrap node that has a canary wherever it has secrets: pull secrets, files
// and units of MachineConfigs, passwords of accounts and of the proxy, a kubeconfig, keys. It finds none in output,
// records, logs and journal, in files that others may read (also after a kill), in the temporary directory, in
// arguments of processes, in image configs with their history, in what the status page shows and in both log bundles.
func TestCanariesStayInside(t *testing.T) {
	n := newNode(t, onePool)
	c := phasetest.NewCanaries("cluster", "proxy", "file", "unit", "hash", "kubeconfig", "key")
	n.plant(c)
	require.NoError(t, n.mco())
	// As MCO makes them: what dayone puts there must not be for everybody.
	for _, dir := range []string{"machine-configs", "machine-pools"} {
		require.NoError(t, os.Chmod(n.at("/etc/mcs/bootstrap/"+dir), 0o755))
		require.NoError(t, os.Chmod(n.at("/etc/mcs/bootstrap"), 0o755))
	}
	n.cluster()
	temporary := t.TempDir()
	t.Setenv("TMPDIR", temporary)
	stop := cmdlines.Watch()
	t.Cleanup(func() { stop() })
	first := n.run("gate", "recorded") // the hand-over ends what the identity has
	require.ErrorContains(t, first.Err, "killed", first.Log)
	c.Made(t, n.order.State)
	for _, dir := range []string{n.order.State, n.order.Root, n.order.Dir, temporary} {
		closed(t, c, dir)
	}
	o := gather.Options{StateDir: n.order.State, InstallDir: n.order.Dir, Root: n.order.Root, NoCommands: true}
	shown := gather.Scrubber(o)
	for name, secret := range c {
		if name != "proxy" { // it is in no file; the engine masks it, and forms of addresses are masked everywhere
			assert.Empty(t, c.Found(shown("a RUN says "+secret+".")), name)
		}
	}
	end := n.run("", "")
	arguments := stop()
	require.NoError(t, end.Err, end.Log)
	for _, line := range arguments {
		assert.Empty(t, c.Found(line), line)
	}
	for _, e := range []phasetest.Ended{first, end} {
		assert.Empty(t, c.Found(e.Log+strings.Join(e.Events, "\n")), "output")
	}
	c.Inside(t, n.order.State)
	closed(t, c, n.order.Root)
	closed(t, c, n.order.Dir)
	none(t, c, temporary, func(string) bool { return true })

	var out bytes.Buffer
	require.NoError(t, gather.Host(t.Context(), o, &out))
	made, err := bundle.Read(&out)
	require.NoError(t, err)
	for _, name := range made.Names() {
		assert.Empty(t, c.Found(string(made.Get(name).Content)), name)
	}
	assert.NotNil(t, made.Get("bootstrap/services/dayone-bootstrap.json"))
	require.NoError(t, gather.Keep(t.Context(), o, n.at(gather.InstallerDir)))
	assert.Greater(t, none(t, c, n.at("/var/log/openshift"), func(string) bool { return true }), 5)
	raw, err := json.Marshal(n.served("master").Spec)
	require.NoError(t, err)
	assert.NotEmpty(t, c.Found(string(raw)), "what nodes get has them")
}
