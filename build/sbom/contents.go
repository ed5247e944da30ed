package sbom

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"dayone.dev/dayone/build/basetree"
)

// Image is what is read of an image.
type Image struct {
	// Name is how people call it.
	Name string
	// Digest is that of its manifest, ALGORITHM:HEX.
	Digest string
	// BaseDigest is that of the image that it was built on, empty if it is not known.
	BaseDigest string
	// Created is when it says that it was made. A document has this time, so that it is the same whenever it is written.
	Created time.Time
	// Layers are its blobs, bottom first.
	Layers []basetree.Layer
	// BaseLayers is how many of them, from the bottom, are those of the base. The files of the others count as added.
	BaseLayers int
	// Inventory is what Bills.Take gave for the base. With it the base's layers need not be read. It may be empty.
	Inventory []byte
}

// Contents is what an image contains.
type Contents struct {
	OS OS `json:"os"`
	// Kernels are the names of directories below /usr/lib/modules that have a kernel.
	Kernels []string `json:"kernels"`
	// Packages are sorted by type, name, version and architecture.
	Packages []Package `json:"packages"`
	// Added are the files and symbolic links of the layers above the base, by path.
	Added []File `json:"added"`
	// Unread says which package databases were found and cannot be read. Without one and without Packages the image has
	// no package manager's database.
	Unread []string `json:"unread,omitempty"`

	// files are all, by path; those of the base only for a Difference.
	files map[string]File
}

// OS is what os-release(5) says.
type OS struct {
	ID        string `json:"id"`
	VersionID string `json:"versionID"`
	Name      string `json:"name"`
}

// Package is one that a package manager has installed.
type Package struct {
	// Type is rpm or deb, as in package URLs.
	Type string `json:"type"`
	Name string `json:"name"`
	// Version is [EPOCH:]VERSION[-RELEASE].
	Version string `json:"version"`
	Arch    string `json:"arch,omitempty"`
	// Source is the source package's name, of rpm its file.
	Source string `json:"source,omitempty"`
	// License is in the words of the package, which are often no SPDX expression. dpkg knows none.
	License string `json:"license,omitempty"`
	// Supplier is rpm's vendor or dpkg's maintainer.
	Supplier string `json:"supplier,omitempty"`
}

func comparePackages(a, b Package) int {
	for _, pair := range [][2]string{{a.Type, b.Type}, {a.Name, b.Name}, {a.Version, b.Version}, {a.Arch, b.Arch}} {
		if c := strings.Compare(pair[0], pair[1]); c != 0 {
			return c
		}
	}
	return 0
}

// File is a file or symbolic link with its owner.
type File struct {
	Path string `json:"path"`
	// Mode has 12 bits.
	Mode int64 `json:"mode"`
	UID  int   `json:"uid"`
	GID  int   `json:"gid"`
	// Size is in bytes.
	Size int64 `json:"size"`
	// Link is a symbolic link's text.
	Link string `json:"link,omitempty"`
	// SHA1 and SHA256 are in hexadecimal, of files that every user of the host may read: from the hash of a secret a
	// short one can be guessed.
	SHA1   string `json:"sha1,omitempty"`
	SHA256 string `json:"sha256,omitempty"`

	content string // tells contents apart; empty if it was not read
	below   string // the file of a lower layer that it is a hard link to
}

// maxFiles bounds the files that are held: a host's root has about 100,000.
const maxFiles = 2_000_000

// errTooLarge is an image with more than is read.
var errTooLarge = errors.New("the image has more files or a larger package database than dayone reads")

// Read reads all layers once, without those of a base whose inventory there is, and a layer again if its package
// database is a link to an object of an ostree repository.
// It writes package databases to a directory of its own below dir and removes it.
func Read(ctx context.Context, img Image, dir string) (*Contents, error) {
	return read(ctx, img, dir, false)
}

func read(ctx context.Context, img Image, dir string, all bool) (out *Contents, err error) {
	scratch, err := os.MkdirTemp(dir, "sbom-")
	if err != nil {
		return nil, fmt.Errorf("read contents of %s: %w", img.Name, err)
	}
	defer func() {
		if removed := os.RemoveAll(scratch); err == nil {
			err = removed
		}
	}()
	c := newCollector(scratch, img.BaseLayers)
	c.all = all
	if err := c.collect(ctx, img); err != nil {
		return nil, fmt.Errorf("read contents of %s, %w", img.Name, err)
	}
	if err := c.fetchLinked(ctx, img.Layers); err != nil {
		return nil, fmt.Errorf("read contents of %s: %w", img.Name, err)
	}
	release, err := c.release()
	if err != nil {
		return nil, fmt.Errorf("read contents of %s: %w", img.Name, err)
	}
	out = &Contents{OS: parseOS(release), Kernels: c.kernelNames(), Added: c.added(), files: c.seen.files}
	if out.Packages, out.Unread, err = readDatabases(ctx, c.seen.kept); err != nil {
		return nil, fmt.Errorf("read packages of %s: %w", img.Name, err)
	}
	slices.SortFunc(out.Packages, comparePackages)
	return out, nil
}

// parseOS reads the three fields that a document names. Source: os-release(5).
func parseOS(text []byte) OS {
	var out OS
	for line := range strings.Lines(string(text)) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		value = strings.Trim(value, `"'`)
		switch key {
		case "ID":
			out.ID = value
		case "VERSION_ID":
			out.VersionID = value
		case "PRETTY_NAME":
			out.Name = value
		}
	}
	return out
}
