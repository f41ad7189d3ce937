package endpoints

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// TestSubsetsShareTheRoomThatThereIs names subsets by how many addresses they have that are ready,
// and that are not: the API takes none that has neither.
func TestSubsetsShareTheRoomThatThereIs(t *testing.T) {
	for _, c := range []struct {
		name, has, want string
		over            bool
	}{
		{"all have room", "600/100 300/0", "600/100 300/0", false},
		{"more than there is room for", "1500/0", "1000/0", true},
		{"two subsets", "1500/0 500/0", "750/0 250/0", true},
		{"what is not ready goes first", "900/300 50/100", "900/38 50/12", true},
		{"and has no room if ready ones have none", "1000/200 0/50", "1000/0", true},
		{"small subsets keep something", "3000/0 1/0 1/0", "1000/0", true},
		{"of which the first come first", "1/0 3000/0 1/0", "1/0 999/0", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			var subsets []corev1.EndpointSubset
			for _, text := range strings.Fields(c.has) {
				var ready, others int
				if _, err := fmt.Sscanf(text, "%d/%d", &ready, &others); err != nil {
					t.Fatal(err)
				}
				subsets = append(subsets, corev1.EndpointSubset{
					Addresses: make([]corev1.EndpointAddress, ready), NotReadyAddresses: make([]corev1.EndpointAddress, others),
				})
			}
			kept, over := truncate(subsets)
			var got []string
			for _, s := range kept {
				got = append(got, fmt.Sprintf("%d/%d", len(s.Addresses), len(s.NotReadyAddresses)))
			}
			if text := strings.Join(got, " "); text != c.want || over != c.over {
				t.Errorf("of %s: got %s (over capacity: %t), want %s (%t)", c.has, text, over, c.want, c.over)
			}
		})
	}
}
