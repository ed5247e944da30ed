package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"dayone.dev/dayone/cmd/internal/cli"
	"dayone.dev/dayone/cmd/internal/connect"
	"dayone.dev/dayone/manifests/assets/cluster"
)

// defaultWait bounds how long install waits for the cluster: pulling an image on a slow line takes minutes.
const defaultWait = 5 * time.Minute

// installFlags are what install, upgrade and manifests have in common.
type installFlags struct {
	*connect.Flags
	images           imageFlags
	imagePullSecret  string
	baseImage        string
	builderArgs      []string
	replicas         int32
	nodeAgent        bool
	apiServer        string
	approveNodes     bool
	privilegedBuilds bool
}

func (f *installFlags) add(cmd *cobra.Command) {
	s := cmd.Flags()
	s.StringArrayVar((*[]string)(&f.images), "image", nil,
		"REF of an image that has all programs, or controller=REF, builder=REF, daemon=REF; best by digest")
	s.StringVar(&f.imagePullSecret, "image-pull-secret", "", "Secret of the namespace with which nodes pull --image")
	s.StringVar(&f.baseImage, "base-image", "", "OS image of a cluster without a ControllerConfig, by digest")
	s.StringArrayVar(&f.builderArgs, "builder-arg", nil,
		"argument of machine-os-builder start, such as --build-pod-user-namespace; may be repeated")
	s.Int32Var(&f.replicas, "replicas", 0, "copies of dayone-controller (default 2, or 1 on a cluster of one node)")
	s.BoolVar(&f.nodeAgent, "node-agent", false, "also install the agent on every node")
	s.StringVar(&f.apiServer, "api-server", "",
		"where new nodes reach the API server, such as https://api.example.com:6443; default: what the cluster says")
	s.BoolVar(&f.approveNodes, "approve-nodes", false,
		"let the cluster sign the certificates of new nodes without a person's approval")
	s.BoolVar(&f.privilegedBuilds, "privileged-builds", false, "let the namespace run privileged build pods")
}

// remember takes from an earlier installation what the command line leaves open.
func (f *installFlags) remember(cmd *cobra.Command, old cluster.Options) error {
	images, err := f.images.images(old.Images)
	if err != nil {
		return err
	}
	f.images = imageFlags{"controller=" + images.Controller, "builder=" + images.Builder, "daemon=" + images.Daemon}
	for name, take := range map[string]func(){
		"image-pull-secret": func() { f.imagePullSecret = old.ImagePullSecret },
		"base-image":        func() { f.baseImage = old.BaseImage },
		"builder-arg":       func() { f.builderArgs = old.BuilderArgs },
		"replicas":          func() { f.replicas = old.Replicas },
		"node-agent":        func() { f.nodeAgent = old.NodeAgent },
		"api-server":        func() { f.apiServer = old.APIServer },
		"approve-nodes":     func() { f.approveNodes = old.ApproveNodes },
		"privileged-builds": func() { f.privilegedBuilds = old.PrivilegedBuilds },
	} {
		if !cmd.Flags().Changed(name) {
			take()
		}
	}
	return nil
}

func (f *installFlags) options(known cluster.Images) (cluster.Options, error) {
	images, err := f.images.images(known)
	if err != nil {
		return cluster.Options{}, err
	}
	switch {
	case images == (cluster.Images{}):
		return cluster.Options{},
			cli.Usagef("--image is needed: the reference of an image with dayone-controller and machine-os-builder")
	case images.Controller == "":
		return cluster.Options{}, cli.Usagef("--image controller=REF is needed, too")
	case images.Builder == "":
		return cluster.Options{}, cli.Usagef("--image builder=REF is needed, too")
	case images.Daemon == "" && f.nodeAgent:
		return cluster.Options{}, cli.Usagef("--image daemon=REF is needed, too, with --node-agent")
	}
	o := cluster.Options{Namespace: f.Namespace, Version: version, Images: images, ImagePullSecret: f.imagePullSecret,
		BaseImage: f.baseImage, BuilderArgs: f.builderArgs, Replicas: f.replicas,
		NodeAgent: f.nodeAgent, APIServer: f.apiServer, ApproveNodes: f.approveNodes, PrivilegedBuilds: f.privilegedBuilds}
	if err := o.Validate(); err != nil {
		return o, cli.Usagef("%w", err)
	}
	return o, nil
}

