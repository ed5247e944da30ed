package day1

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/sirupsen/logrus"

	"dayone.dev/dayone/bootstrap/nodes"
	"dayone.dev/dayone/bootstrap/preflight"
	"dayone.dev/dayone/build/appendengine"
	"dayone.dev/dayone/build/sign"
	"dayone.dev/dayone/installconfig"
	"dayone.dev/dayone/installconfig/report"
	"dayone.dev/dayone/rebase/firstboot"
	"dayone.dev/dayone/registry"
	"dayone.dev/dayone/registry/transfer"
)

const (
	// RegistryDir is the embedded registry's root below the state directory.
	RegistryDir = "registry"
	// stopLimit is how long the registry may take to finish requests when the bootstrap host is asked to stop.
	stopLimit = 10 * time.Second
	// reachLimit is how long the embedded registry may take to answer on this machine, by its own name.
	reachLimit = 10 * time.Second
)

// Registry is the embedded registry at work.
type Registry struct {
	// Address is HOST:PORT as nodes reach it.
	Address  string
	Identity *Identity

	platform, scratch, cache string
	// signatures are copied with images that builds begin with.
	signatures bool
	log        *logrus.Entry
	server     *registry.Server
	// Nodes knows how far each node is; untrack ends what writes that to disk.
	Nodes   *nodes.Tracker
	untrack func()
}

// Imported is an image in the embedded registry.
type Imported struct {
	// Reference is its name there, by digest.
	Reference string
	Digest    string
	// Bytes that were copied; 0 when the registry had them.
	Bytes int64
}

// startRegistry starts the embedded registry and proves, where the host asks for it, that its name leads here: builds
// push to that name, too.
func startRegistry(ctx context.Context, h Host, id *Identity) (*Registry, error) {
	tracker := trackNodes(h, id)
	server, err := registry.New(registry.Options{Root: h.Path(RegistryDir), Listen: h.Listen,
		TLSDir: filepath.Dir(id.CAFile), Hosts: h.Names, Users: id.Users, Log: h.Log.WithField("component", "registry"),
		Pulled: tracker.Pulled, Reports: tracker, ReportsPath: firstboot.ReportPath})
	if err != nil {
		return nil, err
	}
	if err := server.Start(); err != nil {
		_, port, _ := net.SplitHostPort(h.Listen)
		return nil, report.Finding{File: installconfig.FileName, Path: installconfig.Field + ".bootstrapRegistry.port",
			Rule:    "port-taken",
			Message: fmt.Sprintf("the embedded registry cannot listen on port %s: %v", port, err),
			Next: "stop what uses the port on this node, or choose another port (in the openshift flow, make the " +
				"Ignition configs again)"}
	}
	r := &Registry{Address: h.Registry, Identity: id, platform: h.Platform, scratch: h.Path(scratchDir),
		cache: h.Path("cache"), signatures: JudgesBases(h), log: h.Log, server: server, Nodes: tracker,
		untrack: track(ctx, tracker)}
	if h.ProveName {
		if err := reach(ctx, h.Registry, id.CAPEM); err != nil {
			r.stop()
			return nil, err
		}
	}
	return r, nil
}

// reach asks a registry for its version by the name that the nodes use. A name that leads elsewhere is found here and
// not in the middle of the first copy.
func reach(ctx context.Context, address string, ca []byte) error {
	ctx, cancel := context.WithTimeout(ctx, reachLimit)
	defer cancel()
	trusted := x509.NewCertPool()
	trusted.AppendCertsFromPEM(ca)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: trusted, MinVersion: tls.VersionTLS12},
		DisableKeepAlives: true}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+address+"/v2/", nil)
	if err != nil {
		return fmt.Errorf("ask the embedded registry: %w", err)
	}
	response, err := transport.RoundTrip(request)
	if err != nil {
		return report.Finding{File: installconfig.FileName, Path: installconfig.Field + ".bootstrapRegistry.host",
			Rule:    "registry-unreachable",
			Message: fmt.Sprintf("the embedded registry does not answer at %s: %v", address, err),
			Next:    "give an address or a name that leads to this machine, from here as from the nodes"}
	}
	return response.Body.Close()
}

// Name is a repository's name in the embedded registry: the final registry's path behind another host.
func (r *Registry) Name(repository string) string {
	return r.Address + "/" + installconfig.RepositoryPath(repository)
}

// JudgesBases says that a policy may demand signatures of base images: one of the user's, or those with which MCO
// renders.
func JudgesBases(h Host) bool { return h.ByMCO || preflight.JudgesBases(h.In) }

