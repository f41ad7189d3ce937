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
)

// tracker follows the pods of the namespace default that a selector matches, so
// that a script can say what held at every moment and not only at the end.
type tracker struct {
	s    selection
	cu   *cache.Cursor
	pods map[string]*corev1.Pod // by key
}

// track starts to follow pods; a tracker that runs already ends.
func track(_ context.Context, r *run, args []string) error {
	s, rest, err := parseSelection(append([]string{"pods"}, args...))
	if err != nil || len(rest) > 0 {
		return errors.Join(err, errArgs)
	}
	cu, err := r.c.API().Cache(s.def, "").Cursor(cache.CursorOptions{FromNow: true, Namespace: s.namespace})
	if err != nil {
		return err
	}
	r.untrack()
	r.tracker = &tracker{s: s, cu: cu, pods: map[string]*corev1.Pod{}}
	now, err := cu.Next()
	for i := range now {
		r.tracker.note(&now[i])
	}
	return err
}

// untrack ends the tracker, if there is one.
func (r *run) untrack() {
	if r.tracker != nil {
		r.tracker.cu.Close()
		r.tracker = nil
	}
}

// tracked prints the fewest and the most of each count since track.
func tracked(_ context.Context, r *run, args []string) error {
	if len(args) > 0 || r.tracker == nil {
		return errArgs
	}
	defer r.untrack()
	counts, err := r.tracker.counts()
	if err != nil {
		return err
	}
	var b strings.Builder
	for _, c := range counts {
		fmt.Fprintf(&b, "%s %d..%d\n", c.name, c.least, c.most)
	}
	r.stdout = b.String()
	return nil
}

// count is between what a number of pods was.
type count struct {
	name        string
	of          func(pods map[string]*corev1.Pod) int
	least, most int
}

func (t *tracker) counts() ([]count, error) {
	counts := []count{
		{name: "pods", of: func(pods map[string]*corev1.Pod) int { return len(pods) }},
		{name: "active", of: func(pods map[string]*corev1.Pod) int { return countPods(pods, podActive) }},
		{name: "ready", of: func(pods map[string]*corev1.Pod) int {
			return countPods(pods, func(p *corev1.Pod) bool { return podActive(p) && core.PodReady(p) })
		}},
		{name: "revisions", of: revisions},
	}
	for j := range counts {
		c := &counts[j]
		c.least = c.of(t.pods)
		c.most = c.least
	}
	for {
		events, err := t.cu.Next()
		if err != nil || len(events) == 0 {
			return counts, err
		}
		for i := range events {
			t.note(&events[i])
			for j := range counts {
				c := &counts[j]
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

func podActive(p *corev1.Pod) bool { return p.DeletionTimestamp == nil && !core.PodTerminal(p) }

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
