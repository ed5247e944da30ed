package installconfig

import _ "embed"

//go:embed schema.json
var schema []byte

// Schema is a JSON schema (draft 7) of install-config.yaml for editors: the layering field to the letter, the
// installer's own keys as they come. It is generated from the types by hack/gendocs.
func Schema() []byte { return append([]byte(nil), schema...) }
