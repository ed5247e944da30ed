package nodecontroller_test

import (
	"encoding/base64"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dayone.dev/dayone/manifests/assets/cluster"
	"dayone.dev/dayone/manifests/machineconfig"
	"dayone.dev/dayone/rebase/deploy"
	"dayone.dev/dayone/rebase/deploy/deploytest"
	"dayone.dev/dayone/rebase/deploy/pull"
	"dayone.dev/dayone/rebase/firstboot"
	"dayone.dev/dayone/rebase/nodecontroller"
	"dayone.dev/dayone/rebase/target"
)

// rendered makes a rendered config with files, given as path and content.
func (f *fixture) rendered(name string, files ...string) *mcfgv1.MachineConfig {
	f.Helper()
	text := ""
	for i := 0; i+1 < len(files); i += 2 {
		text += fmt.Sprintf(`,{"path":%q,"mode":420,"contents":{"source":"data:;base64,%s"}}`, files[i],
			base64.StdEncoding.EncodeToString([]byte(files[i+1])))
	}
	mc := &mcfgv1.MachineConfig{ObjectMeta: metav1.ObjectMeta{Name: name}}
	mc.Spec.Config.Raw = []byte(
		`{"ignition":{"version":"3.5.0"},"storage":{"files":[{"path":"/etc/motd","contents":{"source":"data:,` + name +
			`"}}` + text + `]}}`)
	f.create(mc)
	return mc
}

