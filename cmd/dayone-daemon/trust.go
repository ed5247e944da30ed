package main

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"dayone.dev/dayone/rebase/firstboot"
)

// maxAuth bounds a file of credentials; real ones have a few KiB.
const maxAuth = 1 << 20

func newEndTrust() *cobra.Command {
	var auth, root string
	c := &cobra.Command{
		Use:   "end-trust HOST:PORT...",
		Short: "Remove from this node what made it trust the bootstrap host's registry; no reboot is needed",
		Long: "Removes the mirror drop-in, the CA in certs.d and the credentials of the given registries, and prints the " +
			"paths that it changed.\n" +
			"With --add-auth, the final registry's credentials are there before the old ones go.",
		Args: cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, hosts []string) error {
			if auth != "" {
				if err := addAuth(c, root, auth); err != nil {
					return err
				}
			}
			changed, err := firstboot.EndTrust(root, hosts...)
			return errors.Join(printPaths(c, changed), err)
		},
	}
	c.Flags().StringVar(&auth, "add-auth", "",
		"containers-auth.json whose credentials are added first; - is standard input")
	c.Flags().StringVar(&root, "root", "/", "root of the system")
	return c
}

func newAddAuth() *cobra.Command {
	var root string
	c := &cobra.Command{
		Use:   "add-auth FILE",
		Short: "Merge registry credentials (containers-auth.json; - is standard input) into those of this host's image pulls",
		Args:  cobra.ExactArgs(1),
		RunE:  func(c *cobra.Command, args []string) error { return addAuth(c, root, args[0]) },
	}
	c.Flags().StringVar(&root, "root", "/", "root of the system")
	return c
}

// addAuth reads from a file or standard input: an argument would be seen by everybody on the node.
func addAuth(c *cobra.Command, root, file string) (err error) {
	in := c.InOrStdin()
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return fmt.Errorf("read registry credentials: %w", err)
		}
		defer f.Close()
		in = f
	}
	raw, err := io.ReadAll(io.LimitReader(in, maxAuth+1))
	if err != nil {
		return fmt.Errorf("read registry credentials: %w", err)
	}
	if len(raw) > maxAuth {
		return fmt.Errorf("read registry credentials: more than %d bytes", maxAuth)
	}
	changed, err := firstboot.AddAuth(root, raw)
	return errors.Join(printPaths(c, changed), err)
}

func printPaths(c *cobra.Command, paths []string) error {
	for _, p := range paths {
		if _, err := fmt.Fprintln(c.OutOrStdout(), p); err != nil {
			return err
		}
	}
	return nil
}
