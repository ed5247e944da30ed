package peers

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/google/renameio/v2"
)

const (
	// Path is where a node has the file, from its first boot on or from its agent; below the node's root. Without it pulls
	// go their usual way.
	Path = "/var/lib/dayone/registry-peers.json"
	// Port is where a control-plane node's registry listens.
	Port = 22626

	apiVersion = "dayone.dev/v1"
	kind       = "RegistryPeers"

	// maxFile bounds the peers file: 64 entries with the longest DNS names that there are fit.
	maxFile = 64 << 10
	// maxPeers bounds the list. Control planes have up to seven nodes; one that is replaced node by node has twice that.
	maxPeers = 64
	// maxName is the longest name of a node. Source: Kubernetes, names of DNS subdomains.
	maxName = 253
)

// Peer is the registry of one control-plane node.
type Peer struct {
	// Name is the node's.
	Name string `json:"name"`
	// Address is HOST:PORT; never one of loopback, where each node would find itself.
	Address string `json:"address"`
}

// List is what a node knows of its cluster's registries. The zero value has none.
type List struct {
	// Registry is HOST[:PORT] of the images' final names, which the peers have; empty: names are not this list's
	// business.
	Registry string `json:"registry,omitempty"`
	Peers    []Peer `json:"peers"`
}

// file is a List on disk.
type file struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	List
}

// Read reads a peers file and checks it. A file that is not there is fs.ErrNotExist.
func Read(path string) (List, error) {
	l, err := read(path)
	if err != nil {
		return List{}, fmt.Errorf("read registry peers %s: %w", path, err)
	}
	return l, nil
}

func read(path string) (l List, err error) {
	in, err := os.Open(path)
	if err != nil {
		return l, err
	}
	defer func() { err = errors.Join(err, in.Close()) }()
	raw, err := io.ReadAll(io.LimitReader(in, maxFile+1))
	if err != nil {
		return l, err
	}
	return Parse(raw)
}

// Parse reads the content of a peers file and checks it. Keys that a later version adds are left alone.
func Parse(raw []byte) (List, error) {
	if len(raw) > maxFile {
		return List{}, fmt.Errorf("it has more than %d bytes: it is no list of peers", maxFile)
	}
	var f file
	if err := json.Unmarshal(raw, &f); err != nil {
		return List{}, fmt.Errorf("%w: it is damaged or was not written as a whole; the agent writes it anew from the API",
			err)
	}
	if f.APIVersion != apiVersion || f.Kind != kind {
		return List{}, fmt.Errorf("it is %q %q, wanted %q %q", f.APIVersion, f.Kind, apiVersion, kind)
	}
	return f.List, f.Validate()
}

// Encode gives the content of a peers file.
func (l List) Encode() ([]byte, error) {
	if err := l.Validate(); err != nil {
		return nil, fmt.Errorf("encode registry peers: %w", err)
	}
	raw, err := json.MarshalIndent(file{apiVersion, kind, l}, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encode registry peers: %w", err)
	}
	return append(raw, '\n'), nil
}

// Write replaces the peers file as a whole and makes its directory.
func (l List) Write(path string) error {
	raw, err := l.Encode()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("write registry peers: %w", err)
	}
	if err := renameio.WriteFile(path, raw, 0o644, renameio.IgnoreUmask()); err != nil {
		return fmt.Errorf("write registry peers: %w", err)
	}
	return nil
}

// Validate names the first entry that cannot be meant.
func (l List) Validate() error {
	if len(l.Peers) > maxPeers {
		return fmt.Errorf("%d peers are more than the %d that a control plane may have", len(l.Peers), maxPeers)
	}
	if l.Registry != "" {
		if err := checkHost(l.Registry); err != nil {
			return fmt.Errorf("registry %q: %w", l.Registry, err)
		}
	}
	names, addresses := map[string]bool{}, map[string]bool{}
	for _, p := range l.Peers {
		if err := p.validate(); err != nil {
			return err
		}
		if names[p.Name] || addresses[p.Address] {
			return fmt.Errorf("peer %s (%s): its name or address occurs twice", p.Name, p.Address)
		}
		names[p.Name], addresses[p.Address] = true, true
	}
	return nil
}

func (p Peer) validate() error {
	if !hostName(p.Name) {
		return fmt.Errorf("peer %q: the name of a node is wanted", p.Name)
	}
	host, port, err := net.SplitHostPort(p.Address)
	if err != nil {
		return fmt.Errorf("peer %s: give HOST:PORT: %w", p.Name, err)
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 || strconv.FormatUint(n, 10) != port {
		return fmt.Errorf("peer %s: address %q: the port must be 1 to 65535", p.Name, p.Address)
	}
	ip, err := netip.ParseAddr(host)
	switch {
	case err != nil && !hostName(host):
		return fmt.Errorf("peer %s: address %q: the host is neither an IP address nor a DNS name", p.Name, p.Address)
	case err == nil && (ip.Unmap().IsLoopback() || ip.Unmap().IsUnspecified() || ip.IsMulticast() || ip.Zone() != ""),
		host == "localhost":
		return fmt.Errorf("peer %s: address %q is not one at which another node reaches it: give the node's own",
			p.Name, p.Address)
	}
	return nil
}

// checkHost wants HOST or HOST:PORT as names of images begin.
func checkHost(registry string) error {
	host, port, err := net.SplitHostPort(registry)
	if err != nil {
		host, port = registry, "443"
	}
	_, portErr := strconv.ParseUint(port, 10, 16)
	if _, err := netip.ParseAddr(host); portErr != nil || err != nil && !hostName(host) {
		return errors.New("give HOST or HOST:PORT")
	}
	return nil
}

// hostName tells whether s is a DNS name as Kubernetes takes it for a node.
func hostName(s string) bool {
	if s == "" || len(s) > maxName {
		return false
	}
	for label := range strings.SplitSeq(s, ".") {
		if label == "" || label[0] == '-' || label[len(label)-1] == '-' {
			return false
		}
		for _, c := range label {
			if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' {
				return false
			}
		}
	}
	return true
}
