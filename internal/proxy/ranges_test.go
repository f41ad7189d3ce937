package proxy

import (
	"net/netip"
	"strings"
	"testing"
)

func TestRulesFollowTheRangesOfClusterIPs(t *testing.T) {
	first, more := netip.MustParsePrefix("10.96.0.0/16"), netip.MustParsePrefix("10.97.0.0/24")
	m := NewModel(Config{NodeName: "n1", ServiceCIDRs: []netip.Prefix{first}})
	m.Commit()
	drops := func() (found []string) {
		step := m.Commit()
		for line := range strings.Lines(step.Tables[familyIndex("ip")].Text()) {
			if words := strings.Fields(line); len(words) == 4 && words[3] == "drop" {
				found = append(found, words[2])
			}
		}
		return found
	}
	for _, tc := range []struct {
		ranges []netip.Prefix
		want   string
	}{
		{[]netip.Prefix{first}, ""}, // nothing has changed
		{[]netip.Prefix{first, more}, "10.96.0.0/16 10.97.0.0/24"},
		{[]netip.Prefix{more}, "10.97.0.0/24"},
	} {
		m.SetServiceCIDRs(tc.ranges)
		if m.Dirty() != (tc.want != "") {
			t.Errorf("%v: there is something to do: got %v", tc.ranges, m.Dirty())
		}
		if got := strings.Join(drops(), " "); got != tc.want {
			t.Errorf("%v: got what nobody has dropped of %q, want %q", tc.ranges, got, tc.want)
		}
	}
}
