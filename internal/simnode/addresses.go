package simnode

import (
	"encoding/binary"
	"errors"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
)

const (
	shareBits = 12                // how many bits of an IPv4 address a node has for itself, unless the cluster is large
	smallBits = 8                 // and if it is
	first4    = 10<<24 | 1<<16    // 10.1.0.0, as a number
	first6    = 0xfd00_0001 << 32 // fd00:1::/64, the upper half as a number

	// MaxNodes is how many nodes have addresses, from 10.1.0.0 to where services begin, 10.96.0.0.
	MaxNodes = 95 << (16 - shareBits)
	// MaxSmallNodes is how many there may be with Small addresses.
	MaxSmallNodes = 95 << (16 - smallBits)
)

var errNoAddress = errors.New("the simulated node has no address left for another pod")

// Addresses are a node's share of what pods are reached at. It follows from the
// node's number alone: nobody need have given the node a range.
type Addresses struct {
	Node  int
	Dual  bool // pods have addresses of both families
	Small bool // the share has 254 addresses in place of 4,094, of all nodes alike
	given int
}

func (a *Addresses) bits() int {
	if a.Small {
		return smallBits
	}
	return shareBits
}

// next is the address of a new pod, one of each family. They come in turn, and
// again when the share has been used up or the node was started again: taken says which of them still are.
func (a *Addresses) next(taken func(ip string) bool) ([]corev1.PodIP, error) {
	share := 1<<a.bits() - 2 // all but the first and the last
	for range share {
		ip := a.four(a.given%share + 1)
		a.given++
		if taken(ip) {
			continue
		}
		ips := []corev1.PodIP{{IP: ip}}
		if a.Dual {
			ips = append(ips, corev1.PodIP{IP: a.six(a.given)})
		}
		return ips, nil
	}
	return nil, errNoAddress
}

func (a *Addresses) four(n int) string {
	var b [4]byte
	binary.BigEndian.PutUint32(b[:], uint32(first4+a.Node<<a.bits()+n))
	return netip.AddrFrom4(b).String()
}

func (a *Addresses) six(n int) string {
	var b [16]byte
	binary.BigEndian.PutUint64(b[:8], first6+uint64(a.Node))
	binary.BigEndian.PutUint64(b[8:], uint64(n))
	return netip.AddrFrom16(b).String()
}
