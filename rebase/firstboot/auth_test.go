package firstboot

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestMergeAuthClobbersNobody(t *testing.T) {
	got, err := MergeAuth([]byte(`{"auths":{"quay.io":{"auth":"old"},"r:5000":{"auth":"old"}},"credHelpers":{"x":"y"}}`), []byte(`{"auths":{"r:5000":{"auth":"new"}}}`))
	require.NoError(t, err)
	assert.JSONEq(t, `{"auths":{"quay.io":{"auth":"old"},"r:5000":{"auth":"new"}},"credHelpers":{"x":"y"}}`, string(got))
	got, err = MergeAuth(nil, []byte(`{"auths":{"r:5000":{"auth":"new"}}}`))
	require.NoError(t, err)
	assert.JSONEq(t, `{"auths":{"r:5000":{"auth":"new"}}}`, string(got))
	_, err = MergeAuth([]byte(`{"auths": s3cret-canary`), nil)
	require.Error(t, err)
	assert.NotContains(t, err.Error(), "canary")
}

func TestEndTrustLeavesTheFinalRegistry(t *testing.T) {
	root := t.TempDir()
	put := func(path, content string) {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(root, path)), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(root, path), []byte(content), 0o644))
	}
	put(MirrorPath, "x")
	put(certsDir+"/192.168.77.1:5000/ca.crt", "x")
	put(certsDir+"/registry.example.com/ca.crt", "x")
	put(AuthPath, `{"auths":{"192.168.77.1:5000":{"auth":"a"},"registry.example.com":{"auth":"b"}}}`)
	changed, err := EndTrust(root, "192.168.77.1:5000")
	require.NoError(t, err)
	assert.Equal(t, []string{MirrorPath, certsDir + "/192.168.77.1:5000/ca.crt", certsDir + "/192.168.77.1:5000", AuthPath}, changed)
	assert.FileExists(t, filepath.Join(root, certsDir, "registry.example.com/ca.crt"))
	raw, err := os.ReadFile(filepath.Join(root, AuthPath))
	require.NoError(t, err)
	assert.JSONEq(t, `{"auths":{"registry.example.com":{"auth":"b"}}}`, string(raw))
	info, err := os.Stat(filepath.Join(root, AuthPath))
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o600), info.Mode())
	changed, err = EndTrust(root, "192.168.77.1:5000")
	require.NoError(t, err)
	assert.Empty(t, changed, "twice is once")
}

func FuzzMergeAuth(f *testing.F) {
	f.Add([]byte(`{"auths":{"a":{"auth":"x"}}}`), []byte(`{"auths":null}`))
	f.Add([]byte(`{"auths":null}`), []byte(`{"auths":{"a":{"auth":"x"}}}`))
	f.Add([]byte(`null`), []byte(`{"auths":{"a":{"auth":"x"}}}`))
	f.Fuzz(func(t *testing.T, a, b []byte) {
		got, err := MergeAuth(a, b)
		if err != nil {
			return
		}
		_, err = parseAuth(got)
		require.NoError(t, err)
	})
}
