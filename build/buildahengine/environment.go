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

// etc is a file or directory of the configuration that the libraries read instead of /etc.
func (o order) etc(name string) string { return filepath.Join(o.Run, "etc", name) }

// configure writes the configuration that the libraries would otherwise read from /etc and the home directory.
func configure(o order) error {
	for _, dir := range []string{o.etc("certs.d"), o.etc("registries.d"), o.etc("registries.conf.d"),
		filepath.Join(o.Run, "tmp"), filepath.Join(o.Run, "home"), temporary(o.Root), blobInfo(o.Root)} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return fmt.Errorf("make %s: %w", dir, err)
		}
	}
	files := map[string][]byte{
		// Images are named by digest; signatures are the registry's matter.
		"policy.json":     []byte(`{"default":[{"type":"insecureAcceptAnything"}]}`),
		"registries.conf": []byte("unqualified-search-registries = []\n"),
		"containers.conf": []byte("[engine]\n[network]\n[containers]\n"),
		// Without it the library looks for signatures in a directory of the host's, which a builder in a user namespace may
		// not even enter.
		"registries.d/default.yaml": []byte("default-docker:\n  lookaside: file://" + o.etc("signatures") + "\n"),
		"storage.conf":              []byte("[storage]\ndriver=\"" + o.Driver + "\"\n"),
		"auth.json":                 []byte(`{"auths":{}}`),
	}
	if o.Job != nil {
		for name, from := range map[string]string{"registries.conf": o.Job.Options.RegistriesConf,
			"auth.json": o.Job.Registry.AuthFile, "ca/ca.crt": o.Job.Registry.CAFile} {
			if from == "" {
				continue
			}
			raw, err := os.ReadFile(from)
			if err != nil {
				return fmt.Errorf("read %s: %w", name, err)
			}
			files[name] = raw
		}
	}
	for name, content := range files {
		if err := errors.Join(os.MkdirAll(filepath.Dir(o.etc(name)), 0o700),
			os.WriteFile(o.etc(name), content, 0o600)); err != nil {
			return fmt.Errorf("write %s: %w", name, err)
		}
	}
	return nil
}

// blobInfo must live as long as the storage: without it the base's layers are packed again and get other digests.
func blobInfo(root string) string { return filepath.Join(root, "blob-info") }

func systemContext(o order) *types.SystemContext {
	c := &types.SystemContext{
		AuthFilePath:                o.etc("auth.json"),
		SignaturePolicyPath:         o.etc("policy.json"),
		SystemRegistriesConfPath:    o.etc("registries.conf"),
		SystemRegistriesConfDirPath: o.etc("registries.conf.d"),
		UserShortNameAliasConfPath:  o.etc("short-names.conf"),
		RegistriesDirPath:           o.etc("registries.d"),
		DockerPerHostCertDirPath:    o.etc("certs.d"),
		BlobInfoCacheDir:            blobInfo(o.Root),
		BigFilesTemporaryDir:        filepath.Join(o.Run, "tmp"),
		DockerRegistryUserAgent:     "dayone",
	}
	if o.Job != nil {
		if o.Job.Registry.CAFile != "" {
			c.DockerCertPath = o.etc("ca")
		}
		c.OSChoice, c.ArchitectureChoice, _ = strings.Cut(o.Job.Platform, "/")
	}
	return c
}

// openStore makes the store ready. Mount counts belong to this namespace, so the run directory is this build's own.
func openStore(o order) (storage.Store, error) {
	store, err := storage.GetStore(storage.StoreOptions{RunRoot: filepath.Join(o.Run, "containers"),
		GraphRoot: filepath.Join(o.Root, "storage-"+o.Driver), GraphDriverName: o.Driver})
	if err != nil {
		return nil, fmt.Errorf("open storage: %w", err)
	}
	return store, nil
}

// recoverStore removes what a killed build left: its containers with their mounts and layers, and other builds' run
// directories. The parent holds the lock alone meanwhile.
func recoverStore(store storage.Store, o order) error {
	containers, err := store.Containers()
	if err != nil {
		return fmt.Errorf("list containers: %w", err)
	}
	for _, c := range containers {
		for {
			// Its mount went with the namespace it was made in; only the count may be left.
			if n, err := store.Mounted(c.LayerID); err != nil || n == 0 {
				break
			}
			if _, err := store.Unmount(c.ID, true); err != nil {
				break
			}
		}
		if err := store.DeleteContainer(c.ID); err != nil {
			return fmt.Errorf("remove container of a build that was killed: %w", err)
		}
	}
	return errors.Join(clear(filepath.Dir(o.Run), filepath.Base(o.Run)), clear(temporary(o.Root), cachePrefix))
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

// commonOptions are what RUN gets beside the Containerfile.
func commonOptions(o order) *define.CommonBuildOptions {
	common := &define.CommonBuildOptions{IdentityLabel: types.OptionalBoolFalse, Ulimit: ownLimits(),
		CgroupParent: o.Group,
		// RUN gets this process's proxies, and neither image nor history do.
		HTTPProxy: len(o.Job.Options.ProxyEnvironment) > 0}
	for _, m := range o.Job.Options.Mounts { // read only; what the host mounts later does not show
		common.Volumes = append(common.Volumes, m.Source+":"+m.Target+":ro")
	}
	for _, s := range o.Job.Options.Secrets {
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
