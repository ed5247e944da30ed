package bootstrapnode

import (
	"embed"
	"strings"
)

//go:embed files
var files embed.FS

// Paths on the bootstrap node. Everything else of dayone lies in its state directory.
const (
	// ConfigDir has what dayone ignition put there.
	ConfigDir = "/etc/dayone"
	// GatePath is the gate's nftables script.
	GatePath = ConfigDir + "/gate.nft"
	// GateTable is the family and name of the gate's nftables table: deleting it opens the gate.
	GateTable = "inet dayone_gate"
	// GateCounter is the table's counter of refused connections.
	GateCounter = "refused"
	// ProgramEnvPath names the image that FetchPath takes the program from.
	ProgramEnvPath = ConfigDir + "/program.env"
	// ProgramPath is the one program; SELinux lets systemd start what lies in this directory.
	ProgramPath = "/usr/local/bin/dayone"
	// FetchPath takes the program out of its image.
	FetchPath = "/usr/local/bin/dayone-fetch.sh"
)

// What the only node of a cluster has beside that where it is its own bootstrap node. Places of the installer's own
// files: openshift/installer, data/data/bootstrap/bootstrap-in-place.
const (
	// InPlacePath is the installer's script that ends the bootstrap; it goes to InPlaceMoved, and InPlace calls it.
	InPlacePath  = "/usr/local/bin/bootstrap-in-place.sh"
	InPlaceMoved = "/usr/local/bin/bootstrap-in-place.installer.sh"
	// DiskUnit is the installer's unit that installs the disk and reboots; with DiskDropIn it runs DiskInstallerPath.
	DiskUnit          = "install-to-disk.service"
	DiskDropInName    = "10-dayone.conf"
	DiskInstallerPath = "/usr/local/libexec/dayone/coreos-installer"
	// HoldPath is a manifest that keeps the API server of this host until HoldNamespace is there.
	HoldPath      = "/opt/openshift/manifests/99_dayone-hold.yaml"
	HoldNamespace = "dayone-bootstrap-in-place"
	HoldName      = "dayone-hold"
	// RegistryProgram is the one that the node keeps; AlsoFetch lets FetchPath take it out of the image, too.
	RegistryProgram = "/usr/local/bin/dayone-registry"
	AlsoFetch       = "DAYONE_ALSO=dayone-registry"
)

// CarryPath mounts a disk that was just installed and brings the images onto it. SELinux lets units start what lies in
// this directory.
const CarryPath = "/usr/local/bin/dayone-carry.sh"

// What the hosts of the agent-based installer have beside that. Places of the installer's own files:
// openshift/assisted-installer, src/installer and src/ops.
const (
	// AgentUnit is in each live image of that installer.
	AgentUnit = "agent.service"
	// AgentDiskPath is found before coreos-installer, and notes which disk that installs.
	AgentDiskPath = "/usr/local/bin/coreos-installer"
	// AgentProgressPath is what HeldUnit runs there.
	AgentProgressPath = "/usr/local/bin/dayone-progress.sh"
	// bootstrapUnit is started by assisted-installer, on the rendezvous host alone.
	bootstrapUnit = "bootkube.service"
)

// Names of the units.
const (
	GateUnit      = "dayone-gate.service"
	FetchUnit     = "dayone-fetch.service"
	BootstrapUnit = "dayone-bootstrap.service"
	// HeldUnit is the installer's unit that reports the end of the bootstrap; HoldDropIn makes it wait for the hand-over.
	HeldUnit   = "progress.service"
	HoldDropIn = "10-dayone.conf"
)

// Gate is the nftables script that keeps everybody but the node itself off the config server.
func Gate() []byte { return read("gate.nft") }

// FetchScript takes the program out of its image.
func FetchScript() []byte { return read("dayone-fetch.sh") }

// Unit is a unit's text.
func Unit(name string) string { return string(read(name)) }

// Hold is the drop-in of HeldUnit.
func Hold() string { return string(read("progress-10-dayone.conf")) }

// WithBootstrap is a unit's text that starts it with the installer's bootstrap, not with the machine.
func WithBootstrap(unit string) string {
	return strings.ReplaceAll(unit, "WantedBy=multi-user.target", "WantedBy="+bootstrapUnit)
}

// CarryScript is the program at CarryPath.
func CarryScript() []byte { return read("carry.sh") }

// AgentDisk is the program at AgentDiskPath.
func AgentDisk() []byte { return read("agent-coreos-installer") }

// AgentProgress is the program at AgentProgressPath.
func AgentProgress() []byte { return read("agent-progress.sh") }

// AgentHold is the drop-in of HeldUnit that runs AgentProgressPath.
func AgentHold() string { return string(read("agent-progress-10-dayone.conf")) }

// InPlace is the script in the place of the installer's.
func InPlace() []byte { return read("bootstrap-in-place.sh") }

// DiskInstaller is the program in the place of coreos-installer.
func DiskInstaller() []byte { return read("coreos-installer") }

// DiskDropIn is the drop-in of DiskUnit.
func DiskDropIn() string { return string(read("install-to-disk-10-dayone.conf")) }

// HoldManifest is the manifest at HoldPath.
func HoldManifest() []byte { return read("hold.yaml") }

func read(name string) []byte {
	raw, err := files.ReadFile("files/" + name)
	if err != nil {
		panic(err) // embedded: a wrong name is a mistake in this package
	}
	return raw
}
