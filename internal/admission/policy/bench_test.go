package policy_test

import (
	"fmt"
	"log/slog"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/plane"
	"github.com/kemudi/kemudi/internal/sim"
)

// BenchmarkCreate measures what policies cost a write that all of them are asked about, and one
// that none of them is for.
func BenchmarkCreate(b *testing.B) {
	for _, q := range []struct {
		name     string
		policies int
		matches  bool
	}{{"without policies", 0, true}, {"100 policies", 100, true}, {"100 policies for others", 100, false}} {
		b.Run(q.name, func(b *testing.B) {
			c := &cluster{b, sim.Plane(b, plane.Options{Alone: true, Logger: slog.New(slog.DiscardHandler)})}
			resources := "configmaps"
			if !q.matches {
				resources = "secrets"
			}
			for i := range q.policies {
				for _, doc := range validatingFor(fmt.Sprintf("p%d", i), rule("CREATE, UPDATE", "", "v1", resources), `
  variables: [{name: labels, expression: "has(object.metadata.labels) ? object.metadata.labels : {}"}],
  validations: [{expression: "!('forbidden' in variables.labels)"}, {expression: "object.metadata.name.startsWith('m')", message: no}]`, deny) {
					if _, err := c.send("create", "", doc); err != nil {
						b.Fatal(err)
					}
				}
			}
			maps := client.For(c.p.Admin(), core.ConfigMaps)
			n := 0
			create := func() {
				n++
				if _, err := maps.Create(b.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprintf("m%d", n), Labels: map[string]string{"a": "b"}}}); err != nil {
					b.Fatal(err)
				}
			}
			create()
			b.ReportAllocs()
			for b.Loop() {
				create()
			}
		})
	}
}
