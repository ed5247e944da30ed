package cli

import (
	"errors"
	"io/fs"
	"strings"
	"syscall"
)

// plainly is an error's text, with what the system says of a file or a port as a sentence.
func plainly(err error) string {
	text := err.Error()
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return text + ": another program has the port: stop it, or give another port"
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return text + ": this host does not have that address"
	}
	var of *fs.PathError
	if !errors.As(err, &of) {
		return text
	}
	said := ""
	switch {
	case errors.Is(of, fs.ErrNotExist):
		said = "there is no " + of.Path
	case errors.Is(of, syscall.EISDIR):
		said = of.Path + " is a directory, and a file is wanted"
	case errors.Is(of, syscall.ENOTDIR):
		said = "there is no " + of.Path + ": a part of its path is a file, and a directory is wanted"
	case errors.Is(of, fs.ErrPermission):
		said = "this user may not do that with " + of.Path + " (" + of.Op + "): run it with sudo, or change the file's " +
			"owner"
	default:
		return text
	}
	return strings.ReplaceAll(text, of.Error(), said)
}
