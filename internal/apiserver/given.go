package apiserver

import (
	"cmp"
	"fmt"
	"net/netip"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/apiserver/alloc"
)

// given counts the cluster IPs and node ports that Services get, and the node ports that were found to be wrong, under
// upstream's names. How many addresses of a range are taken, and what is wrong with them, is told by the controller that looks after them.
type given struct {
	s *Server

	ips, ipErrors     *prometheus.CounterVec
	ports, portErrors *prometheus.CounterVec
	wrong             *prometheus.CounterVec
	unmended          prometheus.Counter
}

var (
	_ prometheus.Collector = (*given)(nil)

	portsAllocated = prometheus.NewDesc("kube_apiserver_nodeport_allocator_allocated_ports", "Node ports that are taken.", nil, nil)
	portsAvailable = prometheus.NewDesc("kube_apiserver_nodeport_allocator_available_ports", "Node ports that are free.", nil, nil)
)

func newGiven(s *Server) *given {
	return &given{
		s: s,
		ips: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kube_apiserver_clusterip_allocator_allocation_total", Help: "Cluster IPs given to Services, by range, and by whether they were asked for (static) or not (dynamic).",
		}, []string{"cidr", "scope"}),
		ipErrors: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kube_apiserver_clusterip_allocator_allocation_errors_total", Help: "Cluster IPs that could not be given, likewise.",
		}, []string{"cidr", "scope"}),
		ports: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kube_apiserver_nodeport_allocator_allocation_total", Help: "Node ports given to Services, by whether they were asked for (static) or not (dynamic).",
		}, []string{"scope"}),
		portErrors: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kube_apiserver_nodeport_allocator_allocation_errors_total", Help: "Node ports that could not be given, likewise.",
		}, []string{"scope"}),
		wrong: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "apiserver_nodeport_repair_port_errors_total", Help: "Node ports of Services that were not as they should be when the server began, by what was wrong (leak, repair, outOfRange, duplicate, full).",
		}, []string{"type"}),
		unmended: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "apiserver_nodeport_repair_reconcile_errors_total", Help: "Times that looking after node ports and addresses of Services has failed when the server began.",
		}),
	}
}

// collectors are all that it tells; the server must be able to write when it is asked.
func (g *given) collectors() []prometheus.Collector {
	return []prometheus.Collector{g, g.ips, g.ipErrors, g.ports, g.portErrors, g.wrong, g.unmended}
}

// count takes in that a value was given, or was not.
func (g *given) count(o alloc.Outcome) {
	scope := "dynamic"
	if o.Asked {
		scope = "static"
	}
	switch {
	case o.Mending && o.Class == core.ClassNodePort:
		g.wrong.WithLabelValues(faults[o.Came]).Inc()
		g.tell(o)
	case o.Mending:
	case o.Class == core.ClassClusterIP:
		cidr, ok := g.rangeOf(o.Value)
		if !ok {
			return // it is in no range that could have given it
		}
		by := g.ips
		if o.Came != alloc.Given {
			by = g.ipErrors
		}
		by.WithLabelValues(cidr, scope).Inc()
	case o.Class == core.ClassNodePort:
		by := g.ports
		if o.Came != alloc.Given {
			by = g.portErrors
		}
		by.WithLabelValues(scope).Inc()
	}
}

// faults are upstream's words for what was wrong with a value that an object has, by what came of mending it.
var faults = [...]string{alloc.Given: "repair", alloc.Another: "duplicate", alloc.Outside: "outOfRange", alloc.Nothing: "full", alloc.Leaked: "leak"}

// tell notes what was wrong with a node port at the Service that has it.
func (g *given) tell(o alloc.Outcome) {
	if o.Object == nil {
		return
	}
	events, ports := g.s.o.Events, cmp.Or(g.s.o.Settings[core.FlagNodePorts], core.DefaultNodePortRange)
	switch o.Came {
	case alloc.Given:
		events.Event(o.Object, corev1.EventTypeWarning, "PortNotAllocated", fmt.Sprintf("Port %s is not allocated; repairing", o.Value))
	case alloc.Another:
		events.Event(o.Object, corev1.EventTypeWarning, "PortAlreadyAllocated", fmt.Sprintf("Port %s was assigned to multiple services; please recreate service", o.Value))
	case alloc.Outside:
		events.Event(o.Object, corev1.EventTypeWarning, "PortOutOfRange", fmt.Sprintf("Port %s is not within the port range %s; please recreate service", o.Value, ports))
	case alloc.Nothing:
		events.Event(o.Object, corev1.EventTypeWarning, "PortRangeFull", fmt.Sprintf("Port range %s is full; you must widen the port range in order to create new services", ports))
	}
}

// rangeOf is the range of Services that an address is of.
func (g *given) rangeOf(address string) (string, bool) {
	ip, err := netip.ParseAddr(address)
	if err != nil {
		return "", false
	}
	ranges, offered := g.s.writes.Offered(core.ClassClusterIP)
	if !offered {
		ranges = strings.Split(cmp.Or(g.s.o.Settings[core.FlagServiceCIDR], core.DefaultServiceCIDR), ",")
	}
	for _, text := range ranges {
		if p, err := netip.ParsePrefix(strings.TrimSpace(text)); err == nil && p.Contains(ip) {
			return p.Masked().String(), true
		}
	}
	return "", false
}

// Describe is part of prometheus.Collector.
func (*given) Describe(out chan<- *prometheus.Desc) {
	out <- portsAllocated
	out <- portsAvailable
}

// Collect is part of prometheus.Collector. Nothing is said while it is not known which ports are taken.
func (g *given) Collect(out chan<- prometheus.Metric) {
	taken, known := g.s.writes.Taken(core.ClassNodePort)
	first, last, err := core.NodePortRange(g.s.o.Settings[core.FlagNodePorts])
	if !known || err != nil {
		return
	}
	out <- prometheus.MustNewConstMetric(portsAllocated, prometheus.GaugeValue, float64(taken))
	out <- prometheus.MustNewConstMetric(portsAvailable, prometheus.GaugeValue, float64(max(0, int(last-first)+1-taken)))
}
