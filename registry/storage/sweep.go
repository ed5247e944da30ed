package storage

import (
	"context"
	"fmt"
	"os"
	"sync"
	"time"

	upstream "github.com/distribution/distribution/v3/registry/storage"
	"github.com/opencontainers/go-digest"
)

// pins are the blobs that requests saw, stored or named since a collection began: its marks do not have them.
type pins struct {
	mu    sync.Mutex
	blobs map[digest.Digest]bool // nil while no collection is under way
}

func (p *pins) begin() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.blobs = map[digest.Digest]bool{}
}

func (p *pins) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.blobs = nil
}

// add is called by who holds maintenance for reading, before it looks for the blob.
func (p *pins) add(d digest.Digest) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.blobs != nil {
		p.blobs[d] = true
	}
}

func (p *pins) has(d digest.Digest) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.blobs[d]
}

// linksTo finds the links that lead to blobs of a set.
func linksTo(s *Store, blobs map[digest.Digest]bool) (map[digest.Digest][]string, error) {
	found := map[digest.Digest][]string{}
	if len(blobs) == 0 {
		return found, nil
	}
	names, err := s.driver.repositories()
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		layers, err := s.driver.links(layersDir(name))
		if err != nil {
			return nil, err
		}
		for _, d := range layers {
			if target, err := s.driver.readLink(layerLink(name, d)); err == nil && blobs[target] {
				found[target] = append(found[target], layerLink(name, d))
			}
		}
	}
	return found, nil
}

// sweep removes a blob and the links that lead to it, unless it was used since it was marked. Pushes wait for one blob.
func sweep(ctx context.Context, s *Store, d digest.Digest, links []string,
	grace time.Duration) (size int64, gone bool, err error) {
	s.maintenance.Lock()
	defer s.maintenance.Unlock()
	fi, err := os.Stat(s.driver.full(blobData(d)))
	if err != nil {
		return 0, false, ignoreMissing(err)
	}
	if s.pins.has(d) || time.Since(fi.ModTime()) < grace {
		return 0, false, nil
	}
	if err := upstream.NewVacuum(s.context(ctx), s.driver).RemoveBlob(string(d)); ignoreMissing(known(err)) != nil {
		return 0, false, fmt.Errorf("remove blob %s: %w", d, known(err))
	}
	for _, link := range links {
		if err := s.driver.unlink(ctx, link); ignoreMissing(err) != nil {
			return 0, false, fmt.Errorf("remove link of blob %s: %w", d, err)
		}
	}
	return fi.Size(), true, nil
}
