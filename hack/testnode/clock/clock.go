package clock

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// symbol is what Go's runtime, and C libraries, ask for the time. Source: Linux, vdso(7).
	symbol = "__vdso_clock_gettime"
	// jump is the first byte of an x86-64 jump by a 32-bit distance, jumpSize its length.
	jump     = 0xe9
	jumpSize = 5
	// offsetAt is where the shift in seconds is, from the beginning of the code that adds it.
	offsetAt = 32
	// stopLimit bounds the wait for a process's threads to hold still.
	stopLimit = 10 * time.Second
	stopPoll  = time.Millisecond
)

// code asks the kernel and adds the shift to CLOCK_REALTIME and CLOCK_REALTIME_COARSE. It needs no stack.
var code = []byte{ //nolint:gochecknoglobals // a constant in all but type
	0xb8, 0xe4, 0x00, 0x00, 0x00, // mov  eax, SYS_clock_gettime
	0x0f, 0x05, // syscall
	0x85, 0xff, // test edi, edi
	0x74, 0x05, // je   add
	0x83, 0xff, 0x05, // cmp  edi, CLOCK_REALTIME_COARSE
	0x75, 0x0a, // jne  end
	0x48, 0x8b, 0x0d, 0x09, 0x00, 0x00, 0x00, // add: mov rcx, [rip+9], which is at offsetAt
	0x48, 0x01, 0x0e, // add  [rsi], rcx
	0xc3, // end: ret
}

// Shift sets a process's wall clock so far ahead of this machine's, or behind it, in whole seconds; 0 sets it right
// again. What the process starts has this machine's clock, and so has what takes its place; time stamps of files are
// the kernel's. Timers and monotonic time go on as if nothing was: that is what a clock does that is set.
func Shift(pid int, by time.Duration) error {
	if runtime.GOARCH != "amd64" {
		return fmt.Errorf("shift the clock of process %d: it is written for x86-64 only", pid)
	}
	if err := shift(pid, int64(by/time.Second)); err != nil {
		return fmt.Errorf("shift the clock of process %d: %w", pid, err)
	}
	return nil
}

func shift(pid int, seconds int64) error {
	mem, err := os.OpenFile(fmt.Sprintf("/proc/%d/mem", pid), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer mem.Close()
	base, image, err := vdso(pid, mem)
	if err != nil {
		return err
	}
	entry, err := find(image)
	if err != nil {
		return err
	}
	at := patched(image, entry)
	if at == 0 {
		if at, err = room(image); err != nil {
			return err
		}
		return stopped(pid, base+entry, func() error { return patch(mem, base, entry, at, seconds) })
	}
	return put(mem, base+at+offsetAt, binary.LittleEndian.AppendUint64(nil, uint64(seconds)))
}

// vdso reads the process's own image of it, and where it is.
func vdso(pid int, mem io.ReaderAt) (base int64, image []byte, err error) {
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		return 0, nil, err
	}
	for line := range strings.Lines(string(maps)) {
		if !strings.HasSuffix(strings.TrimSpace(line), "[vdso]") {
			continue
		}
		var end int64
		if _, err := fmt.Sscanf(line, "%x-%x ", &base, &end); err != nil {
			return 0, nil, fmt.Errorf("read maps: %w", err)
		}
		image = make([]byte, end-base)
		if _, err := mem.ReadAt(image, base); err != nil {
			return 0, nil, fmt.Errorf("read its vDSO: %w", err)
		}
		return base, image, nil
	}
	return 0, nil, errors.New("it has no vDSO")
}

// find gives the place of the function in the image.
func find(image []byte) (int64, error) {
	f, err := elf.NewFile(bytes.NewReader(image))
	if err != nil {
		return 0, fmt.Errorf("read its vDSO: %w", err)
	}
	symbols, err := f.DynamicSymbols()
	if err != nil {
		return 0, fmt.Errorf("read its vDSO: %w", err)
	}
	for _, s := range symbols {
		if s.Name == symbol && int(s.Value)+jumpSize < len(image) {
			return int64(s.Value), nil
		}
	}
	return 0, errors.New("its vDSO has no " + symbol)
}

