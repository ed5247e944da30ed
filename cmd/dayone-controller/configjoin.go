package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	renameio "github.com/google/renameio/v2"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/sirupsen/logrus"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/manifests/assets/cluster"
)

const (
	// joinLifetime is how long the credential in a new node's config counts: from Ignition's fetch over the pull of the
	// image to the kubelet's first request half of it is left at worst, also on a slow line.
	joinLifetime = 24 * time.Hour
	// joinInterval is how often it is looked whether the credential is due, or the admin's own has come or changed.
	joinInterval = time.Minute
)

// join keeps the file with the kubeconfig with which new nodes ask for their certificate. It is the admin's own, where
// there is one; else it has a token that is made here, that may only ask for a kubelet's certificate, and that is
// replaced when half of its time is over. No such token is stored in the cluster.
type join struct {
	reader client.Reader
	writer client.Client
	log    *logrus.Entry
	// namespace is the service account's; given is the admin's kubeconfig, which may be missing; file is what is served.
	namespace, given, file string
	// server is the API server's address for nodes, empty: the cluster says it; ca signed its certificate, PEM.
	server string
	ca     []byte
	now    func() time.Time

	renew time.Time
}

// errNoServer: nobody says where new nodes reach the API server.
var errNoServer = errors.New(
	"new nodes get no kubeconfig: the address of the API server is not known; give --api-server-url (dayone cluster " +
		"install --api-server URL), " +
		"or a kubeconfig of your own in the Secret " + cluster.NodeBootstrap)

// refresh brings the file up to date.
func (j *join) refresh(ctx context.Context) error {
	own, err := os.ReadFile(j.given)
	if err == nil && j.given != "" {
		j.renew = time.Time{} // should it go again
		return j.write(own)
	}
	if j.given != "" && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("read --bootstrap-kubeconfig: %w", err)
	}
	// A clock that was set back must not keep an old token.
	if left := j.renew.Sub(j.now()); left > 0 && left <= joinLifetime {
		return nil
	}
	server, ca, err := j.find(ctx)
	if err != nil {
		return err
	}
	token, until, err := j.token(ctx)
	if err != nil {
		return err
	}
	raw, err := clientcmd.Write(clientcmdapi.Config{CurrentContext: "bootstrap",
		Clusters:  map[string]*clientcmdapi.Cluster{"cluster": {Server: server, CertificateAuthorityData: ca}},
		AuthInfos: map[string]*clientcmdapi.AuthInfo{"bootstrap": {Token: token}},
		Contexts:  map[string]*clientcmdapi.Context{"bootstrap": {Cluster: "cluster", AuthInfo: "bootstrap"}}})
	if err != nil {
		return fmt.Errorf("write kubeconfig of new nodes: %w", err)
	}
	if err := j.write(raw); err != nil {
		return err
	}
	// The API server may give a shorter time than asked for.
	j.renew = j.now().Add(until.Sub(j.now()) / 2)
	j.log.WithFields(logrus.Fields{"server": server, "until": until.UTC().Format(time.RFC3339)}).
		Info("new nodes join with a new token")
	return nil
}

// token is a new one of the account that may ask for a kubelet's certificate.
func (j *join) token(ctx context.Context) (string, time.Time, error) {
	seconds := int64(joinLifetime / time.Second)
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: j.namespace, Name: cluster.NodeBootstrap}}
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds}}
	if err := j.writer.SubResource("token").Create(ctx, account, request); err != nil {
		return "", time.Time{}, fmt.Errorf("make a token of service account %s/%s for new nodes: %w", j.namespace,
			cluster.NodeBootstrap, err)
	}
	return request.Status.Token, request.Status.ExpirationTimestamp.Time, nil
}

// find gives the API server's address as nodes reach it, and its CA: from the flags, from the ControllerConfig, or as
// kubeadm publishes it for nodes that join.
func (j *join) find(ctx context.Context) (string, []byte, error) {
	if j.server != "" {
		return j.server, j.ca, nil
	}
	var controllers mcfgv1.ControllerConfigList
	if err := j.reader.List(ctx, &controllers); err == nil && len(controllers.Items) > 0 {
		if infra := controllers.Items[0].Spec.Infra; infra != nil && infra.Status.APIServerInternalURL != "" {
			return infra.Status.APIServerInternalURL, j.ca, nil
		}
	}
	var info corev1.ConfigMap
	err := j.reader.Get(ctx, client.ObjectKey{Namespace: metav1.NamespacePublic, Name: "cluster-info"}, &info)
	if apierrors.IsNotFound(err) {
		return "", nil, errNoServer
	}
	if err != nil {
		return "", nil, fmt.Errorf("read ConfigMap %s/cluster-info: %w", metav1.NamespacePublic, err)
	}
	published, err := clientcmd.Load([]byte(info.Data["kubeconfig"]))
	if err != nil {
		return "", nil, fmt.Errorf("read ConfigMap %s/cluster-info: %w", metav1.NamespacePublic, err)
	}
	for _, c := range published.Clusters {
		if c.Server != "" {
			return c.Server, c.CertificateAuthorityData, nil
		}
	}
	return "", nil, errNoServer
}

// write replaces the served file when its content is another one.
func (j *join) write(raw []byte) error {
	have, err := os.ReadFile(j.file)
	if err == nil && bytes.Equal(have, raw) {
		return nil
	}
	if err := renameio.WriteFile(j.file, raw, 0o600); err != nil {
		return fmt.Errorf("write kubeconfig of new nodes: %w", err)
	}
	return nil
}

// begin makes the file and gives its name; empty: the API server's address for nodes is unknown, and their own config
// must bring it.
func (j *join) begin(ctx context.Context) (string, error) {
	err := j.refresh(ctx)
	if errors.Is(err, errNoServer) {
		j.log.Warn(err.Error())
		return "", nil
	}
	return j.file, err
}

// run refreshes until ctx ends. A failure is tried again; what is served meanwhile has half of its time left.
func (j *join) run(ctx context.Context) error {
	return everyTick(ctx, joinInterval, func() error {
		if err := j.refresh(ctx); err != nil && ctx.Err() == nil {
			j.log.WithError(err).Warn("credential of new nodes not renewed")
		}
		return nil
	})
}