func newClusterInstall(c *connect.Flags) *cobra.Command {
	f := &installFlags{Flags: c}
	var dryRun bool
	w := &waiting{}
	var force bool
	cmd := &cobra.Command{
		Use:   "install",
		Short: "Install dayone's controllers in a cluster, or bring them up to date",
		Long: "Install applies CRDs, roles, policies and the controllers server-side and waits until they work. It can " +
			"be repeated: what an older version had " +
			"and this one has not is removed. CRDs that belong to the cluster already are left as they are.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if dryRun {
				return printObjects(cmd, f)
			}
			return install(cmd, f, w, force)
		},
	}
	f.add(cmd)
	w.add(cmd)
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "print the objects (-o yaml or json) and talk to no cluster")
	cmd.Flags().BoolVar(&force, "force-conflicts", false, "take over fields that somebody else manages")
	return cmd
}

func newClusterUpgrade(c *connect.Flags) *cobra.Command {
	f := &installFlags{Flags: c}
	w := &waiting{}
	var force bool
	cmd := &cobra.Command{
		Use:   "upgrade",
		Short: "Bring an installation up to this program's version; what is not said stays as it was",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			api, _, err := f.Client()
			if err != nil {
				return err
			}
			old, err := (&installer{client: api, namespace: f.Namespace}).record(cmd.Context())
			if err != nil {
				return err
			}
			if old == nil {
				return fmt.Errorf("upgrade: dayone is not installed in namespace %s; dayone cluster install "+
					"does it", f.Namespace)
			}
			if err := f.remember(cmd, old.Options); err != nil {
				return err
			}
			return install(cmd, f, w, force)
		},
	}
	f.add(cmd)
	w.add(cmd)
	cmd.Flags().BoolVar(&force, "force-conflicts", false, "take over fields that somebody else manages")
	return cmd
}

func install(cmd *cobra.Command, f *installFlags, w *waiting, force bool) error {
	o, err := f.options(cluster.Images{})
	if err != nil {
		return err
	}
	api, cfg, err := f.Client()
	if err != nil {
		return err
	}
	in := &installer{client: api, namespace: f.Namespace, force: force, out: cmd.ErrOrStderr()}
	ctx, cancel := context.WithTimeout(cmd.Context(), w.limit())
	defer cancel()
	if err := in.preflight(ctx, cfg); err != nil {
		return err
	}
	in.asked = o
	if o.Replicas == 0 {
		if o.Replicas, err = in.copies(ctx); err != nil {
			return err
		}
	}
	if err := in.install(ctx, o); err != nil {
		return w.explain(ctx, err)
	}
	if w.skip {
		in.say("applied; not waited for")
		return nil
	}
	if err := in.awaitAvailable(ctx); err != nil {
		return w.explain(ctx, err)
	}
	in.say("dayone %s is installed in namespace %s; a MachineOSConfig opts its pool in", version, f.Namespace)
	return nil
}

// waiting is how long a command waits for the cluster.
type waiting struct {
	timeout time.Duration
	skip    bool
}

func (w *waiting) add(cmd *cobra.Command) {
	cmd.Flags().DurationVar(&w.timeout, "timeout", defaultWait, "how long to wait for the cluster in all")
	cmd.Flags().BoolVar(&w.skip, "no-wait", false, "do not wait until the controllers work")
}

func (w *waiting) limit() time.Duration { return max(w.timeout, time.Second) }

// explain says that time was up when it was.
func (w *waiting) explain(ctx context.Context, err error) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return fmt.Errorf("%w (gave up after %s; the same command goes on where it ended)", err, w.limit())
	}
	return err
}
