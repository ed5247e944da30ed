package pull

import (
	"fmt"
	"io"
	"slices"

	"github.com/opencontainers/go-digest"
	imgspecv1 "github.com/opencontainers/image-spec/specs-go/v1"

	"dayone.dev/dayone/rebase/deploy"
	"dayone.dev/dayone/rebase/deploy/layertar"
	"dayone.dev/dayone/rebase/deploy/ostreerepo"
)

// Images that rpm-ostree and bootc publish are encapsulated: the first layers carry the objects of one ostree commit,
// the first of all has the commit itself; layers of files follow. Source: ostree-ext, container/encapsulate.rs.
const (
	// labelFinalDiffID names the last layer of the commit by the digest of its uncompressed content.
	labelFinalDiffID = "ostree.final-diffid"
	// labelCommit names the commit.
	labelCommit = "ostree.commit"
)

// role is what a layer is in its image.
type role int

const (
	plainLayer   role = iota // files, and no ostree commit below them
	commitLayer              // the commit, its directories and some of its files
	objectsLayer             // more files of the commit
	derivedLayer             // files over the commit
)

// encapsulatedLayers counts the layers that make up the ostree commit of an image: 0 for one of plain layers.
func encapsulatedLayers(c imgspecv1.Image) (int, error) {
	last, ok := c.Config.Labels[labelFinalDiffID]
	if !ok {
		return 0, nil
	}
	i := slices.Index(c.RootFS.DiffIDs, digest.Digest(last))
	if i < 0 {
		return 0, &deploy.Fault{Class: deploy.ClassCorrupted, Op: "read image configuration",
			Err: fmt.Errorf("the label %s names the layer %s, which is none of the image's %d layers", labelFinalDiffID, last,
				len(c.RootFS.DiffIDs)),
			Next: "build the image again and keep the layers of its base (no --squash-all)"}
	}
	return i + 1, nil
}

func (f *fetched) role(i int) role {
	switch {
	case f.encapsulated == 0:
		return plainLayer
	case i >= f.encapsulated:
		return derivedLayer
	case i == 0:
		return commitLayer
	default:
		return objectsLayer
	}
}

func (f *fetched) layer(i int) layerSource {
	l := layerSource{info: f.layers[i], diffID: f.config.RootFS.DiffIDs[i], role: f.role(i)}
	if l.role == commitLayer {
		l.commit, l.objects = f.config.Config.Labels[labelCommit], f.layers[1:f.encapsulated]
	}
	return l
}

// content is what a layer brings into the repository.
type content interface {
	read(src io.Reader) (layertar.Stats, error)
	// write is called when all digests have been verified; it gives the commit that keeps the layer.
	write() (ostreerepo.Checksum, error)
}

func newContent(repo *ostreerepo.Repository, tx *ostreerepo.Transaction, l layerSource) content {
	switch l.role {
	case commitLayer:
		return commitContent{repo: repo, set: ostreerepo.NewObjectSet(tx), layer: l}
	case objectsLayer:
		return objectsContent{ostreerepo.NewObjectSet(tx)}
	default:
		return filesContent{layer: ostreerepo.NewLayer(tx), derived: l.role == derivedLayer}
	}
}

type filesContent struct {
	layer   *ostreerepo.Layer
	derived bool
}

func (c filesContent) read(src io.Reader) (layertar.Stats, error) {
	if c.derived {
		return layertar.ReadDerived(src, c.layer.Add)
	}
	return layertar.Read(src, c.layer.Add)
}

func (c filesContent) write() (ostreerepo.Checksum, error) {
	if c.derived {
		return c.layer.Write(layertar.OSTree)
	}
	return c.layer.Write("")
}

type objectsContent struct{ set *ostreerepo.ObjectSet }

func (c objectsContent) read(src io.Reader) (layertar.Stats, error) {
	return layertar.ReadObjects(src, c.set.Add)
}

func (c objectsContent) write() (ostreerepo.Checksum, error) {
	sum, err := c.set.Write()
	if err != nil {
		return sum, inconsistent("unpack layer", err)
	}
	return sum, nil
}

type commitContent struct {
	repo  *ostreerepo.Repository
	set   *ostreerepo.ObjectSet
	layer layerSource
}

func (c commitContent) read(src io.Reader) (layertar.Stats, error) {
	return layertar.ReadObjects(src, c.set.Add)
}

func (c commitContent) write() (none ostreerepo.Checksum, err error) {
	const op = "check encapsulated commit"
	commit := c.set.Commit()
	if commit == nil {
		return none, inconsistent(op,
			fmt.Errorf("the first layer has no commit object, although the image has the label %s", labelFinalDiffID))
	}
	if label := c.layer.commit; label != "" && label != commit.String() {
		return none, inconsistent(op,
			fmt.Errorf("the label %s names %s, the first layer has %s", labelCommit, label, commit))
	}
	var others []ostreerepo.Commit
	for _, l := range c.layer.objects {
		other, err := layerCommit(c.repo, l)
		if err != nil {
			return none, err
		}
		others = append(others, other)
	}
	missing, err := c.set.Missing(others)
	if err != nil {
		return none, inconsistent(op, err)
	}
	if missing.Objects > 0 {
		return none, inconsistent(op,
			fmt.Errorf("the layers up to that which the label %s names lack %d objects of commit %s, the first is %s",
				labelFinalDiffID, missing.Objects, commit, missing.First))
	}
	return *commit, nil
}

func inconsistent(op string, err error) error {
	return &deploy.Fault{Class: deploy.ClassCorrupted, Op: op, Err: err,
		Next: "take another build of the base image, or copy it again; nothing of it was used"}
}
