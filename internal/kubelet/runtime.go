package kubelet

import (
	"context"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/kubelet/contain"
	"github.com/kemudi/kemudi/internal/kubelet/cri"
	"github.com/kemudi/kemudi/internal/kubelet/runtime"
)

// adopt starts the actors of the pods there are, and of what the runtime still
// has of pods that are not.
func (a *Agent) adopt(ctx context.Context, pods []cache.Delta) error {
	a.mu.Lock()
	a.mu.keep = true
	a.mu.Unlock()
	found, err := a.watch.All(ctx)
	if err != nil {
		return err
	}
	slices.SortStableFunc(pods, func(x, y cache.Delta) int { // oldest first: it was here first
		return x.Now.Object.GetCreationTimestamp().Compare(y.Now.Object.GetCreationTimestamp().Time)
	})
	mirrors := map[string]*v1.Pod{}
	for _, d := range pods {
		if pod := d.Now.Object.(*v1.Pod); mirrorOf(pod) != "" {
			mirrors[d.Now.Key] = pod
		}
	}
	a.applyManifests(found, mirrors)
	for _, d := range pods {
		uid := d.Now.Object.GetUID()
		contain.Run(a.o.Log, "update", d.Now.Key, func() { a.takeOne(d, found[uid]) })
		delete(found, uid)
	}
	for uid, inv := range found {
		a.o.Log.Info("remove pod that is not in the API", "uid", uid)
		contain.Run(a.o.Log, "what is left", string(uid), func() { a.start(newOrphan(a, uid, inv), inv) })
	}
	a.mu.Lock()
	early := a.mu.early
	a.mu.early, a.mu.keep = nil, false
	a.mu.Unlock()
	for _, e := range early {
		a.deliver(e)
	}
	a.disk.RemoveLeftovers(a.knows)
	close(a.running)
	return nil
}

// lookedAgain tells every actor what the runtime has of its pod now.
func (a *Agent) lookedAgain(found map[types.UID]*runtime.Inventory, began time.Time) {
	for _, act := range a.allActors() {
		inv := found[act.uid]
		if inv == nil {
			inv = &runtime.Inventory{At: began}
		}
		act.post(func(x *actor) { x.replace(inv) })
	}
}

func (a *Agent) deliver(e *runtimeapi.ContainerEventResponse) {
	uid := runtime.PodOf(e)
	a.mu.Lock()
	act := a.mu.actors[uid]
	if act == nil && a.mu.keep {
		a.mu.early = append(a.mu.early, e)
	}
	a.mu.Unlock()
	if act != nil {
		act.post(func(x *actor) { x.observe(e) })
	}
}

// knows reports whether there is an actor of the pod.
func (a *Agent) knows(uid types.UID) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.mu.actors[uid] != nil
}

// newOrphan is the actor of a pod that the API does not have any more: all that
// is known is what the runtime remembers.
func newOrphan(a *Agent, uid types.UID, inv *runtime.Inventory) *actor {
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: uid}}
	setName := func(labels map[string]string) {
		pod.Name, pod.Namespace = labels[cri.LabelPodName], labels[cri.LabelPodNamespace]
	}
	for _, s := range inv.Sandboxes {
		setName(s.Labels)
	}
	for _, c := range inv.Containers {
		setName(c.Status.Labels)
		if cri.FindContainer(pod, c.Status.Metadata.Name) == nil {
			pod.Spec.Containers = append(pod.Spec.Containers, cri.OrphanContainer(c.Status))
		}
	}
	act := newActor(a, pod, 0)
	act.d.Gone = true
	return act
}
