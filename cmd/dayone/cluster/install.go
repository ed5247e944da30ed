package cluster

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"dayone.dev/dayone/cmd/internal/cli"
	"dayone.dev/dayone/cmd/internal/connect"
	"dayone.dev/dayone/manifests/assets/cluster"
	"dayone.dev/dayone/manifests/clusterinstall"
)

// defaultWait bounds how long install waits for the cluster: pulling an image on a slow line takes minutes.
const defaultWait = 5 * time.Minute

// installFlags are what install, upgrade and manifests have in common.
type installFlags struct {
	*connect.Flags
	images  imageFlags
	options cluster.Options
	mode    string
	// openshift: what is printed is for OpenShift. Install finds that out itself.
	openshift bool
}

// add adds the flags of a command whose defaults are those of a new installation.
func (f *installFlags) add(cmd *cobra.Command, mode string) {
	f.addWith(cmd, mode, func(usual string) string { return usual })
}

// addKept adds the flags of a command that keeps what it is not told.
func (f *installFlags) addKept(cmd *cobra.Command, mode string) {
	f.addWith(cmd, mode, func(string) string { return "" })
}

// addWith adds the flags: mode ends the help of --mode, and unset gives what the help says in place of a usual default.
func (f *installFlags) addWith(cmd *cobra.Command, mode string, unset func(usual string) string) {
	s, o := cmd.Flags(), &f.options
	s.StringVar(&f.mode, "mode", "", "advisor (beside the Machine Config Operator, which keeps its work), builder "+
		"(dayone builds what it rolls out) or full (dayone does its work)"+mode)
	s.StringArrayVar((*[]string)(&f.images), "image", nil,
		"REF of an image that has all programs, or controller=REF, builder=REF, daemon=REF; best by digest; "+
			"repeatable")
	s.StringVar(&o.ImagePullSecret, "image-pull-secret", "", "Secret in the namespace that has the credentials to "+
		"pull --image")
	s.StringVar(&o.BaseImage, "base-image", "", "base OS image by digest, for a cluster without a ControllerConfig")
	s.StringArrayVar(&o.BuilderArgs, "builder-arg", nil,
		"argument of machine-os-builder start, such as --build-pod-user-namespace (repeatable)")
	s.Int32Var(&o.Replicas, "replicas", 0, "copies of dayone-controller"+
		unset(" (default 2, or 1 on a cluster of one node)"))
	s.BoolVar(&o.NodeAgent, "node-agent", false, "also install the agent on every node")
	s.StringVar(&o.Registry, "cluster-registry", "", "HOST:PORT in the names of the images that the control plane's own "+
		"registries hold, see dayone registry node-config"+unset(" (default: there are none)"))
	s.StringVar(&o.APIServer, "api-server", "",
		"URL at which new nodes reach the API server, such as https://api.example.com:6443"+
			unset(" (default: the cluster's)"))
	s.BoolVar(&o.ApproveNodes, "approve-nodes", false,
		"sign the certificates of new nodes without a person's approval")
	s.BoolVar(&o.PrivilegedBuilds, "privileged-builds", false, "let the namespace run privileged build pods")
}

// place sets the mode, which the command line may say, and the namespace that it has by default.
func (f *installFlags) place(cmd *cobra.Command, mode cluster.Mode) error {
	if f.mode != "" {
		var err error
		if mode, err = cluster.ParseMode(f.mode); err != nil {
			return cli.Usagef("--mode: %w", err)
		}
	}
	f.options.Mode = mode
	if !cmd.Flags().Changed("namespace") {
		f.Namespace = mode.Namespace()
	}
	return nil
}

// early finds what is wrong before the cluster is asked. The cluster may say the mode, and an advisor needs least.
func (f *installFlags) early(cmd *cobra.Command) error {
	if f.mode == "" {
		images := cluster.Images{}
		if err := f.images.apply(&images); err != nil || images.Controller != "" {
			return err
		}
	}
	if err := f.place(cmd, cluster.Full); err != nil {
		return err
	}
	_, err := f.checked()
	return err
}

// settle places an installation in the cluster: where and in which mode it is, or as the command line says, or as fits
// the cluster.
func (f *installFlags) settle(cmd *cobra.Command, t clusterinstall.Target, old *cluster.Options) error {
	if old != nil {
		if err := f.place(cmd, old.Mode); err != nil {
			return err
		}
		f.Namespace = old.Namespace
		return clusterinstall.KeepMode(*old, f.options.Mode)
	}
	mode := cluster.Full
	if f.mode == "" {
		var err error
		if mode, err = clusterinstall.Suggest(cmd.Context(), t); err != nil {
			return err
		}
	}
	return f.place(cmd, mode)
}

