package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/util/keyutil"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/hack/kube/kubetest"
	"dayone.dev/dayone/manifests/assets/cluster"
	"dayone.dev/dayone/manifests/machineconfig"
)

// publishAddress does what kubeadm does for nodes that join.
func publishAddress(t *testing.T, e *kubetest.Env) {
	t.Helper()
	raw, err := clientcmd.Write(clientcmdapi.Config{Clusters: map[string]*clientcmdapi.Cluster{"": {Server: e.Config.Host,
		CertificateAuthorityData: e.Config.CAData}}})
	require.NoError(t, err)
	require.NoError(t, e.Client.Create(t.Context(),
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespacePublic, Name: "cluster-info"},
			Data: map[string]string{"kubeconfig": string(raw)}}))
}

// TestANewNodeJoinsWithWhatItWasServed takes the kubeconfig out of a served config and does with it what a kubelet
// does, and more.
func TestANewNodeJoinsWithWhatItWasServed(t *testing.T) {
	e := kubetest.Start(t, kubetest.Options{ControllerManager: true})
	objects, err := cluster.Objects(cluster.Options{NodeAgent: true, ApproveNodes: true,
		Images: cluster.Images{Controller: "r.test/c:1", Builder: "r.test/b:1", Daemon: "r.test/d:1"}})
	require.NoError(t, err)
	for _, o := range objects {
		require.NoError(t, e.Client.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(o),
			client.FieldOwner("test"), client.ForceOwnership), o.GetName())
	}
	e.AwaitRights(t, objects)
	publishAddress(t, e)
	s := serveCluster(t, e, "--bootstrap-kubeconfig", "/nowhere")
	code, body := s.ask(string(s.secret.Data[cluster.ConfigServerToken]))
	require.Equal(t, http.StatusOK, code)
	cfg := servedKubeconfig(t, body)
	assert.InDelta(t, joinLifetime.Seconds(), lifetime(t, cfg.BearerToken).Seconds(), 60)

	c, err := client.New(cfg, client.Options{Scheme: e.Scheme})
	require.NoError(t, err)
	require.True(t, apierrors.IsForbidden(c.List(t.Context(), &corev1.SecretList{})))
	require.True(t, apierrors.IsForbidden(c.List(t.Context(), &corev1.NodeList{})))
	require.EventuallyWithT(t, func(a *assert.CollectT) { // the apiserver compiles a new policy in the background
		_, other := signingRequest(t, "other", certificatesv1.KubeAPIServerClientSignerName)
		err := c.Create(t.Context(), other, client.DryRunAll)
		assert.ErrorContains(a, err, "kubelet only")
	}, waitLimit, waitEvery)

	key, request := signingRequest(t, "new-1", certificatesv1.KubeAPIServerClientKubeletSignerName)
	require.NoError(t, c.Create(t.Context(), request))
	require.EventuallyWithT(t, func(a *assert.CollectT) {
		assert.NoError(a, c.Get(t.Context(), client.ObjectKeyFromObject(request), request))
		assert.NotEmpty(a, request.Status.Certificate, "the cluster's own approver lets it through, its signer signs")
	}, waitLimit, waitEvery)
	kubelet := rest.AnonymousClientConfig(cfg)
	kubelet.CertData, kubelet.KeyData = request.Status.Certificate, key
	node, err := client.New(kubelet, client.Options{Scheme: e.Scheme})
	require.NoError(t, err)
	require.NoError(t, node.Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "new-1"}}),
		"the node registers itself")
	require.True(t, apierrors.IsForbidden(node.Create(t.Context(),
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "new-2"}})))
}

// servedKubeconfig is the one in an Ignition config.
func servedKubeconfig(t *testing.T, body []byte) *rest.Config {
	t.Helper()
	config, err := machineconfig.ParseRendered(body)
	require.NoError(t, err)
	for _, f := range config.Storage.Files {
		if f.Path == "/etc/kubernetes/kubeconfig" {
			raw, err := machineconfig.Contents(f.Contents)
			require.NoError(t, err)
			cfg, err := clientcmd.RESTConfigFromKubeConfig(raw)
			require.NoError(t, err)
			return cfg
		}
	}
	require.FailNow(t, "no kubeconfig is served")
	return nil
}

