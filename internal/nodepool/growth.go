package nodepool

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/cloud/scale"
	"github.com/kemudi/kemudi/internal/scheduler/devices"
)

// coming is a machine that may take pods soon, and what is left of it for them.
type coming struct {
	pool *scale.Pool
	name string // empty: it is to be started
	room corev1.ResourceList
	pods []*corev1.Pod // that it is to take
	node *corev1.Node  // whose devices the growth knows; nil: nobody has asked for any
}

// growth decides which machines come for pods that fit nowhere, once.
type growth struct {
	pools []scale.Pool
	// sizes is how many machines each pool has, those on their way with them.
	sizes map[string]int
	// failed are pools that are not asked, since they have failed.
	failed map[string]bool
	// claims are those of a pod that devices have to be found for; ok is false if a new node
	// is of no use to the pod.
	claims func(*corev1.Pod) (_ []*resourcev1.ResourceClaim, ok bool)
	// inventory has the classes of devices, and of the nodes that come what is asked for.
	inventory *devices.Inventory
	// refused is told why no machine comes for a pod, in upstream's words.
	refused func(pod *corev1.Pod, why string)

	numbers int                   // of nodes whose devices are in the inventory
	given   map[types.UID]*coming // by claim, the node whose devices it is given
}

// Upstream's words for pools that are not asked.
const (
	poolIsFull   = "max node group size reached"
	poolHasError = "in backoff after failed scale-up"
)

// run says which machines have to come: none for a pod that one which comes anyway has room for
// (N2), and none beyond what the pools may have. The first pool that would take a pod gets it.
func (g *growth) run(anyway []*coming, waiting []*corev1.Pod) []*coming {
	var more []*coming
	slices.SortFunc(waiting, func(a, b *corev1.Pod) int {
		if c := a.CreationTimestamp.Compare(b.CreationTimestamp.Time); c != 0 {
			return c
		}
		return strings.Compare(podKey(a), podKey(b))
	})
	for _, pod := range waiting {
		claims, ok := g.claims(pod)
		if !ok {
			continue
		}
		all := slices.Concat(anyway, more)
		if i := slices.IndexFunc(all, func(c *coming) bool { return g.take(c, pod, claims) == "" }); i >= 0 {
			all[i].pods = append(all[i].pods, pod)
			continue
		}
		if c := g.another(pod, claims); c != nil {
			more = append(more, c)
		}
	}
	return more
}

// another is a machine that has to come for a pod; nil: no pool has one.
func (g *growth) another(pod *corev1.Pod, claims []*resourcev1.ResourceClaim) *coming {
	why := map[string]int{}
	for i := range g.pools {
		pool := &g.pools[i]
		c := &coming{pool: pool, room: maps.Clone(pool.Resources), pods: []*corev1.Pod{pod}}
		reason := g.take(c, pod, claims)
		switch {
		case reason != "":
		case g.sizes[pool.Name] >= pool.Max:
			reason = poolIsFull
		case g.failed[pool.Name]:
			reason = poolHasError
		default:
			g.sizes[pool.Name]++
			return c
		}
		why[reason]++
		g.forget(c)
	}
	var words []string
	for _, reason := range slices.Sorted(maps.Keys(why)) {
		words = append(words, fmt.Sprintf("%d %s", why[reason], reason))
	}
	g.refused(pod, strings.Join(words, ", "))
	return nil
}

// take keeps room and devices of a node for a pod, or says why it cannot.
func (g *growth) take(c *coming, pod *corev1.Pod, claims []*resourcev1.ResourceClaim) (why string) {
	if why := unwelcome(c.pool, pod); why != "" {
		return why
	}
	var open []*resourcev1.ResourceClaim
	for _, claim := range claims {
		switch g.given[claim.UID] {
		case nil:
			open = append(open, claim)
		case c:
		default:
			return noDevices // it shares the claim with a pod that gets another node
		}
	}
	served, claim := g.served(c, pod)
	if claim != nil {
		open = append(open, claim)
	}
	found, ok := g.find(c, open)
	if !ok {
		return noDevices
	}
	if why := take(c.room, pod, served); why != "" {
		return why
	}
	for i, claim := range open {
		g.inventory.Take(claim.UID, &found[i])
		g.given[claim.UID] = c
	}
	return ""
}

// noDevices is upstream's.
const noDevices = "cannot allocate all claims"

// served are the extended resources of a pod that the pool's nodes have as devices alone, by the
// class, and the claim that the scheduler would make for them; nil: there are none.
func (g *growth) served(c *coming, pod *corev1.Pod) (map[corev1.ResourceName]string, *resourcev1.ResourceClaim) {
	served := map[corev1.ResourceName]string{}
	for name := range core.PodRequests(pod) {
		if _, has := c.room[name]; has {
			continue
		}
		if class := g.inventory.Serves(string(name)); class != nil {
			served[name] = class.Name
		}
	}
	if len(served) == 0 {
		return nil, nil
	}
	requests, _ := devices.Serve(pod, served)
	return served, &resourcev1.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID + "-extended"},
		Spec:       resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{Requests: requests}},
	}
}

// find finds devices of a node for claims.
func (g *growth) find(c *coming, claims []*resourcev1.ResourceClaim) ([]resourcev1.AllocationResult, bool) {
	if len(claims) == 0 {
		return nil, true
	}
	if c.pool.Slices == nil {
		return nil, false
	}
	if c.node == nil {
		g.numbers++
		c.node = sample(c.pool, fmt.Sprintf("coming-%d", g.numbers))
		for _, slice := range c.pool.Slices(c.node) {
			g.inventory.SetSlice(slice)
		}
	}
	plan, err := g.inventory.Plan(claims)
	if err != nil {
		return nil, false
	}
	found, err := g.inventory.Allocate(plan, c.node, uuid.NewUUID)
	return found, err == nil
}

// forget gives back the devices of a machine that is not to come.
func (g *growth) forget(c *coming) {
	if c.node == nil {
		return
	}
	for id, to := range g.given {
		if to == c {
			g.inventory.Release(id)
			delete(g.given, id)
		}
	}
	for _, slice := range c.pool.Slices(c.node) {
		g.inventory.RemoveSlice(slice.Name)
	}
}

func podKey(p *corev1.Pod) string { return cache.Key(p.Namespace, p.Name) }
