package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"dayone.dev/dayone/cmd/internal/cli"
	"dayone.dev/dayone/cmd/internal/connect"
	"dayone.dev/dayone/rebase/fleet/registrystatus"
	"dayone.dev/dayone/registry"
	"dayone.dev/dayone/registry/peers"
	"dayone.dev/dayone/registry/replica"
	"dayone.dev/dayone/registry/storage"
	replicas "dayone.dev/dayone/registry/wanted"
)

// exportDir is below the root: the list that the images were taken by, and the blob that was cut short.
const exportDir = "export"

// export is a copy of all wanted images.
type export struct {
	to, list     string
	from         []string
	ca, authFile string
	rate         int64
}

func newRegistryExport(c *connect.Flags) *cobra.Command {
	var e export
	cmd := &cobra.Command{
		Use:   "export --to DIR --ca FILE --authfile FILE",
		Short: "Copy all wanted images, with what is attached to them, from the registries into a directory",
		Long: "Export makes DIR the root of a registry, or brings one up to date: what is there is not copied again, and " +
			"nothing is removed.\nEvery blob is hashed at the end. dayone-registry and dayone registry serve run on DIR. " +
			"--list and --from work without the API.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if e.rate < 1 {
				return cli.Usagef("--rate must be at least 1")
			}
			l, list, err := e.sources(cmd.Context(), c)
			if err != nil {
				return err
			}
			done, err := e.run(cmd, l, list)
			if err != nil {
				return err
			}
			if err := cli.PrintTable(cmd, "RegistryExport", done, done.print); err != nil {
				return err
			}
			return done.problem()
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&e.to, "to", "", "directory of the images (required)")
	flags.StringVar(&e.ca, "ca", "", "CA of the registries, ca.crt of dayone registry node-config (required)")
	flags.StringVar(&e.authFile, "authfile", "", "account that may pull, pull-auth.json of it (required)")
	flags.StringVar(&e.list, "list", "", "file with the wanted images, as "+filepath.Join(replicas.Dir, replicas.ListFile)+
		" of a control-plane node; default: the cluster's")
	flags.StringSliceVar(&e.from, "from", nil, "HOST:PORT of a registry (repeatable); default: all of the cluster's")
	flags.Int64Var(&e.rate, "rate", replica.DefaultBytesPerSecond>>20, "MiB a second at most")
	_ = errors.Join(cmd.MarkFlagRequired("to"), cmd.MarkFlagRequired("ca"), cmd.MarkFlagRequired("authfile"))
	return cmd
}

// sources are what is copied, and from where.
func (e export) sources(ctx context.Context, c *connect.Flags) (l replicas.List, from peers.List, err error) {
	for _, address := range e.from {
		from.Peers = append(from.Peers, peers.Peer{Name: address, Address: address})
	}
	if e.list != "" {
		if l, err = replicas.ReadFile(e.list); err != nil {
			return l, from, err
		}
	}
	if e.list != "" && len(e.from) > 0 {
		return l, from, nil
	}
	api, _, err := c.Client()
	if err != nil {
		return l, from, err
	}
	p, err := registrystatus.ReadPublished(ctx, api, c.Namespace)
	if err != nil {
		return l, from, err
	}
	if e.list == "" {
		l = p.List
	}
	if len(e.from) == 0 && p.Peers != nil {
		from = *p.Peers
	}
	return l, from, nil
}

// exported is what an export has come to.
type exported struct {
	Images  int                `json:"images"`
	Missing []replicas.Missing `json:"missing"`
	// Attached says what attached to an image could not be copied; "" is nothing.
	Attached string               `json:"attached,omitempty"`
	Verified storage.VerifyReport `json:"verified"`
}

func (e export) run(cmd *cobra.Command, l replicas.List, from peers.List) (done *exported, err error) {
	ctx := cmd.Context()
	root, err := registry.CreateRoot(ctx, e.to, cli.Log(cmd))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	dir := filepath.Join(e.to, exportDir)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make directory: %w", err)
	}
	raw, err := l.Encode()
	if err != nil {
		return nil, err
	}
	if _, err := replicas.WriteFile(filepath.Join(dir, replicas.ListFile), raw); err != nil {
		return nil, err
	}
	done = &exported{Images: len(l.Fetched()), Missing: []replicas.Missing{}}
	err = root.Fill(func(store *storage.Store) error {
		missing, err := replica.Fill(ctx, store, l, replica.Options{Dir: dir, CAFile: e.ca, AuthFile: e.authFile,
			BytesPerSecond: e.rate << 20, Log: cli.Log(cmd), Peers: func() (peers.List, error) { return from, nil }})
		done.Missing = append(done.Missing, missing...)
		if err != nil {
			done.Attached = err.Error()
		}
		return ctx.Err()
	})
	if err == nil {
		done.Verified, err = root.Verify(ctx)
	}
	return done, err
}

func (d *exported) print(w io.Writer) {
	fmt.Fprintf(w, "%d of %d images, %d blobs, %d bytes\n", d.Images-len(d.Missing), d.Images, d.Verified.Blobs,
		d.Verified.Bytes)
	for _, m := range d.Missing {
		fmt.Fprintf(w, "missing: %s: %s\n", m.Image, m.Why)
	}
}

// problem is nil for a copy that is whole.
func (d *exported) problem() error {
	bad := len(d.Verified.Corrupt) + len(d.Verified.Missing) + len(d.Verified.Damaged)
	switch {
	case len(d.Missing) > 0:
		return fmt.Errorf("%d of %d images are missing: run the command again when a registry has them", len(d.Missing),
			d.Images)
	case bad > 0:
		return fmt.Errorf("%d blobs are corrupt or missing: run the command again", bad)
	case d.Attached != "":
		return fmt.Errorf("the images are copied, signatures or others that are attached to them are not: run the command "+
			"again: %s", d.Attached)
	}
	return nil
}
