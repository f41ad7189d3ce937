package endpoint

import (
	"maps"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/cache"
)

// Triggers know when that happened which makes the endpoints of services
// change, for the annotation endpoints.kubernetes.io/last-change-trigger-time.
// The zero value works; it may be used concurrently.
type Triggers struct {
	mu struct {
		sync.Mutex
		seen map[string]*triggered // by the service's key
	}
}

// triggered is what was last seen of a service.
type triggered struct {
	service types.UID
	pods    map[types.UID]time.Time // when each became ready or ceased to be
}

// Take returns when the oldest of the things happened that are new since the
// last call for the service: that it was made, that a pod became ready or ceased
// to be. It is zero if nothing did.
func (t *Triggers) Take(svc *corev1.Service, pods []*corev1.Pod) time.Time {
	var oldest time.Time
	note := func(at time.Time) {
		if oldest.IsZero() || at.Before(oldest) {
			oldest = at
		}
	}
	key := cache.Key(svc.Namespace, svc.Name)
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.mu.seen == nil {
		t.mu.seen = map[string]*triggered{}
	}
	seen := t.mu.seen[key]
	if seen == nil || seen.service != svc.UID {
		seen = &triggered{service: svc.UID, pods: make(map[types.UID]time.Time, len(pods))}
		t.mu.seen[key] = seen
		note(svc.CreationTimestamp.Time)
	}
	there := 0
	for _, pod := range pods {
		c := core.PodCondition(&pod.Status, corev1.PodReady)
		if c == nil {
			continue
		}
		there++
		before, ok := seen.pods[pod.UID]
		if at := c.LastTransitionTime.Time; !ok || !at.Equal(before) {
			seen.pods[pod.UID] = at
			if at.After(before) {
				note(at)
			}
		}
	}
	if len(seen.pods) > there {
		seen.keep(pods)
	}
	return oldest
}

// keep forgets the pods that are gone.
func (s *triggered) keep(pods []*corev1.Pod) {
	kept := make(map[types.UID]time.Time, len(pods))
	for _, pod := range pods {
		if at, ok := s.pods[pod.UID]; ok {
			kept[pod.UID] = at
		}
	}
	s.pods = kept
}

// Forget drops what is known of a service that is gone.
func (t *Triggers) Forget(key string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.mu.seen, key)
}

// TriggerAnnotation returns the annotations with the time of the trigger; a zero
// time takes the annotation away. has is left as it is.
func TriggerAnnotation(has map[string]string, at time.Time) map[string]string {
	out := maps.Clone(has)
	if at.IsZero() {
		delete(out, corev1.EndpointsLastChangeTriggerTime)
		return out
	}
	if out == nil {
		out = map[string]string{}
	}
	out[corev1.EndpointsLastChangeTriggerTime] = at.UTC().Format(time.RFC3339Nano)
	return out
}
