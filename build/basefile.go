package build

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"

	"dayone.dev/dayone/build/basetree"
)

// errFound ends the reading of a layer.
var errFound = errors.New("found")

// hashOf is the SHA-256 in hex of a file, by the topmost layer that has it. In an image that was made from an ostree
// commit the file is a link to an object, which another layer may have.
func hashOf(ctx context.Context, layers []basetree.Layer, file string, mayLink bool) (sum string, err error) {
	for _, layer := range slices.Backward(layers) {
		link := ""
		err := basetree.Walk(ctx, layer, func(p string, h *tar.Header, body io.Reader) error {
			if p != file {
				return nil
			}
			if h.Typeflag == tar.TypeLink {
				link = basetree.Canonical(h.Linkname)
				return errFound
			}
			hash := sha256.New()
			if _, err := io.Copy(hash, body); err != nil {
				return err
			}
			sum = hex.EncodeToString(hash.Sum(nil))
			return errFound
		})
		switch {
		case link != "" && !mayLink:
			return "", fmt.Errorf("it is a link to a link, %s", link)
		case link != "":
			return hashOf(ctx, layers, link, false)
		case errors.Is(err, errFound):
			return sum, nil
		case err != nil:
			return "", err
		}
	}
	return "", errors.New("no layer has it")
}
