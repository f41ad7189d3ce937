package drain

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/api/discovery"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/resource"
)

// caches are all that is asked of a transport here.
type caches struct {
	client.Transport
	of map[*resource.Def]*cache.Cache
}

func (c caches) Cache(def *resource.Def, _ string) *cache.Cache { return c.of[def] }

// item is an object as a cache has it at a revision.
func item(rev int64, obj resource.Object) *cache.Item {
	obj.SetResourceVersion(strconv.FormatInt(rev, 10))
	return &cache.Item{Key: cache.Key(obj.GetNamespace(), obj.GetName()), Rev: rev, Object: obj}
}

func newCaches(objects map[*resource.Def][]*cache.Item) caches {
	c := caches{of: map[*resource.Def]*cache.Cache{}}
	for _, def := range []*resource.Def{core.Services.Def, discovery.EndpointSlices.Def, core.Nodes.Def} {
		c.of[def] = cache.New(def, &cache.Progress{})
		c.of[def].Replace(objects[def], 1)
	}
	return c
}

func (c caches) set(def *resource.Def, rev int64, obj resource.Object) {
	c.of[def].Apply([]cache.Change{{Item: item(rev, obj)}})
}

func service(change func(*corev1.Service)) *corev1.Service {
	s := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"},
		Spec:       corev1.ServiceSpec{Selector: map[string]string{"app": "web"}, ClusterIP: "10.96.0.7", IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol}},
	}
	if change != nil {
		change(s)
	}
	return s
}

// slice is one of the service's; its endpoints are pods by their UIDs, "+u1" is ready, "-u1"
// is not, "xu1" ends.
func slice(name string, endpoints ...string) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Labels: map[string]string{
			discoveryv1.LabelServiceName: "web", discoveryv1.LabelManagedBy: discovery.ManagedByController,
		}},
		AddressType: discoveryv1.AddressTypeIPv4,
	}
	for _, e := range endpoints {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{
			Addresses:  []string{"10.0.0.1"},
			TargetRef:  &corev1.ObjectReference{Kind: "Pod", UID: types.UID(e[1:])},
			Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(e[0] == '+'), Terminating: ptr.To(e[0] == 'x')},
		})
	}
	return s
}

func deletedPod(ready corev1.ConditionStatus) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web-1", UID: "u1", Labels: map[string]string{"app": "web", "tier": "front"}},
		Status: corev1.PodStatus{
			PodIPs: []corev1.PodIP{{IP: "10.0.0.1"}}, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: ready}},
		},
	}
}

// asked notes what the other nodes are asked, and answers for them.
type asked struct {
	silent []string
	err    error

	mu   sync.Mutex
	revs []int64
}

func (a *asked) others(_ context.Context, rev int64) ([]string, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.revs = append(a.revs, rev)
	return a.silent, a.err
}

// await reports what Await says, and after how long, within the time that there is.
func await(t *testing.T, p *Pods, pod *corev1.Pod, atMost time.Duration) (string, time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), atMost)
	defer cancel()
	began := time.Now()
	said := ""
	if err := p.Await(ctx, pod); err != nil {
		said = err.Error()
	}
	return said, time.Since(began)
}