// lifetime is a token's, from its making to its end.
func lifetime(t *testing.T, token string) time.Duration {
	t.Helper()
	raw, err := base64.RawURLEncoding.DecodeString(strings.Split(token, ".")[1])
	require.NoError(t, err)
	var claims struct{ Iat, Exp int64 }
	require.NoError(t, json.Unmarshal(raw, &claims))
	return time.Duration(claims.Exp-claims.Iat) * time.Second
}

// signingRequest is what a kubelet asks for.
func signingRequest(t *testing.T, node, signer string) ([]byte, *certificatesv1.CertificateSigningRequest) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	der, err := x509.CreateCertificateRequest(rand.Reader,
		&x509.CertificateRequest{Subject: pkix.Name{CommonName: "system:node:" + node,
			Organization: []string{"system:nodes"}}}, key)
	require.NoError(t, err)
	text, err := keyutil.MarshalPrivateKeyToPEM(key)
	require.NoError(t, err)
	return text, &certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{Name: node},
		Spec: certificatesv1.CertificateSigningRequestSpec{SignerName: signer,
			Request: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}),
			Usages:  []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth}}}
}

func TestTheCredentialOfNewNodesIsRenewedAndGivesWayToTheAdmins(t *testing.T) {
	e := shared.Env(t)
	e.InstallRights(t)
	dir := t.TempDir()
	log := logrus.New()
	log.SetOutput(io.Discard)
	c := e.ClientAs(t, cluster.DefaultNamespace, cluster.ConfigServer)
	clock := time.Now()
	j := &join{reader: c, writer: c, log: logrus.NewEntry(log), namespace: cluster.DefaultNamespace,
		given: filepath.Join(dir, "given"), file: filepath.Join(dir, "served"),
		ca: e.Config.CAData, now: func() time.Time { return clock }}
	name, err := j.begin(t.Context())
	require.NoError(t, err)
	assert.Empty(t, name, "nobody knows where the API server is: their config has to bring it")
	j.server = e.Config.Host
	served := func() string {
		require.NoError(t, j.refresh(t.Context()))
		raw, err := os.ReadFile(j.file)
		require.NoError(t, err)
		return string(raw)
	}
	first := served()
	clock = clock.Add(joinLifetime/2 - time.Minute)
	assert.Equal(t, first, served(), "more than half of its time is left")
	clock = clock.Add(2 * time.Minute)
	second := served()
	assert.NotEqual(t, first, second)
	clock = clock.Add(-72 * time.Hour)
	assert.NotEqual(t, second, served(), "a clock that was set back keeps no old token")
	require.NoError(t, os.WriteFile(j.given, []byte("apiVersion: v1\nkind: Config\nclusters: [{name: own}]\n"), 0o600))
	assert.Contains(t, served(), "name: own", "the admin's own counts as soon as it is there")
	require.NoError(t, os.Remove(j.given))
	assert.NotContains(t, served(), "name: own")
	info, err := os.Stat(j.file)
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o600), info.Mode().Perm())
}

// TestNewNodesJoinAtTheAddressOfTheInfrastructure asks where nodes reach the API server of an OpenShift cluster.
func TestNewNodesJoinAtTheAddressOfTheInfrastructure(t *testing.T) {
	e := shared.New(t)
	j := &join{reader: e.Client}
	_, _, err := j.find(t.Context())
	require.ErrorIs(t, err, errNoServer)
	infra := &configv1.Infrastructure{
		TypeMeta:   metav1.TypeMeta{APIVersion: "config.openshift.io/v1", Kind: "Infrastructure"},
		ObjectMeta: metav1.ObjectMeta{Name: "cluster"}, Spec: configv1.InfrastructureSpec{
			PlatformSpec: configv1.PlatformSpec{Type: configv1.NonePlatformType}}, Status: configv1.InfrastructureStatus{
			ControlPlaneTopology:   configv1.HighlyAvailableTopologyMode,
			InfrastructureTopology: configv1.HighlyAvailableTopologyMode,
			APIServerInternalURL:   "https://api-int.demo.example.com:6443"}}
	require.NoError(t, e.Client.Create(t.Context(), &mcfgv1.ControllerConfig{
		ObjectMeta: metav1.ObjectMeta{Name: "machine-config-controller"}, Spec: mcfgv1.ControllerConfigSpec{Infra: infra,
			Images: map[string]string{}, KubeAPIServerServingCAData: []byte("CA"), RootCAData: []byte("CA")}}))
	server, _, err := j.find(t.Context())
	require.NoError(t, err)
	assert.Equal(t, "https://api-int.demo.example.com:6443", server)
}
