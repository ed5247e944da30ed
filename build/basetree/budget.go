package basetree

import (
	"errors"
	"fmt"
	"sync/atomic"
)

// ErrUnsafe says that an image's layers are such as only a broken or a hostile tool makes.
var ErrUnsafe = errors.New("unsafe layer")

const (
	// maxHeld bounds what is held of all layers of an image in memory, in bytes: the trees of images with a million paths
	// fit. A layer of a megabyte can unpack to many times that.
	maxHeld = 512 << 20
	// entryCost is about what a path takes beside its name, in bytes.
	entryCost = 256
)

// budget is what may still be held of an image's layers, which are read in parallel.
type budget struct{ left atomic.Int64 }

func newBudget(bytes int64) *budget {
	b := &budget{}
	b.left.Store(bytes)
	return b
}

// take takes one path with its texts and contents from the budget.
func (b *budget) take(sizes ...int) error {
	cost := int64(entryCost)
	for _, s := range sizes {
		cost += int64(s)
	}
	if b.left.Add(-cost) < 0 {
		return fmt.Errorf("%w: the image has too many paths, or too many files in /etc, to be an operating system's",
			ErrUnsafe)
	}
	return nil
}
