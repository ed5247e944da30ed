package buildahengine

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/containers/buildah/define"
	nettypes "github.com/containers/common/libnetwork/types"
	"github.com/containers/image/v5/types"
	"github.com/containers/storage"
	"golang.org/x/sys/unix"
)

// noNetwork stands in for the program that sets up networks of containers: builds use the host's or none, and without
// it buildah looks for netavark and fails where there is none.
type noNetwork struct{ nettypes.ContainerNetwork }

func (noNetwork) DefaultNetworkName() string        { return "none" }
func (noNetwork) NetworkInfo() nettypes.NetworkInfo { return nettypes.NetworkInfo{} }

func (w *worker) configPath(name string) string { return filepath.Join(w.order.Run, "etc", name) }

// prepare writes the configuration that containers' libraries would else take from /etc and the home directory.
func (w *worker) prepare() error {
	dirs := []string{w.configPath(""), w.configPath("certs.d"), w.configPath("registries.d"),
		w.configPath("registries.conf.d"),
		filepath.Join(w.order.Run, "tmp"), filepath.Join(w.order.Run, "home"), temporary(w.order.Root),
		filepath.Join(w.order.Root, "blob-info")}
	for _, dir := range dirs {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return fmt.Errorf("make %s: %w", dir, err)
		}
	}
	registries := []byte("unqualified-search-registries = []\n")
	if job := w.order.Job; job != nil && job.Options.RegistriesConf != "" {
		raw, err := os.ReadFile(job.Options.RegistriesConf)
		if err != nil {
			return fmt.Errorf("read mirrors: %w", err)
		}
		registries = raw
	}
	auth := []byte(`{"auths":{}}`)
	if job := w.order.Job; job != nil && job.Registry.AuthFile != "" {
		raw, err := os.ReadFile(job.Registry.AuthFile)
		if err != nil {
			return fmt.Errorf("read registry credentials: %w", err)
		}
		auth = raw
	}
	files := map[string][]byte{
		// images are named by digest; who signs is the registry's matter
		"policy.json":     []byte(`{"default":[{"type":"insecureAcceptAnything"}]}`),
		"registries.conf": registries, "containers.conf": []byte("[engine]\n[network]\n[containers]\n"),
		// Without it signatures are looked for in a directory of the host's, which a builder in a user namespace may not even
		// enter.
		"registries.d/default.yaml": []byte("default-docker:\n  lookaside: file://" + w.configPath("signatures") + "\n"),
		"storage.conf":              []byte("[storage]\ndriver=\"" + w.order.Driver + "\"\n"), "auth.json": auth,
	}
	for name, content := range files {
		if err := os.WriteFile(w.configPath(name), content, 0o600); err != nil {
			return fmt.Errorf("write %s: %w", name, err)
		}
	}
	if job := w.order.Job; job != nil && job.Registry.CAFile != "" {
		return copyFile(job.Registry.CAFile, w.configPath("ca/ca.crt"))
	}
	return nil
}

func copyFile(from, to string) error {
	raw, err := os.ReadFile(from)
	if err != nil {
		return fmt.Errorf("read %s: %w", from, err)
	}
	if err := errors.Join(os.MkdirAll(filepath.Dir(to), 0o700), os.WriteFile(to, raw, 0o600)); err != nil {
		return fmt.Errorf("write %s: %w", to, err)
	}
	return nil
}

func (w *worker) system() *types.SystemContext {
	c := &types.SystemContext{
		AuthFilePath:                w.configPath("auth.json"),
		SignaturePolicyPath:         w.configPath("policy.json"),
		SystemRegistriesConfPath:    w.configPath("registries.conf"),
		SystemRegistriesConfDirPath: w.configPath("registries.conf.d"),
		UserShortNameAliasConfPath:  w.configPath("short-names.conf"),
		RegistriesDirPath:           w.configPath("registries.d"),
		DockerPerHostCertDirPath:    w.configPath("certs.d"),
		// It must live as long as the storage: without it the base's layers are packed again and get other digests.
		BlobInfoCacheDir:        filepath.Join(w.order.Root, "blob-info"),
		BigFilesTemporaryDir:    filepath.Join(w.order.Run, "tmp"),
		DockerRegistryUserAgent: "dayone",
	}
	if job := w.order.Job; job != nil {
		if job.Registry.CAFile != "" {
			c.DockerCertPath = w.configPath("ca")
		}
		if p := job.Platform; p != "" {
			c.OSChoice, c.ArchitectureChoice = splitPlatform(p)
		}
	}
	return c
}

