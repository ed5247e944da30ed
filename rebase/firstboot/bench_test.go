package firstboot

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/rebase/deploy"
	"dayone.dev/dayone/rebase/deploy/deploytest"
	"dayone.dev/dayone/rebase/deploy/host"
	"dayone.dev/dayone/rebase/nodedisk"
)

// repository is the image's final name; nothing answers there.
const repository = "registry.invalid/ocp/master-os"

// instant is a deployer whose pull, stage and reboot take no time.
type instant struct {
	status deploy.Status
	next   deploy.Image
	down   context.CancelFunc
}

func (d *instant) Status(context.Context) (deploy.Status, error) { return d.status, nil }

func (d *instant) Stage(_ context.Context, image deploy.Image, _ deploy.StageOptions) error {
	d.next = image
	return nil
}

func (d *instant) Reboot(context.Context) error {
	d.down()
	return nil
}

// BenchmarkOwnOverhead is both boots of first boot, preflight at a registry included, without pull, stage and reboot.
func BenchmarkOwnOverhead(b *testing.B) {
	g := deploytest.StartRegistry(b)
	img := deploytest.Image(b, deploytest.Options{}, deploytest.Layer(b, deploytest.Base("1")...))
	ref := g.Push(b, img, "ocp/master-os")
	final := strings.Replace(ref, g.Addr, "registry.invalid", 1)
	mirrors, _, err := mirrorDropIn([]Mirror{{Repository: repository, Location: g.Addr + "/ocp/master-os"}})
	require.NoError(b, err)
	ca, err := os.ReadFile(filepath.Join(g.CertsDir, g.Addr, "ca.crt"))
	require.NoError(b, err)
	auth, err := os.ReadFile(g.AuthFile)
	require.NoError(b, err)
	var served mcfgv1.MachineConfig
	served.Name = "rendered-master-final"
	served.Spec.OSImageURL = final
	config, err := json.Marshal(served)
	require.NoError(b, err)
	for b.Loop() {
		b.StopTimer()
		root := b.TempDir()
		for _, c := range []struct {
			name    string
			content []byte
		}{{ConfigPath, []byte(`{"version":1}`)}, {encapsulatedPath, config},
			{MirrorPath, []byte(mirrors)},
			{certsDir + "/" + g.Addr + "/ca.crt", ca}, {PullAuthPath, auth}} {
			require.NoError(b, nodedisk.WriteFile(filepath.Join(root, c.name), c.content, 0o600))
		}
		b.StartTimer()
		bothBoots(b, root, final)
	}
}

func bothBoots(b *testing.B, root, final string) {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), time.Minute)
	defer cancel()
	d := &instant{status: deploy.Status{Booted: &deploy.Deployment{Commit: "stock"}}, down: cancel}
	boot := "first"
	o := Options{Root: root, BootID: func() (string, error) { return boot, nil },
		Choose: func(context.Context, string, deploy.Kind, *logrus.Entry) (host.Choice, error) {
			return host.Choice{Deployer: d, Kind: deploy.KindOSTree}, nil
		}}
	require.NoError(b, Run(ctx, o))
	require.Equal(b, final, d.next.String())
	d.status.Booted, boot = &deploy.Deployment{Image: d.next}, "second"
	require.NoError(b, Run(b.Context(), o))
	require.FileExists(b, filepath.Join(root, StateDir, "done"))
}
