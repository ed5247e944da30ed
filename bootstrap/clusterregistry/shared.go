package clusterregistry

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"

	ign35 "github.com/coreos/ignition/v2/config/v3_5/types"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/assets"
	"dayone.dev/dayone/manifests/assets/cluster"
	"dayone.dev/dayone/manifests/machineconfig"
	"dayone.dev/dayone/registry"
	"dayone.dev/dayone/registry/certs"
	"dayone.dev/dayone/registry/credentials"
	"dayone.dev/dayone/registry/poolaccounts"
	"dayone.dev/dayone/registry/wanted"
)

const (
	// PushSecret and PullSecret are the names of the Secrets for renderedImagePushSecret and baseImagePullSecret.
	PushSecret = cluster.RegistryPush
	PullSecret = "dayone-registry-pull"
	// Fetched is where Ignition puts the program on the first boot, beside the node agent. One that the node's image
	// brings to /usr/bin counts before it.
	Fetched = "/usr/local/bin/dayone-registry"

	// nodeDir is where dayone-registry has what the control plane's registries share.
	nodeDir = "/etc/dayone/registry"
)

// Shared is what the control plane's registries share.
type Shared struct {
	// Registry is HOST:PORT in the names of images.
	Registry string
	// CA is PEM of the authority that signs their certificates.
	CA []byte
	// PushAuth and PullAuth are the accounts for Registry in auth.json form.
	PushAuth, PullAuth []byte

	// files are what a node has, by name.
	files map[string][]byte
}

// LoadOrCreate reads what a directory has, and makes what it lacks. The directory has passwords and a private key.
func LoadOrCreate(dir, name string) (*Shared, error) {
	host, _, err := split(name)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make directory: %w", err)
	}
	if _, err := registry.LoadOrCreateUsers(dir, name); err != nil {
		return nil, err
	}
	if err := registry.RenameAuthFiles(dir, name); err != nil { // the name may be another than the last time
		return nil, err
	}
	if _, err := certs.LoadOrCreateCA(dir, certs.CAOptions{CommonName: "dayone registry CA of " + host}); err != nil {
		return nil, err
	}
	return Load(dir, name)
}

// Load reads what LoadOrCreate has made; a directory without it is fs.ErrNotExist.
func Load(dir, name string) (*Shared, error) {
	s := &Shared{Registry: name, files: map[string][]byte{}}
	for _, file := range []string{registry.UsersFile, registry.PullAuthFile, registry.PushAuthFile, certs.CACertFile,
		certs.CAKeyFile} {
		content, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil {
			return nil, fmt.Errorf("read what registries share: %w", err)
		}
		s.files[file] = content
	}
	s.CA, s.PushAuth, s.PullAuth = s.files[certs.CACertFile], s.files[registry.PushAuthFile],
		s.files[registry.PullAuthFile]
	delete(s.files, registry.PushAuthFile) // nodes get the password's hash
	return s, nil
}

// Users are the accounts with their passwords, for a registry that stands for the nodes' until these run.
func (s *Shared) Users() (push, pull registry.User, err error) {
	if push, err = account(s.PushAuth, s.Registry, registry.RolePush); err == nil {
		pull, err = account(s.PullAuth, s.Registry, registry.RolePull)
	}
	return push, pull, err
}

func account(auth []byte, name string, role registry.Role) (registry.User, error) {
	accounts, err := credentials.Parse(auth)
	if err != nil {
		return registry.User{}, fmt.Errorf("read what registries share: %w", err)
	}
	a, found, err := accounts.Find(name)
	if err == nil && !found {
		err = errors.New("there is no account for " + name)
	}
	if err != nil {
		return registry.User{}, fmt.Errorf("read what registries share: %w", err)
	}
	return registry.User{Name: a.Username, Password: a.Password, Role: role}, nil
}

// Files are what Load reads, by name, for another host's directory.
func (s *Shared) Files() map[string][]byte {
	files := maps.Clone(s.files)
	files[registry.PushAuthFile] = s.PushAuth
	return files
}

// split gives the parts of HOST:PORT.
func split(name string) (host, port string, err error) {
	host, port, err = net.SplitHostPort(name)
	if number, portErr := strconv.ParseUint(port, 10, 16); err != nil || host == "" || portErr != nil || number == 0 {
		return "", "", fmt.Errorf("registry %q: give HOST:PORT as names of images have it", name)
	}
	return host, port, nil
}