func TestPodsThatNoRulesLeadToAreNotWaitedFor(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*corev1.Service, *corev1.Pod){
		"of no Service":                   func(s *corev1.Service, _ *corev1.Pod) { s.Spec.Selector = map[string]string{"app": "db"} },
		"selected in part":                func(s *corev1.Service, _ *corev1.Pod) { s.Spec.Selector["role"] = "x" },
		"of a Service without a selector": func(s *corev1.Service, _ *corev1.Pod) { s.Spec.Selector = nil },
		"of another namespace's":          func(s *corev1.Service, _ *corev1.Pod) { s.Namespace = "other" },
		"of a headless one":               func(s *corev1.Service, _ *corev1.Pod) { s.Spec.ClusterIP = corev1.ClusterIPNone },
		"of one that another program has": func(s *corev1.Service, _ *corev1.Pod) { s.Labels = map[string]string{otherProxy: "x"} },
		"of one that is a name":           func(s *corev1.Service, _ *corev1.Pod) { s.Spec.Type = corev1.ServiceTypeExternalName },
		"of one of another family":        func(s *corev1.Service, _ *corev1.Pod) { s.Spec.IPFamilies = []corev1.IPFamily{corev1.IPv6Protocol} },
		"without an address":              func(_ *corev1.Service, p *corev1.Pod) { p.Status.PodIPs = nil },
		"that have finished":              func(_ *corev1.Service, p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, pod := service(nil), deletedPod(corev1.ConditionTrue)
				change(s, pod)
				a := &asked{}
				p := &Pods{Transport: newCaches(map[*resource.Def][]*cache.Item{
					core.Services.Def: {item(1, s)}, discovery.EndpointSlices.Def: {item(1, slice("web-a", "+u1"))},
				}), Own: &cache.Progress{}, Others: a.others}
				if said, took := await(t, p, pod, time.Minute); said != "" || took != 0 || len(a.revs) > 0 {
					t.Errorf("got %q after %s, others asked for %v; want nothing, at once, and nobody asked", said, took, a.revs)
				}
			})
		})
	}
}

func TestPodIsWaitedForUntilAllHaveAppliedThatItEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCaches(map[*resource.Def][]*cache.Item{
			core.Services.Def: {item(1, service(nil))}, discovery.EndpointSlices.Def: {item(5, slice("web-a", "+u1", "+u2"))},
		})
		a := &asked{}
		var proxy, edge cache.Progress
		p := &Pods{Transport: c, Own: All{&proxy, &edge}, Others: a.others}
		proxy.Advance(5)
		edge.Advance(5)
		done := make(chan string)
		var wg sync.WaitGroup
		defer wg.Wait()
		wg.Go(func() {
			said, _ := await(t, p, deletedPod(corev1.ConditionTrue), time.Minute)
			done <- said
		})
		held := func(why string) {
			t.Helper()
			synctest.Wait()
			select {
			case said := <-done:
				t.Fatalf("the wait is over (%q), though %s", said, why)
			default:
			}
		}
		held("the slice has it ready")
		c.set(discovery.EndpointSlices.Def, 6, slice("web-a", "+u1", "-u2"))
		held("another pod has changed")
		c.set(discovery.EndpointSlices.Def, 8, slice("web-a", "xu1", "-u2"))
		held("its own node's rules are those of 5")
		a.mu.Lock()
		if !slices.Equal(a.revs, []int64{8}) {
			t.Errorf("others were asked for %v, want 8 alone: the write that shows that it ends", a.revs)
		}
		a.mu.Unlock()
		proxy.Advance(7)
		edge.Advance(7)
		held("they are those of 7")
		proxy.Advance(9)
		held("the edge has not applied it")
		edge.Advance(9)
		if said := <-done; said != "" {
			t.Errorf("got %q", said)
		}
	})
}

