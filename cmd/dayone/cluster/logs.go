package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/spf13/cobra"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/build/appendengine"
	"dayone.dev/dayone/build/buildlog"
	"dayone.dev/dayone/build/job"
	"dayone.dev/dayone/build/machineosbuild"
	"dayone.dev/dayone/cmd/internal/cli"
	"dayone.dev/dayone/cmd/internal/connect"
	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/render"
	"dayone.dev/dayone/registry/credentials"
)

// buildLogs shows the log of a pool's build: from its pod while that is at work, from the registry afterwards.
type buildLogs struct {
	flags                             *connect.Flags
	build, registry, caFile, authFile string
	follow                            bool

	client client.Client
	config *rest.Config
}

// newClusterLogsCommand is dayone cluster logs.
func newLogs(flags *connect.Flags) *cobra.Command {
	l := &buildLogs{flags: flags}
	cmd := &cobra.Command{
		Use:   "logs POOL",
		Short: "Show the log of a pool's newest build, also when its pod is gone",
		Long: "Logs prints what the newest build of a pool said. While the build is at work it comes from its pod, " +
			"afterwards from the registry,\n" +
			"where it lies beside the image; -o json adds what it is the log of. When the registry has none, the cause " +
			"of the build's state\n" +
			"is printed and the exit status is 1. The credentials are those of the MachineOSConfig's push Secret, unless " +
			"a file is given.",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return l.run(cmd, args[0]) },
	}
	f := cmd.Flags()
	f.StringVar(&l.build, "build", "", "the MachineOSBuild whose log to show (default: the pool's newest)")
	f.BoolVarP(&l.follow, "follow", "f", false, "go on while the build is at work")
	f.StringVar(&l.registry, "registry", "",
		"HOST:PORT under which this machine reaches the registry (default: its name in the image)")
	f.StringVar(&l.caFile, "registry-ca", "",
		"PEM file of the authority of the registry's certificate (default: the cluster's trust bundle)")
	f.StringVar(&l.authFile, "registry-auth", "", "auth.json for the registry (default: the push Secret)")
	return cmd
}

func (l *buildLogs) run(cmd *cobra.Command, pool string) error {
	var err error
	if l.client, l.config, err = l.flags.Client(); err != nil {
		return err
	}
	ctx := cmd.Context()
	b, err := l.find(ctx, pool)
	if err != nil {
		return err
	}
	if machineosbuild.StateOf(b).Active() {
		return l.atWork(cmd, b, pool)
	}
	kept, err := l.kept(ctx, b)
	if errors.Is(err, buildlog.ErrNotFound) {
		state, cause := machineosbuild.StateOf(b), machineosbuild.CauseOf(b).Text()
		err = fmt.Errorf("show log of MachineOSBuild %s: %w; on standard output is the build's cause", b.Name, err)
		return errors.Join(cli.Print(cmd, map[string]any{"machineOSBuild": b.Name, "pool": pool, "outcome": state,
			"cause": cause}, func(w io.Writer) error {
			_, err := fmt.Fprintf(w, "%s: %s\n", state, cause)
			return err
		}), err)
	}
	if err != nil {
		return err
	}
	return printLog(cmd, map[string]any{
		"machineOSBuild": kept.Build, "pool": kept.Pool, "outcome": kept.Outcome, "image": kept.Image,
		"created": kept.Created.Format(time.RFC3339), "text": string(kept.Text),
	})
}

// printLog prints a log's text alone, or as -o asks for with what it is the log of.
func printLog(cmd *cobra.Command, log map[string]any) error {
	return cli.Print(cmd, log, func(w io.Writer) error {
		_, err := fmt.Fprint(w, log["text"])
		return err
	})
}

// atWork prints the log of a pod as it comes; as data it is printed in one piece.
func (l *buildLogs) atWork(cmd *cobra.Command, b *mcfgv1.MachineOSBuild, pool string) error {
	if o, _ := cmd.Flags().GetString("output"); o == "text" {
		return l.live(cmd.Context(), cmd.OutOrStdout(), b)
	}
	var text strings.Builder
	if err := l.live(cmd.Context(), &text, b); err != nil {
		return err
	}
	return printLog(cmd, map[string]any{"machineOSBuild": b.Name, "pool": pool, "outcome": machineosbuild.StateOf(b),
		"text": text.String()})
}

// find gives the build that was named, or the pool's newest.
func (l *buildLogs) find(ctx context.Context, pool string) (*mcfgv1.MachineOSBuild, error) {
	var list mcfgv1.MachineOSBuildList
	if err := l.client.List(ctx, &list,
		client.MatchingLabels{manifests.LabelTargetPool: machineosbuild.LabelValue(pool)}); meta.IsNoMatchError(err) {
		return nil, errors.New(
			"find build: the cluster knows no MachineOSBuilds: is it the right one? dayone cluster install brings them")
	} else if err != nil {
		return nil, fmt.Errorf("list builds of pool %s: %w", pool, err)
	}
	builds := list.Items
	if l.build != "" {
		builds = slices.DeleteFunc(builds, func(b mcfgv1.MachineOSBuild) bool { return b.Name != l.build })
	}
	if len(builds) == 0 && l.build != "" {
		return nil, fmt.Errorf("find build: pool %s has no MachineOSBuild %s; kubectl get machineosbuilds lists them", pool,
			l.build)
	}
	if len(builds) == 0 {
		return nil, fmt.Errorf(
			"find build: pool %s has no MachineOSBuild: dayone cluster status tells whether the pool is opted in and the "+
				"builder runs", pool)
	}
	newest := slices.MaxFunc(builds,
		func(a, b mcfgv1.MachineOSBuild) int { return a.CreationTimestamp.Compare(b.CreationTimestamp.Time) })
	return &newest, nil
}