// MachineConfig brings a pool's nodes the unit of dayone-registry with its files. With agents the nodes run dayone's
// agent, which brings what is secret: then it has no account and no key. What it has is in the pool's image, and who
// reads rendered configs reads it.
func (s *Shared) MachineConfig(pool string, agents bool) (*mcfgv1.MachineConfig, error) {
	host, port, err := split(s.Registry)
	if err != nil {
		return nil, err
	}
	unit, err := assets.RegistryUnit()
	if err != nil {
		return nil, err
	}
	on := true
	config := ign35.Config{Ignition: ign35.Ignition{Version: ign35.MaxVersion.String()},
		Systemd: ign35.Systemd{Units: []ign35.Unit{{Name: assets.RegistryUnitName, Contents: &unit, Enabled: &on}}}}
	names := []string{registry.UsersFile, registry.PullAuthFile, certs.CACertFile, certs.CAKeyFile}
	if agents { // the unit wants the directory: with another unit a cluster that runs would have to reboot
		names = []string{certs.CACertFile}
	}
	config.Storage.Files = append(config.Storage.Files, file("/etc/dayone/registry.env", 0o644,
		[]byte("DAYONE_REGISTRY_OPTIONS=--listen=:"+port+" --host="+host+"\n")))
	for _, name := range names {
		config.Storage.Files = append(config.Storage.Files, file(nodeDir+"/"+name, 0o600, s.files[name]))
	}
	return component("99-"+pool+"-dayone-registry", pool, config)
}

// NodeFiles are what a control-plane node with an agent begins with, beside its config: in no MachineConfig.
func (s *Shared) NodeFiles() []ign35.File {
	var out []ign35.File
	data := s.data()
	for _, name := range slices.Sorted(maps.Keys(data)) {
		out = append(out, file(path.Join(wanted.Dir, name), 0o600, data[name]))
	}
	return out
}

// Secret is from where the controller gives it to control-plane nodes that come later.
func (s *Shared) Secret() *corev1.Secret {
	out := Secret(cluster.RegistryShared, nil)
	out.Type, out.Data = corev1.SecretTypeOpaque, s.data()
	return out
}

func (s *Shared) data() map[string][]byte {
	return map[string][]byte{poolaccounts.SharedUsers: s.files[registry.UsersFile],
		poolaccounts.SharedCA: slices.Concat(bytes.TrimSpace(s.CA), []byte("\n"), s.files[certs.CAKeyFile])}
}

func file(path string, mode int, content []byte) ign35.File {
	on := true
	return ign35.File{Node: ign35.Node{Path: path, Overwrite: &on},
		FileEmbedded1: ign35.FileEmbedded1{Mode: &mode, Contents: machineconfig.Inline(content)}}
}

// CAConfig lets a pool's nodes trust the registries when no agent of dayone's is on them to say so. The file is
// world-readable: rpm-ostree's fetcher runs without privileges.
func (s *Shared) CAConfig(pool string) (*mcfgv1.MachineConfig, error) {
	config := ign35.Config{Ignition: ign35.Ignition{Version: ign35.MaxVersion.String()}}
	config.Storage.Files = []ign35.File{file("/etc/containers/certs.d/"+s.Registry+"/ca.crt", 0o644, s.CA)}
	return component("99-"+pool+"-dayone-registry-ca", pool, config)
}

// component is a MachineConfig of a pool.
func component(name, pool string, config ign35.Config) (*mcfgv1.MachineConfig, error) {
	raw, err := machineconfig.Encode(config)
	if err != nil {
		return nil, fmt.Errorf("write MachineConfig: %w", err)
	}
	return &mcfgv1.MachineConfig{
		TypeMeta: metav1.TypeMeta{APIVersion: mcfgv1.GroupVersion.String(), Kind: "MachineConfig"},
		ObjectMeta: metav1.ObjectMeta{Name: name,
			Labels: map[string]string{manifests.LabelRole: pool}},
		Spec: mcfgv1.MachineConfigSpec{Config: runtime.RawExtension{Raw: raw}}}, nil
}

// Secret has credentials in auth.json form, for builds in the cluster.
func Secret(name string, auth []byte) *corev1.Secret {
	return &corev1.Secret{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: cluster.DefaultNamespace},
		Type:       corev1.SecretTypeDockerConfigJson, Data: map[string][]byte{corev1.DockerConfigJsonKey: auth}}
}
