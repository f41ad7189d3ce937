package drain

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/api/discovery"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/resource"
)

// Others waits until the rules of all nodes but the one that asks are true up to a revision of
// EndpointSlices, or ctx ends. It names those of which that is not known then.
type Others func(ctx context.Context, rev int64) (silent []string, err error)

// Pods knows when the pods of a node are left out by the rules of all nodes. All fields are
// required. Its methods may be called concurrently.
type Pods struct {
	Transport client.Transport
	// Own are this node's own rules.
	Own Rules
	// Others are the other nodes.
	Others Others
}

// What is not known when the time is over, for people to read.
var (
	errShown = errors.New("the EndpointSlices do not show yet that it ends")
	errOwn   = errors.New("the service proxy or the edge of its own node has not applied that it ends")
)

// Await returns when no node sends new connections for Services to a pod that is being deleted,
// and at once if no Service leads to it (D1). Else the error says, when ctx ends, what is not
// known.
func (p *Pods) Await(ctx context.Context, pod *corev1.Pod) error {
	l := p.lead(pod)
	if len(l.services()) == 0 {
		return nil
	}
	rev, err := l.shown(ctx)
	if err != nil {
		return err
	}
	var own, others error
	var wg sync.WaitGroup
	wg.Go(func() {
		if p.Own.Wait(ctx, rev) != nil {
			own = errOwn
		}
	})
	others = p.others(ctx, rev)
	wg.Wait()
	return errors.Join(own, others)
}

// others is nil once all other nodes have confirmed.
func (p *Pods) others(ctx context.Context, rev int64) error {
	silent, err := p.Others(ctx, rev)
	switch {
	case err != nil:
		return fmt.Errorf("the servers do not say whether all nodes have applied that it ends: %w", err)
	case len(silent) > 0:
		return fmt.Errorf("not confirmed by %s", some(silent))
	}
	return nil
}

// some names nodes, the first of them if they are many.
func some(nodes []string) string {
	const most = 5
	slices.Sort(nodes)
	word := "nodes "
	switch n := len(nodes); {
	case n == 1:
		word = "node "
	case n > most:
		return fmt.Sprintf("%s%s and %d more", word, strings.Join(nodes[:most], ", "), n-most)
	}
	return word + strings.Join(nodes, ", ")
}

// lead is how Services lead to one pod.
type lead struct {
	pod    *corev1.Pod
	ready  bool // the API has shown it so
	all    client.Reader[*corev1.Service]
	slices client.Reader[*discoveryv1.EndpointSlice]
}

func (p *Pods) lead(pod *corev1.Pod) lead {
	return lead{
		pod: pod, ready: core.PodReady(pod),
		all: client.Cached(p.Transport, core.Services, ""), slices: client.Cached(p.Transport, discovery.EndpointSlices, ""),
	}
}

// services are the names of the Services that select the pod and are served by our proxies, from slices that our
// controller writes.
func (l lead) services() (names []string) {
	if len(l.pod.Status.PodIPs) == 0 || core.PodTerminal(l.pod) {
		return nil
	}
	of := labels.Set(l.pod.Labels)
	l.all.Snapshot().Scan(l.pod.Namespace, "", func(it *cache.Item) bool {
		if s := it.Object.(*corev1.Service); proxied(s) && selects(s.Spec.Selector, of) && l.shares(s) {
			names = append(names, s.Name)
		}
		return true
	})
	return names
}

// otherProxy is the label of Services that another program sees to.
const otherProxy = "service.kubernetes.io/service-proxy-name"

// proxied reports whether our proxies make rules of a Service.
func proxied(s *corev1.Service) bool {
	_, other := s.Labels[otherProxy]
	_, headless := s.Labels[corev1.IsHeadlessService]
	return !other && !headless && s.Spec.Type != corev1.ServiceTypeExternalName && s.Spec.ClusterIP != corev1.ClusterIPNone && s.Spec.ClusterIP != ""
}

