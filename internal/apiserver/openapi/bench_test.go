//go:build !race

package openapi

import "testing"

// BenchmarkDocuments makes documents that are made once, when somebody asks.
func BenchmarkDocuments(b *testing.B) {
	for _, c := range []struct{ name, document, mediaType string }{
		{"v2", swaggerName, asJSON}, {"v2 protobuf", swaggerName, proto2}, {"core", "api/v1", asJSON}, {"core protobuf", "api/v1", proto3}, {"node", "apis/node.k8s.io/v1", asJSON},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			var size, plain int
			for b.Loop() {
				s := anew()
				data, err := s.document(c.document, c.mediaType)
				if err != nil {
					b.Fatal(err)
				}
				size = len(data)
			}
			plain = len(written(b, anew(), c.document))
			b.ReportMetric(float64(size), "compressed-bytes")
			b.ReportMetric(float64(plain), "JSON-bytes")
		})
	}
	b.Run("list of all", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			anew().layout()
		}
	})
}
