package device

import (
	"fmt"
	"slices"

	"github.com/kemudi/kemudi/internal/kubelet/numa"
)

// wish is what a container asks of a resource, and what there is of it.
type wish struct {
	resource string
	want     int
	healthy  []string // those that can be given, sorted
	used     []string // those that somebody has, this pod included
	reusable []string // those that init containers of this pod have done with
	prefer   []string // those that the plugin would rather give, the best first

	near   numa.Mask // the nodes that they are to be near to; 0: any
	nearby []string  // those that are
}

// reused are the devices that the container takes over from init containers of its pod.
func (w wish) reused() []string {
	var out []string
	for _, id := range w.healthy {
		if len(out) < w.want && slices.Contains(w.reusable, id) {
			out = append(out, id)
		}
	}
	return out
}

// free are the devices that nobody has.
func (w wish) free() []string {
	var out []string
	for _, id := range w.healthy {
		if !slices.Contains(w.used, id) {
			out = append(out, id)
		}
	}
	return out
}

// freeNearby are those of them that are where they are to be.
func (w wish) freeNearby() []string {
	return slices.DeleteFunc(w.free(), func(id string) bool { return !slices.Contains(w.nearby, id) })
}

// offered are the devices that the plugin chooses of: those nearby, where they are enough.
func (w wish) offered() []string {
	if near := w.freeNearby(); len(near)+len(w.reused()) >= w.want {
		return near
	}
	return w.free()
}

// choose returns the devices that the container gets: those it can take over (V1), then those that
// the plugin prefers, which are nearby if enough are, then those nearby, then any.
func choose(w wish) ([]string, error) {
	if len(w.healthy) == 0 {
		return nil, fmt.Errorf("no healthy devices present; cannot allocate unhealthy devices %s", w.resource)
	}
	out, free := w.reused(), w.free()
	if needed := w.want - len(out); len(free) < needed {
		return nil, fmt.Errorf("requested number of devices unavailable for %s. Requested: %d, Available: %d", w.resource, needed, len(free))
	}
	for _, list := range [][]string{w.prefer, w.freeNearby(), free} {
		for _, id := range list {
			if len(out) < w.want && slices.Contains(free, id) && !slices.Contains(out, id) {
				out = append(out, id)
			}
		}
	}
	slices.Sort(out)
	return out, nil
}