// patched gives the place of the code that an earlier call has put there; 0: there is none.
func patched(image []byte, entry int64) int64 {
	if image[entry] != jump {
		return 0
	}
	at := entry + jumpSize + int64(int32(binary.LittleEndian.Uint32(image[entry+1:])))
	if at < 0 || at+offsetAt > int64(len(image)) || !bytes.HasPrefix(image[at:], code) {
		return 0
	}
	return at
}

// room finds a place behind the image's end: pages are larger than it.
func room(image []byte) (int64, error) {
	const align, size = 64, offsetAt + 8
	at := (len(bytes.TrimRight(image, "\x00")) + 2*align - 1) / align * align // an image may end in zeros of its own
	if at+size > len(image) {
		return 0, errors.New("its vDSO fills its pages")
	}
	return int64(at), nil
}

func patch(mem io.WriterAt, base, entry, at, seconds int64) error {
	text := make([]byte, offsetAt)
	copy(text, code)
	text = binary.LittleEndian.AppendUint64(text, uint64(seconds))
	if err := put(mem, base+at, text); err != nil {
		return err
	}
	distance := binary.LittleEndian.AppendUint32([]byte{jump}, uint32(int32(at-entry-jumpSize)))
	return put(mem, base+entry, distance)
}

func put(mem io.WriterAt, at int64, data []byte) error {
	if _, err := mem.WriteAt(data, at); err != nil {
		return fmt.Errorf("write to its vDSO: %w", err)
	}
	return nil
}

// stopped does something while all threads hold still and none is in the middle of the instructions that a jump at
// entry replaces.
func stopped(pid int, entry int64, do func() error) error {
	for end := time.Now().Add(stopLimit); time.Now().Before(end); time.Sleep(stopPoll) {
		if err := unix.Kill(pid, unix.SIGSTOP); err != nil {
			return fmt.Errorf("stop it: %w", err)
		}
		still, err := holdsStill(pid, entry, end)
		if err == nil && still {
			err = do()
		}
		if err = errors.Join(err, unix.Kill(pid, unix.SIGCONT)); err != nil || still {
			return err
		}
	}
	return errors.New("its threads do not hold still")
}

// holdsStill waits until all threads have stopped, and tells whether none is in the middle of what is replaced.
func holdsStill(pid int, entry int64, end time.Time) (bool, error) {
	for ; time.Now().Before(end); time.Sleep(stopPoll) {
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", pid))
		if err != nil || len(threads) == 0 {
			return false, errors.Join(err, errors.New("it has no threads"))
		}
		all := true
		for _, t := range threads {
			where, stops, err := thread(t)
			if err != nil {
				return false, err
			}
			if all = all && stops; stops && where > entry && where < entry+jumpSize {
				return false, nil
			}
		}
		if all {
			return true, nil
		}
	}
	return false, nil
}

// thread tells whether one has stopped, and where.
func thread(dir string) (where int64, stops bool, err error) {
	stat, err := os.ReadFile(filepath.Join(dir, "stat"))
	if err != nil {
		return 0, false, err
	}
	// Its name, in parentheses, may hold anything.
	state := strings.TrimSpace(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if !strings.HasPrefix(state, "T") {
		return 0, false, nil
	}
	call, err := os.ReadFile(filepath.Join(dir, "syscall"))
	if err != nil {
		return 0, false, err
	}
	words := strings.Fields(string(call))
	if len(words) < 3 { // "running": it is just being stopped
		return 0, false, nil
	}
	where, err = strconv.ParseInt(strings.TrimPrefix(words[len(words)-1], "0x"), 16, 64)
	return where, err == nil, err
}
