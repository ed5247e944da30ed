package sbom

import (
	"bufio"
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/textproto"
	"net/url"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	_ "github.com/mattn/go-sqlite3" // rpm's database is one of SQLite
)

const (
	rpmName = "rpmdb.sqlite"
	walEnd  = "-wal"
	// maxPackages bounds one database: Debian's archive has 70,000 packages.
	maxPackages = 200_000
	// maxPackageHeader bounds what a database says of one package, in bytes: a kernel's with its list of files has 2 MiB.
	maxPackageHeader = 64 << 20
	// readLimit bounds the query of a database, whose tables may be views that never end.
	readLimit = time.Minute
)

// rpmDirs are where rpm has its database: ostree hosts, hosts since Fedora 36 and RHEL 10, and those before.
func rpmDirs() []string {
	return []string{"/usr/share/rpm", "/usr/lib/sysimage/rpm", "/var/lib/rpm"}
}

// dpkgFiles are where dpkg has its list: hosts of Debian, and ostree hosts made of it, whose /var is empty.
func dpkgFiles() []string {
	return []string{"/var/lib/dpkg/status", "/usr/lib/dpkg/status", "/usr/share/dpkg/status"}
}

// isDatabase knows package databases by their path, also those that readDatabases can only name.
func isDatabase(p string) bool {
	if slices.Contains(dpkgFiles(), p) {
		return true
	}
	if !slices.Contains(rpmDirs(), path.Dir(p)) {
		return false
	}
	name := path.Base(p)
	return name == rpmName || name == rpmName+walEnd || name == "Packages" || name == "Packages.db"
}

// readDatabases reads the databases of an image: of each package manager the one in the highest layer.
func readDatabases(ctx context.Context, files map[string]kept) (packages []Package, unread []string, err error) {
	packages = []Package{}
	var rpm []string
	for _, dir := range rpmDirs() {
		rpm = append(rpm, dir+"/"+rpmName)
	}
	found := ""
	for _, paths := range [][]string{dpkgFiles(), rpm} {
		if found = highest(files, paths); found == "" {
			continue
		}
		list, err := readDatabase(ctx, found, files)
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %w", found, err)
		}
		packages = append(packages, list...)
	}
	if found != "" {
		return packages, nil, nil
	}
	for _, p := range slices.Sorted(maps.Keys(files)) {
		if name := path.Base(p); name == "Packages" || name == "Packages.db" {
			unread = append(unread, p+": not in SQLite's form, which rpm uses since Fedora 33 and RHEL 9")
		}
	}
	return packages, unread, nil
}

// readDatabase reads one of them. One of a form that cannot be read gives no packages.
func readDatabase(ctx context.Context, p string, files map[string]kept) ([]Package, error) {
	switch k := files[p]; {
	case k.known || !k.has():
		return k.packages, nil
	case path.Base(p) == rpmName:
		return readRPM(ctx, k.copy, files[p+walEnd].copy)
	case slices.Contains(dpkgFiles(), p):
		return readDPKG(k.copy)
	}
	return nil, nil
}

func highest(files map[string]kept, paths []string) string {
	best := ""
	for _, p := range paths {
		if k, ok := files[p]; ok && k.has() && (best == "" || k.layer > files[best].layer) {
			best = p
		}
	}
	return best
}

// readRPM reads rpm's database from a copy, and from what a writer left in its journal.
func readRPM(ctx context.Context, file, wal string) (out []Package, err error) {
	if wal != "" {
		if err := os.Rename(wal, file+walEnd); err != nil {
			return nil, err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, readLimit)
	defer cancel()
	db, err := sql.Open("sqlite3", "file:"+url.PathEscape(file)+"?_trusted_schema=false")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	// the size is asked for first: SQLite would make room for what the row says
	rows, err := db.QueryContext(ctx, "SELECT CASE WHEN length(blob) <= ? THEN blob END FROM Packages LIMIT ?",
		maxPackageHeader, maxPackages+1)
	if err != nil {
		return nil, fmt.Errorf("query packages: %w", err)
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var header []byte
		if err := rows.Scan(&header); err != nil {
			return nil, fmt.Errorf("query packages: %w", err)
		}
		if header == nil {
			return nil, fmt.Errorf("%w: what it says of package %d has more than %d bytes", errTooLarge, len(out)+1,
				maxPackageHeader)
		}
		p, err := parseRPMHeader(header)
		if err != nil {
			return nil, fmt.Errorf("package %d: %w", len(out)+1, err)
		}
		if out = append(out, p); len(out) > maxPackages {
			return nil, fmt.Errorf("%w: more than %d packages", errTooLarge, maxPackages)
		}
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("query packages: %w", err)
	}
	return slices.DeleteFunc(out, func(p Package) bool { return p.Name == "gpg-pubkey" }), nil // a key, no package
}

// readDPKG reads dpkg's list (deb822(5)): paragraphs of fields, of which those of installed packages count.
func readDPKG(file string) ([]Package, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var out []Package
	reader := textproto.NewReader(bufio.NewReader(bytes.NewReader(text)))
	for {
		fields, err := reader.ReadMIMEHeader()
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, fmt.Errorf("after package %d: %w", len(out), err)
		}
		if strings.HasSuffix(fields.Get("Status"), " installed") {
			source, _, _ := strings.Cut(fields.Get("Source"), " ")
			out = append(out, Package{Type: "deb", Name: fields.Get("Package"), Version: fields.Get("Version"),
				Arch: fields.Get("Architecture"), Source: source, Supplier: fields.Get("Maintainer")})
		}
		if len(out) > maxPackages {
			return nil, fmt.Errorf("%w: more than %d packages", errTooLarge, maxPackages)
		}
		if err != nil {
			return out, nil
		}
	}
}
