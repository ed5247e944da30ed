package standalone

import (
	"context"
	"crypto/sha512"
	"encoding/hex"
	"fmt"
	"hash"
	"io"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	ign35 "github.com/coreos/ignition/v2/config/v3_5/types"
	"github.com/google/renameio/v2"

	"dayone.dev/dayone/bootstrap/clusterregistry"
	"dayone.dev/dayone/bootstrap/day1"
	"dayone.dev/dayone/bootstrap/journal"
	"dayone.dev/dayone/bootstrap/preflight"
	"dayone.dev/dayone/bootstrap/serve"
	"dayone.dev/dayone/rebase/firstboot"
	"dayone.dev/dayone/registry/certs"
)

// daemonName and registryName are the names of the node agent and of the control plane's registry below /files/ on the
// Ignition server.
const (
	daemonName   = "dayone-daemon"
	registryName = "dayone-registry"
)

// PointerFile is the pointer config of a pool's nodes in a state directory: what a machine's user data or boot medium
// holds.
func PointerFile(stateDir, pool string) string {
	return filepath.Join(stateDir, "ignition", pool+".ign")
}

// Pointer is what a pool's machines boot with.
type Pointer struct {
	Pool string
	// File is the pointer config, an Ignition config without secrets.
	File string
	// URL is the config to which it leads.
	URL string
}

// configURL is the Ignition server as nodes reach it.
func (f flow) configURL() string {
	c := f.host.In.Sidecar.Config.ConfigServer
	return "https://" + net.JoinHostPort(c.Host, strconv.Itoa(c.Port))
}

// Serve starts the Ignition server and writes the pointer configs.
func (f flow) Serve(ctx context.Context, run *journal.Run, l day1.Layered[baseImage],
	final day1.Rendered) (day1.Finisher, error) {
	return journal.Serve(ctx, run, phaseServe, func(ctx context.Context) (*services, error) {
		additions, err := f.additions(l.Registry)
		if err != nil {
			return nil, err
		}
		byPool, files := map[string]ign35.Config{"": additions}, map[string]string{daemonName: f.DaemonBinary}
		trusted := map[string]string{}
		if f.host.In.Sidecar.Config.InCluster() {
			files[registryName] = f.RegistryBinary
			// For images of pods: kubelet may have to pull that of the agent before any agent brings the CA.
			trusted[f.host.In.Shared.Registry] = filepath.Join(preflight.SharedDir(f.Dir), certs.CACertFile)
			if byPool[preflight.ControlPlanePool], err = f.registryOfMasters(); err != nil {
				return nil, err
			}
		}
		cert, key := l.Registry.Certificate()
		server, err := serve.New(serve.Options{BaseDir: f.Path(renderDir), SecureListen: f.config, CertFile: cert,
			KeyFile: key, Additions: byPool, Files: files, BootstrapCerts: trusted, Pools: []string{"*"},
			Asked: l.Registry.Nodes.Config, Log: f.Log.WithField("component", "serve")})
		if err != nil {
			return nil, err
		}
		s := start(ctx, f, l.Registry, server.Run)
		if s.pointers, err = f.writePointers(final, l.Registry.Identity.CAPEM); err != nil {
			s.stop()
			return nil, err
		}
		return s, nil
	})
}

// additions is what every node gets beside its rendered config: none of it is in an image.
func (f flow) additions(r *day1.Registry) (ign35.Config, error) {
	sum, err := f.agentHash()
	if err != nil {
		return ign35.Config{}, err
	}
	auth, err := os.ReadFile(r.Identity.PullAuth)
	if err != nil {
		return ign35.Config{}, fmt.Errorf("read pull credential: %w", err)
	}
	base := f.baseRepository()
	mirrors := []firstboot.Mirror{{Repository: base, Location: r.Name(base)}}
	for _, p := range day1.BuiltHere(f.host.In) {
		m := firstboot.Mirror{Repository: p.Repository, Location: r.Name(p.Repository)}
		// Two pools may push to one repository; registries.conf names each once.
		if !slices.Contains(mirrors, m) {
			mirrors = append(mirrors, m)
		}
	}
	o := firstboot.IgnitionOptions{
		Config: firstboot.Config{Registry: r.Address, PersistNICNames: true}, Mirrors: mirrors,
		RegistryCA: r.Identity.CAPEM, PullAuth: auth, SignaturePolicy: f.host.In.SignaturePolicy,
		DaemonURL: f.configURL() + "/files/" + daemonName, DaemonSHA512: sum,
	}
	if shared := f.host.In.Shared; shared != nil {
		o.RegistryAccount = shared.PullAuth
	}
	return firstboot.Ignition(o)
}

// registryOfMasters lets control-plane nodes fetch dayone-registry, and gives them what it shares with the others.
func (f flow) registryOfMasters() (ign35.Config, error) {
	sum, err := hashOfFile(f.RegistryBinary, sha512.New())
	if err != nil {
		return ign35.Config{}, err
	}
	config := firstboot.Program(clusterregistry.Fetched, f.configURL()+"/files/"+registryName, sum)
	config.Storage.Files = append(config.Storage.Files, f.host.In.Shared.NodeFiles()...)
	return config, nil
}

// writePointers writes a pointer config for every rendered pool. They hold no secret: an address and a CA.
func (f flow) writePointers(final day1.Rendered, ca []byte) ([]Pointer, error) {
	if err := os.MkdirAll(f.Path("ignition"), 0o700); err != nil {
		return nil, fmt.Errorf("make directory for pointer configs: %w", err)
	}
	var out []Pointer
	for _, pool := range slices.Sorted(maps.Keys(final.Configs)) {
		p := Pointer{Pool: pool, File: PointerFile(f.StateDir, pool), URL: f.configURL() + "/config/" + pool}
		raw, err := serve.Pointer(p.URL, ca, "")
		if err != nil {
			return nil, err
		}
		if err := renameio.WriteFile(p.File, raw, 0o600); err != nil {
			return nil, fmt.Errorf("write pointer config: %w", err)
		}
		out = append(out, p)
	}
	return out, nil
}

// hashOfFile is a program's hash in hex.
func hashOfFile(name string, sum hash.Hash) (string, error) {
	f, err := os.Open(name)
	if err != nil {
		return "", fmt.Errorf("read program of nodes: %w", err)
	}
	defer f.Close()
	if _, err := io.Copy(sum, f); err != nil {
		return "", fmt.Errorf("read program of nodes: %w", err)
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}
