package usage

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/kemudi/kemudi/internal/kubelet/cgroup"
)

// pressureOn is how long tasks of a cgroup have waited for a resource; nil: the kernel does not tell.
func pressureOn(v cgroup.Values, file string) *stats.PSIStats {
	if _, ok := v[file+" some total"]; !ok {
		return nil
	}
	of := func(who string) stats.PSIData {
		percent := func(over string) float64 { return float64(v[file+" "+who+" "+over]) / 100 }
		return stats.PSIData{Total: v[file+" "+who+" total"] * 1000, Avg10: percent("avg10"), Avg60: percent("avg60"), Avg300: percent("avg300")}
	}
	return &stats.PSIStats{Some: of("some"), Full: of("full")}
}

// addPressure adds it to what is told of CPU, memory, and reads and writes.
func addPressure(v cgroup.Values, cpu *stats.CPUStats, memory *stats.MemoryStats, now metav1.Time) (io *stats.IOStats) {
	if cpu != nil {
		cpu.PSI = pressureOn(v, "cpu.pressure")
	}
	if memory != nil {
		memory.PSI = pressureOn(v, "memory.pressure")
	}
	if psi := pressureOn(v, "io.pressure"); psi != nil {
		return &stats.IOStats{Time: now, PSI: psi}
	}
	return nil
}
