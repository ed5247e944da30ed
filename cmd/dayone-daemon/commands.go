package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/sirupsen/logrus"
	"github.com/spf13/cobra"

	"dayone.dev/dayone/rebase/deploy"
	"dayone.dev/dayone/rebase/firstboot"
)

func newCommand(version string) *cobra.Command {
	root := &cobra.Command{Use: "dayone-daemon", Short: "The agent on a node", Version: version, SilenceUsage: true,
		SilenceErrors: true}
	root.AddCommand(newFirstboot(), newStart(), newStatus(), newStage(), newRollback(), newDrift(), newAddAuth(),
		newEndTrust(), newRegistry())
	return root
}

func newFirstboot() *cobra.Command {
	var o firstboot.Options
	c := &cobra.Command{
		Use:   "firstboot",
		Short: "Boot this node into the OS image of its config, with one reboot",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := deploy.MakeSysrootWritable(); err != nil {
				return err
			}
			file, err := openLog(o.Root)
			if err != nil {
				return err
			}
			logger := logrus.New()
			logger.SetFormatter(firstboot.ConsoleFormat{})
			logger.SetOutput(io.MultiWriter(c.ErrOrStderr(), file))
			o.Log = logrus.NewEntry(logger)
			err = firstboot.Run(c.Context(), o)
			if errors.Is(err, context.Canceled) {
				err = nil // stopped by the service manager; the next start goes on
			}
			return errors.Join(err, file.Close())
		},
	}
	c.Flags().StringVar(&o.Root, "root", "/", "root of the system")
	c.Flags().BoolVar(&o.Retry, "retry", false, "try again after the node went back or gave up rebooting")
	return c
}

func openLog(root string) (*os.File, error) {
	dir := filepath.Join(root, firstboot.StateDir)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("make state directory: %w", err)
	}
	file, err := os.OpenFile(filepath.Join(dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open log: %w", err)
	}
	return file, nil
}