// Import copies an image into the embedded registry, under the path of its final repository. The tag keeps it from
// being collected as an untagged manifest; up to a hyphen it is the phase's name.
func (r *Registry) Import(ctx context.Context, from transfer.Endpoint, repository, tag string) (Imported, error) {
	if err := os.MkdirAll(r.scratch, 0o700); err != nil {
		return Imported{}, fmt.Errorf("make scratch directory: %w", err)
	}
	copied := transfer.Copy
	if r.signatures {
		copied = transfer.CopySigned
	}
	to, o := r.place(repository, tag)
	res, err := copied(ctx, from, to, o)
	if err != nil {
		return Imported{}, err
	}
	return Imported{Reference: r.Name(repository) + "@" + res.Digest.String(), Digest: res.Digest.String(),
		Bytes: res.Bytes}, nil
}

// CopySignatures copies the signatures of an image that was imported before, by its own name: it may have been signed
// since.
func (r *Registry) CopySignatures(ctx context.Context, from transfer.Endpoint, image, tag string) error {
	repository, hash, _ := strings.Cut(image, "@")
	to, o := r.place(repository, tag)
	o.Attempts = 1
	return transfer.CopySignatures(ctx, from, to, digest.Digest(hash), o)
}

// place is where an image is imported to, and how.
func (r *Registry) place(repository, tag string) (transfer.Endpoint, transfer.Options) {
	phase, _, _ := strings.Cut(tag, "-")
	return transfer.Endpoint{Reference: "docker://" + r.Name(repository) + ":" + tag, CAFile: r.Identity.CAFile,
			AuthFile: r.Identity.PushAuth}, transfer.Options{Platform: r.platform, TempDir: r.scratch, CacheDir: r.cache,
			Log: r.log.WithField("phase", phase)}
}

// Holds reports whether the registry has an image with all its blobs.
func (r *Registry) Holds(ctx context.Context, reference string) error {
	client, err := appendengine.NewClient(appendengine.Access{CAFile: r.Identity.CAFile, AuthFile: r.Identity.PushAuth})
	if err != nil {
		return err
	}
	defer client.Close()
	image, err := client.Read(ctx, reference, r.platform)
	if err != nil {
		return fmt.Errorf("find %s again: %w", reference, err)
	}
	missing, err := client.Complete(ctx, image)
	if err == nil && missing != "" {
		err = fmt.Errorf("blob %s is missing", missing)
	}
	if err != nil {
		return fmt.Errorf("check the blobs of %s: %w", reference, err)
	}
	return nil
}

// signed is an image that was built here as its signatures name it.
func (r *Registry) signed(reference string, p preflight.Pool) sign.Image {
	return sign.Image{Repository: p.Repository, Endpoint: transfer.Endpoint{Reference: reference,
		CAFile: r.Identity.CAFile, AuthFile: r.Identity.PushAuth}}
}

// HoldsAll is Holds for each of several images.
func (r *Registry) HoldsAll(ctx context.Context, references map[string]string) error {
	for _, reference := range references {
		if err := r.Holds(ctx, reference); err != nil {
			return err
		}
	}
	return nil
}

// Failed returns the error of a registry that can no longer serve.
func (r *Registry) Failed() <-chan error { return r.server.Err() }

// Certificate are the files of the server certificate and its key.
func (r *Registry) Certificate() (cert, key string) {
	return registry.Options{TLSDir: filepath.Dir(r.Identity.CAFile)}.CertificateFiles()
}

// RenewCertificate makes the server certificate anew where it has little time left. It is written to the files of
// Certificate.
func (r *Registry) RenewCertificate() {
	if err := r.server.ReloadCertificate(); err != nil {
		r.log.WithError(err).Error("server certificate is not renewed, the one before stays")
	}
}

// LockOut ends both accounts. It leaves one whose password is thrown away: a registry without any is refused.
func (r *Registry) LockOut() error {
	unknown, err := registry.NewUser("nobody", registry.RolePull)
	if err != nil {
		return err
	}
	return r.server.SetUsers([]registry.User{unknown})
}

// track writes what a tracker sees until the returned function is called, which waits for the last write.
func track(ctx context.Context, t *nodes.Tracker) (end func()) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		t.Run(ctx)
	}()
	return func() {
		cancel()
		<-ended
	}
}

func (r *Registry) stop() {
	defer r.untrack()
	ctx, cancel := context.WithTimeout(context.Background(), stopLimit)
	defer cancel()
	if err := r.server.Shutdown(ctx); err != nil {
		r.log.WithError(err).Warn("embedded registry did not stop cleanly")
	}
}
