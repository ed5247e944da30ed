package baseimage

import (
	"archive/tar"
	"context"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
)

// icuTables is the library with ICU's tables: 31 MB. ostree links it by way of libarchive and libxml2; it reads no XML.
//
//nolint:gochecknoglobals // compiled once
var icuTables = regexp.MustCompile(`^libicudata\.so\.(\d+)`)

// emptyICUTables puts a library with the same name and symbol, but without tables, in the place of ICU's. Every test
// that imports, copies or unpacks an image would else carry the tables along. It needs gcc, as building dayone does.
func emptyICUTables(ctx context.Context, scratch string, layers []*layer) error {
	for _, l := range layers {
		for name, e := range l.entries {
			match := icuTables.FindStringSubmatch(path.Base(name))
			if match == nil || e.header.Typeflag != tar.TypeReg {
				continue
			}
			empty, err := linkEmptyTables(ctx, scratch, match[0], match[1])
			if err != nil {
				return err
			}
			if err := l.hostFile(name, empty, e.header.Mode); err != nil {
				return err
			}
		}
	}
	return nil
}

func linkEmptyTables(ctx context.Context, dir, soname, version string) (string, error) {
	source, out := filepath.Join(dir, "icudata.c"), filepath.Join(dir, soname)
	text := "const char icudt" + version + "_dat[64] = {0};\n" // ICU sees no magic number and refuses them
	if err := os.WriteFile(source, []byte(text), 0o600); err != nil {
		return "", fmt.Errorf("write empty ICU tables: %w", err)
	}
	_, err := run(ctx, dir, "gcc", "-shared", "-nostdlib", "-Wl,--build-id=none", "-Wl,-soname,"+soname, "-o", out, source)
	return out, err
}

// unused says that no program of a test node reads a file: Perl, which only Debian's package scripts run, and the rules
// of time zones. They are two thirds of the files of Debian's tree.
func unused(name string) bool {
	for part := range strings.SplitSeq(name, "/") {
		switch part {
		case "perl", "perl5", "perl-base", "zoneinfo":
			return true
		}
	}
	return strings.HasPrefix(name, "usr/bin/perl") || strings.HasPrefix(path.Base(name), "libperl.so.")
}
