package endpointslice

import (
	"fmt"
	"strings"
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kemudi/kemudi/internal/trace"
)

// TestSlicesChangeAsLittleAsPossible names endpoints by letters: "abc de" is two
// slices. "x" after an endpoint says that something about it has changed.
func TestSlicesChangeAsLittleAsPossible(t *testing.T) {
	for _, c := range []struct {
		name, has, want string
		limit           int
		plan            string
		proves          string
	}{
		{"nothing to do", "abc de", "abcde", 3, "", ""},
		{"the first endpoints", "", "abcde", 3, "create abc; create de", ""},
		{"no endpoints yet", "", "", 3, "create -", ""},
		{"one goes", "abc de", "acde", 3, "update 0 ac", "EPS-031"},
		{"one changes", "abc de", "abx cde", 3, "update 0 abxc", "EPS-031"},
		{"one goes, one comes: the changed slice takes it", "abc de", "acdef", 3, "update 0 acf", "EPS-032"},
		{"one comes: the fullest slice with room takes it", "ab c", "abcd", 3, "update 0 abd", "EPS-033"},
		{"two come: one slice takes both", "ab c", "abcde", 3, "update 1 cde", "EPS-035"},
		{"ten come, two slices have room for five each", "abcde fghij", "abcdefghijklmnopqrst", 10, "create klmnopqrst", "EPS-034"},
		{"more come than a changed slice takes", "abc", "abdefgh", 3, "update 0 abd; create efg; create h", "EPS-033"},
		{"a slice that is empty goes", "abc de", "abc", 3, "delete 1", ""},
		{"the last endpoint goes: an empty slice stays", "ab c", "", 3, "update 0 -; delete 1", ""},
		{"half empty slices are not put together", "a b c", "abc", 3, "", "EPS-030"},
		{"all are replaced", "abc d", "efgh", 3, "update 0 efg; update 1 h", "EPS-037"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := planner{
				limit: c.limit,
				blank: func(*group) *discoveryv1.EndpointSlice { return &discoveryv1.EndpointSlice{} },
			}
			var existing []*discoveryv1.EndpointSlice
			for i, s := range strings.Fields(c.has) {
				existing = append(existing, &discoveryv1.EndpointSlice{
					ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint(i)}, AddressType: discoveryv1.AddressTypeIPv4, Endpoints: letters(s),
				})
			}
			ch := p.plan([]*group{{family: discoveryv1.AddressTypeIPv4, endpoints: letters(strings.ReplaceAll(c.want, " ", ""))}}, existing)
			var got []string
			for _, s := range ch.update {
				got = append(got, "update "+s.Name+" "+text(s.Endpoints))
			}
			for _, s := range ch.create {
				got = append(got, "create "+text(s.Endpoints))
			}
			for _, s := range ch.delete {
				got = append(got, "delete "+s.Name)
			}
			if c.proves != "" {
				trace.Proves(t, c.proves)
			}
			if plan := strings.Join(got, "; "); plan != c.plan {
				t.Errorf("from %q to %q: got %q, want %q", c.has, c.want, plan, c.plan)
			}
		})
	}
}

func letters(s string) []discoveryv1.Endpoint {
	var out []discoveryv1.Endpoint
	for _, l := range s {
		if l == 'x' {
			out[len(out)-1].Conditions.Ready = new(true)
			continue
		}
		out = append(out, discoveryv1.Endpoint{Addresses: []string{string(l)}})
	}
	return out
}

func text(endpoints []discoveryv1.Endpoint) string {
	var b strings.Builder
	for i := range endpoints {
		b.WriteString(endpoints[i].Addresses[0])
		if endpoints[i].Conditions.Ready != nil {
			b.WriteByte('x')
		}
	}
	if b.Len() == 0 {
		return "-"
	}
	return b.String()
}