// live copies the log of the pod that is at work.
func (l *buildLogs) live(ctx context.Context, out io.Writer, b *mcfgv1.MachineOSBuild) error {
	var pods corev1.PodList
	if err := l.client.List(ctx, &pods, client.InNamespace(l.flags.Namespace),
		client.MatchingLabels{batchv1.JobNameLabel: job.JobName(b.Name)}); err != nil {
		return fmt.Errorf("list pods of MachineOSBuild %s: %w", b.Name, err)
	}
	if len(pods.Items) == 0 {
		return fmt.Errorf("show log of MachineOSBuild %s: it is being prepared and has no pod yet; try again", b.Name)
	}
	newest := slices.MaxFunc(pods.Items, func(a,
		b corev1.Pod) int {
		return a.CreationTimestamp.Compare(b.CreationTimestamp.Time)
	})
	clients, err := kubernetes.NewForConfig(l.config)
	if err != nil {
		return err
	}
	body, err := clients.CoreV1().Pods(l.flags.Namespace).
		GetLogs(newest.Name, &corev1.PodLogOptions{Container: job.Container, Follow: l.follow}).Stream(ctx)
	if err != nil {
		return fmt.Errorf("read log of pod %s: %w", newest.Name, err)
	}
	defer body.Close()
	if _, err := io.Copy(out, body); err != nil {
		return fmt.Errorf("read log of pod %s: %w", newest.Name, err)
	}
	return nil
}

// kept reads the log from the registry.
func (l *buildLogs) kept(ctx context.Context, b *mcfgv1.MachineOSBuild) (*buildlog.Log, error) {
	ref, err := name.ParseReference(string(b.Spec.RenderedImagePushSpec))
	if err != nil {
		return nil, fmt.Errorf("read push spec of MachineOSBuild %s: %w", b.Name, err)
	}
	named := ref.Context().Name()
	repository := named
	if l.registry != "" {
		repository = l.registry + "/" + ref.Context().RepositoryStr()
	}
	dir, err := os.MkdirTemp("", "dayone-logs-")
	if err != nil {
		return nil, fmt.Errorf("make directory for credentials: %w", err)
	}
	defer os.RemoveAll(dir)
	access := appendengine.Access{CAFile: l.caFile, AuthFile: l.authFile}
	if access.AuthFile == "" {
		access.AuthFile = filepath.Join(dir, "auth.json")
		if err := l.writeAuth(ctx, b, [2]string{named, repository}, access.AuthFile); err != nil {
			return nil, fmt.Errorf("%w; or give credentials with --registry-auth", err)
		}
	}
	if bundle := l.trustBundle(ctx); access.CAFile == "" && len(bundle) > 0 {
		access.CAFile = filepath.Join(dir, "ca.crt")
		if err := os.WriteFile(access.CAFile, bundle, 0o600); err != nil {
			return nil, fmt.Errorf("write trust bundle: %w", err)
		}
	}
	registry, err := appendengine.NewClient(access)
	if err != nil {
		return nil, err
	}
	defer registry.Close()
	_, digest, _ := strings.Cut(string(b.Status.DigestedImagePushSpec), "@")
	return buildlog.Read(ctx, registry, repository, b.Name, digest)
}

// writeAuth writes the push Secret's credentials for the repository, under the second name.
func (l *buildLogs) writeAuth(ctx context.Context, b *mcfgv1.MachineOSBuild, repository [2]string, file string) error {
	auth, err := l.pushSecret(ctx, b)
	if err != nil {
		return err
	}
	if auth, err = credentials.ForName(auth, repository[0], repository[1]); err != nil {
		return err
	}
	return credentials.Write(file, auth)
}

// trustBundle is the cluster's. Without the right to read it, this machine's own authorities may do.
func (l *buildLogs) trustBundle(ctx context.Context) []byte {
	var cc mcfgv1.ControllerConfig
	if err := l.client.Get(ctx, client.ObjectKey{Name: render.ControllerConfigName}, &cc); err != nil {
		return nil
	}
	return cc.Spec.AdditionalTrustBundle
}

func (l *buildLogs) pushSecret(ctx context.Context, b *mcfgv1.MachineOSBuild) ([]byte, error) {
	var c mcfgv1.MachineOSConfig
	if err := l.client.Get(ctx, client.ObjectKey{Name: b.Spec.MachineOSConfig.Name}, &c); err != nil {
		return nil, fmt.Errorf("read MachineOSConfig %s: %w", b.Spec.MachineOSConfig.Name, err)
	}
	var s corev1.Secret
	key := client.ObjectKey{Namespace: l.flags.Namespace, Name: c.Spec.RenderedImagePushSecret.Name}
	if err := l.client.Get(ctx, key, &s); err != nil {
		return nil, fmt.Errorf("read push Secret %s: %w", key, err)
	}
	auth, err := credentials.Canonical(s.Data)
	if err != nil {
		return nil, fmt.Errorf("read push Secret %s: %w", key, err)
	}
	return auth, nil
}
