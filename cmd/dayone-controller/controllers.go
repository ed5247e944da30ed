package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/sirupsen/logrus"
	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlmanager "sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"dayone.dev/dayone/build/optin"
	"dayone.dev/dayone/cmd/internal/manager"
	"dayone.dev/dayone/cmd/internal/verbosity"
	"dayone.dev/dayone/manifests/assets/cluster"
	"dayone.dev/dayone/manifests/releasecontroller"
	"dayone.dev/dayone/manifests/render"
	"dayone.dev/dayone/manifests/rendercontroller"
	"dayone.dev/dayone/rebase/disruptioncontroller"
	"dayone.dev/dayone/rebase/draincontroller"
	"dayone.dev/dayone/rebase/nodecontroller"
	"dayone.dev/dayone/rebase/registrycontroller"
)

// settings are this program's own flags.
type settings struct {
	version string
	// mode says how much of the work is dayone's, beside a Machine Config Operator or in its place.
	mode         string
	builderImage string
	// builderArgs are further arguments of the builder.
	builderArgs []string
	// noRender: somebody else renders the pools' configs.
	noRender bool
	// baseImage is the OS image of clusters without a ControllerConfig.
	baseImage string
	// nodeAgent: the nodes run dayone-daemon, and somebody has to tell it what to do.
	nodeAgent bool
	// registry is HOST:PORT in the names of the control plane's own images; "": it has no registries.
	registry string
	// node is the one that this copy runs on; it goes last in its pool.
	node string
}

// part is one controller: what narrows its watches, which may be nil, and how it is added to the manager. A new
// controller is one more entry of parts.
type part struct {
	watch func(namespace string) map[client.Object]cache.ByObject
	add   func(ctx context.Context, m ctrlmanager.Manager, o manager.Options, log *logrus.Entry) error
}

// parts are the controllers of the mode.
func (s *settings) parts() []part {
	switch cluster.Mode(s.mode) {
	case cluster.Advisor:
		return s.advisorParts()
	case cluster.Building:
		return s.builderParts()
	}
	return s.fullParts()
}

// fullParts do everything.
func (s *settings) fullParts() []part {
	list := []part{
		{watch: optin.CacheOptions, add: func(ctx context.Context, m ctrlmanager.Manager, o manager.Options,
			log *logrus.Entry) error {
			return optin.Add(ctx, m, optin.Options{Namespace: o.Namespace, BuilderImage: s.builderImage,
				BuilderArgs: s.allBuilderArgs(), Version: s.version, Log: log, Metrics: metrics.Registry})
		}},
	}
	if !s.noRender {
		list = append(list, part{add: func(_ context.Context, m ctrlmanager.Manager, _ manager.Options,
			log *logrus.Entry) error {
			// The versions are those that dayone bootstrap of the same build renders with.
			return rendercontroller.SetupWithManager(m,
				rendercontroller.Options{Log: log, Versions: render.VersionsOf(s.version), BaseImage: s.baseImage,
					Metrics: metrics.Registry})
		}}, part{add: func(_ context.Context, m ctrlmanager.Manager, o manager.Options, log *logrus.Entry) error {
			return releasecontroller.SetupWithManager(m, releasecontroller.Options{Namespace: o.Namespace, Log: log})
		}})
	}
	if s.nodeAgent {
		list = append(list,
			part{watch: func(string) map[client.Object]cache.ByObject { return nodecontroller.CacheOptions() },
				add: func(_ context.Context, m ctrlmanager.Manager, _ manager.Options, log *logrus.Entry) error {
					check := nodecontroller.ImageCheck{Client: m.GetClient()}
					return nodecontroller.SetupWithManager(m, nodecontroller.Options{Log: log, Self: s.node, Preflight: check,
						Foreseen: true, Metrics: metrics.Registry})
				}},
			part{add: func(_ context.Context, m ctrlmanager.Manager, _ manager.Options, log *logrus.Entry) error {
				return draincontroller.SetupWithManager(m, draincontroller.Options{Log: log, Metrics: metrics.Registry})
			}},
			part{add: func(_ context.Context, m ctrlmanager.Manager, _ manager.Options, log *logrus.Entry) error {
				return disruptioncontroller.SetupWithManager(m, disruptioncontroller.Options{Log: log,
					Verbosity: verbosity.Of(log)})
			}})
	}
	return append(list, s.registryParts()...)
}

