package admission

import (
	"context"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// BenchmarkMeasured asks thirty plugins that do nothing: what it takes to measure them.
func BenchmarkMeasured(b *testing.B) {
	pass := func(context.Context, *Attributes) error { return nil }
	var plugins []Plugin
	for range 30 {
		plugins = append(plugins, Plugin{Name: string(rune('A' + len(plugins))), Mutate: pass})
	}
	plain := NewChain(plugins...)
	for name, c := range map[string]*Chain{"not": plain, "measured": plain.Measured(prometheus.NewRegistry())} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			a := &Attributes{Operation: Create}
			for b.Loop() {
				if err := c.Mutate(b.Context(), a); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
