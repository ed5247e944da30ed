package pages

import (
	"crypto/tls"
	_ "embed"
	"encoding/base64"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"dayone.dev/dayone/hack/codeblocks"
	"dayone.dev/dayone/registry/certs"
)

// coreosInstaller stands for the program, which is not to be had here.
//
//go:embed testdata/coreos-installer
var coreosInstaller string

const (
	machinesPage = "docs/users/boot-nodes.md"
	// pointerFile is where the bootstrap has said that the pointer config is.
	pointerFile = "/var/lib/dayone/ignition/master.ign"
	// cloudName is where the real aws looks for EC2.
	cloudName = "ec2.us-east-1.amazonaws.com"
	// diskImages is where libvirt's disks are.
	diskImages = "/var/lib/libvirt/images"
)

// pagesOfMachines give the pointer config of the bootstrap to machines. aws and virt-install are the real programs.
func pagesOfMachines() []act {
	pointer := has("cp " + pointerFile + " .")
	return []act{
		{page: machinesPage, begins: "coreos-installer install", before: all(pointer, sda), after: all(installed(""),
			withFIPS, fromPXE)},
		{page: machinesPage, begins: "coreos-installer iso", before: has("echo live >live.iso"), after: func(w *world) {
			assert.Equal(w, "install /dev/sda with kernel arguments '' and\n"+w.read(pointerFile), w.read("master.iso"))
		}},
		{page: machinesPage, begins: "aws", before: cloud},
		{page: machinesPage, begins: "virt-install", before: hypervisor, hows: []how{{serves: virtualMachine, code: -1}}},
	}
}

// sda gives the test's machine a disk that no other process sees.
func sda(w *world) {
	w.Helper()
	w.must("mkdir /run/dev; cp -ax /dev/. /run/dev; mount --bind /dev/pts /run/dev/pts; truncate -s 16M disk")
	loop := w.must("losetup --find --show disk")
	w.must("cp -a " + loop + " /run/dev/sda")
	w.over("/run/dev", "/dev")
	w.Cleanup(func() {
		assert.NoError(w, unix.Unmount("/dev", unix.MNT_DETACH))
		w.must("losetup --detach " + loop)
	})
}

// installed looks whether the disk has the pointer config, and the kernel arguments.
func installed(arguments string) func(w *world) {
	return func(w *world) {
		w.Helper()
		at := w.whole.TempDir()
		w.must("test -e ~/rebooted; mount -o ro /dev/sda " + at)
		defer func() { assert.NoError(w, unix.Unmount(at, 0)) }()
		assert.Equal(w, w.read(pointerFile), w.read(filepath.Join(at, "ignition/config.ign")))
		assert.Equal(w, arguments+"\n", w.read(filepath.Join(at, "kernel-arguments")))
	}
}

// withFIPS adds to both commands of the page what it says in its sentence on fips.
func withFIPS(w *world) {
	w.Helper()
	spans, err := codeblocks.Spans(filepath.Join(root, machinesPage))
	require.NoError(w, err)
	added := 0
	for _, span := range spans {
		switch {
		case strings.HasPrefix(span, "--append-karg "):
			added++
			w.must("coreos-installer install /dev/sda --ignition-file master.ign " + span)
			installed("fips=1")(w)
		case strings.HasPrefix(span, "--dest-karg-append "):
			added++
			w.must("coreos-installer iso customize --dest-device /dev/sda " + span + " -o fips.iso disk")
			assert.Contains(w, w.read("fips.iso"), "'fips=1'")
		}
	}
	assert.Equal(w, 2, added)
}

