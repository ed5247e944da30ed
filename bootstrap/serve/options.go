package serve

import (
	"cmp"
	"fmt"
	"net/http"
	"net/netip"
	"path"
	"slices"
	"strings"
	"time"

	ign35 "github.com/coreos/ignition/v2/config/v3_5/types"
	"github.com/sirupsen/logrus"

	"dayone.dev/dayone/installconfig/report"
)

// Options configure a Server. The zero value of each field is usable unless the field says otherwise.
type Options struct {
	// BaseDir is a directory as render.Write leaves it: machine-configs/, machine-pools/, controller-config/, api-server/.
	// It or Source is required.
	BaseDir string
	// Source gives the rendered configs instead of a directory.
	Source Source
	// Kubeconfig is the file that nodes get as /etc/kubernetes/kubeconfig. Empty: nothing is appended. A named file must
	// exist at start.
	Kubeconfig string
	// BootstrapCerts appends /etc/docker/certs.d/<key>/ca.crt from the file that is the value.
	BootstrapCerts map[string]string
	// Additions are merged last into what is served: by pool name, "" for every pool. They reach the node's first boot and
	// nothing else.
	Additions map[string]ign35.Config
	// Files are served under /files/<key>, each from the local path that is the value, for Ignition to fetch with a
	// verification hash. New opens them: what takes their place later is not served.
	Files map[string]string
	// Registry answers /v2/ on the HTTPS listener's handler: for nodes that cannot reach their registry yet. nil: 404.
	Registry http.Handler
	// Pools are the pools that the server answers for; others get 500 as from MCO's bootstrap server. Default: master,
	// arbiter. "*" is all.
	Pools []string

	// SecureListen is the address of the HTTPS listener, for example 0.0.0.0:22623. Empty: none.
	SecureListen string
	// InsecureListen is the address of the HTTP listener. Empty: none.
	InsecureListen string
	// MetricsListen is the address of the HTTP listener for /metrics. Empty: none.
	MetricsListen string
	// CertFile and KeyFile are the server's certificate in PEM, read again when they change. Required with SecureListen.
	CertFile, KeyFile string

	// AllowedNetworks restricts /config/ and /files/ to clients from these networks; others get 403. Empty: every client.
	AllowedNetworks []netip.Prefix
	// Token, if set, must come with each request for a config as "Authorization: Bearer <token>"; without it the answer is
	// 403.
	Token string

	// Asked hears of each GET for a config: the client's address, the pool, and why none was served ("": it was). nil: no
	// call.
	Asked func(client, pool, refused string)

	// PollInterval is the time between two polls of the files. Default one second.
	PollInterval time.Duration
	// Grace is how long a stop waits for requests under way. Default 30 seconds.
	Grace time.Duration
	// MaxConnections limits open connections on each listener. Default 4096.
	MaxConnections int
	// Log receives requests and reloads. Default: nothing is logged.
	Log *logrus.Entry
}

const (
	defaultPoll           = time.Second
	defaultGrace          = 30 * time.Second
	defaultMaxConnections = 4096
)

// Validate names the first option that cannot work.
func (o Options) Validate() error {
	if (o.BaseDir == "") == (o.Source == nil) {
		return fmt.Errorf("check server options: give either BaseDir or Source")
	}
	if o.SecureListen != "" && (o.CertFile == "" || o.KeyFile == "") {
		return fmt.Errorf("check server options: SecureListen needs CertFile and KeyFile")
	}
	for name := range o.Files {
		if name == "" || path.Clean("/"+name) != "/"+name {
			return fmt.Errorf("check server options: Files: %q is not a clean relative path", name)
		}
	}
	for host := range o.BootstrapCerts {
		if host == "" || strings.Contains(host, "/") || host == "." || host == ".." {
			return fmt.Errorf("check server options: BootstrapCerts: %q is not a registry host", host)
		}
	}
	return nil
}

// withDefaults fills what is zero.
func (o Options) withDefaults() Options {
	if o.PollInterval <= 0 {
		o.PollInterval = defaultPoll
	}
	if o.Grace <= 0 {
		o.Grace = defaultGrace
	}
	if o.MaxConnections <= 0 {
		o.MaxConnections = defaultMaxConnections
	}
	if len(o.Pools) == 0 {
		o.Pools = []string{"master", "arbiter"}
	}
	if o.Asked == nil {
		o.Asked = func(string, string, string) {}
	}
	o.Log = cmp.Or(o.Log, report.NoLog())
	return o
}

// serves says whether the server answers for a pool.
func (o Options) serves(pool string) bool {
	return slices.Contains(o.Pools, pool) || slices.Contains(o.Pools, "*")
}