// shares reports whether the pod has an address of a family of the Service.
func (l lead) shares(s *corev1.Service) bool {
	return len(s.Spec.IPFamilies) == 0 || slices.ContainsFunc(l.pod.Status.PodIPs, func(ip corev1.PodIP) bool {
		family := corev1.IPv4Protocol
		if strings.Contains(ip.IP, ":") {
			family = corev1.IPv6Protocol
		}
		return slices.Contains(s.Spec.IPFamilies, family)
	})
}

func selects(selector map[string]string, of labels.Set) bool {
	for key, value := range selector {
		if has, ok := of[key]; !ok || has != value {
			return false
		}
	}
	return len(selector) > 0
}

// shown waits until all slices show that nothing new is for the pod, and returns the revision at
// which they do.
func (l lead) shown(ctx context.Context) (int64, error) {
	var ready [2]<-chan struct{} // of each of the pod's addresses: pods have one of each family at the most
	var followers []*cache.Follower
	for i, ip := range l.pod.Status.PodIPs[:min(len(l.pod.Status.PodIPs), len(ready))] {
		f := l.slices.Follow(cache.FollowOptions{Index: discovery.IndexAddress, Value: ip.IP})
		defer f.Close()
		followers, ready[i] = append(followers, f), f.Ready()
	}
	for {
		for _, f := range followers {
			f.Next() // what counts is the present state
		}
		rev, out := l.look()
		if out {
			return rev, nil
		}
		select {
		case <-ready[0]:
		case <-ready[1]:
		case <-ctx.Done():
			return 0, errShown
		}
	}
}

// look reports whether all slices show that the pod ends, and the revision of the last of those
// that do.
func (l lead) look() (rev int64, out bool) {
	waits := map[string]bool{} // services of which it is to be shown
	for _, name := range l.services() {
		// What was not ready when it was deleted will not be shown so. A Service without slices
		// goes itself, or has just come: no node has rules for it.
		waits[name] = l.ready && slices.ContainsFunc(l.slices.ByIndex(discovery.IndexService, cache.Key(l.pod.Namespace, name)), ours)
	}
	for _, ip := range l.pod.Status.PodIPs {
		for _, s := range l.slices.ByIndex(discovery.IndexAddress, ip.IP) {
			service := s.Labels[discoveryv1.LabelServiceName]
			if _, ok := waits[service]; !ok || s.Namespace != l.pod.Namespace || !ours(s) {
				continue
			}
			e := endpointOf(s, l.pod.UID)
			switch {
			case e == nil:
			case ptr.Deref(e.Conditions.Terminating, false) || !l.ready && !ptr.Deref(e.Conditions.Ready, true):
				waits[service], rev = false, max(rev, resource.Revision(s))
			default:
				return 0, false
			}
		}
	}
	for _, waits := range waits {
		if waits {
			return 0, false
		}
	}
	return rev, true
}

// ours reports whether a slice is written by our controller: it shows by itself that a pod ends.
func ours(s *discoveryv1.EndpointSlice) bool {
	return s.Labels[discoveryv1.LabelManagedBy] == discovery.ManagedByController
}

// endpointOf is what a slice has of a pod, or nil.
func endpointOf(s *discoveryv1.EndpointSlice, pod types.UID) *discoveryv1.Endpoint {
	for i := range s.Endpoints {
		if e := &s.Endpoints[i]; e.TargetRef != nil && e.TargetRef.UID == pod {
			return e
		}
	}
	return nil
}

// ByServers asks servers for the other nodes, over the transport of a node.
func ByServers(t client.Transport) Others {
	return func(ctx context.Context, rev int64) (silent []string, _ error) {
		left := longest
		if end, ok := ctx.Deadline(); ok {
			left = time.Until(end)
		}
		// The answer must be here before the time is over: it has the names.
		answer, err := ask(ctx, t, path(rev, left*4/5))
		if apierrors.IsNotFound(err) {
			return nil, nil // a server of an earlier version
		}
		return answer.Silent, err
	}
}