// TestWhatSlicesMustShow is decided of all slices of all services of the pod.
func TestWhatSlicesMustShow(t *testing.T) {
	t.Parallel()
	byHand := func(s *discoveryv1.EndpointSlice) *discoveryv1.EndpointSlice {
		s.Labels[discoveryv1.LabelManagedBy] = "somebody"
		return s
	}
	for _, tc := range []struct {
		name   string
		ready  corev1.ConditionStatus
		slices []*discoveryv1.EndpointSlice // at revisions 1, 2 ...
		want   string
	}{
		{"ends in all", corev1.ConditionTrue, []*discoveryv1.EndpointSlice{slice("a", "xu1"), slice("b", "xu1"), slice("c", "+u2")}, "2"},
		{"ends in one of two", corev1.ConditionTrue, []*discoveryv1.EndpointSlice{slice("a", "xu1"), slice("b", "+u1")}, "waits"},
		{"ready, and not in them yet", corev1.ConditionTrue, []*discoveryv1.EndpointSlice{slice("a", "+u2")}, "waits"},
		{"ready, and they do not know yet", corev1.ConditionTrue, []*discoveryv1.EndpointSlice{slice("a", "-u1")}, "waits"},
		{"not ready, and never was", corev1.ConditionFalse, []*discoveryv1.EndpointSlice{slice("a", "-u1")}, "1"},
		{"not ready, and not in them", corev1.ConditionFalse, []*discoveryv1.EndpointSlice{slice("a", "+u2")}, "0"},
		{"not ready any more, and they do not know yet", corev1.ConditionFalse, []*discoveryv1.EndpointSlice{slice("a", "+u1")}, "waits"},
		{"another pod has the address", corev1.ConditionTrue, []*discoveryv1.EndpointSlice{slice("a", "xu1", "+u2")}, "1"},
		{"in one that somebody else writes", corev1.ConditionTrue, []*discoveryv1.EndpointSlice{slice("a", "xu1"), byHand(slice("b", "+u1"))}, "1"},
		{"there are none", corev1.ConditionTrue, nil, "0"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := newCaches(map[*resource.Def][]*cache.Item{core.Services.Def: {item(1, service(nil))}})
			for i, s := range tc.slices {
				c.set(discovery.EndpointSlices.Def, int64(i+1), s)
			}
			p := &Pods{Transport: c}
			rev, out := p.lead(deletedPod(tc.ready)).look()
			got := strconv.FormatInt(rev, 10)
			if !out {
				got = "waits"
			}
			if got != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
		})
	}
}

func TestWhatIsNotKnownIsSaid(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name   string
		slice  *discoveryv1.EndpointSlice
		own    int64
		others *asked
		want   string
		atOnce bool
	}{
		{"the slices", slice("a", "+u1"), 9, &asked{}, "the EndpointSlices do not show yet that it ends", false},
		{"its own node", slice("a", "xu1"), 2, &asked{}, "the service proxy or the edge of its own node has not applied that it ends", false},
		{"a node", slice("a", "xu1"), 9, &asked{silent: []string{"n2"}}, "not confirmed by node n2", true},
		{
			"many nodes", slice("a", "xu1"), 9, &asked{silent: strings.Fields("n7 n6 n5 n4 n3 n2 n1")},
			"not confirmed by nodes n1, n2, n3, n4, n5 and 2 more", true,
		},
		{
			"the servers", slice("a", "xu1"), 9, &asked{err: errors.New("no route to host")},
			"the servers do not say whether all nodes have applied that it ends: no route to host", true,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var own cache.Progress
				own.Advance(tc.own)
				p := &Pods{Transport: newCaches(map[*resource.Def][]*cache.Item{
					core.Services.Def: {item(1, service(nil))}, discovery.EndpointSlices.Def: {item(3, tc.slice)},
				}), Own: &own, Others: tc.others.others}
				said, took := await(t, p, deletedPod(corev1.ConditionTrue), time.Minute)
				if said != tc.want || tc.atOnce != (took == 0) {
					t.Errorf("got %q after %s, want %q, at once: %v", said, took, tc.want, tc.atOnce)
				}
			})
		})
	}
}

// BenchmarkNoService is what the end of a pod costs that no Service of 1,000 in its namespace
// selects.
func BenchmarkNoService(b *testing.B) {
	var all []*cache.Item
	for i := range 1000 {
		name := fmt.Sprintf("app-%d", i)
		all = append(all, item(1, service(func(s *corev1.Service) { s.Name, s.Spec.Selector = name, map[string]string{"app": name} })))
	}
	p := &Pods{Transport: newCaches(map[*resource.Def][]*cache.Item{core.Services.Def: all})}
	pod := deletedPod(corev1.ConditionTrue)
	b.ReportAllocs()
	for b.Loop() {
		if err := p.Await(b.Context(), pod); err != nil {
			b.Fatal(err)
		}
	}
}
