package machine

import (
	"bytes"
	"io"
	"time"
)

// BootTimes are when the last boot's parts began; zero: not yet.
type BootTimes struct {
	// On is when the machine was switched on: the firmware begins.
	On time.Time
	// Loader is when the boot loader reads the boot entries.
	Loader time.Time
	// Kernel is when the kernel says its first word.
	Kernel time.Time
}

// What the parts say first on the console: baseimage's boot loader, and every Linux.
const loaderWords, kernelWords = "boot loader: reading the boot entries", "Linux version"

// console writes what a machine says into its log, and tells of the parts' first words as they come.
type console struct {
	log  io.Writer
	tail []byte // the end of what was said, in which the beginning of such words may be
	saw  func(words string)
}

func (c *console) Write(p []byte) (int, error) {
	text := append(c.tail, p...)
	for _, words := range []string{loaderWords, kernelWords} {
		// Words that lie whole in the tail were told before.
		if at := bytes.LastIndex(text, []byte(words)); at >= 0 && at+len(words) > len(c.tail) {
			c.saw(words)
		}
	}
	c.tail = bytes.Clone(text[max(0, len(text)-len(loaderWords)):])
	return c.log.Write(p)
}
