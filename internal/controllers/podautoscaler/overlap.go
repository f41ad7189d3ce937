package podautoscaler

import (
	"slices"
	"sync"
)

// overlap knows the pods that each autoscaler found when it was last looked at: a pod is
// scaled by one of them.
type overlap struct {
	mu struct {
		sync.Mutex
		of map[string][]string        // autoscaler to pods
		by map[string]map[string]bool // pod to autoscalers
	}
}

func newOverlap() *overlap {
	o := &overlap{}
	o.mu.of, o.mu.by = map[string][]string{}, map[string]map[string]bool{}
	return o
}

// set notes the pods of an autoscaler, and returns all who have one of them, too, sorted.
func (o *overlap) set(autoscaler string, pods []string) []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.dropLocked(autoscaler)
	o.mu.of[autoscaler] = pods
	sharing := map[string]bool{autoscaler: true}
	all := []string{autoscaler}
	for _, pod := range pods {
		if o.mu.by[pod] == nil {
			o.mu.by[pod] = map[string]bool{}
		}
		o.mu.by[pod][autoscaler] = true
		for other := range o.mu.by[pod] {
			if !sharing[other] {
				sharing[other] = true
				all = append(all, other)
			}
		}
	}
	slices.Sort(all)
	return all
}

// drop forgets an autoscaler.
func (o *overlap) drop(autoscaler string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.dropLocked(autoscaler)
}

func (o *overlap) dropLocked(autoscaler string) {
	for _, pod := range o.mu.of[autoscaler] {
		delete(o.mu.by[pod], autoscaler)
		if len(o.mu.by[pod]) == 0 {
			delete(o.mu.by, pod)
		}
	}
	delete(o.mu.of, autoscaler)
}