// allBuilderArgs are the builder's, which waits for the control plane's registries where there are any.
func (s *settings) allBuilderArgs() []string {
	if s.registry == "" {
		return s.builderArgs
	}
	return append(slices.Clone(s.builderArgs), "--cluster-registry="+s.registry)
}

// registryParts look after the control plane's own registries, where there are any.
func (s *settings) registryParts() []part {
	if s.registry == "" {
		return nil
	}
	return []part{{add: func(_ context.Context, m ctrlmanager.Manager, o manager.Options, log *logrus.Entry) error {
		return registrycontroller.SetupWithManager(m, registrycontroller.Options{Registry: s.registry,
			Namespace: o.Namespace, Log: log, Metrics: metrics.Registry})
	}}}
}

func newRootCommand(version string) *cobra.Command {
	s := &settings{version: version}
	root := &cobra.Command{Use: cluster.Controller, Short: "The operator of layered pools", Version: version,
		SilenceUsage: true, SilenceErrors: true}
	start := manager.NewCommand(s.program())
	start.Flags().StringVar(&s.mode, "mode", string(cluster.Full),
		"how much is dayone's work: advisor (nothing, it forecasts and explains), builder (builds) or full (everything)")
	start.PreRunE = func(*cobra.Command, []string) error {
		_, err := cluster.ParseMode(s.mode)
		if err == nil && len(s.parts()) == 0 {
			err = fmt.Errorf("mode %s has no controllers in this version", s.mode)
		}
		if err == nil && s.registry != "" && cluster.Mode(s.mode) != cluster.Building && !s.nodeAgent {
			err = errors.New("--cluster-registry needs mode builder, or mode full with --node-agent: agents bring the " +
				"registries what they work by")
		}
		return err
	}
	start.Flags().StringVar(&s.builderImage, "builder-image", "",
		"image with machine-os-builder, which runs while a pool is opted in; best by digest")
	start.Flags().StringArrayVar(&s.builderArgs, "builder-arg", nil,
		"argument of machine-os-builder start, such as --build-pod-user-namespace; may be repeated")
	start.Flags().BoolVar(&s.noRender, "no-render", false, "leave rendering the pools' configs to somebody else")
	start.Flags().StringVar(&s.baseImage, "base-image", "", "OS image of clusters without a ControllerConfig, by digest")
	start.Flags().BoolVar(&s.nodeAgent, "node-agent", false,
		"the nodes run dayone-daemon: tell them what to run, drain them")
	start.Flags().StringVar(&s.registry, "cluster-registry", "",
		"HOST:PORT in the names of the images that the control plane's own registries hold")
	start.Flags().StringVar(&s.node, "node", "", "the node that this copy runs on: of its pool it goes last")
	root.AddCommand(start, newConfigServer(version), newReleaseResult())
	return root
}

func (s *settings) program() manager.Program {
	return manager.Program{
		Name: cluster.Controller, Version: s.version,
		Live: []client.Object{&corev1.Secret{}},
		Cache: func(o manager.Options) cache.Options {
			watched := map[client.Object]cache.ByObject{}
			for _, p := range s.parts() {
				if p.watch != nil {
					maps.Copy(watched, p.watch(o.Namespace))
				}
			}
			return cache.Options{ByObject: watched}
		},
		Add: func(ctx context.Context, m ctrlmanager.Manager, o manager.Options, log *logrus.Entry) error {
			return addParts(ctx, m, s, o, log)
		},
	}
}
