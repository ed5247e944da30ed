// Command kube runs a real Kubernetes cluster of one node on this machine, for people who want to look at one.
//
//	up -> cluster.Up (it lives on) -> kubeconfig; status, kubectl, exec -> down: nothing left
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"github.com/sirupsen/logrus"

	"dayone.dev/dayone/hack/kube"
	"dayone.dev/dayone/hack/kube/cluster"
)

const usage = `usage: kube COMMAND [ARGUMENT...]

  up [NAME]       start a cluster and print its kubeconfig; nothing when one of the name runs
  down [NAME]     end it; nothing of it stays
  status          list the clusters of this machine and their programs
  kubectl ARG...  kubectl of the same version, as administrator
  exec ARG...     run a program in the node's namespaces
  assets          build the programs when this machine has none and print their directory
  verify          check the module of the programs

KUBE_NAME names the cluster of kubectl and exec (default: dayone).
`

// exitUsage is the status after a wrong command line.
const exitUsage = 2

var errUsage = errors.New("wrong command line")

func main() {
	cluster.Init()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	log := logrus.New()
	err := run(ctx, logrus.NewEntry(log), os.Args[1:])
	var exit *exec.ExitError
	switch {
	case errors.Is(err, errUsage):
		fmt.Fprint(os.Stderr, usage)
		stop()
		os.Exit(exitUsage)
	case errors.As(err, &exit):
		stop()
		os.Exit(exit.ExitCode())
	case err != nil:
		fmt.Fprintln(os.Stderr, "kube:", err)
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context, log *logrus.Entry, args []string) error {
	if len(args) == 0 {
		return errUsage
	}
	switch command, args := args[0], args[1:]; {
	case command == "up" && len(args) <= 1:
		return up(ctx, log, named(args))
	case command == "down" && len(args) <= 1:
		return down(ctx, named(args))
	case command == "status" && len(args) == 0:
		return status(ctx)
	case command == "kubectl":
		return inCluster(func(c *cluster.Cluster) *exec.Cmd { return c.Kubectl(ctx, args...) })
	case command == "exec" && len(args) > 0:
		return inCluster(func(c *cluster.Cluster) *exec.Cmd { return c.NodeExec(ctx, args...) })
	case command == "assets" && len(args) == 0:
		dir, err := kube.Assets(ctx, log)
		if err == nil {
			fmt.Println(dir)
		}
		return err
	case command == "verify" && len(args) == 0:
		return kube.Verify(ctx)
	}
	return errUsage
}

// named is the cluster's name on the command line.
func named(args []string) string {
	if len(args) == 1 {
		return args[0]
	}
	return cluster.DefaultName
}

func up(ctx context.Context, log *logrus.Entry, name string) error {
	running, err := cluster.Find(cluster.Options{Name: name})
	if err != nil {
		return err
	}
	if len(running) > 0 {
		describe(running[0])
		return nil
	}
	c, err := cluster.Up(ctx, cluster.Options{Name: name, Keep: true, Log: log})
	if err != nil {
		return err
	}
	describe(c)
	return nil
}

func describe(c *cluster.Cluster) {
	fmt.Printf("export KUBECONFIG=%s\n", c.Kubeconfig)
	fmt.Printf("# registry: %s here, %s in the cluster; authority %s, pull secret %s\n",
		c.Registry.Address, cluster.RegistryName, c.Registry.CAFile, c.Registry.PushAuthFile)
	fmt.Printf("# logs: %s\n", c.LogDir())
}

func down(ctx context.Context, name string) error {
	running, err := cluster.Find(cluster.Options{Name: name})
	if err != nil {
		return err
	}
	if len(running) == 0 {
		fmt.Fprintf(os.Stderr, "kube: no cluster %s runs\n", name)
	}
	var errs []error
	for _, c := range running {
		errs = append(errs, c.Down(ctx))
	}
	return errors.Join(errs...)
}

func status(ctx context.Context) error {
	running, err := cluster.Find(cluster.Options{})
	if err != nil {
		return err
	}
	for _, c := range running {
		fmt.Printf("# cluster %s\n", c.Name())
		describe(c)
		programs, err := c.Programs(ctx)
		if err != nil {
			return err
		}
		fmt.Print(programs)
	}
	return nil
}

// inCluster runs a program with this one's terminal.
func inCluster(command func(*cluster.Cluster) *exec.Cmd) error {
	name := os.Getenv("KUBE_NAME")
	if name == "" {
		name = cluster.DefaultName
	}
	running, err := cluster.Find(cluster.Options{Name: name})
	if err != nil {
		return err
	}
	if len(running) == 0 {
		return fmt.Errorf("no cluster %s runs: start one: go run ./hack/kube/cmd/kube up", name)
	}
	cmd := command(running[0])
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	return cmd.Run()
}
