package apiserver

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/store"
)

const (
	addressesPath = "/apis/networking.k8s.io/v1/ipaddresses"
	rangesPath    = "/apis/networking.k8s.io/v1/servicecidrs"
	servicesPath  = "/api/v1/namespaces/default/services"
)

func serviceAt(name, spec string) string {
	return `{"metadata":{"name":"` + name + `"},"spec":{` + spec + `"ports":[{"port":80}]}}`
}

func TestAServiceTakesItsAddressByAnIPAddress(t *testing.T) {
	f := newFixture(t)
	f.must(201, "POST", servicesPath, serviceAt("web", `"clusterIP":"10.96.0.77",`))
	got := decoded[networkingv1.IPAddress](t, f.must(200, "GET", addressesPath+"/10.96.0.77", ""))
	if p := got.Spec.ParentRef; p == nil || *p != (networkingv1.ParentReference{Resource: "services", Namespace: "default", Name: "web"}) {
		t.Errorf("got parent %+v, want the service", p)
	}
	if got.UID == "" || got.CreationTimestamp.IsZero() || got.ResourceVersion == "" ||
		got.Labels["ipaddress.kubernetes.io/managed-by"] != "ipallocator.k8s.io" || got.Labels["ipaddress.kubernetes.io/ip-family"] != "IPv4" {
		t.Errorf("got metadata %+v", got.ObjectMeta)
	}
	refusal := f.must(422, "POST", servicesPath, serviceAt("other", `"clusterIP":"10.96.0.77",`))
	if !strings.Contains(refusal, "failed to allocate IP 10.96.0.77: provided IP is already allocated") {
		t.Errorf("got %s", refusal)
	}
	// A change of type gives it back, and so does the end of the service.
	f.must(200, "PATCH", servicesPath+"/web", `{"spec":{"type":"ExternalName","externalName":"example.com"}}`, merge)
	f.must(404, "GET", addressesPath+"/10.96.0.77", "")
	f.must(201, "POST", servicesPath, serviceAt("other", `"clusterIP":"10.96.0.77",`))
	f.must(200, "DELETE", servicesPath+"/other", "")
	f.must(404, "GET", addressesPath+"/10.96.0.77", "")
	f.must(201, "POST", servicesPath, serviceAt("third", `"clusterIP":"10.96.0.77",`))
	f.holdCachesAgainstStore()
}

func TestAnAddressThatSomethingElseHasIsNotGiven(t *testing.T) {
	f := newFixture(t, func(o *Options) { o.Settings = map[string]string{core.FlagServiceCIDR: "10.96.0.0/30"} })
	f.must(201, "POST", addressesPath, `{"metadata":{"name":"10.96.0.1"},"spec":{"parentRef":{"group":"example.com","resource":"gateways","namespace":"default","name":"g"}}}`)
	got := f.must(422, "POST", servicesPath, serviceAt("web", `"clusterIP":"10.96.0.1",`))
	if !strings.Contains(got, "provided IP is already allocated") {
		t.Errorf("got %s", got)
	}
	if got := f.must(201, "POST", servicesPath, serviceAt("web", "")); !strings.Contains(got, `"clusterIP":"10.96.0.2"`) {
		t.Errorf("got %s, want the address that is left", got)
	}
	f.must(500, "POST", servicesPath, serviceAt("more", ""))
	// It is a client's own, which no repair takes away.
	if err := f.writes.Repair(t.Context(), f.o.Defs); err != nil {
		t.Fatal(err)
	}
	f.must(200, "DELETE", addressesPath+"/10.96.0.1", "")
	f.must(201, "POST", servicesPath, serviceAt("more", ""))
}

func TestAnAddressThatIsTakenForAServiceIsGivenToIt(t *testing.T) {
	f := newFixture(t)
	f.must(201, "POST", addressesPath, `{"metadata":{"name":"10.96.0.77"},"spec":{"parentRef":{"resource":"services","namespace":"default","name":"web"}}}`)
	f.must(422, "POST", servicesPath, serviceAt("other", `"clusterIP":"10.96.0.77",`))
	f.must(201, "POST", servicesPath, serviceAt("web", `"clusterIP":"10.96.0.77",`))
}

