package sign_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/secure-systems-lab/go-securesystemslib/dsse"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/build/sign"
	"dayone.dev/dayone/registry/registrytest"
	"dayone.dev/dayone/registry/transfer"
)

func TestProvenance(t *testing.T) {
	reg := registrytest.Start(t)
	_, at := push(t, reg, "os/worker")
	k, other := keys(t)[0], keys(t)[1]
	read := func(at sign.Image, keys ...sign.PublicKey) (*sign.Provenance, error) {
		return sign.ReadProvenance(t.Context(), at, keys...)
	}
	_, err := read(at, k.Public)
	require.ErrorIs(t, err, transfer.ErrNotAllowed, "there is none")

	finished := time.Date(2026, 11, 26, 0, 0, 0, 0, time.UTC)
	for i, address := range []string{"second", "first"} {
		var p sign.Provenance
		p.BuildDefinition.ExternalParameters.Address = address
		p.RunDetails.Metadata.FinishedOn = finished.Add(-time.Duration(i) * time.Hour)
		require.NoError(t, k.Attest(t.Context(), at, p))
	}
	p, err := read(at, other.Public, k.Public)
	require.NoError(t, err)
	assert.Equal(t, "second", p.BuildDefinition.ExternalParameters.Address, "the one that was finished last")
	_, err = read(at, other.Public)
	require.ErrorIs(t, err, transfer.ErrNotAllowed, "another key")
	elsewhere := at
	elsewhere.Repository += "2"
	_, err = read(elsewhere, k.Public)
	require.ErrorIs(t, err, transfer.ErrNotAllowed, "another repository")

	envelopes, err := transfer.Documents(t.Context(), at.Endpoint, sign.ProvenanceType)
	require.NoError(t, err)
	require.Len(t, envelopes, 2)
	attach := func(t *testing.T, at sign.Image, raw string) {
		t.Helper()
		require.NoError(t, transfer.AttachDocument(t.Context(), at.Endpoint, transfer.Document{Type: sign.ProvenanceType,
			Content: []byte(raw)}, transfer.Options{}))
	}
	var envelope dsse.Envelope
	require.NoError(t, json.Unmarshal(envelopes[0], &envelope))
	envelope.Payload = strings.Replace(envelope.Payload, "e", "f", 1)
	changed, err := json.Marshal(envelope)
	require.NoError(t, err)
	for _, tc := range []struct{ name, raw string }{
		{"another image's", string(envelopes[0])}, {"changed", string(changed)}, {"no envelope", "text"},
		{"no signature", `{"payloadType":"x","payload":"e30=","signatures":[]}`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, theirs := push(t, reg, "os/worker")
			attach(t, theirs, tc.raw)
			_, err := read(theirs, k.Public)
			require.ErrorIs(t, err, transfer.ErrNotAllowed)
		})
	}
	attach(t, at, "text")
	_, err = read(at, k.Public)
	require.NoError(t, err, "what somebody else attaches hides nothing")
}

// TestCopiesAreVouchedFor: signature and provenance come with an image, and go with it.
func TestCopiesAreVouchedFor(t *testing.T) {
	from, to := registrytest.Start(t), registrytest.Start(t)
	_, at := push(t, from, "os/worker")
	k := keys(t)[0]
	_, err := k.Sign(t.Context(), at)
	require.NoError(t, err)
	require.NoError(t, k.Attest(t.Context(), at, sign.Provenance{}))
	bom := transfer.Document{Type: "application/spdx+json", Content: []byte("{}")}
	require.NoError(t, transfer.AttachDocument(t.Context(), at.Endpoint, bom, transfer.Options{}))

	there := at
	there.Endpoint = transfer.Endpoint{CAFile: to.CAFile, AuthFile: to.PushAuthFile,
		Reference: strings.Replace(at.Endpoint.Reference, from.Addr, to.Addr, 1)}
	res, err := transfer.Copy(t.Context(), at.Endpoint, there.Endpoint, transfer.Options{})
	require.NoError(t, err)
	require.ErrorIs(t, sign.Verify(t.Context(), there, k.Public), transfer.ErrNotAllowed)
	_, err = transfer.Attach(t.Context(), at.Endpoint, there.Endpoint, res.Digest, transfer.Options{})
	require.NoError(t, err)
	require.NoError(t, sign.Verify(t.Context(), there, k.Public))
	_, err = sign.ReadProvenance(t.Context(), there, k.Public)
	require.NoError(t, err)
	found, err := transfer.Documents(t.Context(), there.Endpoint, bom.Type)
	require.NoError(t, err)
	assert.Equal(t, [][]byte{bom.Content}, found)

	other := there
	other.Endpoint.Reference = to.Addr + "/os/other:v1"
	res, err = transfer.CopySigned(t.Context(), at.Endpoint, other.Endpoint, transfer.Options{})
	require.NoError(t, err)
	other.Endpoint.Reference = to.Addr + "/os/other@" + res.Digest.String()
	require.NoError(t, sign.Verify(t.Context(), other, k.Public))
	added, err := keys(t)[1].Sign(t.Context(), at)
	require.NoError(t, err)
	require.True(t, added)
	require.NoError(t, transfer.CopySignatures(t.Context(), at.Endpoint, other.Endpoint, res.Digest, transfer.Options{}))
	for _, one := range keys(t)[:2] {
		require.NoError(t, sign.Verify(t.Context(), other, one.Public), "signed later, and the first one stays")
	}
}
