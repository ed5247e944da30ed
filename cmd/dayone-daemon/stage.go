package main

import (
	"errors"
	"fmt"

	"github.com/sirupsen/logrus"
	"github.com/spf13/cobra"

	"dayone.dev/dayone/rebase/deploy"
	"dayone.dev/dayone/rebase/deploy/host"
	"dayone.dev/dayone/rebase/deploy/pull"
)

func newStage() *cobra.Command {
	var o deploy.StageOptions
	var kind string
	var reboot, downloadOnly bool
	c := &cobra.Command{
		Use:   "stage IMAGE@DIGEST",
		Short: "Make an image the next boot's deployment",
		Args:  cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			image, err := deploy.ParseImage(args[0])
			if err != nil {
				return err
			}
			d, err := chooseDeployer(c, kind)
			if err != nil {
				return err
			}
			if err := pull.Verify(c.Context(), "/", image); err != nil {
				return err
			}
			if downloadOnly {
				return download(c, d, image)
			}
			if err := d.Stage(c.Context(), image, o); err != nil {
				return err
			}
			if err := host.CheckStaged(c.Context(), "/", d); err != nil {
				return err
			}
			return rebootIf(c, d, reboot)
		},
	}
	c.Flags().StringVar(&kind, "deployer", "", "ostree, rpm-ostree or bootc (default: detected)")
	c.Flags().StringArrayVar(&o.AppendKernelArguments, "karg-append", nil, "kernel argument to add where it is not there")
	c.Flags().StringArrayVar(&o.DeleteKernelArguments, "karg-delete", nil, "kernel argument to remove where it is there")
	c.Flags().BoolVar(&reboot, "reboot", false, "reboot into it")
	c.Flags().BoolVar(&downloadOnly, "download-only", false,
		"only bring the image onto the disk: the next boot stays what it was")
	for _, other := range []string{"reboot", "karg-append", "karg-delete"} {
		c.MarkFlagsMutuallyExclusive("download-only", other)
	}
	return c
}

// download prefetches the image as an agent does before its node's turn.
func download(c *cobra.Command, d deploy.Deployer, image deploy.Image) error {
	fetcher, can := d.(deploy.Fetcher)
	if !can {
		return errors.New("this host's deployer cannot bring an image without staging it: leave --download-only out")
	}
	if err := fetcher.Fetch(c.Context(), image, deploy.FetchOptions{}); err != nil {
		return err
	}
	_, err := fmt.Fprintln(c.OutOrStdout(), "the image is on the disk; nothing is staged")
	return err
}

func newRollback() *cobra.Command {
	var kind string
	var reboot bool
	c := &cobra.Command{
		Use:   "rollback",
		Short: "Make the deployment before the booted one the next boot's, with its /etc as it was left",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			d, err := chooseDeployer(c, kind)
			if err != nil {
				return err
			}
			back, ok := d.(deploy.Rollbacker)
			if !ok {
				return errors.New("this deployer cannot revert to the deployment before")
			}
			if err := back.Rollback(c.Context()); err != nil {
				return err
			}
			return rebootIf(c, d, reboot)
		},
	}
	c.Flags().StringVar(&kind, "deployer", "", "ostree, rpm-ostree or bootc (default: detected)")
	c.Flags().BoolVar(&reboot, "reboot", false, "reboot into it")
	return c
}

func chooseDeployer(c *cobra.Command, kind string) (deploy.Deployer, error) {
	if err := deploy.MakeSysrootWritable(); err != nil {
		return nil, err
	}
	log := logrus.New()
	log.SetOutput(c.ErrOrStderr())
	choice, err := host.Choose(c.Context(), "/", deploy.Kind(kind), logrus.NewEntry(log))
	return choice.Deployer, err
}

func rebootIf(c *cobra.Command, d deploy.Deployer, reboot bool) error {
	if reboot {
		return d.Reboot(c.Context())
	}
	_, err := fmt.Fprintln(c.OutOrStdout(), "reboot to take effect")
	return err
}
