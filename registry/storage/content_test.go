package storage_test

import (
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/registry/storage"
)

// TestOneReading pushes manifests that clients read in different ways.
func TestOneReading(t *testing.T) {
	s := open(t, t.TempDir(), storage.Options{})
	a, b := push(t, s, "a/b", []byte("layer A")), push(t, s, "a/b", []byte("layer B"))
	config := `{"digest":"` + push(t, s, "a/b", []byte("{}")).String() + `","size":2}`
	_, err := storage.ParseContent([]byte(`{"config":` + strings.Replace(config, "}", `,"Data":""}`, 1) + `}`))
	require.ErrorContains(t, err, `config: the key "Data" is not "data"`)
	layerA, layerB := `{"digest":"`+a.String()+`","size":7}`, `{"digest":"`+b.String()+`","size":7}`
	absent := `{"digest":"` + digest.FromString("absent").String() + `","size":6}`
	for _, tc := range []struct{ name, fields, rule string }{
		{"unknown fields, annotations that differ in case, empty data",
			`"layers":[` + layerA + `],"fooBar":{"a":1,"A":2},"annotations":{"k":"1","K":"2"}`, ""},
		{"no layers", `"layers":[]`, ""},
		{"duplicate key", `"layers":[` + layerA + `],"layers":[` + layerB + `]`, `key "layers" occurs twice`},
		{"duplicate key, escaped", `"layers":[` + layerA + `],"l\u0061yers":[]`, `key "layers" occurs twice`},
		{"duplicate key of an unknown object", `"layers":[],"x":{"a":1,"a":2}`, `x: the key "a" occurs twice`},
		{"duplicate key of an annotation", `"layers":[],"annotations":{"a":"1","a":"2"}`, `occurs twice`},
		{"key in another case", `"layers":[` + layerA + `],"LAYERS":[` + layerB + `]`, `key "LAYERS" is not "layers"`},
		{"key in another case only", `"Layers":[` + layerA + `]`, `key "Layers" is not "layers"`},
		{"absent layer hidden", `"layers":[` + absent + `],"LAYERS":[]`, `key "LAYERS" is not "layers"`},
		{"key that folds from U+017F", `"layers":[],"layer` + "\u017f" + `":[` + layerB + `]`, "is not \"layers\""},
		{"descriptor's key in another case", `"layers":[` + strings.Replace(layerA, "}", `,"Digest":"x"}`, 1) + `]`,
			`layers: the key "Digest" is not "digest"`},
		{"platform's key in another case", `"layers":[` + strings.Replace(layerA, "}", `,"platform":{"OS":"x"}}`, 1) + `]`,
			`layers: platform: the key "OS" is not "os"`},
		{"layer of negative size", `"layers":[` + strings.Replace(layerA, `"size":7`, `"size":-7`, 1) + `]`,
			"layers[0]: size is negative"},
		{"subject's key in another case", `"layers":[],"subject":` + strings.Replace(layerA, "}", `,"Size":7}`, 1),
			`subject: the key "Size" is not "size"`},
		{"image's key in another case",
			`"layers":[],"manifests":[` + strings.Replace(layerA, "}", `,"URLs":[]}`, 1) + `]`,
			`manifests: the key "URLs" is not "urls"`},
		{"unknown object with a manifest's keys", `"layers":[],"x":{"config":{"Digest":1},"platform":{"OS":1}}`, ""},
		{"invalid UTF-8", `"layers":[],"annotations":{"k":"` + "\xff" + `"}`, "not valid UTF-8"},
		{"size of a layer", `"layers":[` + strings.Replace(layerA, `"size":7`, `"size":8`, 1) + `]`, "is 7, the manifest says 8"},
		{"a digest that is none", `"layers":[{"digest":"sha256:00","size":7}]`, "sha256:00"},
		{"no size", `"layers":[{"digest":"` + a.String() + `"}]`, "is 7, the manifest says 0"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			body := []byte(`{"schemaVersion":2,"config":` + config + `,` + tc.fields + `}`)
			for _, sparse := range []bool{false, true} {
				err := s.Repository("a/b").PutManifest(t.Context(), storage.Put{MediaType: v1.MediaTypeImageManifest,
					Digest: digest.FromBytes(body), Body: body, Sparse: sparse})
				if tc.rule == "" {
					require.NoError(t, err)
					continue
				}
				require.ErrorIs(t, err, storage.ErrManifest)
				assert.ErrorContains(t, err, tc.rule)
			}
		})
	}
}

// TestSizeInIndex wants the size of an index's images.
func TestSizeInIndex(t *testing.T) {
	s := open(t, t.TempDir(), storage.Options{})
	m := put(t, s, "a/b", "v1", push(t, s, "a/b", []byte("layer")))
	body := []byte(`{"schemaVersion":2,"mediaType":"` + v1.MediaTypeImageIndex + `","manifests":[{"mediaType":"` +
		v1.MediaTypeImageManifest + `","digest":"` + m.String() + `","size":3}]}`)
	err := s.Repository("a/b").PutManifest(t.Context(), storage.Put{MediaType: v1.MediaTypeImageIndex,
		Digest: digest.FromBytes(body), Body: body})
	require.ErrorIs(t, err, storage.ErrManifest)
	assert.ErrorContains(t, err, "the manifest says 3")
}

// FuzzContent shows that reading a manifest never fails other than by its error, and that what it accepts has digests.
func FuzzContent(f *testing.F) {
	f.Add([]byte(`{"schemaVersion":2,"layers":[{"digest":"sha256:00"}],"LAYERS":[]}`))
	f.Add([]byte(`{"schemaVersion":2,"manifests":[],"annotations":{"a":"b","a":"c"}}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		c, err := storage.ParseContent(body)
		if err != nil {
			require.ErrorIs(t, err, storage.ErrManifest)
			return
		}
		for _, d := range append(c.Layers, c.Manifests...) {
			assert.NoError(t, d.Digest.Validate())
		}
	})
}
