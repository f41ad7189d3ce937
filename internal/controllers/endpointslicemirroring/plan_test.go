package endpointslicemirroring

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestMirrorsSoManyAddressesOfASubset(t *testing.T) {
	e := &corev1.Endpoints{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "db"}}
	var subset corev1.EndpointSubset
	for i := range 999 {
		subset.Addresses = append(subset.Addresses, corev1.EndpointAddress{IP: fmt.Sprintf("10.1.%d.%d", i/250, i%250+1)})
	}
	subset.Addresses = append(subset.Addresses, corev1.EndpointAddress{IP: "db.example.com"})
	for i := range 3 {
		subset.NotReadyAddresses = append(subset.NotReadyAddresses, corev1.EndpointAddress{IP: fmt.Sprintf("10.2.0.%d", i+1)})
	}
	e.Subsets = []corev1.EndpointSubset{subset}
	wanted, invalid, over := plan(e, Defaults().MaxEndpointsPerSubset)
	if len(wanted) != 1 || len(wanted[0].Endpoints) != 1000 || invalid != 1 || over != 2 {
		t.Fatalf("got %d slices, %d addresses of the first, %d invalid, %d too many; want 1, 1000, 1, 2", len(wanted), len(wanted[0].Endpoints), invalid, over)
	}
	if last := wanted[0].Endpoints[999]; *last.Conditions.Ready || last.Addresses[0] != "10.2.0.1" {
		t.Errorf("got %v last, want the first that is not ready", last)
	}
}

func TestSubsetsOfTheSamePortsAreOneSlice(t *testing.T) {
	http := []corev1.EndpointPort{{Name: "http", Port: 80, Protocol: corev1.ProtocolTCP}}
	a, b := corev1.EndpointAddress{IP: "10.0.0.1"}, corev1.EndpointAddress{IP: "10.0.0.2"}
	e := &corev1.Endpoints{Subsets: []corev1.EndpointSubset{
		{Ports: http, Addresses: []corev1.EndpointAddress{a, b}},
		{Ports: http, Addresses: []corev1.EndpointAddress{a}, NotReadyAddresses: []corev1.EndpointAddress{b}},
		{Ports: []corev1.EndpointPort{{Name: "https", Port: 443}}, Addresses: []corev1.EndpointAddress{a}},
	}}
	wanted, _, _ := plan(e, Defaults().MaxEndpointsPerSubset)
	var got string
	for _, s := range wanted {
		got += fmt.Sprintf("%d:", *s.Ports[0].Port)
		for _, ep := range s.Endpoints {
			got += fmt.Sprintf(" %s=%t", ep.Addresses[0], *ep.Conditions.Ready)
		}
		got += "\n"
	}
	if want := "80: 10.0.0.1=true 10.0.0.2=false\n443: 10.0.0.1=true\n"; got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
