package render

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"

	configv1 "github.com/openshift/api/config/v1"

	"dayone.dev/dayone/manifests"
)

// Layout of a rendered directory, as machine-config-controller bootstrap leaves it and its server reads it.
const (
	ConfigsDir     = "machine-configs"
	PoolsDir       = "machine-pools"
	ControllerDir  = "controller-config"
	ControllerFile = "machine-config-controller.yaml"
	APIServerDir   = "api-server"
	APIServerFile  = "api-server.yaml"
)

// Modes of what Write creates: the configs hold the pull secret, so only the owner may read them.
const (
	dirMode  = 0o700
	fileMode = 0o600
)

// Write writes a rendering to dir: machine-configs/, machine-pools/, controller-config/ and, if the set has an
// APIServer, api-server/. All files are complete before the first becomes visible; on an error Write leaves nothing new
// behind. It replaces folders of an earlier rendering in dir whole.
func Write(dir string, set *manifests.Set, r *Result) error {
	if err := os.MkdirAll(dir, dirMode); err != nil {
		return fmt.Errorf("make destination directory: %w", err)
	}
	staging, err := os.MkdirTemp(dir, ".rendering-")
	if err != nil {
		return fmt.Errorf("make staging directory: %w", err)
	}
	defer os.RemoveAll(staging) //nolint:errcheck // what is left is hidden and harmless
	folders, err := stage(staging, set, r)
	if err != nil {
		return err
	}
	return swap(dir, staging, folders)
}

// stage writes all files under staging and returns the names of the folders.
func stage(staging string, set *manifests.Set, r *Result) ([]string, error) {
	folders := []string{ConfigsDir, PoolsDir, ControllerDir}
	files := map[string]any{}
	for i, pool := range r.Pools {
		files[filepath.Join(PoolsDir, pool.Name+".yaml")] = pool
		files[filepath.Join(ConfigsDir, r.Configs[i].Name+".yaml")] = r.Configs[i]
	}
	if r.Controller != nil {
		files[filepath.Join(ControllerDir, ControllerFile)] = r.Controller
	}
	if server, ok := apiServer(set); ok {
		folders = append(folders, APIServerDir)
		files[filepath.Join(APIServerDir, APIServerFile)] = server.Object
	}
	for _, folder := range folders {
		if err := os.Mkdir(filepath.Join(staging, folder), dirMode); err != nil {
			return nil, fmt.Errorf("make folder: %w", err)
		}
	}
	for name, object := range files {
		raw, err := manifests.Marshal(object)
		if err != nil {
			return nil, err
		}
		if err := os.WriteFile(filepath.Join(staging, name), raw, fileMode); err != nil {
			return nil, fmt.Errorf("write rendered object: %w", err)
		}
	}
	return folders, nil
}

// apiServer is the last APIServer named cluster, if there is one.
func apiServer(set *manifests.Set) (manifests.Item[*configv1.APIServer], bool) {
	var found manifests.Item[*configv1.APIServer]
	for _, a := range set.APIServers {
		if a.Object.Name == "cluster" {
			found = a
		}
	}
	return found, found.Object != nil
}

// swap moves each staged folder into place; what was there before goes into the staging directory, and back if a move
// fails.
func swap(dir, staging string, folders []string) error {
	var undo []func()
	for _, folder := range folders {
		target, old := filepath.Join(dir, folder), filepath.Join(staging, folder+".old")
		if err := os.Rename(target, old); err == nil {
			undo = append(undo, func() { _ = os.Rename(old, target) })
		} else if !os.IsNotExist(err) {
			rollBack(undo)
			return fmt.Errorf("set old folder aside: %w", err)
		}
		fresh := filepath.Join(staging, folder)
		if err := os.Rename(fresh, target); err != nil {
			rollBack(undo)
			return fmt.Errorf("move rendered folder into place: %w", err)
		}
		undo = append(undo, func() { _ = os.Rename(target, fresh) })
	}
	return nil
}

func rollBack(undo []func()) {
	for _, revert := range slices.Backward(undo) {
		revert()
	}
}