func TestAllocationsFromBeforeAddressesWereObjectsAreReplaced(t *testing.T) {
	f := newFixture(t)
	f.must(201, "POST", servicesPath, serviceAt("web", `"clusterIP":"10.96.0.77",`))
	// As an earlier release has left it.
	const old = "/registry/kemudi/claims/clusterip/10.96.0.77"
	f.behind(store.Op{Key: "/registry/ipaddresses/10.96.0.77"}, store.Op{Key: old, Value: []byte("/registry/services/specs/default/web")})
	if err := f.writes.Repair(t.Context(), f.o.Defs); err != nil {
		t.Fatal(err)
	}
	f.must(422, "POST", servicesPath, serviceAt("other", `"clusterIP":"10.96.0.77",`))
	f.must(200, "GET", addressesPath+"/10.96.0.77", "")
	if kv, _, err := f.store.Get(t.Context(), old); err != nil || kv.Rev != 0 {
		t.Errorf("got %+v, %v: want the old form gone", kv, err)
	}
}

func TestADryRunTakesNoAddress(t *testing.T) {
	f := newFixture(t)
	f.must(201, "POST", servicesPath+"?dryRun=All", serviceAt("web", `"clusterIP":"10.96.0.77",`))
	list := decoded[metav1.PartialObjectMetadataList](t, f.must(200, "GET", addressesPath, ""))
	for _, item := range list.Items {
		if item.Name == "10.96.0.77" {
			t.Errorf("got %+v, want no address taken", item)
		}
	}
}

func TestServicesGetAddressesOfTheRangesThatAreReady(t *testing.T) {
	f := newFixture(t)
	// Without any, those of the flag are given out.
	if got := f.must(201, "POST", servicesPath, serviceAt("flag", "")); !strings.Contains(got, `"clusterIP":"10.96.`) {
		t.Errorf("got %s, want an address of the flag's range", got)
	}
	f.must(201, "POST", rangesPath, `{"metadata":{"name":"kubernetes"},"spec":{"cidrs":["10.1.0.0/29","fd00:1::/112"]}}`)
	f.must(201, "POST", rangesPath, `{"metadata":{"name":"more","finalizers":["example.com/f"]},"spec":{"cidrs":["10.2.0.0/29"]}}`)
	given := map[string]int{}
	for i := range 12 {
		got := decoded[corev1.Service](t, f.must(201, "POST", servicesPath, serviceAt(fmt.Sprint("s", i), "")))
		given[got.Spec.ClusterIP[:5]]++
	}
	if given["10.1."] != 6 || given["10.2."] != 6 {
		t.Errorf("got %v, want 6 addresses of each range", given)
	}
	if got := f.must(500, "POST", servicesPath, serviceAt("full", "")); !strings.Contains(got, "range is full") {
		t.Errorf("got %s, want that all is full", got)
	}
	f.must(201, "POST", servicesPath, serviceAt("six", `"ipFamilies":["IPv6"],`))
	// One that is on its way out gives none, nor one that is said not to be ready.
	f.must(200, "DELETE", rangesPath+"/more", "")
	f.must(200, "DELETE", servicesPath+"/s0", "")
	f.must(200, "PATCH", rangesPath+"/kubernetes/status", `{"status":{"conditions":[{"type":"Ready","status":"False","reason":"x","message":"","lastTransitionTime":"2026-01-01T00:00:00Z"}]}}`, merge)
	if got := f.must(500, "POST", servicesPath, serviceAt("none", "")); !strings.Contains(got, "range is full") {
		t.Errorf("got %s, want that there is none", got)
	}
	// Who has an address of it keeps that, in a repair too.
	if err := f.writes.Repair(t.Context(), f.o.Defs); err != nil {
		t.Fatal(err)
	}
	list := decoded[networkingv1.IPAddressList](t, f.must(200, "GET", addressesPath, ""))
	if len(list.Items) != 13 {
		t.Errorf("got %d addresses, want those of the 13 services", len(list.Items))
	}
	f.must(200, "PATCH", servicesPath+"/s1", `{"metadata":{"labels":{"a":"b"}}}`, merge)
	f.must(200, "PATCH", rangesPath+"/more", `{"metadata":{"finalizers":null}}`, merge)
}
