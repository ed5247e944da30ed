package transfer

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/containers/image/v5/types"
)

// errTooLong says that a registry sends more of a blob than the manifest says it has. containers/image compares digests
// at a blob's end, which such a blob may never have, and stores meanwhile what comes.
var errTooLong = errors.New("the registry sends more than the manifest says")

// exact is an image whose blobs end where its manifest says that they do.
type exact struct{ types.ImageReference }

func (e exact) NewImageSource(ctx context.Context, sys *types.SystemContext) (types.ImageSource, error) {
	src, err := e.ImageReference.NewImageSource(ctx, sys)
	if err != nil {
		return nil, err
	}
	return exactSource{src}, nil
}

type exactSource struct{ types.ImageSource }

func (s exactSource) GetBlob(ctx context.Context, info types.BlobInfo, cache types.BlobInfoCache) (io.ReadCloser, int64,
	error) {
	body, size, err := s.ImageSource.GetBlob(ctx, info, cache)
	if err != nil || info.Size < 0 {
		return body, size, err
	}
	return &exactBody{body, info}, size, nil
}

// exactBody fails when there is more than the blob's size.
type exactBody struct {
	io.ReadCloser
	// left is the blob with the size that is still to come.
	left types.BlobInfo
}

func (b *exactBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if b.left.Size -= int64(n); b.left.Size < 0 {
		return 0, fmt.Errorf("read blob %s: %w", b.left.Digest, errTooLong)
	}
	return n, err
}
