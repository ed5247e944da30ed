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
// and says why, also when its watches began anew meanwhile. When it is started anew, as a kubelet does, it follows what
// comes then. Where they are bumped, as Kubernetes advises, it goes on by itself.
func TestRestoreOfEtcd(t *testing.T) {
	for _, tc := range []struct {
		name string
		args []string
		// readsAnew says that a gateway's 502 makes the program's clients read all anew. Without it their watches go on.
		readsAnew, ends bool
	}{
		{"revisions begin again", nil, false, true},
		{"revisions begin again and all is read anew", nil, true, true},
		{"revisions are bumped", []string{"--bump-revision", "1000000000", "--mark-compacted"}, false, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newAdvisedWorld(t)
			access := kubeconfig(t, w.advisor())
			if tc.readsAnew {
				access = newGateway(t, w.advisor()).access
			}
			run := func() *copyOfProgram {
				return start(t, "--mode", string(cluster.Advisor), "--namespace", cluster.AdvisorNamespace, "--kubeconfig",
					access, "--lease-duration", "30s") // a lease that a busy machine keeps
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
				require.ErrorAs(t, p.wait(t), &ended)
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
