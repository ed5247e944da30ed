package builderflags

import (
	"fmt"
	"os"

	"github.com/sirupsen/logrus"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/resource"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"dayone.dev/dayone/build/buildcontroller"
	"dayone.dev/dayone/build/decide"
	"dayone.dev/dayone/build/job"
	"dayone.dev/dayone/cmd/internal/cli"
)

// Flags are what an administrator can set beside what every controller program has.
type Flags struct {
	job        job.Options
	options    buildcontroller.Options
	registryCA string
	workLimit  string
	memory     string
}

// Add adds the flags to a command line.
func (f *Flags) Add(s *pflag.FlagSet) {
	s.StringVar(&f.job.BuilderImage, "image", "", "image with this program, which build pods run, best by digest")
	s.StringVar(&f.job.ServiceAccount, "build-service-account", "dayone-build",
		"service account of build pods; it needs no rights")
	s.StringVar(&f.job.PriorityClass, "build-priority-class", "dayone-build",
		"priority class of build pods; empty is the cluster's default")
	s.StringSliceVar(&f.job.ImagePullSecrets, "image-pull-secret", nil,
		"Secrets with which nodes pull --image, beside the service account's")
	s.DurationVar(&f.job.BuilderDeadline, "build-timeout", 0, "when a build gives up (default 1h)")
	s.DurationVar(&f.job.Deadline, "job-timeout", 0,
		"when a Job ends with all its attempts (default 15m after --build-timeout)")
	s.StringToStringVar(&f.job.NodeSelector, "build-node-selector", nil,
		"`LABEL=VALUE` of nodes that may build, beside the architecture (repeatable)")
	s.Lookup("build-node-selector").DefValue = "" // the library's is []
	s.StringVar(&f.workLimit, "build-disk", "", "scratch space of a build pod, such as 20Gi (default none)")
	s.StringVar(&f.memory, "build-memory", job.DefaultMemoryLimit, "memory limit of a build pod; 0 sets none")
	s.BoolVar(&f.job.Privileged, "build-privileged", false,
		"run build pods privileged; the root of such a pod is the node's")
	s.BoolVar(&f.job.PodUserNamespace, "build-pod-user-namespace", false,
		"let the runtime make the user namespace of build pods (hostUsers: false)")
	s.StringVar(&f.job.SeccompLocalhost, "build-seccomp-profile", "",
		"seccomp profile below the kubelet's directory, for kubelets with seccompDefault")
	s.StringVar(&f.job.AppArmorLocalhost, "build-apparmor-profile", "",
		"loaded AppArmor profile of build pods, which allows mounts")
	s.StringVar(&f.job.SELinuxType, "build-selinux-type", "",
		"SELinux type of build pods; container_engine_t allows mounts")
	s.StringVar(&f.registryCA, "registry-ca", "",
		"PEM file of CAs that sign registries' certificates, beside the cluster's")
	o := &f.options
	s.StringVar(&o.Platform, "platform", "", "os/architecture of the pools' nodes (default this program's)")
	s.StringVar(&o.Registry, "cluster-registry", "",
		"HOST:PORT of images that the control plane's own registries hold: builds wait until they have theirs")
	s.StringVar(&o.PullSecret, "pull-secret", buildcontroller.DefaultPullSecret,
		"Secret that pulls the base image of a MachineOSConfig that names none")
	s.IntVar(&o.Parallel, "parallel", buildcontroller.DefaultParallel, "how many builds run at once")
	s.IntVar(&o.History, "history", buildcontroller.DefaultHistory, "how many ended builds a pool keeps")
	s.IntVar(&o.Workers, "workers", buildcontroller.DefaultWorkers, "how many MachineOSConfigs are reconciled at once")
	s.IntVar(&o.Retry.RetryLimit, "retry-limit", decide.DefaultRetryLimit,
		"how many retries in a row may fail; negative never retries")
	s.DurationVar(&o.Retry.Backoff, "retry-backoff", decide.DefaultBackoff,
		"pause before the first retry; it doubles with each")
	s.DurationVar(&o.Retry.MaxBackoff, "retry-max-backoff", decide.DefaultMaxBackoff, "longest pause before a retry")
	s.DurationVar(&o.LeaveAfter, "leave-images-after", buildcontroller.DefaultLeaveAfter,
		"when a build that is deleted leaves its image behind because the registry does not delete it")
}

// Parse reads the flags from arguments of their own. image is the builder's.
func Parse(image string, args []string) (*Flags, error) {
	f := &Flags{}
	s := pflag.NewFlagSet("builder", pflag.ContinueOnError)
	f.Add(s)
	if err := s.Parse(args); err != nil {
		return nil, cli.Usagef("--builder-arg: %w", err)
	}
	f.job.BuilderImage = image
	return f, nil
}

// Options are the controller's. program is what registries log, with its version.
func (f *Flags) Options(namespace, program string, log *logrus.Entry) (buildcontroller.Options, error) {
	options := f.options
	options.Job, options.Namespace, options.Log, options.Metrics = f.job, namespace, log, ctrlmetrics.Registry
	registries := buildcontroller.Registries{UserAgent: program}
	options.Images, options.Finder, options.Sizes = registries, registries, registries
	options.Signer = registries
	if f.registryCA != "" {
		pem, err := os.ReadFile(f.registryCA)
		if err != nil {
			return options, fmt.Errorf("--registry-ca: %w", err)
		}
		options.RegistryCA = pem
	}
	for _, q := range []struct {
		flag, text string
		to         **resource.Quantity
	}{{"build-disk", f.workLimit, &options.Job.WorkLimit}, {"build-memory", f.memory, &options.Job.MemoryLimit}} {
		if q.text == "" {
			continue
		}
		limit, err := resource.ParseQuantity(q.text)
		if err != nil {
			return options, cli.Usagef("--%s: %w", q.flag, err)
		}
		*q.to = &limit
	}
	if err := options.Validate(); err != nil {
		return options, cli.Usagef("%w", err)
	}
	return options, nil
}
