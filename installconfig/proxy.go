package installconfig

import (
	"cmp"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"golang.org/x/net/http/httpproxy"

	"dayone.dev/dayone/installconfig/report"
)

// proxy refuses addresses that are none, and a proxy that would stand between the nodes and the bootstrap host: it
// cannot reach the embedded registry, and should not see what goes there.
func proxy(f installerFile, rep *report.Report) {
	n := f.node("proxy")
	if n == nil || len(n.Content) == 0 {
		return
	}
	set := false
	for _, key := range []string{"httpProxy", "httpsProxy"} {
		value := f.node("proxy", key)
		if value == nil || value.Value == "" {
			continue
		}
		set = true
		u, err := url.Parse(value.Value)
		if err != nil || u.Host == "" || u.Scheme != "http" && (u.Scheme != "https" || key == "httpProxy") {
			rep.Errorf(f.at(value, "proxy."+key, "proxy", "write http://HOST:PORT"), // it may hold a password
				"the value is not the address of a proxy")
			return
		}
	}
	if !set {
		rep.Errorf(f.at(n, "proxy", "proxy", "write httpProxy or httpsProxy, or remove proxy"), "no proxy is named")
		return
	}
	host := f.config.BootstrapRegistry.Host
	if host == "" || nodeProxy(f).Passes(host) {
		return
	}
	rep.Errorf(f.at(cmp.Or(f.node("proxy", "noProxy"), n), "proxy.noProxy", "no-proxy",
		"add "+host+" to noProxy, or its network to networking.machineNetwork"),
		"nodes would ask the registry on the bootstrap host %s through the proxy", host)
}

// Passes says whether a host is asked directly: the proxy is not for it, or there is none.
func (p Proxy) Passes(host string) bool {
	if addr, err := netip.ParseAddr(host); err == nil && addr.IsLoopback() {
		return true
	}
	through, err := (&httpproxy.Config{HTTPSProxy: p.HTTPS, HTTPProxy: p.HTTP, NoProxy: p.No}).ProxyFunc()(
		&url.URL{Scheme: "https", Host: host})
	return err == nil && through == nil
}

// nodeProxy is the field with what the installer adds to noProxy: the node itself, the cluster's own names and networks
// (openshift/installer, pkg/asset/manifests).
func nodeProxy(f installerFile) Proxy {
	out := Proxy{HTTP: f.text("proxy", "httpProxy"), HTTPS: f.text("proxy", "httpsProxy")}
	if out == (Proxy{}) {
		return out
	}
	list := []string{"localhost", "127.0.0.1", ".svc", ".cluster.local"}
	if name, domain := f.text("metadata", "name"), f.text("baseDomain"); name != "" && domain != "" {
		list = append(list, "api-int."+name+"."+domain)
	}
	list = append(list, f.networks()...)
	for _, entry := range strings.Split(f.text("proxy", "noProxy"), ",") {
		if entry = strings.TrimSpace(entry); entry != "" {
			list = append(list, entry)
		}
	}
	slices.Sort(list)
	out.No = strings.Join(slices.Compact(list), ",")
	return out
}