// keep takes the options that the command line does not set from an earlier installation.
func (f *installFlags) keep(old cluster.Options, cmd *cobra.Command) {
	o := &f.options
	o.Images = old.Images
	for name, take := range map[string]func(){
		"image-pull-secret": func() { o.ImagePullSecret = old.ImagePullSecret },
		"base-image":        func() { o.BaseImage = old.BaseImage },
		"builder-arg":       func() { o.BuilderArgs = old.BuilderArgs },
		"replicas":          func() { o.Replicas = old.Replicas },
		"node-agent":        func() { o.NodeAgent = old.NodeAgent },
		"cluster-registry":  func() { o.Registry = old.Registry },
		"api-server":        func() { o.APIServer = old.APIServer },
		"approve-nodes":     func() { o.ApproveNodes = old.ApproveNodes },
		"privileged-builds": func() { o.PrivilegedBuilds = old.PrivilegedBuilds },
	} {
		if !cmd.Flags().Changed(name) {
			take()
		}
	}
}

// checked are the options, with every program's image.
func (f *installFlags) checked() (cluster.Options, error) {
	o := f.options
	o.Namespace, o.Version = f.Namespace, f.Version
	if err := f.images.apply(&o.Images); err != nil {
		return o, err
	}
	switch {
	case o.Images == (cluster.Images{}):
		return o, cli.Usagef("--image is required: the reference of an image with dayone-controller and machine-os-builder")
	case o.Images.Controller == "":
		return o, cli.Usagef("--image controller=REF is required, too")
	case o.Images.Builder == "" && o.Mode != cluster.Advisor:
		return o, cli.Usagef("--image builder=REF is required, too")
	case o.Images.Daemon == "" && o.RunsDaemon():
		return o, cli.Usagef("--node-agent and --cluster-registry also require --image daemon=REF")
	}
	if err := o.Validate(); err != nil {
		return o, cli.Usagef("%w", err)
	}
	return o, nil
}

// imageFlags are --image REF for all programs and --image PROGRAM=REF for one.
type imageFlags []string

// apply puts the flags into images, in order.
func (f imageFlags) apply(images *cluster.Images) error {
	program := map[string]*string{"controller": &images.Controller, "builder": &images.Builder, "daemon": &images.Daemon}
	var bad []error
	for _, value := range f {
		name, ref, one := strings.Cut(value, "=")
		switch {
		case !one:
			images.Controller, images.Builder, images.Daemon = value, value, value
		case program[name] != nil:
			*program[name] = ref
		default:
			bad = append(bad, cli.Usagef("--image %q: write REF, controller=REF, builder=REF or daemon=REF", value))
		}
	}
	return errors.Join(bad...)
}

// applyFlags are those of commands that change a cluster.
type applyFlags struct {
	timeout                 time.Duration
	noWait, force, takeOver bool
}

func (f *applyFlags) add(cmd *cobra.Command) {
	f.addTimeout(cmd)
	cmd.Flags().BoolVar(&f.noWait, "no-wait", false, "do not wait until the controllers are available")
	cmd.Flags().BoolVar(&f.force, "force-conflicts", false, "take over fields that another field manager owns")
}

func (f *applyFlags) addTimeout(cmd *cobra.Command) {
	cmd.Flags().DurationVar(&f.timeout, "timeout", defaultWait, "time limit of the whole command")
}

// target reaches the cluster, in which the installation, when there is one, says the namespace unless the command line
// does.
func (f *applyFlags) target(cmd *cobra.Command, c *connect.Flags) (t clusterinstall.Target, old *cluster.Options,
	err error) {
	api, cfg, err := c.Client()
	if err != nil {
		return t, nil, err
	}
	t = clusterinstall.Target{Client: api, Config: cfg, Namespace: wanted(cmd, c), Limit: f.timeout,
		Out: cmd.ErrOrStderr()}
	if old, err = clusterinstall.Installed(cmd.Context(), t); err != nil {
		return t, nil, err
	}
	if old != nil {
		c.Namespace = old.Namespace
	}
	t.Namespace = c.Namespace
	return t, old, nil
}

// wanted is the namespace that the command line says, or nothing.
func wanted(cmd *cobra.Command, c *connect.Flags) string {
	if cmd.Flags().Changed("namespace") {
		return c.Namespace
	}
	return ""
}

func (f *applyFlags) install(cmd *cobra.Command, t clusterinstall.Target, i *installFlags) error {
	o, err := i.checked()
	if err != nil {
		return err
	}
	t.Namespace = o.Namespace
	if err := clusterinstall.Install(cmd.Context(), t, clusterinstall.Options{Options: o, Force: f.force,
		NoWait: f.noWait, TakeOver: f.takeOver}); err != nil {
		return err
	}
	return printOutcome(cmd, t)
}

