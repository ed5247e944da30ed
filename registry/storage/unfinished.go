package storage

import (
	"context"
	"fmt"
	"os"
	"sync"
	"time"
)

const (
	// defaultUploadIdle is how long an upload without a request is kept: a client that resumes does so within minutes.
	defaultUploadIdle = time.Hour
	// defaultMaxUploads of one account: a hundred clients with the six uploads at once of skopeo and podman, with room.
	defaultMaxUploads = 1024

	// FetchOwner is whose the uploads of blobs from an upstream are. No account can have this name. Nobody continues them
	// after a restart: they are fetched anew.
	FetchOwner = ":upstream"

	ownerFile = "owner"
)

// unfinished are the uploads under way: whose they are and when each was last used. It has them all, so that neither
// their number nor their end needs a walk over the disk.
type unfinished struct {
	mu    sync.Mutex
	byID  map[string]unfinishedUpload
	count map[string]int // by owner
}

type unfinishedUpload struct {
	repository, owner string
	used              time.Time
}

// begin takes a place for one more upload of owner.
func (u *unfinished) begin(owner string, most int) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.count[owner] >= most {
		return fmt.Errorf("start upload: %w: %d", ErrTooManyUploads, u.count[owner])
	}
	if u.count == nil {
		u.count = map[string]int{}
	}
	u.count[owner]++
	return nil
}

// drop gives a place back that begin took.
func (u *unfinished) drop(owner string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.count[owner]--; u.count[owner] <= 0 {
		delete(u.count, owner)
	}
}

// put notes that an upload, for which begin took a place, was used.
func (u *unfinished) put(id string, e unfinishedUpload) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.byID == nil {
		u.byID = map[string]unfinishedUpload{}
	}
	u.byID[id] = e
}

func (u *unfinished) get(id string) (unfinishedUpload, bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	e, ok := u.byID[id]
	return e, ok
}

// end forgets an upload and gives its place back.
func (u *unfinished) end(id string) {
	u.mu.Lock()
	e, ok := u.byID[id]
	delete(u.byID, id)
	u.mu.Unlock()
	if ok {
		u.drop(e.owner)
	}
}

func (u *unfinished) len() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return len(u.byID)
}

// idle are the uploads that were last used before a time.
func (u *unfinished) idle(before time.Time) map[string]unfinishedUpload {
	u.mu.Lock()
	defer u.mu.Unlock()
	out := map[string]unfinishedUpload{}
	for id, e := range u.byID {
		if e.used.Before(before) {
			out[id] = e
		}
	}
	return out
}

// endIdle removes an idle upload, unless it was used or ended meanwhile.
func endIdle(ctx context.Context, s *Store, id string, e unfinishedUpload) (gone bool, err error) {
	unlock, free := s.uploads.try(id)
	if !free {
		return false, nil
	}
	defer unlock()
	if now, ok := s.unfinished.get(id); !ok || now != e {
		return false, nil
	}
	if err := ignoreMissing(known(s.driver.Delete(ctx, uploadDir(e.repository, id)))); err != nil {
		return false, err
	}
	s.unfinished.end(id)
	return true, nil
}

// ownerOf reads whose upload it is; "" of one from an earlier version, which any account may continue.
func (t tree) ownerOf(repository, id string) string {
	b, err := os.ReadFile(t.full(uploadDir(repository, id) + "/" + ownerFile))
	if err != nil {
		return ""
	}
	return string(b)
}
