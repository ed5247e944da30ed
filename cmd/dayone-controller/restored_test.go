package main

import (
	"os/exec"
	"strconv"
	"testing"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dayone.dev/dayone/manifests/assets/cluster"
)

// TestRestoreOfEtcd: etcd goes back to a snapshot while the program runs. Where the API's revisions begin again it ends
// and says why; started anew, as a kubelet does, it follows what comes then. Where they are bumped, as Kubernetes
// advises, it goes on by itself.
func TestRestoreOfEtcd(t *testing.T) {
	for _, tc := range []struct {
		name string
		args []string
		ends bool
	}{
		{"revisions begin again", nil, true},
		{"revisions are bumped", []string{"--bump-revision", "1000000000", "--mark-compacted"}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newAdvisedWorld(t)
			// No gateway between: its 502 would let clients read all anew.
			run := func() *copyOfProgram {
				return start(t, "--mode", string(cluster.Advisor), "--namespace", cluster.AdvisorNamespace, "--kubeconfig",
					kubeconfig(t, w.advisor()), "--lease-duration", "15s")
			}
			p := run()
			w.says("Every node of pool worker has rendered-worker-1")
			restore := w.env.BackUp(t)
			for i := range 300 { // in a cluster minutes bring as many writes
				w.change(func(p *mcfgv1.MachineConfigPool) {
					metav1.SetMetaDataAnnotation(&p.ObjectMeta, "test", strconv.Itoa(i))
				})
			}
			w.renders("rendered-worker-2", "quiet")
			w.says("rendered-worker-2 changes 1 nodes: Reboot")
			restore(tc.args...)
			if tc.ends {
				ended := &exec.ExitError{}
				require.ErrorAs(t, p.cmd.Wait(), &ended, "%s", p.text(t))
				assert.Contains(t, p.text(t), "etcd was restored from a backup")
				run()
			}
			w.renders("rendered-worker-3", "debug")
			w.says("rendered-worker-3 changes 1 nodes: Reboot")
			if !tc.ends {
				assert.NotContains(t, p.text(t), "was restored")
			}
		})
	}
}
