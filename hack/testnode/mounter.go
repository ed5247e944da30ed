package testnode

import (
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// mounter mounts below a root and keeps the first error, so that a list of mounts reads as one.
type mounter struct {
	root string
	err  error
}

func (m *mounter) must(err error) {
	if m.err == nil {
		m.err = err
	}
}

func (m *mounter) do(what, target string, f func(path string) error) {
	if m.err != nil {
		return
	}
	if err := f(filepath.Join(m.root, target)); err != nil {
		m.err = fmt.Errorf("%s /%s: %w", what, target, err)
	}
}

func (m *mounter) mount(source, target, fstype string, flags uintptr, data string) {
	m.do("mount", target, func(p string) error { return unix.Mount(source, p, fstype, flags, data) })
}

func (m *mounter) bind(source, target string) {
	m.do("bind", target, func(p string) error { return unix.Mount(source, p, "", unix.MS_BIND, "") })
}

// bindAll binds with the mounts below.
func (m *mounter) bindAll(source, target string) {
	m.do("bind", target, func(p string) error { return unix.Mount(source, p, "", unix.MS_BIND|unix.MS_REC, "") })
}

// mask hides a file that not every kernel has.
func (m *mounter) mask(target string) {
	if _, err := os.Stat(filepath.Join(m.root, target)); err == nil {
		m.bind("/dev/null", target)
	}
}

// bindFile binds one file, device or socket, making the place for it.
func (m *mounter) bindFile(source, target string) {
	m.do("create", target, touch)
	m.bind(source, target)
}

func (m *mounter) remountReadOnly(target string) {
	m.do("remount", target, func(p string) error {
		return unix.Mount("", p, "",
			unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, "")
	})
}

func (m *mounter) dirs(targets ...string) {
	for _, t := range targets {
		m.do("create", t, func(p string) error { return os.MkdirAll(p, 0o755) })
	}
}

func (m *mounter) symlink(text, target string) {
	m.do("link", target, func(p string) error { return os.Symlink(text, p) })
}
