package cmdlines

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// pause lies between two looks. A process that lives for longer is seen; without a pause the looks would keep a
// processor busy.
const pause = 10 * time.Millisecond

// Watch collects the command lines of all processes until stop is called, which gives each that was seen once, with
// spaces between the arguments. What lives when stop is called is among them. A second call of stop gives the same.
func Watch() (stop func() []string) {
	ended, result := make(chan struct{}), make(chan []string)
	go func() {
		seen := map[string]bool{}
		for last := false; ; {
			look(seen)
			if last {
				break
			}
			select {
			case <-ended:
				last = true
			case <-time.After(pause):
			}
		}
		lines := make([]string, 0, len(seen))
		for line := range seen {
			lines = append(lines, strings.TrimSpace(strings.ReplaceAll(line, "\x00", " ")))
		}
		result <- lines
	}()
	return sync.OnceValue(func() []string { close(ended); return <-result })
}

// look adds the command lines of the processes that live now. One that ends meanwhile is left out.
func look(seen map[string]bool) {
	dir, err := os.Open("/proc")
	if err != nil {
		return
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(-1)
	for _, name := range names {
		if name[0] < '0' || name[0] > '9' {
			continue
		}
		raw, _ := os.ReadFile(filepath.Join("/proc", name, "cmdline"))
		if len(raw) > 0 { // else a thread of the kernel, or a process that has ended
			seen[string(raw)] = true
		}
	}
}
