package apiserver

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/test/metric"
)

func TestMetricsCountAddressesAndPortsThatAreGiven(t *testing.T) {
	reg := prometheus.NewRegistry()
	f := newFixture(t, func(o *Options) {
		o.Registry = reg
		o.Settings = map[string]string{core.FlagServiceCIDR: "10.96.0.0/28", core.FlagNodePorts: "30000-30003"}
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
	f.must(200, "PATCH", servicesPath+"/a", `{"metadata":{"labels":{"x":"y"}}}`, merge) // which gives it nothing
	for _, tc := range []struct {
		name   string
		labels []string
		want   float64
	}{
		{"kube_apiserver_clusterip_allocator_allocation_total", []string{"cidr=10.96.0.0/28", "scope=dynamic"}, 1},
		{"kube_apiserver_clusterip_allocator_allocation_total", []string{"cidr=10.96.0.0/28", "scope=static"}, 1},
		{"kube_apiserver_clusterip_allocator_allocation_errors_total", []string{"cidr=10.96.0.0/28", "scope=static"}, 1},
		{"kube_apiserver_nodeport_allocator_allocation_total", []string{"scope=dynamic"}, 1},
		{"kube_apiserver_nodeport_allocator_allocation_total", []string{"scope=static"}, 1},
		{"kube_apiserver_nodeport_allocator_allocation_errors_total", []string{"scope=static"}, 1},
		{"kube_apiserver_nodeport_allocator_allocated_ports", nil, 2},
		{"kube_apiserver_nodeport_allocator_available_ports", nil, 2},
	} {
		if got := metric.Value(t, reg, tc.name, tc.labels...); got != tc.want {
			t.Errorf("%s%v: got %v, want %v", tc.name, tc.labels, got, tc.want)
		}
	}
}
