package registry

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"dayone.dev/dayone/bootstrap/clusterregistry"
	"dayone.dev/dayone/rebase/fleet/registrystatus"
	"dayone.dev/dayone/registry/credentials"
	"dayone.dev/dayone/registry/rotation"
)

// Files of which an administrator applies one or both.
const (
	machineConfigFile = "machineconfig.yaml"
	sharedFile        = "shared-secret.yaml"
)

// nodeConfig is what the control plane's registries share, and for whom.
type nodeConfig struct {
	registry, pool, dir string
	// agent: the nodes run dayone's agent, which brings them their account.
	rotate, agent bool
}

func newNodeConfigCommand() *cobra.Command {
	var n nodeConfig
	cmd := &cobra.Command{
		Use:   "node-config --registry HOST:PORT --to DIR",
		Short: "Make what the registries of the control plane share: accounts, a CA, a MachineConfig, a push Secret",
		Long: "Node-config writes to DIR, and keeps what is there: run it again after you changed the pool or the name.\n" +
			"  machineconfig.yaml   dayone-registry.service with its accounts and CA, for the control-plane pool\n" +
			"  push-secret.yaml     for renderedImagePushSecret of MachineOSConfigs\n" +
			"  shared-secret.yaml   with --node-agent: accounts and CA, which dayone-controller gives control-plane nodes\n" +
			"  pull-auth.json       for the cluster's pull secret\n" +
			"  ca.crt               for the cluster's additionalTrustBundle\n" +
			"DIR has passwords and a private key: keep it secret.\n" +
			"With --rotate it takes the next of three steps to new passwords and a new CA: apply the files after each.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if n.rotate {
				step, err := rotation.Next(n.dir)
				if err != nil {
					return err
				}
				fmt.Fprintln(cmd.ErrOrStderr(), n.rotationText(step))
			}
			if err := n.write(); err != nil {
				return err
			}
			fmt.Fprintln(cmd.OutOrStdout(), n.dir)
			return nil
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&n.registry, "registry", "", "HOST:PORT in the names of images, as api-int.CLUSTER:22626 (required)")
	flags.StringVar(&n.pool, "pool", "master", "the control-plane pool")
	flags.StringVar(&n.dir, "to", "", "directory of the files (required)")
	flags.BoolVar(&n.agent, "node-agent", false, "the nodes run dayone's agent (cluster install --node-agent), which "+
		"brings their accounts and the CA's key: the MachineConfig, and so the image, has neither")
	flags.BoolVar(&n.rotate, "rotate", false, "take the next of three steps to new accounts and a new CA")
	_ = errors.Join(cmd.MarkFlagRequired("registry"), cmd.MarkFlagRequired("to"))
	return cmd
}

// rotationText says what an administrator does after a step.
func (n nodeConfig) rotationText(step rotation.Step) string {
	file, then := machineConfigFile, ". Then wait until all pools are Updated, and run the command again."
	if n.agent {
		file, then = sharedFile, ". Then wait until all pools are Updated and the condition "+
			registrystatus.ConditionShared+" of dayone cluster registry status is True, and run the command again."
	}
	switch step {
	case rotation.Added:
		return "Step 1 of 3: the registries are to accept the new accounts beside the old ones. Apply " + file +
			", and give ca.crt, which has both CAs, to all nodes" + then
	case rotation.Switched:
		return "Step 2 of 3: the new accounts and the new CA are to be used. Apply " + file +
			" and push-secret.yaml, and replace the account in the cluster's pull secret by that of pull-auth.json" + then
	}
	return "Step 3 of 3: the old accounts and the old CA are to go. Apply " + file + ", and give ca.crt to all nodes."
}

func (n nodeConfig) write() error {
	shared, err := clusterregistry.LoadOrCreate(n.dir, n.registry)
	if err != nil {
		return err
	}
	mc, err := shared.MachineConfig(n.pool, n.agent)
	if err != nil {
		return err
	}
	if n.agent {
		if err := n.writeObject(sharedFile, shared.Secret()); err != nil {
			return err
		}
	}
	return errors.Join(n.writeObject(machineConfigFile, mc),
		n.writeObject("push-secret.yaml", clusterregistry.Secret(clusterregistry.PushSecret, shared.PushAuth)))
}

// writeObject writes a file that others cannot read.
func (n nodeConfig) writeObject(name string, o any) error {
	raw, err := yaml.Marshal(o)
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return credentials.Write(filepath.Join(n.dir, name), raw)
}
