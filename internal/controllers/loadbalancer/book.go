package loadbalancer

import (
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
)

// A book has who has which address and port. It is written by one goroutine; which keys wait, and
// which there are, may be asked concurrently.
type book struct {
	// now is what a Service wants as the cache has it; ok is false if it is none of ours any more.
	now func(key string) (a ask, ok bool)

	tenants map[string]*tenant
	at      map[netip.Addr]map[string]bool // the keys of who has an address
	places  map[place]string               // who has a port of it

	mu struct {
		sync.Mutex
		known   map[string]bool            // keys of tenants and of who waits; true: it depends on endpoints
		waiting map[string]map[string]bool // who waits for a key's addresses
		short   map[string]bool            // who waits for any address
	}
}

// place is a port of an address.
type place struct {
	addr netip.Addr
	port
}

// A tenant is a Service that has addresses.
type tenant struct {
	ask   ask
	addrs []netip.Addr
}

func newBook() *book {
	b := &book{}
	b.clear()
	return b
}

// clear forgets everything.
func (b *book) clear() {
	b.tenants, b.at, b.places = map[string]*tenant{}, map[netip.Addr]map[string]bool{}, map[place]string{}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mu.known, b.mu.waiting, b.mu.short = map[string]bool{}, map[string]map[string]bool{}, map[string]bool{}
}

// note has a Service known, and waiting for nobody.
func (b *book) note(a *ask) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mu.known[a.key] = a.local
	b.calmLocked(a.key)
}

func (b *book) calmLocked(key string) {
	delete(b.mu.short, key)
	for holder, keys := range b.mu.waiting {
		if delete(keys, key); len(keys) == 0 {
			delete(b.mu.waiting, holder)
		}
	}
}

// forget forgets a Service, and what it has.
func (b *book) forget(key string) {
	b.drop(key)
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.mu.known, key)
	b.calmLocked(key)
}

// wait notes that a Service waits for what another has; for any address, if that is empty.
func (b *book) wait(key, holder string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if holder == "" {
		b.mu.short[key] = true
		return
	}
	if b.mu.waiting[holder] == nil {
		b.mu.waiting[holder] = map[string]bool{}
	}
	b.mu.waiting[holder][key] = true
}

// keys are those that are known.
func (b *book) keys() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Collect(maps.Keys(b.mu.known))
}

// dependsOnEndpoints says that a change of a Service's endpoints matters.
func (b *book) dependsOnEndpoints(key string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.mu.known[key]
}

// waitersOf are the keys that wait for what a Service has (B3).
func (b *book) waitersOf(key string) []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, known := b.mu.known[key]; !known {
		return nil
	}
	out := slices.AppendSeq([]string(nil), maps.Keys(b.mu.short))
	return slices.AppendSeq(out, maps.Keys(b.mu.waiting[key]))
}

// drop takes all addresses from a Service.
func (b *book) drop(key string) {
	t := b.tenants[key]
	if t == nil {
		return
	}
	delete(b.tenants, key)
	for _, addr := range t.addrs {
		if delete(b.at[addr], key); len(b.at[addr]) == 0 {
			delete(b.at, addr)
		}
		for _, p := range t.ask.ports {
			if b.places[place{addr, p}] == key {
				delete(b.places, place{addr, p})
			}
		}
	}
}

// give gives a Service addresses, and takes from it those that it had.
func (b *book) give(a ask, addrs []netip.Addr) {
	b.drop(a.key)
	if len(addrs) == 0 {
		return
	}
	b.tenants[a.key] = &tenant{a, addrs}
	for _, addr := range addrs {
		if b.at[addr] == nil {
			b.at[addr] = map[string]bool{}
		}
		b.at[addr][a.key] = true
		for _, p := range a.ports {
			if _, taken := b.places[place{addr, p}]; !taken {
				b.places[place{addr, p}] = a.key
			}
		}
	}
}

// current brings what the book has of a Service to what the cache has: its own turn may come later.
func (b *book) current(key string) *tenant {
	t := b.tenants[key]
	if t == nil {
		return nil
	}
	a, ok := b.now(key)
	if !ok {
		b.drop(key)
		return nil
	}
	if !slices.Equal(a.ports, t.ask.ports) {
		b.give(a, t.addrs)
	}
	b.tenants[key].ask = a
	return b.tenants[key]
}

// holder is who keeps an ask from a port of an address; empty: nobody.
func (b *book) holder(a *ask, addr netip.Addr) (key string, at port) {
	for _, p := range a.ports {
		for {
			key, ok := b.places[place{addr, p}]
			if !ok || key == a.key {
				break
			}
			if t := b.current(key); t != nil && slices.Contains(t.ask.ports, p) {
				return key, p
			}
		}
	}
	return "", port{}
}

// rival is who keeps an ask from an address of a pool, and why; nil: nobody does.
func (b *book) rival(a *ask, addr netip.Addr) (key string, why *problem) {
	for _, key := range slices.Sorted(maps.Keys(b.at[addr])) {
		if key == a.key {
			continue
		}
		t := b.current(key)
		if t == nil {
			continue
		}
		if a.sharing == "" || a.sharing != t.ask.sharing {
			return key, problemf("AddressInUse", "%s is that of Service %s; to share it both need the same annotation %s", addr, key, AnnotationSharing)
		}
		if p, clash := overlap(a.ports, t.ask.ports); clash {
			return key, problemf("PortConflict", "port %s of %s is that of Service %s", p, addr, key)
		}
		if (a.local || t.ask.local) && (a.local != t.ask.local || a.backends != t.ask.backends) {
			return key, problemf("AddressInUse", "%s is that of Service %s: with externalTrafficPolicy Local only Services of the same pods may share it", addr, key)
		}
	}
	return "", nil
}

