package buildahengine

import (
	"bytes"
	"context"
	"debug/elf"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/containers/buildah"
	"github.com/containers/buildah/define"
	"github.com/containers/image/v5/types"
	"github.com/google/renameio/v2"
	"golang.org/x/sys/unix"

	"dayone.dev/dayone/installconfig/report"
)

// probeTimeout bounds one trial of a runtime: a container that does nothing takes a fraction of a second.
const probeTimeout = 30 * time.Second

// failureKept is how long a runtime that did not work is not tried again. One that worked is believed until the host
// reboots or the program changes.
const failureKept = 10 * time.Minute

// probe runs a container that does nothing with the runtime, in the very way of RUN: the same specification,
// namespaces, control group and limits. It is the only way to know whether this runtime works on this host, for this
// user, inside whatever this process runs in.
func probe(ctx context.Context, s session, path string) error {
	program, ok := exitProgram(runtime.GOARCH)
	if !ok {
		return fmt.Errorf("dayone has no test program for %s", runtime.GOARCH)
	}
	ended := make(chan error, 1)
	go func() { ended <- runProbe(ctx, s, program, path) }() // the library does not end a container with the context
	timer := time.NewTimer(probeTimeout)
	defer timer.Stop()
	select {
	case err := <-ended:
		return err
	case <-timer.C:
		return fmt.Errorf("a container that does nothing did not end within %s", probeTimeout)
	}
}

func runProbe(ctx context.Context, s session, program []byte, path string) (err error) {
	namespaces, network := networkOf(s.Job.Options.Offline)
	common := &define.CommonBuildOptions{IdentityLabel: types.OptionalBoolFalse, Ulimit: ownLimits(),
		CgroupParent: s.Group}
	b, err := buildah.NewBuilder(ctx, s.store, buildah.BuilderOptions{
		FromImage: buildah.BaseImageFakeName, Isolation: ociIsolation(), CommonBuildOpts: common, SystemContext: s.system,
		NamespaceOptions: namespaces, ConfigureNetwork: network, NetworkInterface: noNetwork{},
		IDMappingOptions: &define.IDMappingOptions{HostUIDMapping: true, HostGIDMapping: true},
	})
	if err != nil {
		return fmt.Errorf("make a container: %w", err)
	}
	defer func() { err = errors.Join(err, b.Delete()) }()
	root, err := b.Mount("")
	if err != nil {
		return fmt.Errorf("mount a container: %w", err)
	}
	if err := os.WriteFile(filepath.Join(root, "probe"), program, 0o755); err != nil {
		return fmt.Errorf("fill a container: %w", err)
	}
	var output bytes.Buffer
	err = b.Run([]string{"/probe"}, buildah.RunOptions{
		Isolation: ociIsolation(), Runtime: path, Args: runtimeArguments(s.order), Terminal: buildah.WithoutTerminal,
		SystemContext: s.system, NamespaceOptions: namespaces, ConfigureNetwork: network, Stdin: bytes.NewReader(nil),
		Stdout: &output, Stderr: &output, Logger: report.NoLog().Logger, // without one the library crashes where it fails
	})
	if text := strings.Join(strings.Fields(output.String()), " "); err != nil && text != "" {
		if _, after, found := strings.Cut(text, "container for [/probe]: "); found {
			text = after
		}
		return errors.New(shorten(text))
	}
	return err
}

