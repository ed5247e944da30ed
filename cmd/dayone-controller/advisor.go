package main

import (
	"context"

	"github.com/sirupsen/logrus"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlmanager "sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"dayone.dev/dayone/build/failurecontroller"
	"dayone.dev/dayone/cmd/internal/manager"
	"dayone.dev/dayone/rebase/forecastcontroller"
)

// advisorParts forecast, explain and watch what a running Machine Config Operator does. They write policies, requests
// of rebuilds and objects of dayone's own namespace, and nothing else.
func (s *settings) advisorParts() []part {
	return []part{
		{watch: func(string) map[client.Object]cache.ByObject { return failurecontroller.CacheOptions() },
			add: func(ctx context.Context, m ctrlmanager.Manager, o manager.Options, log *logrus.Entry) error {
				return failurecontroller.Add(ctx, m, failurecontroller.Options{Namespace: o.Namespace, Log: log,
					Metrics: metrics.Registry})
			}},
		{watch: func(string) map[client.Object]cache.ByObject { return forecastcontroller.CacheOptions() },
			add: func(_ context.Context, m ctrlmanager.Manager, o manager.Options, log *logrus.Entry) error {
				return forecastcontroller.SetupWithManager(m, forecastcontroller.Options{Namespace: o.Namespace, Log: log,
					Metrics: metrics.Registry})
			}},
	}
}
