package support

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"

	"github.com/spf13/cobra"

	"dayone.dev/dayone/bootstrap/gather/spool"
	"dayone.dev/dayone/bootstrap/statuspage"
	"dayone.dev/dayone/cmd/internal/cli"
	"dayone.dev/dayone/registry/certs"
)

// receiverDir, in the directory for bundles, has the receiver's CA and token.
const receiverDir = "receiver"

// spoolTokenFile is the token's name there; installconfig wants the ending.
const spoolTokenFile = "spool.token"

// receive keeps what a bootstrap host sends until it is stopped.
func (f *gatherFlags) receive(cmd *cobra.Command) error {
	host, port, err := net.SplitHostPort(f.listen)
	if _, badPort := strconv.ParseUint(port, 10, 16); err != nil || badPort != nil {
		return cli.Usagef("--receive %q: write HOST:PORT or :PORT", f.listen)
	}
	if f.ofCluster || f.host != "" || f.page.URL != "" || f.stdout || f.every > 0 || f.options.ID != "" {
		return cli.Usagef(
			"--receive waits for what the bootstrap host sends: pass it without --cluster, --host, --url, --stdout, " +
				"--every and --id")
	}
	dir := filepath.Join(f.out, receiverDir)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("make directory for the receiver (name another one with --out): %w", err)
	}
	if _, err := certs.LoadOrCreateCA(dir, certs.CAOptions{CommonName: "dayone log spool"}); err != nil {
		return err
	}
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		host = ""
	}
	id, err := statuspage.LoadIdentity(dir, spoolTokenFile, host)
	if err != nil {
		return err
	}
	if host == "" {
		host = "HOST"
	}
	fmt.Fprintf(cmd.OutOrStdout(),
		"before dayone prepare, copy %s and %s into the install directory, and set in install-config.yaml:\n\n"+
			"onClusterLayering:\n  logSpool:\n    url: https://%s\n    tokenFile: %s\n    caFile: %s\n\n",
		filepath.Join(dir, spoolTokenFile), filepath.Join(dir, certs.CACertFile), net.JoinHostPort(host, port),
		spoolTokenFile, certs.CACertFile)
	r := &spool.Receiver{Dir: f.out, Log: f.options.Log}
	ctx, cancel := context.WithCancel(cmd.Context())
	defer cancel()
	go r.Watch(ctx)
	return id.Serve(ctx, f.listen, r.Handler())
}