// A verdict is what a Service gets. Addresses and a problem at once: there could be more.
type verdict struct {
	addrs   []netip.Addr
	pooled  bool // they are of pools: some node is to answer for them
	problem *problem
}

// onNodes decides about a Service that is to have the addresses of nodes; needed says what a node
// itself needs a port for.
func (b *book) onNodes(a ask, at []spot, needed func(spot, port) string) verdict {
	b.note(&a)
	var v verdict
	for _, s := range at {
		if why := neededBy(a.ports, s, needed); why != "" {
			v.problem = problemf("PortConflict", "%s: choose another port, or give it an address of a pool (--load-balancer)", why)
			continue
		}
		if key, p := b.holder(&a, s.addr); key != "" {
			b.wait(a.key, key)
			v.problem = problemf("PortConflict", "port %s of node %s is that of Service %s", p, s.node, key)
			continue
		}
		v.addrs = append(v.addrs, s.addr)
	}
	b.give(a, v.addrs)
	return v
}

func neededBy(ports []port, s spot, needed func(spot, port) string) string {
	for _, p := range ports {
		if why := needed(s, p); why != "" {
			return why
		}
	}
	return ""
}

// ofPools decides about a Service that is to have addresses of pools, of those in order.
func (b *book) ofPools(a ask, pools []source) verdict {
	b.note(&a)
	var had []netip.Addr
	if t := b.tenants[a.key]; t != nil {
		had = t.addrs
	}
	v := verdict{pooled: true}
	for i, family := range a.families {
		addr, why := b.choose(&a, pools, family, had)
		if why != nil && i > 0 && !a.both && len(v.addrs) > 0 {
			break // PreferDualStack
		}
		if why != nil {
			v = verdict{problem: why}
			break
		}
		v.addrs = append(v.addrs, addr)
	}
	b.give(a, v.addrs)
	return v
}

// choose is an address of one family: what is asked for, what the Service has (B2), one to share, or
// the first that is free.
func (b *book) choose(a *ask, pools []source, family corev1.IPFamily, had []netip.Addr) (netip.Addr, *problem) {
	named := pools[:1]
	if a.pool != "" {
		i := slices.IndexFunc(pools, func(s source) bool { return s.name == a.pool })
		if i < 0 {
			return netip.Addr{}, problemf("NoAddressPool", "there is no pool %q (--load-balancer)", a.pool)
		}
		named = pools[i : i+1]
	}
	from := named[0]
	if i := slices.IndexFunc(a.addrs, func(addr netip.Addr) bool { return familyOf(addr) == family }); i >= 0 {
		addr := a.addrs[i]
		if a.pool == "" {
			named = pools
		}
		if !slices.ContainsFunc(named, func(s source) bool { return s.pool.Contains(addr) }) {
			return addr, problemf("InvalidAddress", "%s is in no pool that it may be of", addr)
		}
		return addr, b.waits(a, addr)
	}
	for _, addr := range had {
		if _, why := b.rival(a, addr); familyOf(addr) == family && from.pool.Contains(addr) && why == nil {
			return addr, nil
		}
	}
	if addr, ok := b.shared(a, &from, family); ok {
		return addr, nil
	}
	addr, ok := from.pool.Free(family == corev1.IPv6Protocol, func(addr netip.Addr) bool { return b.taken(a, addr) })
	if !ok {
		b.wait(a.key, "")
		return addr, problemf("AddressPoolExhausted", "no %s address is left in pool %s", family, from.name)
	}
	return addr, nil
}

// waits is why an ask cannot have an address; it then waits for it.
func (b *book) waits(a *ask, addr netip.Addr) *problem {
	key, why := b.rival(a, addr)
	if why != nil {
		b.wait(a.key, key)
	}
	return why
}

// taken says that somebody else has an address, whether or not it could be shared.
func (b *book) taken(a *ask, addr netip.Addr) bool {
	for key := range b.at[addr] {
		if key != a.key && b.current(key) != nil {
			return true
		}
	}
	return false
}

// shared is the lowest address of a pool that an ask may share.
func (b *book) shared(a *ask, from *source, family corev1.IPFamily) (best netip.Addr, ok bool) {
	if a.sharing == "" {
		return best, false
	}
	for _, t := range b.tenants {
		if t.ask.sharing != a.sharing || t.ask.key == a.key {
			continue
		}
		for _, addr := range t.addrs {
			if familyOf(addr) != family || !from.pool.Contains(addr) || ok && !addr.Less(best) {
				continue
			}
			if _, why := b.rival(a, addr); why == nil {
				best, ok = addr, true
			}
		}
	}
	return best, ok
}

// text is what addresses are told by.
func text(addrs []netip.Addr) string {
	var all []string
	for _, a := range addrs {
		all = append(all, a.String())
	}
	return strings.Join(all, ", ")
}
