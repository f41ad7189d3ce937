package simulate

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// coming is a node that is on its way, and what is left of it for pods.
type coming struct {
	pool *Pool
	room corev1.ResourceList
	pods []string // that it comes for, by key
}

// grow says which nodes have to come for pods that fit nowhere: none for a pod that one
// which is on its way has room for, and none beyond what the pools may have. sizes is how many
// nodes each pool has, those on their way with it. The first pool that would take a pod gets it.
func grow(pools []Pool, sizes map[string]int, onTheWay []*coming, waiting []*corev1.Pod) []*coming {
	var more []*coming
	slices.SortFunc(waiting, func(a, b *corev1.Pod) int {
		if c := a.CreationTimestamp.Compare(b.CreationTimestamp.Time); c != 0 {
			return c
		}
		return strings.Compare(podKey(a), podKey(b))
	})
	for _, pod := range waiting {
		fits := func(c *coming) bool { return c.pool.welcomes(pod) && take(c.room, pod) }
		all := slices.Concat(onTheWay, more)
		if i := slices.IndexFunc(all, fits); i >= 0 {
			all[i].pods = append(all[i].pods, podKey(pod))
			continue
		}
		for i := range pools {
			pool := &pools[i]
			c := &coming{pool: pool, room: pool.room(), pods: []string{podKey(pod)}}
			if sizes[pool.Name] < *pool.Max && fits(c) {
				sizes[pool.Name]++
				more = append(more, c)
				break
			}
		}
	}
	return more
}

func podKey(p *corev1.Pod) string { return p.Namespace + "/" + p.Name }
