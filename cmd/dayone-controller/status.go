package main

import (
	"context"

	"github.com/sirupsen/logrus"
	ctrlmanager "sigs.k8s.io/controller-runtime/pkg/manager"

	"dayone.dev/dayone/cmd/internal/manager"
	"dayone.dev/dayone/manifests/assets/cluster"
	"dayone.dev/dayone/manifests/statuscontroller"
)

// addParts adds the status controller and the parts of the mode. In mode full those wait while a Machine Config
// Operator runs: the program ends when that changes, and starts anew.
func addParts(ctx context.Context, m ctrlmanager.Manager, s *settings, o manager.Options, log *logrus.Entry) error {
	status := statuscontroller.Options{Namespace: o.Namespace, Mode: cluster.Mode(s.mode), Version: s.version, Log: log}
	if status.Mode == cluster.Full {
		rivals, err := statuscontroller.Rivals(ctx, m.GetAPIReader(), o.Namespace)
		if err != nil {
			return err
		}
		if status.Waiting = len(rivals) > 0; status.Waiting {
			log.WithField("operator", rivals).Warn("controllers wait until the machine config operator is aside")
		}
	}
	if err := statuscontroller.SetupWithManager(m, status); err != nil || status.Waiting {
		return err
	}
	for _, p := range s.parts() {
		if err := p.add(ctx, m, o, log); err != nil {
			return err
		}
	}
	return nil
}
