package sbom

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"regexp"
	"strings"
	"time"

	spdxjson "github.com/spdx/tools-golang/json"
	"github.com/spdx/tools-golang/spdx/v2/common"
	"github.com/spdx/tools-golang/spdx/v2/v2_3"
)

const (
	noAssertion = "NOASSERTION"
	imageID     = "Image"
	baseID      = "Base"
)

// WriteSPDX writes what an image contains as an SPDX 2.3 document in JSON. Equal contents give equal bytes from one
// version of dayone.
func WriteSPDX(w io.Writer, img Image, c *Contents, version string) error {
	doc := &v2_3.Document{SPDXVersion: v2_3.Version, DataLicense: v2_3.DataLicense, SPDXIdentifier: "DOCUMENT",
		DocumentName: img.Name, DocumentNamespace: "https://dayone.dev/spdx/" + img.Digest,
		CreationInfo: &v2_3.CreationInfo{Created: img.Created.UTC().Format(time.RFC3339),
			Creators: []common.Creator{{CreatorType: "Tool", Creator: "dayone-" + version}}}}
	s := spdxDocument{doc}
	image := s.add(imageID, img.Name, img.Digest)
	image.PrimaryPackagePurpose = "CONTAINER"
	image.PackageChecksums = []common.Checksum{{Algorithm: common.SHA256,
		Value: strings.TrimPrefix(img.Digest, "sha256:")}}
	image.PackageExternalReferences = reference(imagePURL(img))
	image.PackageComment = hiddenFiles(c.Added)
	s.relate("DOCUMENT", "DESCRIBES", imageID)
	if img.BaseDigest != "" {
		s.add(baseID, "base image", img.BaseDigest).PrimaryPackagePurpose = "CONTAINER"
		s.relate(imageID, "DESCENDANT_OF", baseID)
	}
	if c.OS.ID != "" {
		system := s.add("OperatingSystem", c.OS.ID, c.OS.VersionID)
		system.PrimaryPackagePurpose, system.PackageSummary = "OPERATING-SYSTEM", c.OS.Name
		s.relate(imageID, "CONTAINS", "OperatingSystem")
	}
	for _, kernel := range c.Kernels {
		id := elementID("Kernel", kernel)
		s.add(id, "kernel", kernel)
		s.relate(imageID, "CONTAINS", id)
	}
	for _, p := range c.Packages {
		s.addPackage(p, c.OS)
	}
	for _, f := range c.Added {
		s.addFile(f)
	}
	return spdxjson.Write(doc, w)
}

type spdxDocument struct{ doc *v2_3.Document }

func (s spdxDocument) add(id, name, version string) *v2_3.Package {
	p := &v2_3.Package{PackageName: name, PackageSPDXIdentifier: common.ElementID(id), PackageVersion: version,
		PackageDownloadLocation: noAssertion, PackageLicenseConcluded: noAssertion, PackageLicenseDeclared: noAssertion,
		PackageCopyrightText: noAssertion}
	s.doc.Packages = append(s.doc.Packages, p)
	return p
}

func (s spdxDocument) relate(a, how, b string) {
	s.doc.Relationships = append(s.doc.Relationships, &v2_3.Relationship{RefA: common.MakeDocElementID("", a),
		Relationship: how, RefB: common.MakeDocElementID("", b)})
}

func (s spdxDocument) addPackage(p Package, os OS) {
	id := elementID("Package", p.Type, p.Name, p.Version, p.Arch)
	out := s.add(id, p.Name, p.Version)
	out.PackageExternalReferences = reference(purl(p, os))
	if p.License != "" {
		out.PackageLicenseComments = "the package says: " + p.License
	}
	if p.Source != "" {
		out.PackageSourceInfo = "source package: " + p.Source
	}
	if p.Supplier != "" {
		out.PackageSupplier = &common.Supplier{SupplierType: "Organization", Supplier: p.Supplier}
	}
	s.relate(imageID, "CONTAINS", id)
}

// addFile lists a file that has a checksum; hiddenFiles names the others.
func (s spdxDocument) addFile(f File) {
	if f.SHA1 == "" {
		return
	}
	id := elementID("File", f.Path)
	s.doc.Files = append(s.doc.Files, &v2_3.File{FileName: "." + f.Path, FileSPDXIdentifier: common.ElementID(id),
		Checksums: []common.Checksum{{Algorithm: common.SHA1, Value: f.SHA1},
			{Algorithm: common.SHA256, Value: f.SHA256}},
		LicenseConcluded: noAssertion, LicenseInfoInFiles: []string{noAssertion}, FileCopyrightText: noAssertion,
		FileComment: owner(f)})
	s.relate(imageID, "CONTAINS", id)
}

func owner(f File) string { return fmt.Sprintf("mode %04o, owner %d:%d", f.Mode, f.UID, f.GID) }

// hiddenFiles names files without a checksum: SPDX demands one of each file that it lists.
func hiddenFiles(files []File) string {
	var out strings.Builder
	for _, f := range files {
		switch {
		case f.SHA1 != "":
		case f.Link != "":
			fmt.Fprintf(&out, "added link %s -> %s\n", f.Path, f.Link)
		default:
			fmt.Fprintf(&out, "added %s, %s, without a checksum\n", f.Path, owner(f))
		}
	}
	return strings.TrimSuffix(out.String(), "\n")
}

func reference(purl string) []*v2_3.PackageExternalReference {
	return []*v2_3.PackageExternalReference{{Category: common.CategoryPackageManager, RefType: "purl", Locator: purl}}
}

// unfit are characters that an SPDX identifier may not have. Source: SPDX 2.3, 7.2.
var unfit = regexp.MustCompile(`[^a-zA-Z0-9.-]`)

// elementID is readable, and different for different parts.
func elementID(parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return unfit.ReplaceAllString(strings.Join(parts[:min(3, len(parts))], "-"), "-") + "-" +
		hex.EncodeToString(sum[:6])
}
