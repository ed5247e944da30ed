package daemon

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/sirupsen/logrus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/rebase/pinnedimages"
)

const (
	// pinLimit bounds one attempt; the next one finds what this one has pulled.
	pinLimit = time.Hour
	// pinPause is how long after a failure the agent tries again.
	pinPause = 5 * time.Minute
	// maxPinError bounds the text of a failure, in bytes.
	maxPinError = 1000
)

// Pinner pulls images and lets the node's container runtime keep exactly these.
type Pinner interface {
	Pin(ctx context.Context, images []string) error
}

// pinState is how far the sets that the node must have are.
type pinState struct {
	// asked is the annotation's value; known: there is one.
	asked string
	known bool
	// done: all images are there and pinned; failure: why they are not.
	done    bool
	failure string
	tried   time.Time
	// current is what each set's generation was when it was pinned.
	current map[string]int64
}

// pinning keeps the images of the node's PinnedImageSets beside the state machine, and only while that is idle.
type pinning struct {
	pinner Pinner
	sets   pinnedSets
	now    func() time.Time
	log    *logrus.Entry
	bell   bell
	// end cancels the attempt under way and waits for its end; nil: there is none.
	end func()

	mu    sync.Mutex
	state pinState
}

func newPinning(o Options, b bell) *pinning {
	return &pinning{pinner: o.Pinner, sets: o.Cluster, now: o.Now, log: o.Log, bell: b}
}

// stop ends an attempt; another one goes on with what it has pulled.
func (p *pinning) stop() {
	if p.end != nil {
		p.end()
		p.end = nil
	}
}

func (p *pinning) look() pinState {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.state
}

// follow begins an attempt when the node is asked for other sets than it has, or some time after a failure. A new
// process of the agent looks at all images again.
func (p *pinning) follow(ctx context.Context, annotations map[string]string) {
	asked, known := annotations[manifests.AnnotationPinnedImageSets]
	s := p.look()
	if !known || s.known && s.asked == asked &&
		(s.done || p.end != nil && s.failure == "" || s.failure != "" && p.now().Before(s.tried.Add(pinPause))) {
		return
	}
	p.stop()
	p.mu.Lock()
	p.state = pinState{asked: asked, known: true, current: p.state.current}
	p.mu.Unlock()
	p.end = background(ctx, func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, pinLimit)
		defer cancel()
		generations, err := p.attempt(ctx, asked)
		if err != nil && errors.Is(ctx.Err(), context.Canceled) {
			return // one that was stopped goes on later
		}
		p.finish(generations, err)
	})
}

// attempt pins the images of sets and gives the generations that it saw.
func (p *pinning) attempt(ctx context.Context, asked string) (map[string]int64, error) {
	refs, err := pinnedimages.Parse(asked)
	if err != nil {
		return nil, err
	}
	var sets []*mcfgv1.PinnedImageSet
	generations := map[string]int64{}
	for _, r := range refs {
		set, err := p.sets.PinnedImageSet(ctx, r.Name)
		if err != nil {
			return nil, err
		}
		if set == nil {
			return nil, fmt.Errorf("there is no PinnedImageSet %s: create it, or take it out of the pool", r.Name)
		}
		sets, generations[r.Name] = append(sets, set), min(set.Generation, r.Generation)
	}
	images, err := pinnedimages.Images(sets)
	if err != nil {
		return nil, err
	}
	if p.pinner == nil {
		return nil, errors.New("this agent cannot pin images")
	}
	return generations, p.pinner.Pin(ctx, images)
}

func (p *pinning) finish(generations map[string]int64, failure error) {
	p.mu.Lock()
	p.state.done, p.state.tried = failure == nil, p.now()
	if failure != nil {
		text := failure.Error()
		p.state.failure = text[:min(len(text), maxPinError)]
	} else {
		p.state.current = generations
	}
	s := p.state
	p.mu.Unlock()
	if failure != nil {
		p.log.WithError(failure).Warn("could not pin images")
	} else {
		p.log.WithField("sets", s.asked).Info("images pinned")
	}
	p.bell.ring()
}

// answer gives the node's annotations that report what is pinned, or why not; nil while there is nothing to say.
func (p *pinning) answer() map[string]string {
	s := p.look()
	if !s.known || !s.done && s.failure == "" {
		return nil
	}
	words := map[string]string{manifests.AnnotationPinnedImageSetsDone: "",
		manifests.AnnotationPinnedImageSetsError: s.failure}
	if s.done {
		words[manifests.AnnotationPinnedImageSetsDone] = s.asked
	}
	return words
}

// report adds to a status what the API has for pinned images, once the node was asked for some.
func (p *pinning) report(status mcfgv1.MachineConfigNodeStatus) mcfgv1.MachineConfigNodeStatus {
	s := p.look()
	if !s.known {
		return status
	}
	refs, _ := pinnedimages.Parse(s.asked) // s.failure says what is wrong
	for _, r := range refs {
		set := mcfgv1.MachineConfigNodeStatusPinnedImageSet{Name: r.Name, DesiredGeneration: int32(r.Generation),
			CurrentGeneration: int32(min(s.current[r.Name], r.Generation))}
		if s.failure != "" {
			set.LastFailedGeneration, set.LastFailedGenerationError = int32(r.Generation), s.failure
		}
		status.PinnedImageSets = append(status.PinnedImageSets, set)
	}
	say := func(kind mcfgv1.StateProgress, is bool, reason, message string) {
		c := metav1.Condition{Type: string(kind), Status: metav1.ConditionFalse, Reason: reasonAsExpected}
		if is {
			c.Status, c.Reason, c.Message = metav1.ConditionTrue, reason, message
		}
		status.Conditions = append(status.Conditions, c)
	}
	say(mcfgv1.MachineConfigNodePinnedImageSetsProgressing, !s.done && s.failure == "", "ImagePrefetch",
		"pulling "+s.asked)
	say(mcfgv1.MachineConfigNodePinnedImageSetsDegraded, s.failure != "", "PrefetchFailed", s.failure)
	return status
}
