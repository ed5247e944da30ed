package appendengine

import (
	"bytes"
	"encoding/json"
	"io"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const oldLayer = "sha256:1111111111111111111111111111111111111111111111111111111111111111"

// imageOf is an image whose JSON has keys that this program knows nothing of.
func imageOf(media types.MediaType) *Image {
	config := `{"architecture":"amd64","os":"linux","x-unknown":{"n":12345678901234567890},"config":{"Labels":{"a":"1"},"x-more":true},` +
		`"rootfs":{"type":"layers","diff_ids":["` + oldLayer +
		`"]},"history":[{"created_by":"base","comment":"FROM kept"},{"created_by":"mine","comment":"FROM registry:5000/x"}]}`
	manifest := `{"schemaVersion":2,"mediaType":"` + string(media) +
		`","config":{"mediaType":"c","digest":"x","size":1},` +
		`"layers":[{"mediaType":"l","digest":"` + oldLayer +
		`","size":7,"x-layer":"kept"}],"annotations":{"keep":"me","org.opencontainers.image.base.name":"registry:5000/x"}}`
	return &Image{MediaType: media, rawConfig: []byte(config), rawManif: []byte(manifest), remote: empty.Image}
}

func change() Change {
	return Change{
		Layers: []Layer{{Blob: []byte("blob"), DiffID: oldLayer, CreatedBy: "config"}}, Labels: map[string]string{"b": "2"},
		Env: []string{"A=1"}, Empty: []string{"ENV A=1"},
		Created: time.Unix(1700000000, 5), Base: "sha256:base", BaseLayers: 1,
	}
}

func TestComposeKeepsWhatItDoesNotKnow(t *testing.T) {
	out, blobs, err := compose(imageOf(types.OCIManifestSchema1), change())
	require.NoError(t, err)
	require.Len(t, blobs, 2, "the new layer and the configuration")
	body, err := blobs[1].Compressed()
	require.NoError(t, err)
	rawConfig, err := io.ReadAll(body)
	require.NoError(t, err)
	var config, manifest map[string]any
	require.NoError(t, json.Unmarshal(rawConfig, &config))
	require.NoError(t, json.Unmarshal(out.raw, &manifest))
	assert.Contains(t, string(rawConfig), `"x-unknown":{"n":12345678901234567890}`, "numbers keep their digits")
	runtime := config["config"].(map[string]any)
	assert.Equal(t, true, runtime["x-more"])
	assert.Equal(t, map[string]any{"a": "1", "b": "2"}, runtime["Labels"])
	assert.Equal(t, "2023-11-14T22:13:20Z", config["created"])
	history := config["history"].([]any)
	assert.Equal(t, "FROM kept", history[0].(map[string]any)["comment"], "the base's history is its own")
	assert.NotContains(t, history[1], "comment", "a registry's name above the base is taken out")
	require.Len(t, history, 4)
	layers := manifest["layers"].([]any)
	require.Len(t, layers, 2)
	assert.Equal(t, "kept", layers[0].(map[string]any)["x-layer"])
	assert.Equal(t, string(types.OCILayer), layers[1].(map[string]any)["mediaType"])
	annotations := manifest["annotations"].(map[string]any)
	assert.Equal(t, map[string]any{"keep": "me", annotationBaseDigest: "sha256:base",
		annotationCreated: "2023-11-14T22:13:20Z"}, annotations)
	parsed, err := v1.ParseManifest(bytes.NewReader(out.raw))
	require.NoError(t, err)
	assert.Equal(t, hashOf(rawConfig), parsed.Config.Digest)

	again, _, err := compose(imageOf(types.OCIManifestSchema1), change())
	require.NoError(t, err)
	assert.Equal(t, out.raw, again.raw, "the same bytes each time")
	docker, _, err := compose(imageOf(types.DockerManifestSchema2), change())
	require.NoError(t, err)
	assert.NotContains(t, string(docker.raw), annotationBaseDigest, "Docker manifests get no annotations")
	assert.Contains(t, string(docker.raw), string(types.DockerLayer))
}

func FuzzCompose(f *testing.F) {
	good := imageOf(types.OCIManifestSchema1)
	f.Add(good.rawConfig, good.rawManif)
	f.Add([]byte(`{"config":[],"rootfs":1,"history":[null,3]}`), []byte(`{"layers":{},"config":null,"annotations":[]}`))
	f.Fuzz(func(t *testing.T, config, manifest []byte) {
		out, _, err := compose(&Image{MediaType: types.OCIManifestSchema1, rawConfig: config, rawManif: manifest,
			remote: v1.Image(empty.Image)}, change())
		if err == nil && !json.Valid(out.raw) {
			t.Fatal("the manifest is no JSON")
		}
	})
}
