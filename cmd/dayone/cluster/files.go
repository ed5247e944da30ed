package cluster

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"dayone.dev/dayone/build/job"
	"dayone.dev/dayone/cmd/internal/cli"
	"dayone.dev/dayone/manifests/assets"
)

// newFile is the group of files that an administrator applies by hand: install does not, for most clusters need none.
func newFile() *cobra.Command {
	return cli.NewGroup("file", "Print a file for nodes or clusters that need more than install applies",
		printed("seccomp-profile", "Print the seccomp profile for build pods",
			"Seccomp-profile prints the profile for build pods on nodes that set one for all pods. It belongs to each node "+
				"as /var/lib/kubelet/seccomp/"+job.SeccompFile+"; the builder then needs "+
				"--builder-arg=--build-seccomp-profile="+job.SeccompFile+" at install. It is for little-endian machines.",
			func() (string, error) { return string(job.SeccompProfile()), nil }),
		printed("kubelet-agent-rights", "Print the rights of node agents that use their kubelet's credential",
			"Kubelet-agent-rights prints the ClusterRole and its binding for node agents that run as a systemd service with "+
				"their kubelet's kubeconfig instead of in the DaemonSet. Pipe it to kubectl apply -f -. Every kubelet can then "+
				"read every pool's rendered configs.",
			assets.AgentKubeletRights),
		printed("agent-unit", "Print the systemd unit of a node agent",
			"Agent-unit prints "+assets.AgentUnitName+" for nodes on which no DaemonSet runs the agent.", assets.AgentUnit))
}

func printed(name, short, long string, text func() (string, error)) *cobra.Command {
	return &cobra.Command{Use: name, Short: short, Long: long, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			t, err := text()
			if err != nil {
				return err
			}
			if _, err := io.WriteString(cmd.OutOrStdout(), t); err != nil {
				return fmt.Errorf("print %s: %w", name, err)
			}
			return nil
		}}
}
