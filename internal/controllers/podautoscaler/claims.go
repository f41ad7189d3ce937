package podautoscaler

import (
	"slices"
	"sync"
)

// claims are the pods that each autoscaler found when it was last looked at: a pod is
// scaled by one of them.
type claims struct {
	mu struct {
		sync.Mutex
		of map[string][]string        // autoscaler to pods
		by map[string]map[string]bool // pod to autoscalers
	}
}

func newClaims() *claims {
	c := &claims{}
	c.mu.of, c.mu.by = map[string][]string{}, map[string]map[string]bool{}
	return c
}

// set notes the pods of an autoscaler, and returns all who claim one of them, sorted.
func (c *claims) set(autoscaler string, pods []string) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.dropLocked(autoscaler)
	c.mu.of[autoscaler] = pods
	claimants := map[string]bool{autoscaler: true}
	all := []string{autoscaler}
	for _, pod := range pods {
		if c.mu.by[pod] == nil {
			c.mu.by[pod] = map[string]bool{}
		}
		c.mu.by[pod][autoscaler] = true
		for other := range c.mu.by[pod] {
			if !claimants[other] {
				claimants[other] = true
				all = append(all, other)
			}
		}
	}
	slices.Sort(all)
	return all
}

// drop forgets an autoscaler.
func (c *claims) drop(autoscaler string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.dropLocked(autoscaler)
}

func (c *claims) dropLocked(autoscaler string) {
	for _, pod := range c.mu.of[autoscaler] {
		delete(c.mu.by[pod], autoscaler)
		if len(c.mu.by[pod]) == 0 {
			delete(c.mu.by, pod)
		}
	}
	delete(c.mu.of, autoscaler)
}
