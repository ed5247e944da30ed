package bootstrap

import (
	"context"
	"crypto/sha512"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	ign35 "github.com/coreos/ignition/v2/config/v3_5/types"
	"github.com/google/renameio/v2"

	"dayone.dev/dayone/bootstrap/serve"
	"dayone.dev/dayone/installconfig"
	"dayone.dev/dayone/rebase/firstboot"
)

// daemonName is the node agent's name below /files/ on the Ignition server.
const daemonName = "dayone-daemon"

// PointerFile is the pointer config of a pool's nodes in a state directory: what a machine's user data or boot medium
// holds.
func PointerFile(stateDir, pool string) string {
	return filepath.Join(stateDir, "ignition", pool+".ign")
}

// serving is the running Ignition server.
type serving struct {
	cancel context.CancelFunc
	done   chan struct{}
	err    error
}

func (s *serving) stop(ctx context.Context) error {
	s.cancel()
	select {
	case <-s.done:
		return s.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (h *host) startServer(ctx context.Context) error {
	additions, err := h.additions()
	if err != nil {
		return err
	}
	cert, key := h.registryOptions().CertificateFiles()
	srv, err := serve.New(serve.Options{
		BaseDir: h.path(renderDir), SecureListen: h.configListen, CertFile: cert, KeyFile: key,
		Additions: map[string]ign35.Config{"": additions}, Files: map[string]string{daemonName: h.DaemonBinary},
		Pools: []string{"*"}, Log: h.Log.WithField("component", "serve"),
	})
	if err != nil {
		return err
	}
	runCtx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	h.serving = &serving{cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(h.serving.done)
		h.serving.err = srv.Run(runCtx)
	}()
	return h.writePointers()
}

// additions is what every node gets beside its rendered config: none of it is in an image.
func (h *host) additions() (ign35.Config, error) {
	hash, err := sha512File(h.DaemonBinary)
	if err != nil {
		return ign35.Config{}, err
	}
	auth, err := os.ReadFile(h.id.pullAuth)
	if err != nil {
		return ign35.Config{}, fmt.Errorf("read pull credential: %w", err)
	}
	base := installconfig.Repository(h.in.Sidecar.Config.BaseImage)
	mirrors := []firstboot.Mirror{{Repository: base, Location: h.inEmbedded(base)}}
	for _, p := range h.in.Pools {
		m := firstboot.Mirror{Repository: p.Repository, Location: h.inEmbedded(p.Repository)}
		// Two pools may push to one repository; registries.conf names each once.
		if p.BuildAt == installconfig.BuildAtBootstrap && !slices.Contains(mirrors, m) {
			mirrors = append(mirrors, m)
		}
	}
	return firstboot.Ignition(firstboot.IgnitionOptions{
		Config: firstboot.Config{Registry: h.registryHost, PersistNICNames: true}, Mirrors: mirrors,
		RegistryCA: h.id.ca.CertificatePEM(), PullAuth: auth,
		SignaturePolicy: h.in.SignaturePolicy,
		DaemonURL:       h.configURL() + "/files/" + daemonName, DaemonSHA512: hash,
	})
}

// writePointers writes a pointer config for every rendered pool. They hold no secret: an address and an authority.
func (h *host) writePointers() error {
	if err := os.MkdirAll(h.path("ignition"), 0o700); err != nil {
		return fmt.Errorf("make directory for pointer configs: %w", err)
	}
	for pool := range h.final.Configs {
		raw, err := serve.Pointer(h.configURL()+"/config/"+pool, h.id.ca.CertificatePEM(), "")
		if err != nil {
			return err
		}
		if err := renameio.WriteFile(PointerFile(h.StateDir, pool), raw, 0o600); err != nil {
			return fmt.Errorf("write pointer config: %w", err)
		}
	}
	return nil
}

func sha512File(name string) (string, error) {
	f, err := os.Open(name)
	if err != nil {
		return "", fmt.Errorf("read node agent: %w", err)
	}
	defer f.Close()
	sum := sha512.New()
	if _, err := io.Copy(sum, f); err != nil {
		return "", fmt.Errorf("read node agent: %w", err)
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}
