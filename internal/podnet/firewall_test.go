package podnet

import (
	"strings"
	"testing"

	"github.com/kemudi/kemudi/internal/podnet/nft"
)

func TestFirewallAdviceIsInTheCommandsOfTheFirewall(t *testing.T) {
	filter := func(f nft.Family) nft.Table { return nft.Table{Family: f, Name: "filter"} }
	for _, tc := range []struct {
		name  string
		gates []nft.Gate
		ufw   bool
		port  uint16
		want  string
	}{
		{"nftables.service", []nft.Gate{{Table: filter(nft.Inet), Chain: "forward"}, {Table: filter(nft.Inet), Chain: "input", Received: true}}, false, 0,
			"(inet filter forward, inet filter input): pods may be cut off. Let pass what comes from and goes to kemudi0: nft insert rule inet filter forward iifname kemudi0 accept; nft insert rule inet filter forward oifname kemudi0 accept; nft insert rule inet filter input iifname kemudi0 accept"},
		{"Docker", []nft.Gate{{Table: filter(nft.IPv4), Chain: "FORWARD"}}, false, 0,
			"kemudi0: iptables -I FORWARD -i kemudi0 -j ACCEPT; iptables -I FORWARD -o kemudi0 -j ACCEPT (with Docker in DOCKER-USER instead of FORWARD)"},
		{"ufw", []nft.Gate{{Table: filter(nft.IPv4), Chain: "INPUT", Received: true}, {Table: filter(nft.IPv4), Chain: "FORWARD"}, {Table: filter(nft.IPv6), Chain: "INPUT", Received: true}, {Table: filter(nft.IPv6), Chain: "FORWARD"}}, true, 0,
			"kemudi0: ufw allow in on kemudi0; ufw route allow in on kemudi0; ufw route allow out on kemudi0"},
		{"firewalld", []nft.Gate{{Table: nft.Table{Family: nft.Inet, Name: "firewalld"}, Chain: "filter_INPUT", Received: true}, {Table: nft.Table{Family: nft.Inet, Name: "firewalld"}, Chain: "filter_FORWARD"}}, false, 0,
			"kemudi0: firewall-cmd --permanent --zone=trusted --add-interface=kemudi0; firewall-cmd --reload"},
		{"iptables and VXLAN", []nft.Gate{{Table: filter(nft.IPv4), Chain: "INPUT", Received: true}}, false, 4789,
			"kemudi0: iptables -I INPUT -i kemudi0 -j ACCEPT; iptables -I INPUT -p udp --dport 4789 -j ACCEPT"},
		{"ufw and VXLAN", []nft.Gate{{Table: filter(nft.IPv4), Chain: "INPUT", Received: true}}, true, 4789,
			"kemudi0: ufw allow in on kemudi0; ufw allow 4789/udp"},
		{"firewalld and VXLAN", []nft.Gate{{Table: nft.Table{Family: nft.Inet, Name: "firewalld"}, Chain: "filter_INPUT", Received: true}}, false, 4789,
			"--add-interface=kemudi0; firewall-cmd --permanent --add-port=4789/udp; firewall-cmd --reload"},
		{"nftables.service and VXLAN", []nft.Gate{{Table: filter(nft.Inet), Chain: "input", Received: true}}, false, 4789,
			"accept; nft insert rule inet filter input udp dport 4789 accept"},
	} {
		if got := firewallAdvice(tc.gates, tc.ufw, "kemudi0", tc.port); !strings.HasSuffix(got, tc.want) {
			t.Errorf("%s: got %q, want at its end %q", tc.name, got, tc.want)
		}
	}
}
