package main

import (
	"context"

	"github.com/sirupsen/logrus"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlmanager "sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"dayone.dev/dayone/build/buildcontroller"
	"dayone.dev/dayone/build/failurecontroller"
	"dayone.dev/dayone/cmd/internal/builderflags"
	"dayone.dev/dayone/cmd/internal/manager"
	"dayone.dev/dayone/manifests/assets/cluster"
)

// builderParts build the images that a running Machine Config Operator rolls out. That operator makes the
// MachineOSBuilds and copies the Secrets, so no opt-in controller and no Deployment of a builder are needed.
func (s *settings) builderParts() []part {
	return append([]part{{
		watch: func(namespace string) map[client.Object]cache.ByObject { // for both
			return buildcontroller.CacheOptions(namespace).ByObject
		},
		add: func(ctx context.Context, m ctrlmanager.Manager, o manager.Options, log *logrus.Entry) error {
			flags, err := builderflags.Parse(s.builderImage, s.allBuilderArgs())
			if err != nil {
				return err
			}
			options, err := flags.Options(o.Namespace, cluster.Controller+"/"+s.version, log)
			if err != nil {
				return err
			}
			return buildcontroller.AddBeside(ctx, m, options)
		},
	}, {
		add: func(ctx context.Context, m ctrlmanager.Manager, o manager.Options, log *logrus.Entry) error {
			return failurecontroller.Add(ctx, m, failurecontroller.Options{Namespace: o.Namespace, Own: true, Log: log,
				Metrics: metrics.Registry})
		},
	}}, s.registryParts()...)
}
