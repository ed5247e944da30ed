package sbom

import (
	"strings"

	packageurl "github.com/package-url/packageurl-go"
)

// purl is a package's name for scanners. Source: the package URL specification's types rpm and deb.
func purl(p Package, os OS) string {
	version, qualifiers := p.Version, map[string]string{}
	if p.Arch != "" {
		qualifiers["arch"] = p.Arch
	}
	if epoch, rest, ok := strings.Cut(version, ":"); ok && p.Type == packageurl.TypeRPM {
		version, qualifiers["epoch"] = rest, epoch
	}
	if p.Source != "" {
		qualifiers["upstream"] = p.Source
	}
	if os.ID != "" && os.VersionID != "" {
		qualifiers["distro"] = os.ID + "-" + os.VersionID
	}
	return packageurl.NewPackageURL(p.Type, os.ID, p.Name, version, packageurl.QualifiersFromMap(qualifiers),
		"").ToString()
}

// imagePURL is an image's. Source: the specification's type oci.
func imagePURL(img Image) string {
	repository, _, _ := strings.Cut(img.Name, "@")
	if slash, colon := strings.LastIndexByte(repository, '/'), strings.LastIndexByte(repository, ':'); colon > slash {
		repository = repository[:colon]
	}
	name := strings.ToLower(repository[strings.LastIndexByte(repository, '/')+1:])
	return packageurl.NewPackageURL(packageurl.TypeOCI, "", name, img.Digest,
		packageurl.QualifiersFromMap(map[string]string{"repository_url": repository}), "").ToString()
}
