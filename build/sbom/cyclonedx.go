package sbom

import (
	"io"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

// WriteCycloneDX writes what an image contains as a CycloneDX 1.6 document in JSON. Equal contents give equal bytes
// from one version of dayone.
func WriteCycloneDX(w io.Writer, img Image, c *Contents, version string) error {
	bom := cdx.NewBOM()
	image := cdx.Component{Type: cdx.ComponentTypeContainer, Name: img.Name, Version: img.Digest,
		PackageURL: imagePURL(img), BOMRef: imagePURL(img)}
	bom.Metadata = &cdx.Metadata{Timestamp: img.Created.UTC().Format(time.RFC3339), Component: &image,
		Tools: &cdx.ToolsChoice{Components: &[]cdx.Component{{Type: cdx.ComponentTypeApplication, Name: "dayone",
			Version: version}}}}
	components := []cdx.Component{}
	if c.OS.ID != "" {
		components = append(components, cdx.Component{Type: cdx.ComponentTypeOS, Name: c.OS.ID, Version: c.OS.VersionID,
			Description: c.OS.Name})
	}
	for _, kernel := range c.Kernels {
		components = append(components, cdx.Component{Type: cdx.ComponentTypePlatform, Name: "kernel", Version: kernel})
	}
	for _, p := range c.Packages {
		component := cdx.Component{Type: cdx.ComponentTypeLibrary, Name: p.Name, Version: p.Version,
			PackageURL: purl(p, c.OS), Publisher: p.Supplier}
		component.BOMRef = component.PackageURL
		if p.License != "" {
			component.Licenses = &cdx.Licenses{{License: &cdx.License{Name: p.License}}}
		}
		components = append(components, component)
	}
	for _, f := range c.Added {
		component := cdx.Component{Type: cdx.ComponentTypeFile, Name: f.Path, Description: owner(f)}
		if f.SHA256 != "" {
			component.Hashes = &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA1, Value: f.SHA1},
				{Algorithm: cdx.HashAlgoSHA256, Value: f.SHA256}}
		}
		components = append(components, component)
	}
	bom.Components = &components
	return cdx.NewBOMEncoder(w, cdx.BOMFileFormatJSON).EncodeVersion(bom, cdx.SpecVersion1_6)
}