// fromPXE is what the live system's service does with the kernel arguments of the page: it calls coreos-installer.
func fromPXE(w *world) {
	w.Helper()
	blocks, err := codeblocks.Of(filepath.Join(root, machinesPage))
	require.NoError(w, err)
	listener, err := net.Listen("tcp", "192.0.2.2:80")
	require.NoError(w, err)
	server := httptest.NewUnstartedServer(http.FileServer(http.Dir(w.dir)))
	server.Listener = listener
	server.Start()
	defer server.Close()
	typed := 0
	for _, b := range blocks {
		words := strings.Fields(b.Text)
		if !strings.HasPrefix(words[0], "coreos.inst.") {
			continue
		}
		typed++
		call := "coreos-installer install --insecure-ignition"
		for _, word := range words {
			name, value, _ := strings.Cut(word, "=")
			switch name {
			case "coreos.inst.install_dev":
				call += " " + value
			case "coreos.inst.ignition_url":
				call += " --ignition-url " + value
			default:
				assert.Fail(w, "the live system does not know the kernel argument", word)
			}
		}
		w.must(call)
		installed("")(w)
	}
	assert.Equal(w, 1, typed)
}

// cloud stands for EC2, as far as a machine is ordered there: what it refuses, EC2 does, too.
func cloud(w *world) {
	w.Helper()
	const limit = 16 << 10 // of user data
	pointer := w.read(pointerFile)
	w.listens(cloudAddress+":443", func(out http.ResponseWriter, q *http.Request) {
		data, err := base64.StdEncoding.DecodeString(q.FormValue("UserData"))
		if q.FormValue("Action") != "RunInstances" || err != nil || len(data) > limit ||
			!regexp.MustCompile("^ami-[0-9a-f]{8,17}$").MatchString(q.FormValue("ImageId")) {
			http.Error(out, "<Response><Errors><Error><Code>InvalidParameterValue</Code></Error></Errors></Response>",
				http.StatusBadRequest)
			return
		}
		assert.Equal(w, pointer, string(data))
		fmt.Fprint(out, "<RunInstancesResponse><instancesSet><item><instanceId>i-1</instanceId></item></instancesSet>"+
			"</RunInstancesResponse>")
	})
	w.environment = append(w.environment, "AMI=ami-0123456789abcdef0", "AWS_ACCESS_KEY_ID=a", "AWS_SECRET_ACCESS_KEY=b",
		"AWS_DEFAULT_REGION=us-east-1", "AWS_CA_BUNDLE="+w.file("cloud-ca.crt"))
}

// listens serves HTTPS until the test ends, with a certificate of cloud-ca.crt.
func (w *world) listens(address string, handler http.HandlerFunc) {
	w.Helper()
	ca, err := certs.NewCA(certs.CAOptions{})
	require.NoError(w, err)
	pair, err := ca.ServerCertificate([]string{cloudName}, certs.ServerOptions{})
	require.NoError(w, err)
	require.NoError(w, certs.WriteKeyPair(pair, w.file("cloud.crt"), w.file("cloud.key")))
	w.write("cloud-ca.crt", string(ca.CertificatePEM()))
	own, err := tls.LoadX509KeyPair(w.file("cloud.crt"), w.file("cloud.key"))
	require.NoError(w, err)
	listener, err := net.Listen("tcp", address)
	require.NoError(w, err)
	server := httptest.NewUnstartedServer(handler)
	server.Listener, server.TLS = listener, &tls.Config{Certificates: []tls.Certificate{own},
		MinVersion: tls.VersionTLS12}
	server.StartTLS()
	w.Cleanup(server.Close)
}

// hypervisor sets up libvirt's own driver for tests: it accepts every order to a hypervisor and starts nothing.
func hypervisor(w *world) {
	w.must("mkdir -p " + diskImages + "; cp master.ign " + diskImages + "; truncate -s 1M " + diskImages + "/base.qcow2")
	w.environment = append(w.environment, "LIBVIRT_DEFAULT_URI=test:///default")
}

// virtualMachine checks that the machine gets the pointer config in the way in which hack/testnode/machine gives it to
// QEMU. virt-install then waits until the machine is off.
func virtualMachine(w *world, s *server) {
	s.says("Creating domain")
	log := w.read(filepath.Join(w.home, ".cache/virt-manager/virt-install.log"))
	assert.Contains(w, log, `<qemu:arg value="-fw_cfg"/>`)
	m := regexp.MustCompile(`<qemu:arg value="name=opt/com.coreos/config,file=([^"]+)"/>`).FindStringSubmatch(log)
	require.NotNil(w, m, log)
	assert.Equal(w, w.read(pointerFile), w.read(m[1]))
}
