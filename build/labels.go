package build

// Labels of an image's configuration that dayone writes. A node compares LabelConfigHash with the config that it was
// given.
const (
	// LabelAddress holds Request.Address.
	LabelAddress = "dayone.dev/build-address"
	// LabelRenderedConfig holds the name of the rendered config that the image was built from. Another config with the
	// same content reuses the image, so the name is for people and LabelConfigHash is for programs.
	LabelRenderedConfig = "dayone.dev/rendered-config"
	// LabelConfigHash holds machineconfig.ContentHash of that config.
	LabelConfigHash = "dayone.dev/config-hash"
	// LabelPool holds the pool that asked for the image first.
	LabelPool = "dayone.dev/pool"
	// LabelBaseDigest holds the manifest digest of the base image.
	LabelBaseDigest = "dayone.dev/base-digest"
)
