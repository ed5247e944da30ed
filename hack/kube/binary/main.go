// Command kube is etcd, kube-apiserver, kube-controller-manager, kube-scheduler, kubelet, kubectl and kubeadm in
// one static program: the name it is called by, or else its first argument, says which of them runs.
//
//	Go modules -> one binary + a link per name -> a Kubernetes of this version on any machine that has Go
//
// It is a module of its own so that dayone itself does not depend on k8s.io/kubernetes, which needs a replace for each
// of its parts.
package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	_ "time/tzdata"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	"k8s.io/component-base/logs"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	kubectl "k8s.io/kubectl/pkg/cmd"
	kubectlutil "k8s.io/kubectl/pkg/cmd/util"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubeadm "k8s.io/kubernetes/cmd/kubeadm/app"
	kubeadmerrors "k8s.io/kubernetes/cmd/kubeadm/app/util/errors"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

func main() {
	run := programs()
	program, ok := run[filepath.Base(os.Args[0])]
	if !ok && len(os.Args) > 1 {
		if program, ok = run[os.Args[1]]; ok {
			os.Args = os.Args[1:]
		}
	}
	if !ok {
		fmt.Fprintf(os.Stderr, "usage: kube %s ...\n", strings.Join(slices.Sorted(maps.Keys(run)), "|"))
		os.Exit(2)
	}
	program()
}

func programs() map[string]func() {
	return map[string]func(){
		"etcd":                    func() { etcdmain.Main(os.Args) },
		"kube-apiserver":          server(apiserver.NewAPIServerCommand),
		"kube-controller-manager": server(controllermanager.NewControllerManagerCommand),
		"kube-scheduler":          server(func() *cobra.Command { return scheduler.NewSchedulerCommand() }),
		"kubelet":                 server(func() *cobra.Command { return kubelet.NewKubeletCommand(context.Background()) }),
		"kubectl":                 client,
		"kubeadm":                 bootstrapper,
	}
}

func server(command func() *cobra.Command) func() {
	return func() { os.Exit(cli.Run(command())) }
}

func bootstrapper() { kubeadmerrors.HandleError(kubeadm.Run()) }

func client() {
	if _, err := logs.GlogSetter(kubectl.GetLogVerbosity(os.Args)); err != nil {
		fmt.Fprintln(os.Stderr, "kubectl: set log verbosity:", err)
	}
	if err := cli.RunNoErrOutput(kubectl.NewDefaultKubectlCommand()); err != nil {
		kubectlutil.CheckErr(err)
	}
}
