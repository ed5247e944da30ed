package life

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/bootstrap/clusterregistry"
	"dayone.dev/dayone/bootstrap/preflight"
	"dayone.dev/dayone/hack/e2e/fleet"
	kubecluster "dayone.dev/dayone/hack/kube/cluster"
	"dayone.dev/dayone/hack/testnode"
	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/assets/cluster"
	"dayone.dev/dayone/rebase/fleet/registrystatus"
	"dayone.dev/dayone/registry"
	"dayone.dev/dayone/registry/credentials"
	"dayone.dev/dayone/registry/peers"
	"dayone.dev/dayone/registry/poolaccounts"
	"dayone.dev/dayone/registry/wanted"
)

// ownRegistry is HOST:PORT in the names of the OS images, which the masters' registries hold. Pods resolve the host.
const ownRegistry = kubecluster.RegistryHost + ":22626"

// dialLimit is how long a master may take to accept a connection before the next one is tried.
const dialLimit = 2 * time.Second

// leadPodsToMasters lets pods reach the masters' registries by the name that these share. It plays the virtual address
// of a control plane: connections go to the first master that takes them.
func leadPodsToMasters(l *life) error {
	_, port, err := net.SplitHostPort(ownRegistry)
	if err != nil {
		return err
	}
	var in net.Listener
	err = testnode.InNetwork(l.kube.Network(), func() (err error) {
		in, err = net.Listen("tcp", net.JoinHostPort(kubecluster.NodeAddress, port))
		return err
	})
	if err != nil {
		return fmt.Errorf("listen in the network of pods: %w", err)
	}
	l.ends = append(l.ends, func(context.Context) error { return in.Close() })
	masters := l.day1.Masters
	go fleet.Forward(in, func() (out net.Conn, err error) {
		for _, n := range masters {
			err = l.day1.Lab.Network.Do(func() (err error) {
				out, err = net.DialTimeout("tcp", net.JoinHostPort(n.Addr.String(), port), dialLimit)
				return err
			})
			if err == nil {
				return out, nil
			}
		}
		return nil, err
	})
	return nil
}

// mastersKnown waits until the cluster tells its nodes where all masters' registries are: an agent looks at its start,
// and then every five minutes.
func mastersKnown(ctx context.Context, l *life) error {
	return until(ctx, "the addresses of the masters' registries", func() (bool, error) {
		var published corev1.ConfigMap
		if err := l.client.Get(ctx, client.ObjectKey{Namespace: cluster.DefaultNamespace, Name: cluster.RegistryPeersName},
			&published); err != nil {
			return false, err
		}
		list, err := peers.Parse([]byte(published.Data[wanted.PeersFile]))
		return err == nil && len(list.Peers) == len(l.day1.Masters), err
	})
}

// checkRegistries looks at what the cluster says of the masters' registries after the bootstrap host went.
func checkRegistries(ctx context.Context, l *life) error {
	for _, h := range l.fleet.Of(worker) {
		_, err := h.Node.Output(ctx, "test", "-e", clusterregistry.Fetched)
		l.check(h.Node.Name, "has no registry", err != nil, "")
		_, err = h.Node.Output(ctx, "test", "-e", wanted.Dir+"/"+poolaccounts.SharedCA)
		l.check(h.Node.Name, "has no key of the registries' CA", err != nil, "")
	}
	if err := checkAccounts(ctx, l); err != nil {
		return err
	}
	return until(ctx, "the masters' registries to have every image", func() (bool, error) {
		s, err := registrystatus.ReadStatus(ctx, l.client, cluster.DefaultNamespace)
		if err != nil {
			return false, err
		}
		for _, i := range s.Images {
			if len(i.Held) != len(l.day1.Masters) {
				return false, fmt.Errorf("%s is in %d registries", i.Name(), len(i.Held))
			}
		}
		i := slices.IndexFunc(s.Conditions, func(c metav1.Condition) bool { return c.Type == registrystatus.ConditionShared })
		if i < 0 || s.Conditions[i].Status != metav1.ConditionTrue {
			return false, fmt.Errorf("the masters' registries do not say that they have the CA: %v", s.Conditions)
		}
		l.check("registries", "every master has every image", len(s.Images) >= 2, "%d images, %d masters", len(s.Images),
			len(s.Nodes))
		return true, nil
	})
}

// checkKey looks for the key of the registries' CA: a master has it on its disk, and no image has it.
func checkKey(ctx context.Context, l *life, h *fleet.Host) error {
	const found, none = 0, 1 // exit codes of grep
	for _, c := range []struct {
		what, text, at string
		want           int
	}{
		{"has the registries' directory from the image", "BEGIN CERTIFICATE", "/usr/etc/dayone/registry", found},
		{"the image has no key of the registries", "PRIVATE KEY", "/usr/etc/dayone/registry", none},
		{"nor is it beside the image", "PRIVATE KEY", "/etc/dayone/registry/ca.crt", none},
		{"has the key on its disk", "PRIVATE KEY", wanted.Dir, found},
	} {
		r, err := h.Node.Exec(ctx, "grep", "-rqF", c.text, c.at)
		if err != nil {
			return err
		}
		l.check(h.Node.Name, c.what, r.ExitCode == c.want, "exit code %d", r.ExitCode)
	}
	return nil
}

// checkAccounts looks for the installation's account that pulls from the masters' registries: no image has it. Nodes
// have got it beside their config, and have their pool's in its place when their agent has said a key.
func checkAccounts(ctx context.Context, l *life) error {
	accounts, err := credentials.Read(filepath.Join(preflight.SharedDir(l.day1.Dir), registry.PullAuthFile))
	if err != nil {
		return err
	}
	account, _, err := accounts.Find(ownRegistry)
	if err != nil {
		return err
	}
	auth := base64.StdEncoding.EncodeToString([]byte(account.Username + ":" + account.Password))
	for _, h := range l.fleet.Of(master) {
		const ofImage, found, none = "/usr/etc", 0, 1 // exit codes of grep
		if err := checkKey(ctx, l, h); err != nil {
			return err
		}
		in, err := h.Node.Exec(ctx, "grep", "-rqF", auth, ofImage)
		if err != nil {
			return err
		}
		l.check(h.Node.Name, "the image has no account of the registries", in.ExitCode == none, "exit code %d", in.ExitCode)
		if err := until(ctx, h.Node.Name+" to use its pool's account", func() (bool, error) {
			var n corev1.Node
			err := l.client.Get(ctx, client.ObjectKey{Name: h.Name}, &n)
			word := poolaccounts.Read[poolaccounts.Word](n.Annotations[manifests.AnnotationRegistryKey])
			return strings.HasPrefix(word.Account, "pool-"+master), errors.Join(err, fmt.Errorf("it uses %q", word.Account))
		}); err != nil {
			return err
		}
	}
	return nil
}