// TestTheCheckLooksAsTheNodesDo asks a registry with TLS and accounts, under the controller's own rights on a real API
// server.
func TestTheCheckLooksAsTheNodesDo(t *testing.T) {
	g := deploytest.StartRegistry(t)
	f := newFixture(t, nodecontroller.Options{})
	auth, err := os.ReadFile(g.AuthFile)
	require.NoError(t, err)
	ca := string(g.Authority.PEM)
	certs := "/etc/containers/certs.d/" + g.Addr + "/ca.crt"
	good := f.rendered("rendered-check-good", certs, ca, "/var/lib/kubelet/config.json", string(auth))
	bare := f.rendered("rendered-check-bare")
	certOnly := f.rendered("rendered-check-cert", certs, ca)
	mirrored := f.rendered("rendered-check-mirror", certs, ca, firstboot.AuthPath, string(auth),
		"/etc/containers/registries.conf",
		fmt.Sprintf("[[registry]]\nlocation = \"os.example.com/os/node\"\n[[registry.mirror]]\nlocation = %q\n",
			g.Addr+"/os/node"))

	push := func(of *mcfgv1.MachineConfig, change func(*deploytest.Options)) string {
		o := deploytest.Options{Labels: map[string]string{"containers.bootc": "1"}}
		if of != nil {
			hash, err := machineconfig.ContentHash(of.Spec)
			require.NoError(t, err)
			o.Labels[firstboot.LabelConfigHash], o.Labels[firstboot.LabelRenderedConfig] = hash, of.Name
		}
		if change != nil {
			change(&o)
		}
		return g.Push(t, deploytest.Image(t, o, deploytest.Layer(t, deploytest.Base("1")...)), "os/node")
	}
	none := func(o *deploytest.Options) { delete(o.Labels, "containers.bootc") }
	mco := func(config string) func(*deploytest.Options) {
		return func(o *deploytest.Options) { o.Labels["machineconfig"] = config }
	}
	absent := g.Addr + "/os/node@sha256:" + fmt.Sprintf("%064d", 4711)
	fits := push(good, nil)
	_, digest, _ := strings.Cut(push(mirrored, nil), "@")
	check := nodecontroller.ImageCheck{Client: f.c}
	for _, c := range []struct {
		name     string
		image    string
		config   *mcfgv1.MachineConfig
		arch     []string
		preBuilt bool
		want     deploy.Class
		says     string
	}{
		{"fits", fits, good, nil, false, "", ""},
		{"through the config's mirror", "os.example.com/os/node@" + digest, mirrored, nil, false, "", ""},
		{"built by MCO for this config", push(nil, mco(good.Name)), good, nil, false, "", ""},
		{"pre-built, says nothing", push(nil, nil), good, nil, true, "", ""},
		{"says nothing", push(nil, nil), good, nil, false, deploy.ClassUnlike,
			"nothing says that it holds config"},
		{"built by MCO for another config", push(nil, mco("rendered-x")), good, nil, true, deploy.ClassUnlike,
			"holds config rendered-x"},
		{"built for another config", push(bare, nil), good, nil, true, deploy.ClassUnlike, "holds config " +
			bare.Name},
		{"for another architecture", fits, good, []string{runtime.GOARCH, "s390x"}, false,
			deploy.ClassArchitecture, "s390x"},
		{"does not boot", push(good, none), good, nil, false, deploy.ClassNotBootable,
			"containers.bootc"},
		{"is not there", absent, good, nil, false, deploy.ClassNotFound, ""},
		{"the nodes do not trust the registry", push(bare, nil), bare, nil, false, deploy.ClassUntrusted, ""},
		{"the nodes have no account", push(certOnly, nil), certOnly, nil, false, deploy.ClassUnauthorized,
			""},
		{"the rendered config is gone", fits,
			&mcfgv1.MachineConfig{ObjectMeta: metav1.ObjectMeta{Name: "rendered-none"}}, nil, false, deploy.ClassInternal,
			"rendered-none"},
		{"nothing listens at the registry's address", "127.0.0.1:1/os/node@" + digest, good, nil, false,
			deploy.ClassUnreachable, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.arch == nil {
				c.arch = []string{runtime.GOARCH}
			}
			err := check.Check(t.Context(), nodecontroller.Question{Target: target.Target{Config: c.config.Name,
				Image: c.image}, Architectures: c.arch, PreBuilt: c.preBuilt})
			if c.want == "" {
				require.NoError(t, err)
				return
			}
			require.Error(t, err)
			assert.Equal(t, c.want, deploy.ClassOf(err), err)
			assert.Contains(t, err.Error(), c.says)
			assert.NotContains(t, err.Error(), deploytest.Password)
		})
	}
	t.Run("the config's signature policy counts", func(t *testing.T) {
		f := &fixture{T: t, env: f.env, c: f.c}
		key := deploytest.NewKey(t)
		files := []string{certs, ca, "/var/lib/kubelet/config.json", string(auth),
			"/etc/containers/registries.d/x.yaml", string(deploytest.Attachments(g.Addr))}
		ask := func(config *mcfgv1.MachineConfig, image string) error {
			return check.Check(t.Context(), nodecontroller.Question{Target: target.Target{Config: config.Name, Image: image},
				Architectures: []string{runtime.GOARCH}})
		}
		policy := string(deploytest.Policy(g.Addr, deploytest.Required(key)))
		signed := f.rendered("rendered-check-signed", append(files, pull.PolicyPath, policy)...)
		image := push(signed, nil)
		err := ask(signed, image)
		assert.Equal(t, deploy.ClassUnsigned, deploy.ClassOf(err), err)
		assert.ErrorContains(t, err, "next: sign the image")
		g.Sign(t, key, image, image)
		require.NoError(t, ask(signed, image))
		policy = `{"default":[{"type":"sigstoreSigned","keyPath":"/etc/pki/only-on-nodes.pub"}]}`
		elsewhere := f.rendered("rendered-check-elsewhere", append(files, pull.PolicyPath, policy)...)
		require.NoError(t, ask(elsewhere, push(elsewhere, nil)), "the nodes say")
	})
	t.Run("the account that new nodes begin with counts", func(t *testing.T) {
		f := &fixture{T: t, env: f.env, c: f.c}
		s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.DefaultNamespace,
			Name: cluster.RegistryNewNodes}, Data: map[string][]byte{corev1.DockerConfigJsonKey: auth}}
		q := nodecontroller.Question{Target: target.Target{Config: certOnly.Name, Image: push(certOnly, nil)},
			Architectures: []string{runtime.GOARCH}}
		require.Equal(t, deploy.ClassUnauthorized, deploy.ClassOf(check.Check(t.Context(), q)))
		f.create(s)
		require.NoError(t, check.Check(t.Context(), q))
		require.NoError(t, f.c.Delete(t.Context(), s))
	})
	t.Run("the cluster's pull secret and certificates count", func(t *testing.T) {
		f := &fixture{T: t, env: f.env, c: f.c}
		f.create(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.PullSecretNamespace,
			Name: cluster.PullSecretName}, Type: corev1.SecretTypeDockerConfigJson,
			Data: map[string][]byte{corev1.DockerConfigJsonKey: auth}})
		q := nodecontroller.Question{Target: target.Target{Config: certOnly.Name, Image: push(certOnly, nil)},
			Architectures: []string{runtime.GOARCH}}
		require.NoError(t, check.Check(t.Context(), q))
	})
}
