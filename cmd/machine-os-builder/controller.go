package main

import (
	"context"

	"github.com/sirupsen/logrus"
	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	ctrlmanager "sigs.k8s.io/controller-runtime/pkg/manager"

	"dayone.dev/dayone/build/buildcontroller"
	"dayone.dev/dayone/cmd/internal/builderflags"
	"dayone.dev/dayone/cmd/internal/manager"
	"dayone.dev/dayone/manifests/assets/cluster"
)

// newControllerCommand is the program that keeps the pools' images built.
func newControllerCommand() *cobra.Command {
	var f builderflags.Flags
	cmd := manager.NewCommand(manager.Program{
		Name: cluster.Builder, Version: version,
		Cache: func(o manager.Options) cache.Options { return buildcontroller.CacheOptions(o.Namespace) },
		Add: func(ctx context.Context, m ctrlmanager.Manager, o manager.Options, log *logrus.Entry) error {
			options, err := f.Options(o.Namespace, "machine-os-builder/"+version, log)
			if err != nil {
				return err
			}
			return buildcontroller.Add(ctx, m, options)
		},
	})
	cmd.Aliases = []string{"controller"}
	cmd.Short = "Keep the image of every opted-in pool built"
	cmd.Long = "Start finds out for every MachineOSConfig what its pool's image must contain, and creates a " +
		"MachineOSBuild and a Job when no image has it."
	f.Add(cmd.Flags())
	return cmd
}
