package controlplane

import (
	"path/filepath"
	"strconv"

	"dayone.dev/dayone/hack/kube/process"
)

func (p *Plane) spec(name string, args ...string) process.Spec {
	return process.Spec{Path: filepath.Join(p.options.Assets, name), Args: args,
		Log: filepath.Join(p.options.LogDir, name+".log")}
}

// EtcdData is the directory of etcd's data.
func (p *Plane) EtcdData() string { return filepath.Join(p.options.Dir, "etcd") }

// EtcdURL is where etcd serves clients, without TLS.
func (p *Plane) EtcdURL() string { return "http://127.0.0.1:" + strconv.Itoa(p.options.Ports.Etcd) }

// Etcd keeps nothing over a crash of the machine: nobody needs that here.
func (p *Plane) Etcd() process.Spec {
	return p.spec("etcd",
		"--data-dir="+p.EtcdData(),
		"--listen-client-urls="+p.EtcdURL(), "--advertise-client-urls="+p.EtcdURL(),
		"--listen-peer-urls=http://127.0.0.1:"+strconv.Itoa(p.options.Ports.Peer),
		"--unsafe-no-fsync", "--socket-reuse-port="+strconv.FormatBool(p.options.SharePorts))
}

// APIServer authorizes with RBAC and the node authorizer, as clusters do.
func (p *Plane) APIServer() process.Spec {
	args := []string{
		"--etcd-servers=" + p.EtcdURL(),
		"--bind-address=" + p.options.Listen, "--advertise-address=127.0.0.1",
		"--secure-port=" + strconv.Itoa(p.options.Ports.API), "--permit-port-sharing=" +
			strconv.FormatBool(p.options.SharePorts),
		"--service-cluster-ip-range=" + serviceRange, "--endpoint-reconciler-type=none",
		"--tls-cert-file=" + p.pki("apiserver.crt"), "--tls-private-key-file=" + p.pki("apiserver.key"),
		"--client-ca-file=" + p.pki("ca.crt"),
		"--kubelet-client-certificate=" + p.pki(kubeletClientName+".crt"), "--kubelet-client-key=" +
			p.pki(kubeletClientName+".key"),
		"--kubelet-preferred-address-types=InternalIP", // no DNS for node names here
		"--requestheader-client-ca-file=" + p.pki("ca.crt"), "--requestheader-allowed-names=" + frontProxyName,
		"--requestheader-username-headers=X-Remote-User", "--requestheader-group-headers=X-Remote-Group",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--proxy-client-cert-file=" + p.pki(frontProxyName+".crt"), "--proxy-client-key-file=" + p.pki(frontProxyName+".key"),
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + p.pki("sa.key"), "--service-account-signing-key-file=" + p.pki("sa.key"),
		"--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction", "--allow-privileged=true",
		"--profiling=false",
	}
	return p.spec("kube-apiserver", append(args, p.options.APIServerArgs...)...)
}

// ControllerManager serves nothing: its port would be one more to find.
func (p *Plane) ControllerManager() process.Spec {
	return p.spec(managerName, append(p.client(managerName), "--use-service-account-credentials=true",
		"--service-account-private-key-file="+p.pki("sa.key"), "--root-ca-file="+p.pki("ca.crt"),
		// It signs what kubelets ask for, as a cluster does.
		"--cluster-signing-cert-file="+p.pki("ca.crt"), "--cluster-signing-key-file="+p.pki("ca.key"))...)
}

// Scheduler serves nothing either.
func (p *Plane) Scheduler() process.Spec {
	return p.spec(schedulerName, p.client(schedulerName)...)
}

func (p *Plane) client(name string) []string {
	file := p.Kubeconfig(name)
	return []string{"--kubeconfig=" + file, "--authentication-kubeconfig=" + file, "--authorization-kubeconfig=" + file,
		"--secure-port=0", "--leader-elect=false", "--profiling=false"}
}
