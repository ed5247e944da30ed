package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/sirupsen/logrus"

	"dayone.dev/dayone/installconfig/report"
	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/assets/cluster"
	"dayone.dev/dayone/rebase/daemon/kubeapi"
	"dayone.dev/dayone/registry/peers"
	"dayone.dev/dayone/registry/wanted"
)

const (
	// replicaInterval is how often the agent of a node with a registry carries files to it and its report to the API.
	replicaInterval = 10 * time.Second
	// peersInterval is how often other agents look for the registries' addresses: with 5,000 nodes the API has 17 requests
	// a second more, and the node's forwarder finds another registry meanwhile.
	peersInterval = 5 * time.Minute
)

// registryFiles are what the registries of the control plane work by.
type registryFiles interface {
	// RegistryFiles reads the contents of a ConfigMap, the list's or the addresses'; nil when the cluster publishes none.
	RegistryFiles(ctx context.Context, configMap string) (map[string]string, error)
}

// replicating brings the addresses of the control plane's registries to the node, and serves the node's own registry,
// which has no credential for the API, beside the state machine. A node without the registry's directory has none.
type replicating struct {
	dir     string
	peers   string
	cluster registryCluster
	record  recordWriter
	now     func() time.Time
	log     *logrus.Entry
	// silent: a node without a registry has no report, as this process left it.
	silent bool
	// looked is when the addresses were last asked for.
	looked time.Time
}

// registryCluster is what the work for a registry needs of the API.
type registryCluster interface {
	ownNode
	registryFiles
}

// RegistryOptions of ServeRegistry. Node and Cluster are required.
type RegistryOptions struct {
	// Node is the name of this node's object.
	Node string
	// Cluster is the API.
	Cluster registryCluster
	// Root is the node's "/"; default "/".
	Root string
	// Log gets what fails; default: nothing.
	Log *logrus.Entry
}

// ServeRegistry does for the node's registry what an agent does, and nothing else, until ctx ends.
func ServeRegistry(ctx context.Context, o RegistryOptions) {
	o.Log = cmp.Or(o.Log, report.NoLog())
	newReplicating(o, time.Now).follow(ctx)
}

func newReplicating(o RegistryOptions, now func() time.Time) *replicating {
	root := cmp.Or(o.Root, "/")
	return &replicating{dir: filepath.Join(root, wanted.Dir), peers: filepath.Join(root, peers.Path),
		cluster: o.Cluster, record: recordWriter{node: o.Node, cluster: o.Cluster}, now: now, log: o.Log}
}

// follow works until ctx ends.
func (r *replicating) follow(ctx context.Context) {
	tick := time.NewTicker(replicaInterval)
	defer tick.Stop()
	for {
		if err := r.once(ctx); err != nil && ctx.Err() == nil {
			level := logrus.WarnLevel
			if errors.Is(err, kubeapi.ErrNoAnswer) { // the registry goes on with what it has
				level = logrus.DebugLevel
			}
			r.log.WithError(err).Log(level, "cannot serve the node's registry")
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// once brings the files and takes the report.
func (r *replicating) once(ctx context.Context) error {
	_, err := os.Stat(r.dir)
	own := !os.IsNotExist(err)
	if !own && time.Since(r.looked) < peersInterval && !r.looked.IsZero() {
		return nil
	}
	addresses, err := r.cluster.RegistryFiles(ctx, cluster.RegistryPeersName)
	if err != nil {
		return err
	}
	r.looked = time.Now()
	errs := []error{r.bringPeers(addresses[wanted.PeersFile])}
	if !own {
		return errors.Join(append(errs, r.say(ctx, ""))...)
	}
	errs = append(errs, r.bringList(ctx))
	report, there, err := wanted.ReadReport(filepath.Join(r.dir, wanted.ReportFile), r.now())
	switch {
	case err != nil:
		report = wanted.Report{Problem: err.Error()}
	case !there:
		report = wanted.Report{Problem: "the registry has not run yet: see systemctl status dayone-registry on the node"}
	}
	text, err := report.Encode()
	if err == nil {
		err = r.say(ctx, text)
	}
	return errors.Join(append(errs, err)...)
}

// bringList writes what the node's registry must hold, and the accounts that it accepts beside its own.
func (r *replicating) bringList(ctx context.Context) error {
	files, err := r.cluster.RegistryFiles(ctx, cluster.RegistryName)
	if list := files[wanted.ListFile]; err == nil && list != "" {
		_, err = wanted.WriteFile(filepath.Join(r.dir, wanted.ListFile), []byte(list))
	}
	if accounts, there := files[wanted.AccountsFile]; there { // former controllers have none
		err = errors.Join(err, wanted.WriteAccounts(filepath.Join(r.dir, wanted.AccountsFile), accounts))
	}
	return err
}

// bringPeers writes the addresses, where there are any. What cannot be read is left out: the node keeps what it has.
func (r *replicating) bringPeers(raw string) error {
	if raw == "" {
		return nil
	}
	list, err := peers.Parse([]byte(raw))
	if err == nil && len(list.Peers) > 0 {
		if have, _ := os.ReadFile(r.peers); string(have) != raw { // what cannot be read is written anew
			err = list.Write(r.peers)
		}
	}
	if err != nil {
		return fmt.Errorf("bring addresses of registries: %w", err)
	}
	return nil
}

// say writes the report on the node; "" removes it. It asks the API what the node says: after etcd was restored from a
// backup that is an older word.
func (r *replicating) say(ctx context.Context, text string) error {
	if text == "" && r.silent {
		return nil
	}
	n, err := r.cluster.Node(ctx)
	if err != nil {
		return err
	}
	if err := r.record.say(ctx, n.Annotations, map[string]string{manifests.AnnotationRegistry: text}); err != nil {
		return err
	}
	r.silent = text == ""
	return nil
}
