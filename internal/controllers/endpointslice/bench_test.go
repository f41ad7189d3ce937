package endpointslice

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/api/discovery"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/controller"
	"github.com/kemudi/kemudi/internal/resource"
)

// held is a transport that has caches and nothing else.
type held struct {
	client.Transport
	of map[*resource.Def]*cache.Cache
}

func (h held) Cache(def *resource.Def, _ string) *cache.Cache { return h.of[def] }

func (h held) fill(def *resource.Def, objects []resource.Object) {
	var items []*cache.Item
	for _, o := range objects {
		o.SetResourceVersion("1")
		items = append(items, &cache.Item{Key: cache.Key(o.GetNamespace(), o.GetName()), Rev: 1, Object: o})
	}
	h.of[def] = cache.New(def, &cache.Progress{})
	h.of[def].Replace(items, 1)
}

// BenchmarkReconcileAmongMany is a look at one service, whose slices are as they should be, in a namespace
// with many others.
func BenchmarkReconcileAmongMany(b *testing.B) {
	for _, c := range []struct{ services, pods int }{{100, 0}, {30_000, 0}, {30_000, 10_000}} {
		b.Run(fmt.Sprintf("services=%d/pods=%d", c.services, c.pods), func(b *testing.B) {
			h := held{of: map[*resource.Def]*cache.Cache{}}
			var services, slices, pods []resource.Object
			for i := range c.services {
				name := fmt.Sprint("app-", i)
				svc := &corev1.Service{
					ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name)},
					Spec: corev1.ServiceSpec{
						Selector: map[string]string{"app": name}, ClusterIP: "10.96.0.1", IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol},
						Ports: []corev1.ServicePort{{Port: 80}},
					},
				}
				services = append(services, svc)
				slices = append(slices, &discoveryv1.EndpointSlice{
					ObjectMeta:  metav1.ObjectMeta{Namespace: "default", Name: name + "-x", Labels: labelsOf(svc)},
					AddressType: discoveryv1.AddressTypeIPv4,
				})
			}
			for i := range c.pods {
				pods = append(pods, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
					Namespace: "default", Name: fmt.Sprint("pod-", i),
					Labels: map[string]string{"app": fmt.Sprint("other-", i), "pod-template-hash": "5d6f7c8b9", "tier": "web"},
				}, Status: corev1.PodStatus{PodIPs: []corev1.PodIP{{IP: "10.244.0.7"}}, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}}})
			}
			h.fill(core.Services.Def, services)
			h.fill(discovery.EndpointSlices.Def, slices)
			h.fill(core.Pods.Def, pods)
			h.fill(core.Nodes.Def, []resource.Object{&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", Labels: map[string]string{"a": "b"}}}})
			r := &reconciler{
				limit: 100, pods: controller.Client[*corev1.Pod]{Reader: client.Cached(h, core.Pods, "")},
				nodes:  controller.Client[*corev1.Node]{Reader: client.Cached(h, core.Nodes, "")},
				slices: controller.Client[*discoveryv1.EndpointSlice]{Reader: client.Cached(h, discovery.EndpointSlices, "")},
			}
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				if _, err := r.Reconcile(b.Context(), services[i%len(services)].(*corev1.Service)); err != nil {
					b.Fatal(err)
				}
				i++
			}
		})
	}
}