// open makes the store ready. Mount counts belong to this namespace, so the run directory is this build's own.
func (w *worker) open() error {
	if err := w.prepare(); err != nil {
		return err
	}
	store, err := storage.GetStore(storage.StoreOptions{
		RunRoot: filepath.Join(w.order.Run, "containers"), GraphRoot: filepath.Join(w.order.Root, "storage-"+w.order.Driver),
		GraphDriverName: w.order.Driver,
	})
	if err != nil {
		return fmt.Errorf("open storage: %w", err)
	}
	w.store = store
	return nil
}

// recover removes what a killed build left: its containers with their mounts and layers, and other builds' run
// directories. The parent holds the lock alone meanwhile.
func (w *worker) recover() error {
	containers, err := w.store.Containers()
	if err != nil {
		return fmt.Errorf("list containers: %w", err)
	}
	for _, c := range containers {
		for {
			// Its mount went with the namespace it was made in; only the count may be left.
			if n, err := w.store.Mounted(c.LayerID); err != nil || n == 0 {
				break
			}
			if _, err := w.store.Unmount(c.ID, true); err != nil {
				break
			}
		}
		if err := w.store.DeleteContainer(c.ID); err != nil {
			return fmt.Errorf("remove container of a build that was killed: %w", err)
		}
	}
	return errors.Join(
		clear(filepath.Dir(w.order.Run), filepath.Base(w.order.Run)),
		clear(temporary(w.order.Root), cachePrefix),
	)
}

// cachePrefix begins the directories in which buildah keeps RUN --mount=type=cache between builds.
const cachePrefix = "buildah-cache"

// temporary is TMPDIR of the child.
func temporary(root string) string { return filepath.Join(root, "tmp") }

// clear removes what is in dir but for names that begin with keep.
func clear(dir, keep string) error {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("list %s: %w", dir, err)
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), keep) {
			continue
		}
		if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
			return fmt.Errorf("remove what a killed build left: %w", err)
		}
	}
	return nil
}

func splitPlatform(p string) (system, architecture string) {
	system, architecture, _ = strings.Cut(p, "/")
	return system, architecture
}

// contexts are the images that FROM and --from may name, by digest.
func (w *worker) contexts() map[string]*define.AdditionalBuildContext {
	out := map[string]*define.AdditionalBuildContext{}
	for name, image := range w.order.Job.Contexts {
		out[name] = &define.AdditionalBuildContext{IsImage: true, Value: "docker://" + image.Reference}
	}
	return out
}

// mountOptions: read only, and what the host mounts later does not show.
const mountOptions = ":ro"

func (w *worker) common() *define.CommonBuildOptions {
	job := w.order.Job
	common := &define.CommonBuildOptions{IdentityLabel: types.OptionalBoolFalse, Ulimit: ownLimits(),
		CgroupParent: w.order.Group,
		HTTPProxy:    len(job.Options.ProxyEnvironment) > 0} // RUN gets this process's, and neither image nor history do
	for _, m := range job.Options.Mounts {
		common.Volumes = append(common.Volumes, m.Source+":"+m.Target+mountOptions)
	}
	for _, s := range job.Options.Secrets {
		common.Secrets = append(common.Secrets, "id="+s.ID+",src="+s.File)
	}
	return common
}

// ownLimits keeps RUN at this process's own limits; buildah's defaults are above what root without CAP_SYS_RESOURCE may
// set.
func ownLimits() []string {
	var out []string
	for _, limit := range []struct {
		name     string
		resource int
	}{{"nofile", unix.RLIMIT_NOFILE}, {"nproc", unix.RLIMIT_NPROC}} {
		var l unix.Rlimit
		if unix.Getrlimit(limit.resource, &l) != nil {
			continue
		}
		hard := min(l.Max, 1<<20) // buildah's own ceiling
		out = append(out, fmt.Sprintf("%s=%d:%d", limit.name, hard, hard))
	}
	return out
}
