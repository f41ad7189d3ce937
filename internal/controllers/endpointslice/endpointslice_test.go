package endpointslice_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/api/discovery"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/sim"
	"github.com/kemudi/kemudi/internal/trace"
)

// TestManyPodsAreInManySlices also looks at Endpoints, which hold a thousand.
func TestManyPodsAreInManySlices(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := sim.Start(t.Context(), sim.Options{Nodes: []sim.NodeOptions{{Name: "n1", CPU: "1000", Memory: "1000Gi", MaxPods: 2000}}})
		if err != nil {
			t.Fatal(err)
		}
		services, pods := client.For(c.API(), core.Services), client.For(c.API(), core.Pods)
		web, err := services.Create(t.Context(), &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"},
			Spec:       corev1.ServiceSpec{Selector: map[string]string{"app": "web"}, Ports: []corev1.ServicePort{{Port: 80, Protocol: corev1.ProtocolTCP}}},
		})
		if err != nil {
			t.Fatal(err)
		}
		// Those of another app are there before the service selects them, too: that it
		// follows each pod is shown by fewer.
		add := func(from, to int, app string) {
			for i := from; i < to; i++ {
				if _, err := pods.Create(t.Context(), &corev1.Pod{
					ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprintf("web-%d", i), Labels: map[string]string{"app": app, "tier": "web"}},
					Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "c"}}},
				}); err != nil {
					t.Fatal(err)
				}
			}
			time.Sleep(10 * time.Second)
		}
		selects := func(key string) {
			web = web.DeepCopy()
			web.Spec.Selector = map[string]string{key: "web"}
			if web, err = services.Update(t.Context(), web); err != nil {
				t.Fatal(err)
			}
			time.Sleep(10 * time.Second)
		}
		look := func() (slices, most, all, addresses int, over string) {
			for _, s := range client.Cached(c.API(), discovery.EndpointSlices, "").ByIndex(discovery.IndexService, "default/web") {
				slices, all, most = slices+1, all+len(s.Endpoints), max(most, len(s.Endpoints))
			}
			e, _ := client.Cached(c.API(), core.Endpoints, "").Get("default", "web")
			for _, s := range e.Subsets {
				addresses += len(s.Addresses) + len(s.NotReadyAddresses)
			}
			return slices, most, all, addresses, e.Annotations[corev1.EndpointsOverCapacity]
		}
		add(0, 60, "web")
		trace.Proves(t, "EPS-006", "EPS-011")
		if slices, _, all, addresses, over := look(); slices != 1 || all != 60 || addresses != 60 || over != "" {
			t.Errorf("got %d endpoints in %d slices, %d addresses (%q); want 60 in one, 60", all, slices, addresses, over)
		}
		add(60, 905, "other")
		add(905, 1005, "web")
		selects("tier")
		trace.Proves(t, "EPS-006", "EPS-010")
		if slices, most, all, addresses, over := look(); slices < 11 || most > 100 || all != 1005 || addresses != 1000 || over != "truncated" {
			t.Errorf("got %d endpoints in %d slices of %d at the most, %d addresses (%q); want 1005 in 11 of 100, 1000 (truncated)", all, slices, most, addresses, over)
		}
		selects("app")
		for i := range 60 {
			if err := pods.Delete(t.Context(), "default", fmt.Sprintf("web-%d", i), metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Minute)
		if _, most, all, addresses, over := look(); most > 100 || all != 100 || addresses != 100 || over != "" {
			t.Errorf("got %d endpoints in slices of %d at the most, %d addresses (%q); want 100, 100", all, most, addresses, over)
		}
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
}

func TestAServiceOfBothFamiliesHasSlicesOfEach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := sim.Start(t.Context(), sim.Options{DualStack: true, Nodes: []sim.NodeOptions{{Name: "n1"}}})
		if err != nil {
			t.Fatal(err)
		}
		both := corev1.IPFamilyPolicyRequireDualStack
		for name, families := range map[string][]corev1.IPFamily{"both": {corev1.IPv4Protocol, corev1.IPv6Protocol}, "six": {corev1.IPv6Protocol}, "four": {corev1.IPv4Protocol}} {
			svc := &corev1.Service{
				ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
				Spec: corev1.ServiceSpec{
					Selector: map[string]string{"app": "web"}, IPFamilies: families, Ports: []corev1.ServicePort{{Port: 80, Protocol: corev1.ProtocolTCP}},
				},
			}
			if len(families) == 2 {
				svc.Spec.IPFamilyPolicy = &both
			}
			if _, err := client.For(c.API(), core.Services).Create(t.Context(), svc); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := client.For(c.API(), core.Pods).Create(t.Context(), &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", Labels: map[string]string{"app": "web"}},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "c"}}},
		}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		node, _ := client.Cached(c.API(), core.Nodes, "").Get("", "n1")
		if got := fmt.Sprint(node.Spec.PodCIDRs); got != "[10.244.0.0/24 fd00:244::/64]" {
			t.Errorf("got pod addresses %s of the node, want a share of each family", got)
		}
		trace.Proves(t, "DUAL-016")
		for name, from := range map[string]string{"four": "10.96.", "six": "fd00:96::"} {
			if svc, _ := client.Cached(c.API(), core.Services, "").Get("default", name); !strings.HasPrefix(svc.Spec.ClusterIP, from) {
				t.Errorf("got cluster IP %s of the service %s, want one of its family's range, %s", svc.Spec.ClusterIP, name, from)
			}
		}
		// A document of v1.16 to v1.19.
		old, err := client.For(c.API(), core.Services).Patch(t.Context(), "default", "old", "", client.Patch{
			Type: types.ApplyPatchType, FieldManager: "test",
			Data: []byte(`{"apiVersion":"v1","kind":"Service","metadata":{"name":"old"},"spec":{"ipFamily":"IPv6","ports":[{"port":80}]}}`),
		})
		trace.Proves(t, "DUALT-005")
		if err != nil || !strings.HasPrefix(old.Spec.ClusterIP, "fd00:96::") || len(old.Spec.ClusterIPs) != 1 {
			t.Errorf("got cluster IPs %v, %v of the service with ipFamily: IPv6, want one of the IPv6 range", old.Spec.ClusterIPs, err)
		}
		for name, want := range map[string]string{"both": "IPv4:10.1.0.1 IPv6:fd00:1::1 endpoints:10.1.0.1", "six": "IPv6:fd00:1::1 endpoints:fd00:1::1", "four": "IPv4:10.1.0.1 endpoints:10.1.0.1"} {
			var four, six, got string
			for _, s := range client.Cached(c.API(), discovery.EndpointSlices, "").ByIndex(discovery.IndexService, "default/"+name) {
				text := fmt.Sprintf("%s:%s ", s.AddressType, s.Endpoints[0].Addresses[0])
				if s.AddressType == discoveryv1.AddressTypeIPv4 {
					four += text
				} else {
					six += text
				}
			}
			e, _ := client.Cached(c.API(), core.Endpoints, "").Get("default", name)
			if len(e.Subsets) > 0 {
				got = four + six + "endpoints:" + e.Subsets[0].Addresses[0].IP
			}
			if got != want {
				t.Errorf("service %s: got %s, want %s", name, got, want)
			}
		}
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
}
