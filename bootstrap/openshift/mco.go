package openshift

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/google/renameio/v2"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	corev1 "k8s.io/api/core/v1"

	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/render"
	"dayone.dev/dayone/registry/credentials"
)

// rendered is a pool with its rendered config, also as it stands there, in a directory of MCO's layout.
func rendered(dir, pool string) (*mcfgv1.MachineConfig, *mcfgv1.MachineConfigPool, []byte, error) {
	pools, _, err := readSet(filepath.Join(dir, render.PoolsDir, pool+".yaml"))
	if err != nil {
		return nil, nil, nil, fmt.Errorf("pool %s is not rendered: %w", pool, err)
	}
	if len(pools.Pools) != 1 || pools.Pools[0].Object.Status.Configuration.Name == "" {
		return nil, nil, nil, fmt.Errorf("pool %s is not rendered: its file names no config", pool)
	}
	name := pools.Pools[0].Object.Status.Configuration.Name
	set, raw, err := readSet(filepath.Join(dir, render.ConfigsDir, name+".yaml"))
	if err != nil {
		return nil, nil, nil, fmt.Errorf("pool %s: read rendered config %s: %w", pool, name, err)
	}
	if len(set.MachineConfigs) != 1 {
		return nil, nil, nil, fmt.Errorf("pool %s: %s holds no MachineConfig", pool, name)
	}
	return set.MachineConfigs[0].Object, pools.Pools[0].Object, raw, nil
}

func readSet(file string) (*manifests.Set, []byte, error) {
	raw, err := os.ReadFile(file)
	if err != nil {
		return nil, nil, err
	}
	set, err := manifests.Read(raw, filepath.Base(file), manifests.ReadOptions{})
	return set, raw, err
}

// publish copies a proved rendering to where the config server reads: each config before the pool that names it, each
// file in one step. They hold the nodes' pull secret: the config server, which runs as root, is their only reader.
func publish(from, to string, configs map[string]string) error {
	for pool, config := range configs {
		for _, name := range []string{filepath.Join(render.ConfigsDir, config+".yaml"),
			filepath.Join(render.PoolsDir, pool+".yaml")} {
			raw, err := os.ReadFile(filepath.Join(from, name))
			if err != nil {
				return fmt.Errorf("publish the second rendering: %w", err)
			}
			if err := renameio.WriteFile(filepath.Join(to, name), raw, 0o600); err != nil {
				return fmt.Errorf("publish the second rendering: %w", err)
			}
		}
	}
	return nil
}

// setAside moves MachineOSConfigs without an image out of MCO's manifests: with one of them its controller refuses to
// render at all, and no node ever gets a config. dayone puts back those that it builds an image for.
func setAside(f flow) error {
	entries, err := os.ReadDir(f.at(mccDir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("list MCO's manifests: %w", err)
	}
	for _, e := range entries {
		file := filepath.Join(f.at(mccDir), e.Name())
		raw, err := os.ReadFile(file)
		if err != nil || !strings.Contains(string(raw), "MachineOSConfig") {
			continue // a directory, or a file that was there a moment ago
		}
		set, err := manifests.Read(raw, e.Name(), manifests.ReadOptions{})
		if err != nil || !slices.ContainsFunc(set.MachineOSConfigs, unbuilt) {
			continue // MCO says itself what it cannot read
		}
		if len(set.MachineOSConfigs) != 1 || objects(set) != 1 || len(set.Skipped) > 0 {
			return fmt.Errorf(
				"%s has a MachineOSConfig without an image beside other objects, which keeps MCO from rendering: take it "+
					"out of that file", file)
		}
		if err := os.MkdirAll(f.Path("set-aside"), 0o700); err != nil {
			return fmt.Errorf("set %s aside: %w", file, err)
		}
		if err := renameio.WriteFile(f.Path("set-aside", e.Name()), raw, 0o600); err != nil {
			return fmt.Errorf("set %s aside: %w", file, err)
		}
		if err := os.Remove(file); err != nil {
			return fmt.Errorf("set %s aside: %w", file, err)
		}
		text := fmt.Sprintf("%s: a MachineOSConfig without an image keeps MCO from rendering; it is set aside in %s", file,
			f.Path("set-aside"))
		f.Log.Warn(text)
		f.records.note("mosc-set-aside", text)
	}
	return nil
}

func unbuilt(m manifests.Item[*mcfgv1.MachineOSConfig]) bool {
	return m.Object.Annotations[manifests.AnnotationPreBuiltImage] == "" &&
		m.Object.Annotations[manifests.AnnotationCurrentBuild] == ""
}

// objects counts what a file holds beside kinds that are not read.
func objects(s *manifests.Set) int {
	return len(s.MachineConfigs) + len(s.Pools) + len(s.MachineOSConfigs) + len(s.ControllerConfigs) +
		len(s.KubeletConfigs) +
		len(s.ContainerRuntimeConfigs) + len(s.FeatureGates) + len(s.ICSPs) + len(s.IDMSs) + len(s.ITMSs) + len(s.Images) +
		len(s.OSImageStreams) + len(s.PinnedImageSets) + len(s.APIServers) + len(s.Secrets) + len(s.ConfigMaps) +
		len(s.ClusterImagePolicies)
}

// originalPullSecret keeps MCO's pull secret as the installer made it, in the state directory.
const originalPullSecret = "pull-secret.orig"

// mergePullSecret adds pull credentials to the secret from which nodes get theirs. A
// MachineConfig with that file would hide every later change of the cluster's pull secret.
func mergePullSecret(o Options, auth []byte) error {
	file := filepath.Join(o.at(mccDir), mccPullSecret)
	set, raw, err := readSet(file)
	if err != nil {
		return fmt.Errorf("read MCO's pull secret: %w", err)
	}
	if len(set.Secrets) != 1 || set.Secrets[0].Object.Type != corev1.SecretTypeDockerConfigJson {
		return fmt.Errorf("read MCO's pull secret: %s is no Secret of type %s", file, corev1.SecretTypeDockerConfigJson)
	}
	secret := set.Secrets[0].Object
	merged, err := credentials.Merge(secret.Data[corev1.DockerConfigJsonKey], auth)
	if err != nil {
		return err
	}
	if _, err := os.Stat(o.Path(originalPullSecret)); errors.Is(err, fs.ErrNotExist) {
		if err := renameio.WriteFile(o.Path(originalPullSecret), raw, 0o600); err != nil {
			return fmt.Errorf("keep MCO's pull secret: %w", err)
		}
	}
	var compact json.RawMessage = merged
	if one, err := json.Marshal(compact); err == nil {
		merged = one
	}
	secret.Data[corev1.DockerConfigJsonKey] = merged
	out, err := manifests.Marshal(secret)
	if err != nil {
		return err
	}
	return writePullSecret(o, out)
}

// writePullSecret replaces the content of MCO's pull secret file and lets only root read it. MCO's controller runs as
// root, and no other program needs the file.
func writePullSecret(o Options, content []byte) error {
	file := filepath.Join(o.at(mccDir), mccPullSecret)
	err := os.Chmod(file, 0o600) // the file that replaces it has the same mode
	if err == nil {
		err = renameio.WriteFile(file, content, 0o600)
	}
	if err != nil {
		return fmt.Errorf("write MCO's pull secret: %w", err)
	}
	return nil
}
