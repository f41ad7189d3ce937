package dialback

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
)

// Scope is what servers may reach through a node's tunnel: the node's business,
// and nothing else that can be reached from there (T1).
type Scope struct {
	// NodeAgent is where the node's own agent is served: "127.0.0.1:10250".
	NodeAgent string
	// Pods are the addresses that the node gives to pods. It may be called concurrently.
	Pods func() []netip.Prefix
	// Host reports whether a pod in the node's own network serves at an address of
	// the node. Nil: there is none. It may be called concurrently.
	Host func(netip.AddrPort) bool

	// own are the addresses of this machine; nil: as the system says.
	own func() ([]netip.Addr, error)
}

// resolve returns what to connect to for an address that a server asks for.
func (s *Scope) resolve(asked string) (string, error) {
	if asked == NodeAgent {
		return s.NodeAgent, nil
	}
	to, err := netip.ParseAddrPort(asked)
	if err != nil {
		return "", fmt.Errorf("%q is not an address with a port", asked)
	}
	to = netip.AddrPortFrom(to.Addr().Unmap(), to.Port())
	if to.Port() == 0 || to.Addr().Zone() != "" || !to.Addr().IsGlobalUnicast() {
		return "", fmt.Errorf("%s is no address of a pod", to)
	}
	own := s.own
	if own == nil {
		own = machineAddresses
	}
	all, err := own()
	if err != nil {
		return "", err
	}
	if slices.Contains(all, to.Addr()) {
		if s.Host == nil || !s.Host(to) {
			return "", fmt.Errorf("no pod of this node is said to serve at %s", to)
		}
		return to.String(), nil
	}
	if !slices.ContainsFunc(s.Pods(), func(p netip.Prefix) bool { return p.Contains(to.Addr()) }) {
		return "", fmt.Errorf("%s is no address of this node's pods", to)
	}
	return to.String(), nil
}

// machineAddresses are those of this machine's links, the bridge of the pods included.
func machineAddresses() ([]netip.Addr, error) {
	found, err := net.InterfaceAddrs()
	if err != nil {
		return nil, fmt.Errorf("find out the addresses of this machine: %w", err)
	}
	var list []netip.Addr
	for _, a := range found {
		if p, err := netip.ParsePrefix(a.String()); err == nil {
			list = append(list, p.Addr().Unmap())
		}
	}
	return list, nil
}
