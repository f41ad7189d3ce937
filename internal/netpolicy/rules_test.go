package netpolicy

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/kemudi/kemudi/internal/podnet/nft"
	"github.com/kemudi/kemudi/internal/podnet/nft/table"
)

// image is what the kernel holds after some changes, and does with packets: it runs the
// statements of the rules.
type image struct {
	t      testing.TB
	tables [len(families)]struct {
		sets   map[*table.Set]bool
		elems  map[table.ID]string
		chains map[string]table.Chain
	}
}

func newImage(t testing.TB) *image {
	im := &image{t: t}
	im.clear()
	return im
}

func (im *image) clear() {
	for i := range im.tables {
		im.tables[i].sets, im.tables[i].elems, im.tables[i].chains = map[*table.Set]bool{}, map[table.ID]string{}, map[string]table.Chain{}
	}
}

// apply makes changes, and fails the test where the kernel would refuse them.
func (im *image) apply(changes []table.Changes) {
	im.t.Helper()
	for i := range changes {
		c, to := &changes[i], &im.tables[i]
		if c.Full {
			to.sets, to.elems, to.chains = map[*table.Set]bool{}, map[table.ID]string{}, map[string]table.Chain{}
		}
		for _, s := range c.Sets {
			to.sets[s] = true
		}
		for _, e := range c.Del {
			if v, ok := to.elems[e.ID]; !ok || v != e.Value {
				im.t.Fatalf("deletes @%s %s, which is not there", e.Set.Name, e)
			}
			delete(to.elems, e.ID)
		}
		for _, e := range c.Add {
			if _, ok := to.elems[e.ID]; ok || !to.sets[e.Set] {
				im.t.Fatalf("adds @%s %s: it is there, or the set is not", e.Set.Name, e)
			}
			to.elems[e.ID] = e.Value
		}
		for _, ch := range c.Chains {
			to.chains[ch.Name] = ch
		}
		for _, name := range c.DelChains {
			delete(to.chains, name)
		}
		for _, s := range c.DelSets {
			for id := range to.elems {
				if id.Set == s {
					im.t.Fatalf("deletes set %s, which has elements", s.Name)
				}
			}
			delete(to.sets, s)
		}
		im.sound(i)
	}
}

// sound checks that nothing refers to what is not there.
func (im *image) sound(i int) {
	im.t.Helper()
	to := &im.tables[i]
	for _, v := range to.elems {
		if strings.HasPrefix(v, table.Jump("")) && to.chains[v[1:]].Name == "" {
			im.t.Fatalf("an element leads to chain %q, which is not there", v[1:])
		}
	}
	for _, ch := range to.chains {
		for _, r := range ch.Rules {
			for _, s := range r {
				if s, ok := s.(in); ok && !to.sets[s.set] {
					im.t.Fatalf("chain %s uses set %s, which is not there", ch.Name, s.set.Name)
				}
			}
		}
	}
}

// packet is one of a connection.
type packet struct {
	Flow
	known, reply, stray bool
}

// passes runs the chain forward.
func (im *image) passes(p packet) bool {
	v := im.run(familyOf(p.Src), chainForward, p)
	return v != nft.Drop
}

// run runs a chain, and returns a verdict that ends all, or None.
func (im *image) run(family int, chain string, p packet) nft.Code {
	for _, rule := range im.tables[family].chains[chain].Rules {
		switch code, to := im.rule(family, rule, p); code {
		case nft.Drop, nft.Accept:
			return code
		case nft.Return:
			return nft.None
		case nft.Goto:
			return im.run(family, to, p)
		case nft.Jump:
			if v := im.run(family, to, p); v != nft.None {
				return v
			}
		}
	}
	return nft.None
}

func (im *image) rule(family int, rule table.Rule, p packet) (nft.Code, string) {
	for _, s := range rule {
		holds := true
		switch s := s.(type) {
		case known:
			holds = p.known
		case reply:
			holds = p.reply
		case stray:
			holds = p.stray && !p.known
		case in:
			holds = im.has(family, s.set, p.key(s.key))
		case portIn:
			holds = false
			for _, r := range s.list {
				holds = holds || uint8(r.proto) == p.Proto && r.first <= p.Port && p.Port <= r.last
			}
		case profileJump:
			v, ok := im.tables[family].elems[table.ID{Set: s.targets, Key: p.key(s.key)}]
			if !ok {
				return nft.None, ""
			}
			to, ok := im.tables[family].elems[table.ID{Set: s.profiles, Key: v[4:]}]
			if !ok {
				im.t.Fatalf("there is no profile %x", v[4:])
			}
			return nft.Code(to[0]), to[1:]
		case reset:
			return nft.Drop, ""
		case verdict:
			return s.code, s.chain
		case counter:
		default:
			im.t.Fatalf("what is %T?", s)
		}
		if !holds {
			return nft.None, ""
		}
	}
	return nft.None, ""
}

func (p packet) key(k fields) string {
	var key nft.Key
	if k.source {
		key = key.Addr(p.Src)
	}
	if k.destination {
		key = key.Addr(p.Dst)
	}
	if k.port {
		key = key.Proto(p.Proto).Port(p.Port)
	}
	return string(key)
}

func (im *image) has(family int, set *table.Set, key string) bool {
	if !set.Interval {
		_, ok := im.tables[family].elems[table.ID{Set: set, Key: key}]
		return ok
	}
	for id := range im.tables[family].elems {
		if n := len(id.Key) / 2; id.Set == set && id.Key[:n] <= key && key <= id.Key[n:] {
			return true
		}
	}
	return false
}

func addrsOf(texts ...string) (list []netip.Addr) {
	for _, t := range texts {
		list = append(list, netip.MustParseAddr(t))
	}
	return list
}