func newInstall(c *connect.Flags) *cobra.Command {
	f, a := &installFlags{Flags: c}, &applyFlags{}
	var dryRun, yes bool
	cmd := &cobra.Command{
		Use:   "install",
		Short: "Install dayone's controllers in a cluster, or update them",
		Long: "Install applies CRDs, roles, policies and the controllers server-side and waits until they are available. " +
			"It can be repeated: it removes objects that an older version had and this one has not. It does not change CRDs " +
			"that belong to the cluster already.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if dryRun {
				return printObjects(cmd, f)
			}
			if err := a.early(cmd, f); err != nil { // before the cluster is asked
				return err
			}
			t, old, err := a.target(cmd, c)
			if err != nil {
				return err
			}
			if err := f.settle(cmd, t, old); err != nil {
				return err
			}
			if a.takeOver && !yes {
				fmt.Fprintf(cmd.ErrOrStderr(), "The Machine Config Operator of the cluster at %s will be put aside, and dayone "+
					"will do its work.\n", t.Config.Host)
				if err := confirm(cmd.InOrStdin(), cmd.ErrOrStderr(), "install --take-over"); err != nil {
					return err
				}
			}
			return a.install(cmd, t, f)
		},
	}
	f.add(cmd, "; default: what is installed, else advisor where one runs, else full")
	a.add(cmd)
	cmd.Flags().BoolVar(&a.takeOver, "take-over", false, "put a running Machine Config Operator aside and do its work, "+
		"in mode full; uninstall gives it back")
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask before a --take-over")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "print the objects (-o yaml or json) and contact no cluster")
	return cmd
}

// early finds what is wrong before the cluster is asked, and says what a takeover costs.
func (f *applyFlags) early(cmd *cobra.Command, i *installFlags) error {
	if !f.takeOver {
		return i.early(cmd)
	}
	i.mode = cmp.Or(i.mode, string(cluster.Full))
	if err := i.early(cmd); err != nil {
		return err
	}
	if i.options.Mode != cluster.Full {
		return cli.Usagef("--take-over is for mode %s: in mode %s the Machine Config Operator keeps its work",
			cluster.Full, i.options.Mode)
	}
	warnTakeOver(cmd.ErrOrStderr())
	return nil
}

// warnTakeOver lists what a cluster goes without.
func warnTakeOver(w io.Writer) {
	fmt.Fprintln(w, "The Machine Config Operator will be put aside, and dayone does its work. Until dayone cluster "+
		"uninstall gives it back, the cluster goes without:")
	for _, line := range clusterinstall.Lost() {
		fmt.Fprintln(w, "- "+line)
	}
}

func newUpgrade(c *connect.Flags) *cobra.Command {
	f, a := &installFlags{Flags: c}, &applyFlags{}
	cmd := &cobra.Command{
		Use:   "upgrade",
		Short: "Update an installation to this program's version; options that you leave out keep their values",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			t, old, err := a.target(cmd, c)
			if err != nil {
				return err
			}
			if old == nil {
				return fmt.Errorf("upgrade: dayone is not installed in namespace %s; run dayone cluster "+
					"install", t.Namespace)
			}
			f.keep(*old, cmd)
			if err := f.settle(cmd, t, old); err != nil {
				return err
			}
			return a.install(cmd, t, f)
		},
	}
	f.addKept(cmd, ": only the one that is installed; to change it, uninstall and install again")
	a.add(cmd)
	return cmd
}

func newManifests(c *connect.Flags) *cobra.Command {
	f := &installFlags{Flags: c}
	var dir string
	cmd := &cobra.Command{
		Use:   "manifests",
		Short: "Print what install would apply, or write it as a kustomize directory",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if dir == "" {
				return printObjects(cmd, f)
			}
			objects, err := f.objects(cmd)
			if err != nil {
				return err
			}
			if err := clusterinstall.WriteKustomize(dir, objects); err != nil {
				return err
			}
			fmt.Fprintf(cmd.ErrOrStderr(), "%d objects written; kubectl apply --server-side -k %s applies them "+
				"(a second time when it did not know the new kinds yet)\n", len(objects), dir)
			return nil
		},
	}
	f.add(cmd, " (default full)")
	cmd.Flags().StringVar(&dir, "kustomize", "", "directory to write; it must be empty or not exist")
	cmd.Flags().BoolVar(&f.openshift, "openshift", false, "add what install adds on OpenShift: "+
		"SecurityContextConstraints with the rights to use them, ServiceMonitors and PrometheusRules")
	return cmd
}

// objects are those of an installation; no cluster says which mode fits.
func (f *installFlags) objects(cmd *cobra.Command) ([]*unstructured.Unstructured, error) {
	if err := f.place(cmd, cluster.Full); err != nil {
		return nil, err
	}
	o, err := f.checked()
	if err != nil {
		return nil, err
	}
	o.Constrained = f.openshift
	objects, err := clusterinstall.Objects(o)
	if err != nil || !f.openshift {
		return objects, err
	}
	watched, err := cluster.Monitoring(o)
	return append(objects, watched...), err
}

// printObjects prints what an installation applies: as a stream of YAML unless JSON is asked for.
func printObjects(cmd *cobra.Command, f *installFlags) error {
	objects, err := f.objects(cmd)
	if err != nil {
		return err
	}
	if cli.Output(cmd) == "json" {
		return cli.Print(cmd, "", map[string]any{"apiVersion": "v1", "kind": "List", "items": objects}, nil)
	}
	raw, err := clusterinstall.YAML(objects)
	if err != nil {
		return err
	}
	_, err = cmd.OutOrStdout().Write(raw)
	return err
}
