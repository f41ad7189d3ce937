package apiserver

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/resource"
	"github.com/kemudi/kemudi/internal/store"
	"github.com/kemudi/kemudi/internal/watchcache"
	"github.com/kemudi/kemudi/test/metric"
)

func TestMetricsCountAddressesAndPortsThatAreGiven(t *testing.T) {
	reg := prometheus.NewRegistry()
	f := newFixture(t, func(o *Options) {
		o.Registry = reg
		// Of so many addresses the lower 16 are for those who ask for one.
		o.Settings = map[string]string{core.FlagServiceCIDR: "10.96.0.0/27", core.FlagNodePorts: "30000-30003"}
	})
	if err := f.writes.Know(t.Context(), core.ClassNodePort); err != nil {
		t.Fatal(err)
	}
	f.must(201, "POST", servicesPath, serviceAt("a", ""))
	f.must(200, "PATCH", servicesPath+"/a", `{"spec":{"type":"NodePort","ports":[{"port":80,"nodePort":30001}]}}`, merge)
	f.must(201, "POST", servicesPath, serviceAt("b", `"clusterIP":"10.96.0.2","type":"NodePort",`))
	f.must(422, "POST", servicesPath, serviceAt("c", `"clusterIP":"10.96.0.2",`))
	f.must(422, "POST", servicesPath, serviceAt("c", `"clusterIP":"10.97.0.2",`)) // in no range
	f.must(422, "PATCH", servicesPath+"/b", `{"spec":{"ports":[{"port":80,"nodePort":30001}]}}`, merge)
	f.must(422, "PATCH", servicesPath+"/b", `{"spec":{"ports":[{"port":80,"nodePort":31000}]}}`, merge) // there is none such
	f.must(200, "PATCH", servicesPath+"/a", `{"metadata":{"labels":{"x":"y"}}}`, merge)                 // which gives it nothing
	for _, tc := range []struct {
		name   string
		labels []string
		want   float64
	}{
		{"kube_apiserver_clusterip_allocator_allocation_total", []string{"cidr=10.96.0.0/27", "scope=dynamic"}, 1},
		{"kube_apiserver_clusterip_allocator_allocation_total", []string{"cidr=10.96.0.0/27", "scope=static"}, 1},
		{"kube_apiserver_clusterip_allocator_allocation_errors_total", []string{"cidr=10.96.0.0/27", "scope=static"}, 1},
		{"kube_apiserver_nodeport_allocator_allocation_total", []string{"scope=dynamic"}, 1},
		{"kube_apiserver_nodeport_allocator_allocation_total", []string{"scope=static"}, 1},
		{"kube_apiserver_nodeport_allocator_allocation_errors_total", []string{"scope=static"}, 2},
		{"kube_apiserver_nodeport_allocator_allocated_ports", nil, 2},
		{"kube_apiserver_nodeport_allocator_available_ports", nil, 2},
	} {
		if got := metric.Value(t, reg, tc.name, tc.labels...); got != tc.want {
			t.Errorf("%s%v: got %v, want %v", tc.name, tc.labels, got, tc.want)
		}
	}
}

// told keeps what is noted, as people read it.
type told struct {
	mu    sync.Mutex
	notes []string
}

func (n *told) Event(obj resource.Object, kind, reason, message string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.notes = append(n.notes, fmt.Sprintf("%s of %s/%s: %s: %s", kind, obj.GetNamespace(), obj.GetName(), reason, message))
}

// TestMetricsAndEventsTellWhichNodePortsWereWrong has somebody write Services, and take one away, behind the server's back.
func TestMetricsAndEventsTellWhichNodePortsWereWrong(t *testing.T) {
	reg, events := prometheus.NewRegistry(), &told{}
	f := newFixture(t, func(o *Options) {
		o.Registry, o.Events = reg, events
		o.Settings = map[string]string{core.FlagNodePorts: "30000-30010"}
	})
	<-f.allocated // the server has looked once
	f.must(201, "POST", servicesPath, `{"metadata":{"name":"gone"},"spec":{"type":"NodePort","ports":[{"port":80,"nodePort":30009}]}}`)
	const prefix = "/registry/services/specs/default/"
	ops := []store.Op{{Key: prefix + "gone"}}
	for name, ports := range map[string][]int32{"a": {30001}, "b": {30001}, "c": {31000}, "d": {30002, 30003}} {
		svc := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: "u"}, Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeNodePort, ClusterIP: corev1.ClusterIPNone, ClusterIPs: []string{corev1.ClusterIPNone},
		}}
		for i, p := range ports {
			svc.Spec.Ports = append(svc.Spec.Ports, corev1.ServicePort{Port: int32(i + 1), NodePort: p})
		}
		value, err := watchcache.Encode(core.Services.Def, svc)
		if err != nil {
			t.Fatal(err)
		}
		ops = append(ops, store.Op{Key: prefix + name, Value: value})
	}
	f.behind(ops...)
	if err := f.writes.Repair(t.Context(), f.o.Defs); err != nil {
		t.Fatal(err)
	}
	for what, want := range map[string]float64{"repair": 3, "duplicate": 1, "outOfRange": 1, "leak": 1} {
		if got := metric.Value(t, reg, "apiserver_nodeport_repair_port_errors_total", "type="+what); got != want {
			t.Errorf("%s: got %v, want %v", what, got, want)
		}
	}
	if got := metric.Value(t, reg, "apiserver_nodeport_repair_reconcile_errors_total"); got != 0 {
		t.Errorf("got %v failures, want none", got)
	}
	slices.Sort(events.notes)
	want := []string{
		"Warning of default/a: PortNotAllocated: Port 30001 is not allocated; repairing",
		"Warning of default/b: PortAlreadyAllocated: Port 30001 was assigned to multiple services; please recreate service",
		"Warning of default/c: PortOutOfRange: Port 31000 is not within the port range 30000-30010; please recreate service",
		"Warning of default/d: PortNotAllocated: Port 30002 is not allocated; repairing",
		"Warning of default/d: PortNotAllocated: Port 30003 is not allocated; repairing",
	}
	if !slices.Equal(events.notes, want) {
		t.Errorf("events: got\n%s\nwant\n%s", strings.Join(events.notes, "\n"), strings.Join(want, "\n"))
	}
}
