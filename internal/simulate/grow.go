package simulate

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/scheduler/devices"
)

// coming is a node that is on its way, and what is left of it for pods.
type coming struct {
	pool *Pool
	room corev1.ResourceList
	pods []string     // that it comes for, by key
	node *corev1.Node // whose devices the growth knows; nil: nobody has asked for any
}

// growth decides which nodes come for pods that fit nowhere, once.
type growth struct {
	pools []Pool
	// sizes is how many nodes each pool has, those on their way with it.
	sizes map[string]int
	// claims are those of a pod that devices have to be found for; ok is false if a new node
	// is of no use to the pod.
	claims func(*corev1.Pod) (_ []*resourcev1.ResourceClaim, ok bool)
	// inventory has the classes of devices, and of the nodes that come what is asked for.
	inventory *devices.Inventory

	numbers int                   // of nodes whose devices are in the inventory
	given   map[types.UID]*coming // by claim, the node whose devices it is given
}

// run says which nodes have to come: none for a pod that one which is on its way has room for, and
// none beyond what the pools may have. The first pool that would take a pod gets it.
func (g *growth) run(onTheWay []*coming, waiting []*corev1.Pod) []*coming {
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
		all := slices.Concat(onTheWay, more)
		if i := slices.IndexFunc(all, func(c *coming) bool { return g.take(c, pod, claims) }); i >= 0 {
			all[i].pods = append(all[i].pods, podKey(pod))
			continue
		}
		for i := range g.pools {
			pool := &g.pools[i]
			c := &coming{pool: pool, room: pool.room(), pods: []string{podKey(pod)}}
			if g.sizes[pool.Name] < *pool.Max && g.take(c, pod, claims) {
				g.sizes[pool.Name]++
				more = append(more, c)
				break
			}
			g.forget(c)
		}
	}
	return more
}

// take keeps room and devices of a node for a pod, if there is enough.
func (g *growth) take(c *coming, pod *corev1.Pod, claims []*resourcev1.ResourceClaim) bool {
	if !c.pool.welcomes(pod) {
		return false
	}
	var open []*resourcev1.ResourceClaim
	for _, claim := range claims {
		switch g.given[claim.UID] {
		case nil:
			open = append(open, claim)
		case c:
		default:
			return false // it shares the claim with a pod that gets another node
		}
	}
	served, claim := g.served(c, pod)
	if claim != nil {
		open = append(open, claim)
	}
	found, ok := g.find(c, open)
	if !ok || !take(c.room, pod, served) {
		return false
	}
	for i, claim := range open {
		g.inventory.Take(claim.UID, &found[i])
		g.given[claim.UID] = c
	}
	return true
}

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
	if len(c.pool.Drivers) == 0 {
		return nil, false
	}
	if c.node == nil {
		g.numbers++
		c.node = c.pool.sample(fmt.Sprintf("coming-%d", g.numbers))
		for i := range c.pool.Drivers {
			g.inventory.SetSlice(c.pool.Drivers[i].Slice(c.node))
		}
	}
	plan, err := g.inventory.Plan(claims)
	if err != nil {
		return nil, false
	}
	found, err := g.inventory.Allocate(plan, c.node, uuid.NewUUID)
	return found, err == nil
}

// forget forgets the devices of a node that is not to come.
func (g *growth) forget(c *coming) {
	if c.node == nil {
		return
	}
	for i := range c.pool.Drivers {
		g.inventory.RemoveSlice(c.pool.Drivers[i].Slice(c.node).Name)
	}
}

func podKey(p *corev1.Pod) string { return p.Namespace + "/" + p.Name }
