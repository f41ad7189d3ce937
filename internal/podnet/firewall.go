package podnet

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/kemudi/kemudi/internal/podnet/nft"
)

// inspectFirewall tells of chains that drop what pods send and get: their rules
// are not ours to change, and no rule of ours is any help.
func (n *Network) inspectFirewall() {
	gates, err := n.conn.Gates()
	if err != nil {
		n.o.Log.Warn("cannot look at the firewall of this machine", "err", err)
		return
	}
	gates = slices.DeleteFunc(gates, func(g nft.Gate) bool {
		return !slices.ContainsFunc(n.o.PodCIDRs, func(c netip.Prefix) bool {
			return g.Table.Family == nft.Inet || c.Addr().Is4() == (g.Table.Family == nft.IPv4)
		})
	})
	ufw := false
	if chains, err := n.conn.Chains(nft.Table{Family: nft.IPv4, Name: "filter"}); err == nil {
		ufw = slices.Contains(chains, "ufw-user-forward")
	}
	port := n.Routes.vxlanPort()
	found := gateNames(gates)
	if found != "" && port != 0 {
		found = fmt.Sprintf("%s, UDP port %d", found, port)
	}
	if found != "" && found != n.firewall {
		n.o.Log.Warn("the firewall of this machine drops what no rule of it allows: pods may be cut off", "chains", found, "bridge", n.o.Bridge)
		n.o.Trouble(firewallAdvice(gates, ufw, n.o.Bridge, port))
	}
	n.firewall = found
}

func gateNames(gates []nft.Gate) string {
	var names []string
	for _, g := range gates {
		names = append(names, g.String())
	}
	return strings.Join(names, ", ")
}

// firewallAdvice says what to do about gates that pods cannot pass, in the commands
// of whatever wrote them. The pods behind a bridge are forwarded, and reach the
// machine itself for DNS and the API; what other nodes send by VXLAN comes to a port
// of the machine (0: none does).
func firewallAdvice(gates []nft.Gate, ufw bool, bridge string, port uint16) string {
	var commands []string
	do := func(format string, args ...any) {
		if c := fmt.Sprintf(format, args...); !slices.Contains(commands, c) {
			commands = append(commands, c)
		}
	}
	docker := ""
	for _, g := range gates {
		iptables := g.Table.Name == "filter" && g.Chain == strings.ToUpper(g.Chain)
		switch {
		case g.Table.Name == "firewalld":
			do("firewall-cmd --permanent --zone=trusted --add-interface=%s", bridge)
			if port != 0 {
				do("firewall-cmd --permanent --add-port=%d/udp", port)
			}
			do("firewall-cmd --reload")
		case iptables && ufw && g.Received:
			do("ufw allow in on %s", bridge)
			if port != 0 {
				do("ufw allow %d/udp", port)
			}
		case iptables && ufw:
			do("ufw route allow in on %s", bridge)
			do("ufw route allow out on %s", bridge)
		case iptables && g.Table.Family == nft.IPv6:
			do("ip6tables -I %s -i %s -j ACCEPT", g.Chain, bridge)
			if g.Received && port != 0 {
				do("ip6tables -I %s -p udp --dport %d -j ACCEPT", g.Chain, port)
			}
			if !g.Received {
				do("ip6tables -I %s -o %s -j ACCEPT", g.Chain, bridge)
			}
		case iptables:
			do("iptables -I %s -i %s -j ACCEPT", g.Chain, bridge)
			if g.Received && port != 0 {
				do("iptables -I %s -p udp --dport %d -j ACCEPT", g.Chain, port)
			}
			if !g.Received {
				do("iptables -I %s -o %s -j ACCEPT", g.Chain, bridge)
				docker = " (with Docker in DOCKER-USER instead of FORWARD)"
			}
		default:
			do("nft insert rule %s iifname %s accept", g, bridge)
			if g.Received && port != 0 {
				do("nft insert rule %s udp dport %d accept", g, port)
			}
			if !g.Received {
				do("nft insert rule %s oifname %s accept", g, bridge)
			}
		}
	}
	return fmt.Sprintf("The firewall of this machine drops what no rule of it allows (%s): pods may be cut off. Let pass what comes from and goes to %s: %s%s", gateNames(gates), bridge, strings.Join(commands, "; "), docker)
}
