// Package pool gives addresses out of ranges, as the balancers of a cloud without hardware
// for them need: values in, values out. Who has which address is kept by others.
package pool

import (
	"fmt"
	"net/netip"
	"strings"
)

// Pool is ranges of addresses: prefixes, or the first and the last of a range.
type Pool []Range

// Range is addresses from the first to the last.
type Range struct{ First, Last netip.Addr }

// Parse reads ranges: "192.0.2.0/28", "192.0.2.7" or "192.0.2.10-192.0.2.20".
func Parse(texts []string) (Pool, error) {
	var p Pool
	for _, text := range texts {
		r, err := parse(strings.TrimSpace(text))
		if err != nil {
			return nil, fmt.Errorf("addresses %q: %w", text, err)
		}
		p = append(p, r)
	}
	return p, nil
}

func parse(text string) (r Range, err error) {
	first, last, two := strings.Cut(text, "-")
	if !two && strings.Contains(text, "/") {
		prefix, err := netip.ParsePrefix(text)
		if err != nil {
			return r, err
		}
		return Range{prefix.Masked().Addr(), lastOf(prefix)}, nil
	}
	if r.First, err = netip.ParseAddr(strings.TrimSpace(first)); err != nil || !two {
		r.Last = r.First
		return r, err
	}
	if r.Last, err = netip.ParseAddr(strings.TrimSpace(last)); err != nil {
		return r, err
	}
	if r.First.Is4() != r.Last.Is4() || r.Last.Less(r.First) {
		return r, fmt.Errorf("%s does not come before %s", r.First, r.Last)
	}
	return r, nil
}

func lastOf(p netip.Prefix) netip.Addr {
	b := p.Masked().Addr().AsSlice()
	for i := p.Bits(); i < len(b)*8; i++ {
		b[i/8] |= 1 << (7 - i%8)
	}
	a, _ := netip.AddrFromSlice(b)
	return a
}

// Contains says whether an address is of the pool.
func (p Pool) Contains(a netip.Addr) bool {
	for _, r := range p {
		if a.Is4() == r.First.Is4() && !a.Less(r.First) && !r.Last.Less(a) {
			return true
		}
	}
	return false
}

// Free is the first address of a family that is not taken; ok is false if all are.
func (p Pool) Free(six bool, taken func(netip.Addr) bool) (a netip.Addr, ok bool) {
	for _, r := range p {
		if r.First.Is6() != six {
			continue
		}
		for a = r.First; a.IsValid() && !r.Last.Less(a); a = a.Next() {
			if !taken(a) {
				return a, true
			}
		}
	}
	return netip.Addr{}, false
}
