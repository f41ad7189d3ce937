package servicecidr

import (
	"strings"
	"testing"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kemudi/kemudi/internal/api/networking"
	"github.com/kemudi/kemudi/internal/resource"
)

// rangesOf reads "name=cidr,cidr"; a name in capitals is being deleted.
func rangesOf(text string) *networkingv1.ServiceCIDR {
	name, cidrs, _ := strings.Cut(text, "=")
	c := &networkingv1.ServiceCIDR{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: networkingv1.ServiceCIDRSpec{CIDRs: strings.Split(cidrs, ",")}}
	if name == strings.ToUpper(name) {
		c.DeletionTimestamp = &metav1.Time{Time: time.Now()}
	}
	return c
}

func TestRangesAreInUseWhileAnAddressIsInThemAlone(t *testing.T) {
	for _, tc := range []struct {
		name, others, addresses string
		want                    bool
	}{
		{"nobody has an address", "", "", false},
		{"a service has one", "", "10.0.0.7", true},
		{"of the second family", "", "fd00::7", true},
		{"beside it", "", "10.0.1.7 fd01::7", false},
		{"a client has taken one", "", "client/10.0.0.7", false},
		{"it is in another's too", "b=10.0.0.0/28", "10.0.0.7", false},
		{"one of two is", "b=10.0.0.0/28", "10.0.0.7 10.0.0.17", true},
		{"the other one goes as well", "B=10.0.0.0/16", "10.0.0.7", true},
		{"a wider one has all of a family", "b=10.0.0.0/16", "10.0.0.7 fd00::7", true},
		{"wider ones have all", "b=10.0.0.0/16 c=fd00::/16", "10.0.0.7 fd00::7", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := rangesOf("A=10.0.0.0/24,fd00::/112")
			all := []*networkingv1.ServiceCIDR{c}
			for _, text := range strings.Fields(tc.others) {
				all = append(all, rangesOf(text))
			}
			var addresses []*networkingv1.IPAddress
			for _, text := range strings.Fields(tc.addresses) {
				ip, client := strings.CutPrefix(text, "client/")
				a := networking.NewIPAddress(ip, resource.Holder{Resource: "services", Namespace: "default", Name: "web"})
				if client {
					a.Labels = nil
				}
				addresses = append(addresses, a)
			}
			if got := inUse(c, all, func() []*networkingv1.IPAddress { return addresses }); got != tc.want {
				t.Errorf("got %v, want %v", got, tc.want)
			}
		})
	}
}
