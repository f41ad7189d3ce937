package apiserver

import (
	"fmt"
	"testing"
	"time"
)

// BenchmarkCreateService is what a Service with an address of its own costs, by how many there are in
// its namespace.
func BenchmarkCreateService(b *testing.B) {
	for _, before := range []int{0, 29_000} {
		b.Run(fmt.Sprint(before), func(b *testing.B) {
			f := newFixture(b)
			for i := range before {
				f.must(201, "POST", servicesPath, serviceAt(fmt.Sprint("before-", i), ""))
			}
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				f.must(201, "POST", servicesPath, serviceAt(fmt.Sprint("s-", i), ""))
				i++
			}
		})
	}
}

// BenchmarkThirtyThousandServices creates as many in one namespace, and compares the last thousand with
// the first.
func BenchmarkThirtyThousandServices(b *testing.B) {
	for b.Loop() {
		f := newFixture(b)
		var took []time.Duration
		for range 30 {
			began := time.Now()
			for i := range 1000 {
				f.must(201, "POST", servicesPath, serviceAt(fmt.Sprintf("s-%d-%d", len(took), i), ""))
			}
			took = append(took, time.Since(began))
		}
		b.ReportMetric(float64(took[29])/float64(took[0]), "last/first")
	}
}