// exitProgram is a static program that ends with exit code 0: the smallest thing that a container can run, with nothing
// of the host in it. The machine code is exit(0) by the kernel's calling convention of each architecture (syscall(2)).
func exitProgram(arch string) ([]byte, bool) {
	const address, page = 0x400000, 0x10000 // page: the largest that these architectures use
	machine, order, flags, code := elf.EM_NONE, binary.ByteOrder(binary.LittleEndian), uint32(0), []byte(nil)
	switch arch {
	case "amd64": // xor edi, edi; mov eax, 60; syscall
		machine, code = elf.EM_X86_64, []byte{0x31, 0xff, 0xb8, 0x3c, 0, 0, 0, 0x0f, 0x05}
	case "arm64": // mov x0, #0; mov x8, #93; svc #0
		machine, code = elf.EM_AARCH64, []byte{0, 0, 0x80, 0xd2, 0xa8, 0x0b, 0x80, 0xd2, 0x01, 0, 0, 0xd4}
	case "ppc64le": // li r0, 1; li r3, 0; sc
		// flags: ELF ABI version 2
		machine, flags, code = elf.EM_PPC64, 2, []byte{1, 0, 0, 0x38, 0, 0, 0x60, 0x38, 0x02, 0, 0, 0x44}
	case "s390x": // lghi %r2, 0; svc 1
		machine, order, code = elf.EM_S390, binary.BigEndian, []byte{0xa7, 0x29, 0, 0, 0x0a, 0x01}
	default:
		return nil, false
	}
	header, program := elf.Header64{Type: uint16(elf.ET_EXEC), Machine: uint16(machine), Version: uint32(elf.EV_CURRENT),
		Flags: flags}, elf.Prog64{}
	size := uint64(binary.Size(header) + binary.Size(program))
	copy(header.Ident[:], elf.ELFMAG)
	header.Ident[elf.EI_CLASS], header.Ident[elf.EI_DATA], header.Ident[elf.EI_VERSION] = byte(elf.ELFCLASS64),
		byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)
	if order == binary.BigEndian {
		header.Ident[elf.EI_DATA] = byte(elf.ELFDATA2MSB)
	}
	header.Entry, header.Phoff, header.Phnum = address+size, uint64(binary.Size(header)), 1
	header.Ehsize, header.Phentsize = uint16(binary.Size(header)), uint16(binary.Size(program))
	whole := size + uint64(len(code))
	program = elf.Prog64{Type: uint32(elf.PT_LOAD), Flags: uint32(elf.PF_R | elf.PF_X), Vaddr: address, Paddr: address,
		Filesz: whole, Memsz: whole, Align: page}
	var out bytes.Buffer
	for _, part := range []any{header, program, code} {
		if binary.Write(&out, order, part) != nil {
			return nil, false // never: both are of fixed size
		}
	}
	return out.Bytes(), true
}

// verdict is what a trial of a runtime gave.
type verdict struct {
	Works  bool   `json:"works"`
	Detail string `json:"detail,omitempty"`
	// At is when it was tried, in seconds since 1970.
	At int64 `json:"at"`
}

// counts reports whether a runtime need not be tried again. A failure that is to come was seen before the clock was set
// back.
func (v verdict) counts(now time.Time) bool {
	age := now.Sub(time.Unix(v.At, 0))
	return v.Works || age >= 0 && age < failureKept
}

// tryRuntime returns the outcome of an earlier trial, or makes one. A trial counts for one program, user, boot and kind
// of network.
func tryRuntime(ctx context.Context, s session, path string) error {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return fmt.Errorf("stat %s: %w", path, err)
	}
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		boot = nil // then a trial counts until the file is removed
	}
	key := fmt.Sprintf("%s size=%d changed=%d.%d user=%d group=%t offline=%t boot=%s", path, st.Size, st.Mtim.Sec,
		st.Mtim.Nsec, os.Getuid(), s.Group != "", s.Job.Options.Offline, strings.TrimSpace(string(boot)))
	known := map[string]verdict{}
	if raw, err := os.ReadFile(verdictsFile(s.Root)); err == nil && json.Unmarshal(raw, &known) != nil {
		known = map[string]verdict{} // an unreadable file: try again
	}
	if v, ok := known[key]; ok && v.counts(time.Now()) {
		if v.Works {
			return nil
		}
		return errors.New(v.Detail)
	}
	trial := probe(ctx, s, path)
	v := verdict{Works: trial == nil, At: time.Now().Unix()}
	if trial != nil {
		v.Detail = trial.Error()
	}
	known[key] = v
	raw, err := json.Marshal(known)
	if err == nil {
		err = renameio.WriteFile(verdictsFile(s.Root), raw, 0o600)
	}
	if err != nil {
		s.out.deliver("the trial of " + path + " is not kept: " + err.Error())
	}
	return trial
}

// verdictsFile keeps trials in the engine's directory.
func verdictsFile(root string) string { return filepath.Join(root, "isolation.json") }
