package worker

import (
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kemudi/kemudi/internal/announce"
	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/task"
)

// balancers has the addresses of Services answered for that this machine is named for. Until the first
// is, nothing runs for it.
type balancers struct {
	node     string
	services client.Reader[*corev1.Service]
	events   client.EventSink
	log      *slog.Logger
	group    *task.Group

	mu struct {
		sync.Mutex
		wants   map[string][]announce.Want // by the keys of Services
		speaker *announce.Speaker          // nil: no address has named this machine yet
	}
}

func newBalancers(g *task.Group, node string, t client.Transport) *balancers {
	b := &balancers{node: node, services: client.Cached(t, core.Services, ""), group: g}
	b.mu.wants = map[string][]announce.Want{}
	return b
}

// seen takes in changes of Services.
func (b *balancers) seen(deltas []cache.Delta) {
	b.mu.Lock()
	defer b.mu.Unlock()
	changed := false
	for _, d := range deltas {
		var wants []announce.Want
		if d.Now != nil {
			wants = wantsOf(d.Now.Object.(*corev1.Service))
		}
		key := d.Last().Key
		if slices.EqualFunc(b.mu.wants[key], wants, sameWant) {
			continue
		}
		changed = true
		if b.mu.wants[key] = wants; len(wants) == 0 {
			delete(b.mu.wants, key)
		}
	}
	if changed {
		b.setLocked()
	}
}

func sameWant(a, b announce.Want) bool {
	return a.Addr == b.Addr && a.Number == b.Number && slices.Equal(a.Nodes, b.Nodes)
}

// wantsOf are the addresses of a Service that nodes answer for.
func wantsOf(svc *corev1.Service) (wants []announce.Want) {
	for i := range svc.Status.Conditions {
		c := &svc.Status.Conditions[i]
		if c.Type != core.ConditionAnnounced {
			continue
		}
		nodes, number, ok := announce.ParseList(c.Message)
		if !ok || c.Status != metav1.ConditionTrue {
			return nil
		}
		for _, in := range svc.Status.LoadBalancer.Ingress {
			if addr, err := netip.ParseAddr(in.IP); err == nil {
				wants = append(wants, announce.Want{Addr: addr, Nodes: nodes, Number: number})
			}
		}
	}
	return wants
}

// setLocked tells the speaker what all Services want together: of an address that several share, the newest list.
func (b *balancers) setLocked() {
	newest, mine := map[netip.Addr]announce.Want{}, false
	for _, wants := range b.mu.wants {
		for _, w := range wants {
			if has, ok := newest[w.Addr]; !ok || has.Number < w.Number {
				newest[w.Addr] = w
			}
			mine = mine || slices.Contains(w.Nodes, b.node)
		}
	}
	if b.mu.speaker == nil {
		if !mine {
			return
		}
		b.mu.speaker = announce.NewSpeaker(announce.Options{Node: b.node, Cluster: b.cluster(), Report: b.report, Log: b.log})
		b.group.Go("addresses of balancers", b.mu.speaker.Run)
	}
	all := make([]announce.Want, 0, len(newest))
	for _, w := range newest {
		all = append(all, w)
	}
	b.mu.speaker.Set(all)
}

// cluster is what all machines of this cluster know, and no other has.
func (b *balancers) cluster() string {
	if svc, ok := b.services.Get(metav1.NamespaceDefault, "kubernetes"); ok {
		return string(svc.UID)
	}
	return ""
}

// report tells the Services of an address what has become of it.
func (b *balancers) report(r announce.Report) {
	b.mu.Lock()
	var keys []string
	for key, wants := range b.mu.wants {
		if slices.ContainsFunc(wants, func(w announce.Want) bool { return w.Addr == r.Addr }) {
			keys = append(keys, key)
		}
	}
	b.mu.Unlock()
	for _, key := range keys {
		it := b.services.Cache.Get(key)
		if it == nil {
			continue
		}
		svc := it.Object.(*corev1.Service)
		if r.Foreign != "" {
			b.events.Event(svc, corev1.EventTypeWarning, "LoadBalancerAddressInUse",
				fmt.Sprintf("%s is not answered for: a machine that is not of the cluster has it, with hardware address %s on link %s of node %s", r.Addr, r.Foreign, r.Link, b.node))
			continue
		}
		b.events.Event(svc, corev1.EventTypeNormal, "AnnouncedLoadBalancer", fmt.Sprintf("Node %s answers for %s on link %s", b.node, r.Addr, r.Link))
	}
}
