package main

import (
	"context"
	"crypto/rand"
	"crypto/sha512"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/manifests/assets/cluster"
	"dayone.dev/dayone/registry/certs"
)

// renewInterval is how often the server's certificate is made anew; it is valid far longer.
const renewInterval = 24 * time.Hour

// serverIdentity is what makes new nodes trust the server and the server trust new nodes. All copies of the server
// share the authority and the token, which live in a Secret.
type serverIdentity struct {
	ca                *certs.CA
	token             string
	certFile, keyFile string
}

// loadIdentity reads the Secret, or makes it when it is missing.
func loadIdentity(ctx context.Context, reader client.Reader, writer client.Client, namespace, url,
	dir string) (*serverIdentity, error) {
	key := client.ObjectKey{Namespace: namespace, Name: cluster.ConfigServer}
	var secret corev1.Secret
	err := reader.Get(ctx, key, &secret)
	if apierrors.IsNotFound(err) {
		if err = makeIdentity(ctx, writer, key, url, filepath.Join(dir, "new")); err == nil ||
			apierrors.IsAlreadyExists(err) {
			err = reader.Get(ctx, key, &secret)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("read Secret %s: %w", key, err)
	}
	for _, name := range []string{certs.CACertFile, certs.CAKeyFile} {
		if err := os.WriteFile(filepath.Join(dir, name), secret.Data[name], 0o600); err != nil {
			return nil, fmt.Errorf("write authority: %w", err)
		}
	}
	id := &serverIdentity{token: string(secret.Data[cluster.ConfigServerToken]),
		certFile: filepath.Join(dir, "server.crt"), keyFile: filepath.Join(dir, "server.key")}
	if id.ca, err = certs.LoadCA(filepath.Join(dir, certs.CACertFile), filepath.Join(dir, certs.CAKeyFile),
		nil); err != nil || id.token == "" {
		return nil, fmt.Errorf(
			"read Secret %s: it is no authority with a token (%w): delete it, and give the machines the new pointer configs",
			key, err)
	}
	return id, nil
}

func makeIdentity(ctx context.Context, writer client.Client, key client.ObjectKey, url, dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("make authority: %w", err)
	}
	if _, err := certs.LoadOrCreateCA(dir, certs.CAOptions{}); err != nil {
		return err
	}
	token := make([]byte, 32)
	if _, err := rand.Read(token); err != nil {
		return fmt.Errorf("make token: %w", err)
	}
	data := map[string][]byte{cluster.ConfigServerToken: []byte(base64.RawURLEncoding.EncodeToString(token)),
		cluster.ConfigServerURL: []byte(url)}
	for _, name := range []string{certs.CACertFile, certs.CAKeyFile} {
		raw, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return fmt.Errorf("make authority: %w", err)
		}
		data[name] = raw
	}
	return writer.Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name,
		Labels: map[string]string{cluster.LabelPartOf: cluster.ManagedBy, cluster.LabelManagedBy: cluster.ManagedBy}},
		Data: data})
}

// certify makes the server's certificate.
func (id *serverIdentity) certify(hosts []string) error {
	pair, err := id.ca.ServerCertificate(hosts, certs.ServerOptions{})
	if err != nil {
		return err
	}
	return certs.WriteKeyPair(pair, id.certFile, id.keyFile)
}

// renew makes a new one from time to time until ctx ends; the server reads it when it changes.
func (id *serverIdentity) renew(ctx context.Context, hosts []string) error {
	return everyTick(ctx, renewInterval, func() error { return id.certify(hosts) })
}

// everyTick does something in an interval until ctx ends or it fails; the first time is after one interval.
func everyTick(ctx context.Context, interval time.Duration, do func() error) error {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
			if err := do(); err != nil {
				return err
			}
		}
	}
}

func sha512File(name string) (string, error) {
	f, err := os.Open(name)
	if err != nil {
		return "", fmt.Errorf("read node agent: %w", err)
	}
	defer f.Close()
	sum := sha512.New()
	if _, err := io.Copy(sum, f); err != nil {
		return "", fmt.Errorf("read node agent: %w", err)
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}
