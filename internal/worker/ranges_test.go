package worker

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestServiceRangesAreThoseOfAllObjects(t *testing.T) {
	for _, tc := range []struct{ settings, objects, want string }{
		{"10.96.0.0/16", "", "[10.96.0.0/16]"}, // of older servers
		{"10.96.0.0/16", "10.96.0.0/16", "[10.96.0.0/16]"},
		{"fd00::/112,10.96.0.0/16", "10.96.0.0/16,fd00::/112", "[fd00::/112 10.96.0.0/16]"},
		{"10.96.0.0/16", "10.95.0.0/24 10.96.0.0/16,fd00::/112 10.95.0.0/24", "[10.96.0.0/16 10.95.0.0/24 fd00::/112]"},
		{"10.96.0.0/16", "10.97.0.0/16", "[10.97.0.0/16]"},
	} {
		var settings []netip.Prefix
		for text := range strings.SplitSeq(tc.settings, ",") {
			settings = append(settings, netip.MustParsePrefix(text))
		}
		var all []*networkingv1.ServiceCIDR
		for i, text := range strings.Fields(tc.objects) {
			all = append(all, &networkingv1.ServiceCIDR{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint(i)}, Spec: networkingv1.ServiceCIDRSpec{CIDRs: strings.Split(text, ",")}})
		}
		if got := fmt.Sprint(rangesOf(all, settings)); got != tc.want {
			t.Errorf("%s with %q: got %s, want %s", tc.settings, tc.objects, got, tc.want)
		}
	}
}
