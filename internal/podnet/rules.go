package podnet

import (
	"context"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/kemudi/kemudi/internal/podnet/nft"
)

// table is ours alone, as is that of frames. The proxy has tables of its own.
var table = nft.Table{Family: nft.Inet, Name: "kemudi-podnet"}

// writeRules makes the table anew, in one transaction.
func writeRules(ctx context.Context, conn *nft.Conn, o *Options) error {
	var b nft.Batch
	b.AddTable(table) // so that the deletion cannot fail
	b.DelTable(table)
	b.AddTable(table)
	masqueradeRules(&b, o)
	localnetRules(&b)
	redirectRules(&b, o)
	if err := conn.Commit(ctx, &b); err != nil {
		return fmt.Errorf("write rules of the pod network: %w", err)
	}
	return nil
}

// masqueradeRules give what pods send out of the cluster the node's address.
func masqueradeRules(b *nft.Batch, o *Options) {
	const chain = "postrouting"
	b.AddChain(table, chain, &nft.Hook{Type: "nat", Num: unix.NF_INET_POST_ROUTING, Priority: 100})
	for _, pods := range o.PodCIDRs {
		f, proto, multicast := nft.IPv4, byte(unix.NFPROTO_IPV4), netip.MustParsePrefix("224.0.0.0/4")
		if pods.Addr().Is6() {
			f, proto, multicast = nft.IPv6, byte(unix.NFPROTO_IPV6), netip.MustParsePrefix("ff00::/8")
		}
		rule := []nft.Expr{nft.Meta(unix.NFT_META_NFPROTO, nft.R0), nft.Equal(nft.R0, []byte{proto})}
		rule = append(rule, nft.SourceAddr(f, nft.R0))
		rule = append(rule, nft.InPrefix(nft.R0, pods)...)
		inside := []netip.Prefix{pods, multicast}
		for _, c := range append(inside, o.ClusterCIDRs...) {
			if c.Addr().Is4() == pods.Addr().Is4() {
				rule = append(append(rule, nft.DestinationAddr(f, nft.R0)), nft.NotInPrefix(nft.R0, c)...)
			}
		}
		b.AddRule(table, chain, append(rule, nft.Masquerade())...)
	}
}

// localnetRules drop what comes in from outside with a loopback address: the
// kernel no longer does, with route_localnet set (CVE-2020-8558).
func localnetRules(b *nft.Batch) {
	const chain = "prerouting"
	b.AddChain(table, chain, &nft.Hook{Type: "filter", Num: unix.NF_INET_PRE_ROUTING, Priority: -300})
	loopback := netip.MustParsePrefix("127.0.0.0/8")
	for _, load := range []nft.Expr{nft.SourceAddr(nft.IPv4, nft.R0), nft.DestinationAddr(nft.IPv4, nft.R0)} {
		rule := append(nft.NotInInterface("lo", nft.R0), nft.Meta(unix.NFT_META_NFPROTO, nft.R0), nft.Equal(nft.R0, []byte{unix.NFPROTO_IPV4}), load)
		b.AddRule(table, chain, append(append(rule, nft.InPrefix(nft.R0, loopback)...), nft.Do(nft.Drop, ""))...)
	}
}

// redirectRules keep the node from telling pods of a shorter way to their
// neighbours. IPv6 has no sysctl for that.
func redirectRules(b *nft.Batch, o *Options) {
	const (
		chain    = "output"
		redirect = 137 // ICMPv6 type
	)
	b.AddChain(table, chain, &nft.Hook{Type: "filter", Num: unix.NF_INET_LOCAL_OUT})
	rule := append(nft.OutInterface(o.Bridge, nft.R0), nft.TransportProto(nft.R0), nft.Equal(nft.R0, []byte{unix.IPPROTO_ICMPV6}))
	rule = append(rule, nft.TransportHeader(nft.R0, 0, 1), nft.Equal(nft.R0, []byte{redirect}), nft.Do(nft.Drop, ""))
	b.AddRule(table, chain, rule...)
}
