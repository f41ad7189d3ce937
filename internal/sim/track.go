package sim

import (
	"context"
	"errors"
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/workload"
)

// tracker follows the pods of the namespace default that a selector matches, so
// that a script can say what held at every moment and not only at the end.
type tracker struct {
	s      selection
	cu     *cache.Cursor
	pods   map[string]*corev1.Pod // by key
	counts []count
	err    error

	cancel context.CancelFunc
	done   chan struct{} // closed when all that is above is final
}

// track starts to follow pods; a tracker that runs already ends.
func track(ctx context.Context, r *run, args []string) error {
	s, rest, err := parseSelection(append([]string{"pods"}, args...))
	if err != nil || len(rest) > 0 {
		return errors.Join(err, errArgs)
	}
	r.untrack()
	cu, err := r.c.API().Cache(s.def, "").Cursor(cache.CursorOptions{FromNow: true, Namespace: s.namespace})
	if err != nil {
		return err
	}
	t := &tracker{s: s, cu: cu, pods: map[string]*corev1.Pod{}, done: make(chan struct{})}
	ctx, t.cancel = context.WithCancel(ctx)
	now, err := cu.Next()
	if err != nil {
		return err
	}
	for i := range now {
		t.note(&now[i])
	}
	t.begin()
	r.tracker = t
	r.c.group.Go("track", func(context.Context) error {
		defer close(t.done)
		defer cu.Close()
		t.err = t.follow(ctx)
		return nil
	})
	return nil
}

// untrack ends the tracker, if there is one.
func (r *run) untrack() {
	if r.tracker != nil {
		r.tracker.cancel()
		<-r.tracker.done
		r.tracker = nil
	}
}

// tracked prints the fewest and the most of each count since track.
func tracked(_ context.Context, r *run, args []string) error {
	t := r.tracker
	if len(args) > 0 || t == nil {
		return errArgs
	}
	r.untrack()
	var b strings.Builder
	for _, c := range t.counts {
		fmt.Fprintf(&b, "%s %d..%d\n", c.name, c.least, c.most)
	}
	r.stdout = b.String()
	return t.err
}

// count is between what a number of pods was.
type count struct {
	name        string
	of          func(pods map[string]*corev1.Pod) int
	least, most int
}

// begin counts what there is.
func (t *tracker) begin() {
	t.counts = []count{
		{name: "pods", of: func(pods map[string]*corev1.Pod) int { return len(pods) }},
		{name: "active", of: func(pods map[string]*corev1.Pod) int { return countPods(pods, workload.PodActive) }},
		{name: "ready", of: func(pods map[string]*corev1.Pod) int {
			return countPods(pods, func(p *corev1.Pod) bool { return workload.PodActive(p) && core.PodReady(p) })
		}},
		{name: "revisions", of: revisions},
	}
	for i := range t.counts {
		c := &t.counts[i]
		c.least = c.of(t.pods)
		c.most = c.least
	}
}

// follow counts again after every change.
func (t *tracker) follow(ctx context.Context) error {
	for {
		select {
		case <-t.cu.Ready():
		case <-ctx.Done():
			return nil
		}
		events, err := t.cu.Next()
		if err != nil {
			return err
		}
		for i := range events {
			t.note(&events[i])
			for j := range t.counts {
				c := &t.counts[j]
				n := c.of(t.pods)
				c.least, c.most = min(c.least, n), max(c.most, n)
			}
		}
	}
}

func (t *tracker) note(e *cache.Event) {
	pod := e.Item.Object.(*corev1.Pod)
	if e.Type == cache.Deleted || t.s.sel != nil && !t.s.sel.Matches(labels.Set(pod.Labels)) {
		delete(t.pods, e.Item.Key)
		return
	}
	t.pods[e.Item.Key] = pod
}

func countPods(pods map[string]*corev1.Pod, is func(*corev1.Pod) bool) (n int) {
	for _, p := range pods {
		if is(p) {
			n++
		}
	}
	return n
}

// revisions counts the templates of Deployments that have unfinished pods.
func revisions(pods map[string]*corev1.Pod) int {
	seen := map[string]bool{}
	for _, p := range pods {
		if !core.PodTerminal(p) {
			seen[p.Labels[appsv1.DefaultDeploymentUniqueLabelKey]] = true
		}
	}
	return len(seen)
}
