package cluster

import (
	"path/filepath"
	"time"

	"github.com/sirupsen/logrus"

	"dayone.dev/dayone/hack/cache"
	"dayone.dev/dayone/hack/statefile"
	"dayone.dev/dayone/installconfig/report"
)

// DefaultName is the cluster's that nobody named.
const DefaultName = "dayone"

// RegistryHost is a name that every pod and the node resolve to NodeAddress.
const RegistryHost = "registry.dayone.test"

// NodeName is the node's.
const NodeName = "node-0"

// RegistryName is the registry's address in the cluster: every pod and the node resolve it.
const RegistryName = RegistryHost + ":5000"

const (
	registryPort = "5000"
	apiPort      = 443 // kubernetes.default's, so that pods need no kube-proxy
	etcdPort     = 2379
	peerPort     = 2380
)

const (
	// upTimeout bounds the whole start: ten seconds on an idle machine.
	upTimeout = 5 * time.Minute
	// downTimeout bounds the wait until the kernel has ended all processes.
	downTimeout = time.Minute
	// pollEvery is how often states are looked at that nobody signals.
	pollEvery = 20 * time.Millisecond
)

// Options of a cluster. The zero value works for tests.
type Options struct {
	// Name is what people call it; default DefaultName. Clusters of one name may run beside each other.
	Name string
	// CacheDir has the clusters' files, on a disk; default cache.Dir().
	CacheDir string
	// Keep lets the cluster live on when this process ends; Find and Down end it then.
	Keep bool
	// LogDir gets the logs of all programs; default: in the cluster's directory, gone after Down.
	LogDir string
	// Log gets a line per step; default: nothing.
	Log *logrus.Entry
}

func (o Options) withDefaults() (Options, error) {
	if o.Name == "" {
		o.Name = DefaultName
	}
	if o.CacheDir == "" {
		dir, err := cache.Dir()
		if err != nil {
			return o, err
		}
		o.CacheDir = dir
	}
	if o.Log == nil {
		o.Log = report.NoLog()
	}
	return o, nil
}

// runs is the directory of all clusters' directories.
func (o Options) runs() string { return filepath.Join(o.CacheDir, "kube-clusters") }

// runName begins the name of each cluster's directory.
const runName = "node"

// Files in a cluster's directory.
const (
	recordFile     = "cluster.json"
	controlFile    = "control"
	kubeconfigFile = "kubeconfig"
	logDir         = "log"
	registryDir    = "registry"
	planeDir       = "plane"
	pauseFile      = "pause"
	podLogDir      = "pods"
)

// record is what others must know of a cluster.
type record struct {
	Name string `json:"name"`
	// PID is of the node's first process, as this machine sees it: with it, all end.
	PID int `json:"pid"`
	// Cgroup is the node's group below each hierarchy.
	Cgroup string `json:"cgroup"`
	// API and Registry are the addresses on this machine.
	API      string `json:"api"`
	Registry string `json:"registry"`
	Assets   string `json:"assets"`
	// LogDir has the programs' logs.
	LogDir string `json:"logDir"`
}

func readRecord(dir string) (record, error) {
	var r record
	return r, statefile.Read(filepath.Join(dir, recordFile), &r)
}

func (r record) write(dir string) error {
	return statefile.Write(filepath.Join(dir, recordFile), r)
}
