package bootstrapnode

import "embed"

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

func read(name string) []byte {
	raw, err := files.ReadFile("files/" + name)
	if err != nil {
		panic(err) // embedded: a wrong name is a mistake in this package
	}
	return raw
}
