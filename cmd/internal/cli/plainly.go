package cli

import (
	"errors"
	"io/fs"
	"strings"
	"syscall"
)

// plainly is an error's text, with system errors of files and ports as sentences.
func plainly(err error) string {
	text := err.Error()
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return text + ": another program has the port: stop it, or use another port"
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
		said = "this user has no permission to " + of.Op + " " + of.Path + ": run the command with sudo, or change the " +
			"file's owner"
	default:
		return text
	}
	return strings.ReplaceAll(text, of.Error(), said)
}
