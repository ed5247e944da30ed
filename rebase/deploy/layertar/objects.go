package layertar

import (
	"archive/tar"
	"fmt"
	"io"
	"strings"
)

// ReadObjects gives each of the archive src, a layer of an encapsulated image, the entries that are objects of the
// ostree commit, by their names below Repository: "objects/xx/yyy.KIND", and "xattrs/SUM" of the older format. All
// other entries must be what the objects say already: directories, hard links to objects and empty files. A file
// beside the objects is refused, because nothing would bring it onto the node.
func ReadObjects(src io.Reader, each func(name string, h *tar.Header, content io.Reader) error) (Stats, error) {
	s := Stats{Dropped: map[string]int{}}
	err := walk(src, func(h *tar.Header, content io.Reader) error {
		p, err := plainPath(h.Name)
		if err != nil {
			return err
		}
		below, isObject := strings.CutPrefix(p, Repository+"/")
		switch {
		case h.Typeflag == tar.TypeDir:
			return nil
		case isObject && (strings.HasPrefix(below, "objects/") || strings.HasPrefix(below, "xattrs/")):
			s.Entries++
			return each(below, h, content)
		case isObject: // the repository's own configuration
			s.Dropped["repository"]++
			return nil
		}
		s.Dropped["path of an object"]++
		return checkPath(h)
	})
	return s, err
}

// checkPath takes what stands for an object at its place in the tree.
func checkPath(h *tar.Header) error {
	if h.Typeflag == tar.TypeReg && h.Size == 0 || h.Typeflag == tar.TypeXGlobalHeader {
		return nil
	}
	if h.Typeflag == tar.TypeLink {
		target, err := plainPath(h.Linkname)
		if err != nil {
			return err
		}
		if strings.HasPrefix(target, Repository+"/objects/") {
			return nil
		}
	}
	return fmt.Errorf("%q is no object, although the layer is part of the encapsulated commit", h.Name)
}
