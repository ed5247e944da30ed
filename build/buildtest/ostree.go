package buildtest

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/stretchr/testify/require"
)

const ostreeRepo = "sysroot/ostree/repo/"

// Encapsulate makes of a layer's tar one as ostree-ext writes it for the images of RHCOS, Fedora CoreOS and bootc bases
// (tar/export.rs, format 1): the repository's directories, then of each file and symbolic link its extended attributes,
// the object, and the path as a hard link to the object. Equal files share an object; directories and empty files are
// no links.
func Encapsulate(t testing.TB, layer []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	put := func(h tar.Header, content []byte) {
		h.Size = int64(len(content))
		require.NoError(t, w.WriteHeader(&h))
		_, err := w.Write(content)
		require.NoError(t, err)
	}
	for _, d := range []string{"sysroot/", "sysroot/ostree/", ostreeRepo, ostreeRepo + "objects/", ostreeRepo +
		"objects/00/", ostreeRepo + "refs/", ostreeRepo + "tmp/"} {
		put(tar.Header{Name: d, Typeflag: tar.TypeDir, Mode: 0o755}, nil)
	}
	put(tar.Header{Name: ostreeRepo + "config", Typeflag: tar.TypeReg, Mode: 0o644},
		[]byte("[core]\nrepo_version=1\nmode=bare-split-xattrs\n"))
	xattrs := ostreeRepo + "objects/00/xattrs.file-xattrs"
	put(tar.Header{Name: xattrs, Typeflag: tar.TypeReg, Mode: 0o644}, []byte("security.selinux"))
	written := map[string]bool{}
	for reader := tar.NewReader(bytes.NewReader(layer)); ; {
		h, err := reader.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		content, err := io.ReadAll(reader)
		require.NoError(t, err)
		if h.Typeflag == tar.TypeDir || h.Typeflag == tar.TypeReg && len(content) == 0 {
			put(*h, content)
			continue
		}
		sum := fmt.Sprintf("%x", sha256.Sum256(fmt.Appendf(content, "\x00%c %s %o %d %d", h.Typeflag, h.Linkname, h.Mode,
			h.Uid, h.Gid)))
		object := ostreeRepo + "objects/" + sum[:2] + "/" + sum[2:] + ".file"
		if !written[object] {
			put(tar.Header{Name: object + "-xattrs-link", Typeflag: tar.TypeLink, Linkname: xattrs, Mode: 0o644}, nil)
			put(tar.Header{Name: object, Typeflag: h.Typeflag, Linkname: h.Linkname, Mode: h.Mode, Uid: h.Uid, Gid: h.Gid},
				content)
			written[object] = true
		}
		put(tar.Header{Name: h.Name, Typeflag: tar.TypeLink, Linkname: object, Mode: h.Mode, Uid: h.Uid, Gid: h.Gid}, nil)
	}
	require.NoError(t, w.Close())
	return out.Bytes()
}
