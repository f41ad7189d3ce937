package dns

import "github.com/prometheus/client_golang/prometheus"

// counters has the names of CoreDNS' plugins where it is the same thing.
type counters struct {
	failed prometheus.Counter
}

func newCounters(registers ...prometheus.Registerer) *counters {
	c := &counters{
		failed: prometheus.NewCounter(prometheus.CounterOpts{Name: "coredns_reload_failed_total", Help: "Corefiles that could not be used."}),
	}
	for _, r := range registers {
		if r != nil {
			r.MustRegister(c.failed)
		}
	}
	return c
}
