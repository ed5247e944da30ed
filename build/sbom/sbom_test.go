package sbom_test

import (
	"archive/tar"
	"bytes"
	"context"
	"database/sql"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"
	_ "github.com/mattn/go-sqlite3" // to write databases that rpm would not write
	spdxjson "github.com/spdx/tools-golang/json"
	"github.com/spdx/tools-golang/spdxlib"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/build/basetree"
	"dayone.dev/dayone/build/buildtest"
	"dayone.dev/dayone/build/sbom"
)

func run(t *testing.T, name string, arguments ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, arguments...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	require.NoError(t, err, "%s %v: %s", name, arguments, &stderr)
	return string(out)
}

// layer is a layer from the bytes of a tar file.
func layer(raw []byte) basetree.Layer {
	return func(context.Context) (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(raw)), nil }
}

// entry is a file of a layer; with link a symbolic one, with hard a hard one.
type entry struct {
	path, content, link, hard string
	mode                      int64
	uid                       int
}

func pack(t *testing.T, entries ...entry) []byte {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, e := range entries {
		h := &tar.Header{Typeflag: tar.TypeReg, Name: e.path, Size: int64(len(e.content)), Mode: e.mode, Uid: e.uid}
		switch {
		case e.link != "":
			h.Typeflag, h.Linkname = tar.TypeSymlink, e.link
		case e.hard != "":
			h.Typeflag, h.Linkname = tar.TypeLink, e.hard
		case h.Mode == 0:
			h.Mode = 0o644
		}
		require.NoError(t, w.WriteHeader(h))
		_, err := io.WriteString(w, e.content)
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	return out.Bytes()
}

// image has layers, of which the lowest is the base.
func image(layers ...[]byte) sbom.Image {
	img := sbom.Image{Name: "registry.example.com/os/worker:v1", Digest: "sha256:" + strings.Repeat("a", 64),
		BaseDigest: "sha256:" + strings.Repeat("b", 64), BaseLayers: 1, Created: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
	for _, raw := range layers {
		img.Layers = append(img.Layers, layer(raw))
	}
	return img
}

func read(t *testing.T, img sbom.Image) *sbom.Contents {
	t.Helper()
	dir := t.TempDir()
	c, err := sbom.Read(t.Context(), img, dir)
	require.NoError(t, err)
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	assert.Empty(t, left)
	if len(img.Layers) > 0 {
		img.Inventory = take(t, img)
		again, err := sbom.Read(t.Context(), img, dir)
		require.NoError(t, err)
		assert.Equal(t, c, again, "with the inventory of the base")
	}
	return c
}

// take makes the inventory of the base while its tree is read.
func take(t *testing.T, img sbom.Image) []byte {
	t.Helper()
	t.Setenv("TMPDIR", t.TempDir())
	base := img.Layers[:img.BaseLayers]
	in, err := sbom.Bills{}.Take(base)
	require.NoError(t, err)
	_, err = basetree.ReadCopying(t.Context(), base, in.Copy)
	require.NoError(t, err)
	out, err := in.Encode(t.Context())
	require.NoError(t, err)
	require.NoError(t, in.Close())
	left, err := os.ReadDir(os.TempDir())
	require.NoError(t, err)
	assert.Empty(t, left)
	return out
}

// rpmTree is a directory with two packages, installed by the real rpm in a database below dir.
func rpmTree(t *testing.T, dir string) string {
	t.Helper()
	buildtest.Need(t, true, "rpmbuild", "rpm", "tar")
	work, tree := t.TempDir(), t.TempDir()
	for name, extra := range map[string]string{"plain": "", "epochal": "Epoch: 3\nVendor: Example, Inc.\n"} {
		spec := filepath.Join(work, name+".spec")
		require.NoError(t, os.WriteFile(spec, fmt.Appendf(nil, "Name: %s\nVersion: 1.2\nRelease: 4\nSummary: s\n"+
			"License: GPLv2+ and MIT\nBuildArch: noarch\n%s%%description\nd\n%%files\n", name, extra), 0o600))
		run(t, "rpmbuild", "-bb", "--define", "_topdir "+work, "--define", "_dbpath "+work+"/db", spec)
	}
	files, err := filepath.Glob(filepath.Join(work, "RPMS/noarch/*.rpm"))
	require.NoError(t, err)
	run(t, "rpm", append([]string{"--root", tree, "--dbpath", dir, "-i", "--nodeps"}, files...)...)
	return tree
}

func TestRPM(t *testing.T) {
	for _, dir := range []string{"/usr/share/rpm", "/usr/lib/sysimage/rpm", "/var/lib/rpm"} {
		t.Run(strings.ReplaceAll(dir[1:], "/", "-"), func(t *testing.T) {
			tree := rpmTree(t, dir)
			raw := []byte(run(t, "tar", "-C", tree, "-c", "."))
			want := []sbom.Package{
				{Type: "rpm", Name: "epochal", Version: "3:1.2-4", Arch: "noarch", Source: "epochal-1.2-4.src.rpm",
					License: "GPLv2+ and MIT", Supplier: "Example, Inc."},
				{Type: "rpm", Name: "plain", Version: "1.2-4", Arch: "noarch", Source: "plain-1.2-4.src.rpm",
					License: "GPLv2+ and MIT"}}
			assert.Equal(t, want, read(t, image(raw)).Packages)
			assert.Equal(t, want, read(t, image(buildtest.Encapsulate(t, raw))).Packages, "as ostree-ext packs it")
			assert.Equal(t, "epochal 3:1.2-4\nplain 1.2-4\n", sorted(run(t, "rpm", "--root", tree, "--dbpath", dir, "-qa",
				"--qf", "%{NAME} %|EPOCH?{%{EPOCH}:}|%{VERSION}-%{RELEASE}\n")), "rpm says the same")
		})
	}
}

func sorted(lines string) string {
	list := slices.Sorted(strings.Lines(lines))
	return strings.Join(list, "")
}

func TestDPKG(t *testing.T) {
	buildtest.Need(t, false, "dpkg-query")
	status, err := os.ReadFile("/var/lib/dpkg/status")
	require.NoError(t, err)
	var got []string
	for _, p := range read(t, image(pack(t, entry{path: "var/lib/dpkg/status", content: string(status)}))).Packages {
		got = append(got, p.Name+" "+p.Version+" "+p.Arch+"\n")
	}
	want := slices.Collect(strings.Lines(run(t, "dpkg-query", "-W", "-f",
		"${db:Status-Status} ${Package} ${Version} ${Architecture}\n")))
	want = slices.DeleteFunc(want, func(l string) bool { return !strings.HasPrefix(l, "installed ") })
	for i := range want {
		want[i] = strings.TrimPrefix(want[i], "installed ")
	}
	assert.ElementsMatch(t, want, got)
}

const release = "NAME=Debian\nPRETTY_NAME=\"Debian 12\"\nID=debian\nVERSION_ID=\"12\"\n"

func dpkgStatus(versions ...string) string {
	var out strings.Builder
	for i := 0; i < len(versions); i += 2 {
		fmt.Fprintf(&out, "Package: %s\nStatus: install ok installed\nMaintainer: A <a@example.com>\nArchitecture: amd64\n"+
			"Version: %s\nConffiles:\n /etc/x 0123\nDescription: short\n long\n .\n more\n\n", versions[i], versions[i+1])
	}
	return out.String() + "Package: gone\nStatus: deinstall ok config-files\nVersion: 1\n"
}

// sample is an image on a base, with a new package, a secret, links and a file that it takes away.
func sample(t *testing.T) sbom.Image {
	t.Helper()
	return image(
		pack(t, entry{path: "usr/lib/os-release", content: release}, entry{path: "usr/lib/modules/6.1.0/vmlinuz"},
			entry{path: "var/lib/dpkg/status", content: dpkgStatus("bash", "5.2-1")}, entry{path: "opt/old/x"}),
		pack(t, entry{path: "usr/etc/motd", content: "hello\n"},
			entry{path: "etc/token", content: "canary-secret", mode: 0o600, uid: 7},
			entry{path: "etc/link", link: "motd"}, entry{path: "opt/.wh.old"}, entry{path: "srv/gone"},
			entry{path: "usr/share/copy", hard: "usr/etc/motd"}),
		pack(t, entry{path: "srv/.wh.gone"},
			entry{path: "var/lib/dpkg/status", content: dpkgStatus("bash", "5.2-2", "tini", "0.19")}),
	)
}

func TestAddedFiles(t *testing.T) {
	c := read(t, sample(t))
	assert.Equal(t, sbom.OS{ID: "debian", VersionID: "12", Name: "Debian 12"}, c.OS)
	assert.Equal(t, []string{"6.1.0"}, c.Kernels)
	var paths []string
	for _, f := range c.Added {
		paths = append(paths, f.Path)
	}
	assert.Equal(t, []string{"/etc/link", "/etc/motd", "/etc/token", "/usr/share/copy", "/var/lib/dpkg/status"}, paths)
	token := c.Added[2]
	assert.Empty(t, token.SHA256+token.SHA1)
	assert.Equal(t, []int64{0o600, 7, 13}, []int64{token.Mode, int64(token.UID), token.Size})
	assert.Equal(t, c.Added[1].SHA256, c.Added[3].SHA256, "a hard link has its file's bytes")
}

func TestDocuments(t *testing.T) {
	img := sample(t)
	c := read(t, img)
	var first, second bytes.Buffer
	require.NoError(t, sbom.WriteSPDX(&first, img, c, "v1"))
	require.NoError(t, sbom.WriteSPDX(&second, img, read(t, img), "v1"))
	assert.Equal(t, first.String(), second.String())
	assert.NotContains(t, first.String(), "canary-secret")

	doc, err := spdxjson.Read(&first)
	require.NoError(t, err)
	require.NoError(t, spdxlib.ValidateDocument(doc))
	var purls []string
	for _, p := range doc.Packages {
		for _, r := range p.PackageExternalReferences {
			purls = append(purls, r.Locator)
		}
	}
	assert.Equal(t, []string{
		"pkg:oci/worker@sha256:" + strings.Repeat("a", 64) + "?repository_url=registry.example.com%2Fos%2Fworker",
		"pkg:deb/debian/bash@5.2-2?arch=amd64&distro=debian-12",
		"pkg:deb/debian/tini@0.19?arch=amd64&distro=debian-12"}, purls)
	assert.Contains(t, doc.Packages[0].PackageComment, "added /etc/token, mode 0600, owner 7:0, without a checksum")
	assert.Len(t, doc.Files, 3)

	var bom bytes.Buffer
	require.NoError(t, sbom.WriteCycloneDX(&bom, img, c, "v1"))
	assert.NotContains(t, bom.String(), "canary-secret")
	var decoded cdx.BOM
	require.NoError(t, cdx.NewBOMDecoder(&bom, cdx.BOMFileFormatJSON).Decode(&decoded))
	assert.Len(t, *decoded.Components, 1+1+2+5, "OS, kernel, packages, files")
}

func TestLinkToALayerBelow(t *testing.T) {
	c := read(t, image(pack(t, entry{path: "etc/base", content: "x"}), pack(t, entry{path: "etc/file", content: "text"}),
		pack(t, entry{path: "etc/link", hard: "etc/file"})))
	var sums []string
	for _, f := range c.Added {
		if f.Path != "/etc/base" {
			sums = append(sums, f.SHA256)
		}
	}
	require.Len(t, sums, 2)
	assert.NotEmpty(t, sums[0])
	assert.Equal(t, sums[0], sums[1])
}

func TestCompare(t *testing.T) {
	from := image(pack(t, entry{path: "usr/lib/modules/6.1.0/vmlinuz"}, entry{path: "etc/same", content: "x"},
		entry{path: "etc/owner", content: "x"}, entry{path: "etc/gone"}, entry{path: "etc/text", content: "a"},
		entry{path: "var/lib/dpkg/status", content: dpkgStatus("bash", "5.2-1", "old", "1")}))
	to := image(pack(t, entry{path: "usr/lib/modules/6.2.0/vmlinuz"}, entry{path: "etc/same", content: "x"},
		entry{path: "etc/owner", content: "x", mode: 0o600, uid: 1}, entry{path: "etc/new"},
		entry{path: "etc/text", content: "b"},
		entry{path: "var/lib/dpkg/status", content: dpkgStatus("bash", "5.2-2", "tini", "0.19")}))
	d, err := sbom.Compare(t.Context(), from, to, t.TempDir())
	require.NoError(t, err)
	assert.Equal(t, []string{"6.1.0"}, d.From.Kernels)
	assert.Equal(t, []string{"6.2.0"}, d.To.Kernels)
	assert.Equal(t, []sbom.PackageChange{{Type: "deb", Name: "bash", Arch: "amd64", From: "5.2-1", To: "5.2-2"},
		{Type: "deb", Name: "old", Arch: "amd64", From: "1"}, {Type: "deb", Name: "tini", Arch: "amd64", To: "0.19"}},
		d.Packages)
	assert.Equal(t, []sbom.FileChange{
		{Path: "/etc/gone", Change: "removed"}, {Path: "/etc/new", Change: "added"},
		{Path: "/etc/owner", Change: "changed", Aspects: []string{"mode", "owner"}},
		{Path: "/etc/text", Change: "changed", Aspects: []string{"content"}},
		{Path: "/usr/lib/modules/6.1.0/vmlinuz", Change: "removed"},
		{Path: "/usr/lib/modules/6.2.0/vmlinuz", Change: "added"},
		{Path: "/var/lib/dpkg/status", Change: "changed", Aspects: []string{"content"}}}, d.Files)
}

// database makes one of rpm's form with statements of a test's.
func database(t *testing.T, statements string, arguments ...any) []byte {
	t.Helper()
	file := filepath.Join(t.TempDir(), "db")
	db, err := sql.Open("sqlite3", file)
	require.NoError(t, err)
	_, err = db.Exec(statements, arguments...)
	require.NoError(t, err)
	require.NoError(t, db.Close())
	raw, err := os.ReadFile(file)
	require.NoError(t, err)
	return raw
}

// header is one of rpm's with numbers of a test's and one entry: the tag name as a string.
func header(entries, size, offset uint32) []byte {
	var out []byte
	for _, n := range []uint32{entries, size, 1000, 6, offset, 1} {
		out = binary.BigEndian.AppendUint32(out, n)
	}
	return append(out, "name\x00"...)
}

func TestHostileDatabases(t *testing.T) {
	const table = "CREATE TABLE Packages (hnum INTEGER PRIMARY KEY, blob BLOB); INSERT INTO Packages (blob) VALUES (?)"
	for _, tc := range []struct {
		name     string
		database []byte
		message  string
		endless  bool
	}{
		{"no database", []byte("SQLite format 3\x00 or not"), "query packages", false},
		{"cut off", database(t, table, bytes.Repeat(header(1, 5, 0), 10_000))[:9000], "query packages", false},
		{"more entries than bytes", database(t, table, header(1<<31-1, 5, 0)), "its header is damaged", false},
		{"more bytes than there are", database(t, table, header(1, 1<<31-1, 0)), "its header is damaged", false},
		{"a text outside", database(t, table, header(1, 5, 1<<31)), "tag 1000 leads outside", false},
		{"a text without an end", database(t, table, append(header(1, 7, 5), "xx"...)), "tag 1000 leads outside", false},
		{"no version", database(t, table, header(1, 5, 0)), "no name or no version", false},
		{"a header of 100 MiB", database(t, "CREATE TABLE Packages (blob); "+
			"INSERT INTO Packages VALUES (zeroblob(100000000))"),
			"what it says of package 1 has more than", false},
		{"no table", database(t, "CREATE TABLE Other (blob)"), "no such table", false},
		{"a view that never ends", database(t, "CREATE VIEW Packages AS WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL "+
			"SELECT n+1 FROM r) SELECT n AS blob FROM r WHERE n < 0"), "query packages: ", true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			ctx := t.Context()
			if tc.endless {
				short, cancel := context.WithTimeout(ctx, time.Second)
				defer cancel()
				ctx = short
			}
			_, err := sbom.Read(ctx, image(pack(t, entry{path: "usr/share/rpm/rpmdb.sqlite", content: string(tc.database)})),
				t.TempDir())
			require.ErrorContains(t, err, "/usr/share/rpm/rpmdb.sqlite")
			assert.ErrorContains(t, err, tc.message)
		})
	}
	t.Run("dpkg's without colons", func(t *testing.T) {
		img := image(pack(t, entry{path: "var/lib/dpkg/status", content: "no field\n"}))
		in, err := sbom.Bills{}.Take(img.Layers)
		require.NoError(t, err)
		defer in.Close() //nolint:errcheck // the test looks at something else
		_, err = basetree.ReadCopying(t.Context(), img.Layers, in.Copy)
		require.NoError(t, err, "a tree needs no packages")
		_, err = in.Encode(t.Context())
		require.ErrorContains(t, err, "/var/lib/dpkg/status: after package 0")
		_, err = sbom.Read(t.Context(), img, t.TempDir())
		assert.ErrorContains(t, err, "/var/lib/dpkg/status: after package 0")
	})
	t.Run("a database in another form is named", func(t *testing.T) {
		c := read(t, image(pack(t, entry{path: "var/lib/rpm/Packages", content: "x"})))
		require.Len(t, c.Unread, 1)
		assert.Contains(t, c.Unread[0], "/var/lib/rpm/Packages")
	})
	t.Run("a layer takes the database away", func(t *testing.T) {
		c := read(t, image(pack(t, entry{path: "var/lib/dpkg/status", content: dpkgStatus("a", "1")}),
			pack(t, entry{path: "var/lib/.wh.dpkg"})))
		assert.Empty(t, c.Packages)
	})
}
