package sim

import (
	"encoding/binary"
	"errors"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
)

const (
	shareBits = 12                // how many bits of an IPv4 address a node has for itself
	perNode   = 1<<shareBits - 2  // addresses of its share, but the first and the last
	maxNodes  = 95 << 4           // shares from 10.1.0.0 to where services begin, 10.96.0.0
	first4    = 10<<24 | 1<<16    // 10.1.0.0, as a number
	first6    = 0xfd00_0001 << 32 // fd00:1::/64, the upper half as a number
)

var errNoAddress = errors.New("the simulated node has no address left for another pod")

// addresses is a node's share of what pods are reached at. It follows from the
// node's number alone: nobody need have given the node a range.
type addresses struct {
	node  int
	dual  bool // pods have addresses of both families
	given int
}

// next is the address of a new pod, one of each family. They come in turn, and
// again only when the share has been used up: taken says which of them still are.
func (a *addresses) next(taken func(ip string) bool) ([]corev1.PodIP, error) {
	for range perNode {
		ip := a.four(a.given%perNode + 1)
		again := a.given >= perNode
		a.given++
		if again && taken(ip) {
			continue
		}
		ips := []corev1.PodIP{{IP: ip}}
		if a.dual {
			ips = append(ips, corev1.PodIP{IP: a.six(a.given)})
		}
		return ips, nil
	}
	return nil, errNoAddress
}

func (a *addresses) four(n int) string {
	var b [4]byte
	binary.BigEndian.PutUint32(b[:], uint32(first4+a.node<<shareBits+n))
	return netip.AddrFrom4(b).String()
}

func (a *addresses) six(n int) string {
	var b [16]byte
	binary.BigEndian.PutUint64(b[:8], first6+uint64(a.node))
	binary.BigEndian.PutUint64(b[8:], uint64(n))
	return netip.AddrFrom16(b).String()
}
