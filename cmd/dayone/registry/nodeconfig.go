package registry

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"

	ign35 "github.com/coreos/ignition/v2/config/v3_5/types"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/assets"
	"dayone.dev/dayone/manifests/assets/cluster"
	"dayone.dev/dayone/manifests/machineconfig"
	"dayone.dev/dayone/registry"
	"dayone.dev/dayone/registry/certs"
	"dayone.dev/dayone/registry/credentials"
)

const (
	// nodeConfigDir is where dayone-registry has what the control plane's registries share.
	nodeConfigDir = "/etc/dayone/registry"
	pushSecret    = "dayone-registry-push"
)

// nodeConfig is what the control plane's registries share, and for whom.
type nodeConfig struct{ registry, pool, dir string }

func newNodeConfigCommand() *cobra.Command {
	var n nodeConfig
	cmd := &cobra.Command{
		Use:   "node-config --registry HOST:PORT --to DIR",
		Short: "Make what the registries of the control plane share: accounts, a CA, a MachineConfig, a push Secret",
		Long: "Node-config writes to DIR, and keeps what is there: run it again after you changed the pool or the name.\n" +
			"  machineconfig.yaml   dayone-registry.service with its accounts and CA, for the control-plane pool\n" +
			"  push-secret.yaml     for renderedImagePushSecret of MachineOSConfigs\n" +
			"  pull-auth.json       for the cluster's pull secret\n" +
			"  ca.crt               for the cluster's additionalTrustBundle\n" +
			"DIR has passwords and a private key: keep it secret.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
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
	_ = errors.Join(cmd.MarkFlagRequired("registry"), cmd.MarkFlagRequired("to"))
	return cmd
}

func (n nodeConfig) write() error {
	host, port, err := net.SplitHostPort(n.registry)
	if number, portErr := strconv.ParseUint(port, 10, 16); err != nil || host == "" || portErr != nil || number == 0 {
		return fmt.Errorf("--registry %q: give HOST:PORT as names of images have it", n.registry)
	}
	if err := os.MkdirAll(n.dir, 0o700); err != nil {
		return fmt.Errorf("make directory: %w", err)
	}
	if _, err := registry.LoadOrCreateUsers(n.dir, n.registry); err != nil {
		return err
	}
	if _, err := certs.LoadOrCreateCA(n.dir, certs.CAOptions{CommonName: "dayone registry CA of " + host}); err != nil {
		return err
	}
	mc, err := n.machineConfig(host, port)
	if err != nil {
		return err
	}
	push, err := os.ReadFile(filepath.Join(n.dir, registry.PushAuthFile))
	if err != nil {
		return fmt.Errorf("read push account: %w", err)
	}
	secret := &corev1.Secret{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: metav1.ObjectMeta{Name: pushSecret, Namespace: cluster.DefaultNamespace},
		Type:       corev1.SecretTypeDockerConfigJson, Data: map[string][]byte{corev1.DockerConfigJsonKey: push}}
	return errors.Join(n.writeObject("machineconfig.yaml", mc), n.writeObject("push-secret.yaml", secret))
}

// machineConfig is the unit and its files. The push account's password stays out: nodes get the hash.
func (n nodeConfig) machineConfig(host, port string) (*mcfgv1.MachineConfig, error) {
	unit, err := assets.RegistryUnit()
	if err != nil {
		return nil, err
	}
	on := true
	config := ign35.Config{Ignition: ign35.Ignition{Version: ign35.MaxVersion.String()},
		Systemd: ign35.Systemd{Units: []ign35.Unit{{Name: assets.RegistryUnitName, Contents: &unit, Enabled: &on}}}}
	add := func(path string, mode int, content []byte) {
		config.Storage.Files = append(config.Storage.Files, ign35.File{Node: ign35.Node{Path: path, Overwrite: &on},
			FileEmbedded1: ign35.FileEmbedded1{Mode: &mode, Contents: machineconfig.Inline(content)}})
	}
	add("/etc/dayone/registry.env", 0o644,
		[]byte("DAYONE_REGISTRY_OPTIONS=--listen=:"+port+" --host="+host+"\n"))
	for _, name := range []string{registry.UsersFile, registry.PullAuthFile, certs.CACertFile, certs.CAKeyFile} {
		content, err := os.ReadFile(filepath.Join(n.dir, name))
		if err != nil {
			return nil, fmt.Errorf("read what registries share: %w", err)
		}
		add(nodeConfigDir+"/"+name, 0o600, content)
	}
	raw, err := machineconfig.Encode(config)
	if err != nil {
		return nil, fmt.Errorf("write MachineConfig: %w", err)
	}
	return &mcfgv1.MachineConfig{
		TypeMeta: metav1.TypeMeta{APIVersion: mcfgv1.GroupVersion.String(), Kind: "MachineConfig"},
		ObjectMeta: metav1.ObjectMeta{Name: "99-" + n.pool + "-dayone-registry",
			Labels: map[string]string{manifests.LabelRole: n.pool}},
		Spec: mcfgv1.MachineConfigSpec{Config: runtime.RawExtension{Raw: raw}}}, nil
}

// writeObject writes a file that others cannot read.
func (n nodeConfig) writeObject(name string, o any) error {
	raw, err := yaml.Marshal(o)
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return credentials.Write(filepath.Join(n.dir, name), raw)
}
