package day1

import (
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"dayone.dev/dayone/bootstrap/day1"
	"dayone.dev/dayone/bootstrap/preflight"
	"dayone.dev/dayone/bootstrap/progress"
	"dayone.dev/dayone/bootstrap/standalone"
	"dayone.dev/dayone/build"
	"dayone.dev/dayone/build/buildahengine"
	"dayone.dev/dayone/build/sbom"
	"dayone.dev/dayone/cmd/internal/cli"
	"dayone.dev/dayone/installconfig"
	"dayone.dev/dayone/manifests/render"
)

func newBootstrapCommand(version string) *cobra.Command {
	var o standalone.Options
	var flow, statusListen string
	var unit bool
	cmd := &cobra.Command{
		Use:   "bootstrap",
		Short: "Render, build and serve on the bootstrap host, then wait for the nodes",
		Long: `Bootstrap imports the base image, renders the first configs, builds the pools' images into an embedded
registry, renders the final configs with the images pinned by digest and serves them to the nodes as Ignition. It runs
until you stop it; run it again on the same state directory and it goes on where it was cut off. With --kubeconfig it
hands over to the cluster as soon as that is up, and ends when no node needs this host any more.

On an installer's bootstrap node (flow openshift) it builds between MCO's first and second rendering and then lets the
nodes fetch their configs from MCO; see docs/users/day1-openshift.md.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if unit {
				return printUnit(cmd)
			}
			return runBootstrap(cmd, o, render.VersionsOf(version), flow, statusListen)
		},
	}
	cli.InstallDir(cmd, &o.Dir, &o.Platform)
	f := cmd.Flags()
	f.StringVar(&o.StateDir, "state-dir", day1.DefaultStateDir, "where journal, images and credentials are kept")
	f.StringVar(&flow, "flow", "", "standalone or openshift (default: what the install directory says)")
	f.StringVar(&o.BaseSource, "base", "",
		"where the base image is taken from: a registry reference, oci:DIR or docker-archive:FILE (default: its name "+
			"in install-config.yaml)")
	f.StringVar(&o.BaseCAFile, "base-ca", "", "PEM file of the authority that signs the base image's registry")
	f.StringVar(&o.BaseAuthFile, "base-auth", "",
		"auth.json for the base image's registry (default: the base image pull Secret)")
	f.StringVar(&o.DaemonBinary, "daemon", besideThis("dayone-daemon"),
		"the node agent that nodes fetch on their first boot")
	f.StringVar(&o.RegistryBinary, "registry-program", besideThis("dayone-registry"),
		"the registry that control-plane nodes fetch on their first boot, with registry.type cluster")
	f.StringVar(&o.RegistryListen, "registry-listen", "",
		"HOST:PORT of the embedded registry (default: every address, the port of install-config.yaml)")
	for name, words := range map[string]string{"daemon": "dayone-daemon", "registry-program": "dayone-registry"} {
		f.Lookup(name).DefValue = words + " beside this program" // the page is the same on every machine
	}
	f.StringVar(&o.HandOver.Kubeconfig, "kubeconfig", "",
		"hand over to the cluster of this kubeconfig when it is up, and end; the file may come later (default: serve "+
			"until stopped)")
	handOverFlags(cmd, &o.HandOver, "handover")
	f.StringVar(&o.ConfigListen, "config-listen", "",
		"HOST:PORT of the Ignition server (default: every address, the port of install-config.yaml)")
	f.StringVar(&statusListen, "status-listen", "",
		"HOST:PORT of the status page, HTTPS with a token (default: statusPage.port of install-config.yaml on every "+
			"address, else none)")
	f.BoolVar(&unit, unitFlag, false,
		"start nothing; print a systemd unit that runs this command with the other options given")
	cmd.AddCommand(newHoldCommand(), newCarryCommand())
	return cmd
}

// runBootstrap carries out the flow, with its progress on stderr and its status page at statusListen.
func runBootstrap(cmd *cobra.Command, o standalone.Options, versions render.Versions, flow, statusListen string) error {
	if err := checkPolicy(o.HandOver); err != nil {
		return err
	}
	view := progress.New(cmd.ErrOrStderr())
	defer view.Close()
	o.Log = cli.Log(cmd)
	o.Log.Logger.SetOutput(view)
	o.Versions = versions
	o.Serving = func(list []standalone.Pointer) { printPointers(cmd, list) }
	o.Observe, o.BuildProgress = view.Phase, view.Build
	o.NewEngine = func(dir string) (build.ContainerEngine, error) {
		return buildahengine.New(buildahengine.Options{Root: dir, Log: o.Log})
	}
	o.BillsOfMaterials = sbom.Bills{Version: versions.Raw}
	config, err := layering(o.Dir)
	is, err := chosenFlow(flow, config.Flow, err)
	if err != nil {
		return err
	}
	if err := preflight.Prepared(o.Dir); err != nil {
		return err
	}
	stop := serveStatus(cmd.Context(), &o.Options, config, statusListen)
	defer stop()
	defer keepLogs(cmd.Context(), o.Options, config.LogSpool)()
	if is == installconfig.FlowOpenShift {
		return runOpenShift(cmd.Context(), o)
	}
	return standalone.Run(cmd.Context(), o)
}

// layering is the layering field of an install directory. Of one that cannot be read it is empty: where the flow is
// given, the run itself says why.
func layering(dir string) (installconfig.Config, error) {
	sidecar, err := preflight.Layering(dir)
	if err != nil {
		return installconfig.Config{}, err
	}
	return sidecar.Config, nil
}

// besideThis is the path of a program in the directory of this one.
func besideThis(name string) string {
	self, err := os.Executable()
	if err != nil {
		return name
	}
	return filepath.Join(filepath.Dir(self), name)
}
