package table

import (
	"net/netip"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/kemudi/kemudi/internal/podnet/nettest"
	"github.com/kemudi/kemudi/internal/podnet/nft"
)

var ours = nft.Table{Family: nft.IPv4, Name: "test"}

func open(t *testing.T) *Kernel {
	t.Helper()
	t.Parallel()
	h := nettest.New(t, "table")
	var k *Kernel
	h.Must(func() (err error) {
		k, err = Open()
		return err
	})
	t.Cleanup(k.Close)
	return k
}

// member drops what comes from the set's addresses.
type member struct{ set *Set }

func (m member) Text(f nft.Family) string { return f.String() + " saddr @" + m.set.Name + " drop" }

func (m member) Note() string { return "from where they may not" }

func (m member) Lower(t nft.Table, _ *nft.Batch) []nft.Expr {
	return []nft.Expr{nft.SourceAddr(t.Family, nft.R0), nft.In(nft.Named(m.set.Name), nft.R0), nft.Do(nft.Drop, "")}
}

// age is an owner; the older comes first.
type age int

func (a age) Before(o Owner) bool { return a > o.(age) }

func (k *Kernel) is(t *testing.T, set *Set, want int) {
	t.Helper()
	keys, err := k.conn.Keys(ours, set.Name)
	if err != nil || len(keys) != want {
		t.Errorf("keys of %s: got %d, %v, want %d", set.Name, len(keys), err, want)
	}
}

func (k *Kernel) take(t *testing.T, c Changes) {
	t.Helper()
	if err := k.Apply(t.Context(), c); err != nil {
		t.Fatalf("apply\n%s%v", c.Text(), err)
	}
}

func TestDifferencesAddUpInTheKernel(t *testing.T) {
	k := open(t)
	prefixes := &Set{Set: nft.Set{Name: "prefixes", Key: []nft.Field{nft.Addr4}, Interval: true}}
	sources := &Set{Set: nft.Set{Name: "sources", Key: []nft.Field{nft.Addr4, nft.Port}, Data: []nft.Field{nft.Verdict}, Interval: true}}
	prefix := func(p string) Elem { return Elem{ID: ID{prefixes, Prefix(netip.MustParsePrefix(p))}} }
	m := New(ours)
	m.AddSet(prefixes)
	m.AddSet(sources)
	m.SetChain(Chain{Name: "in", Hook: &nft.Hook{Type: "filter", Num: unix.NF_INET_LOCAL_IN}, Rules: []Rule{{member{prefixes}}}})
	m.SetChain(Chain{Name: "more"})
	m.Claim(nil, prefix("10.0.0.0/8"))
	first, last := Bounds(netip.MustParsePrefix("192.168.0.0/16"))
	ports := Elem{ID: ID{sources, Range(first.Port(80), last.Port(89))}, Value: Goto("more")}
	m.Claim(age(1), ports)
	k.take(t, m.Full())
	k.is(t, prefixes, 2) // a start and an end
	k.is(t, sources, 1)

	m.Release(nil, prefix("10.0.0.0/8").ID)
	m.Claim(nil, prefix("255.0.0.0/8")) // without an end
	older := Elem{ID: ports.ID, Value: Drop}
	m.Claim(age(2), older)
	c := m.Commit()
	want := `delete @prefixes 10.0.0.0-10.255.255.255
delete @sources 192.168.0.0-192.168.255.255 . 80-89 : goto more
add @prefixes 255.0.0.0-255.255.255.255
add @sources 192.168.0.0-192.168.255.255 . 80-89 : drop
`
	if got := c.Text(); got != want {
		t.Errorf("changes: got\n%s\nwant\n%s", got, want)
	}
	k.take(t, c)
	k.is(t, prefixes, 1)

	m.Release(age(2), older.ID)
	m.Claim(nil, prefix("10.0.0.0/8"))
	m.Release(nil, prefix("10.0.0.0/8").ID)
	if c = m.Commit(); !strings.HasSuffix(c.Text(), ": goto more\n") || len(c.Add) != 1 {
		t.Errorf("the younger owner's claim: got\n%s", c.Text())
	}
	k.take(t, c)
	m.Release(age(1), ports.ID)
	m.DelSet(sources)
	m.DelChain("more")
	k.take(t, m.Commit())
	sets, err := k.conn.Sets(ours)
	if err != nil || len(sets) != 1 {
		t.Errorf("sets: got %v, %v, want one", sets, err)
	}
	if c = m.Commit(); !c.Empty() {
		t.Errorf("nothing was done: got\n%s", c.Text())
	}
}

// TestWhatIsAsItIsToBeIsNotWrittenAgain changes a table behind its model's back.
func TestWhatIsAsItIsToBeIsNotWrittenAgain(t *testing.T) {
	k := open(t)
	addrs := &Set{Set: nft.Set{Name: "addrs", Key: []nft.Field{nft.Addr4}}}
	where := &Set{Set: nft.Set{Name: "where", Key: []nft.Field{nft.Addr4, nft.Port}, Data: []nft.Field{nft.Addr4}}}
	next := &Set{Set: nft.Set{Name: "next", Key: []nft.Field{nft.Addr4, nft.Port}, Data: []nft.Field{nft.Verdict}, Interval: true}}
	filled := &Set{Keep: true, Set: nft.Set{Name: "filled", Key: []nft.Field{nft.Addr4}}}
	m := New(ours)
	for _, s := range []*Set{addrs, where, next, filled} {
		m.AddSet(s)
	}
	m.SetChain(Chain{Name: "in", Hook: &nft.Hook{Type: "filter", Num: unix.NF_INET_LOCAL_IN, Priority: -3}, Rules: []Rule{{member{addrs}}}})
	m.SetChain(Chain{Name: "more"})
	addr := func(last byte) nft.Key { return nft.Key{10, 0, 0, last} }
	for i := range byte(3) {
		m.Claim(nil, Elem{ID: ID{addrs, string(addr(i))}})
		m.Claim(nil, Elem{ID: ID{where, string(addr(i).Port(80))}, Value: string(addr(9))})
		m.Claim(nil, Elem{ID: ID{next, Range(addr(i).Port(1), addr(i).Port(9))}, Value: Goto("more")})
	}
	differs := func(what, want string) {
		t.Helper()
		full := m.Full()
		diff, same, err := k.differences(&full)
		got := diff.Text()
		if !same {
			got = "all"
		}
		if err != nil || got != want {
			t.Errorf("%s: got %v, differences\n%s\nwant\n%s", what, err, got, want)
		}
	}
	change := func(f func(*nft.Batch)) {
		t.Helper()
		var b nft.Batch
		f(&b)
		if err := k.conn.Commit(t.Context(), &b); err != nil {
			t.Fatal(err)
		}
	}
	k.take(t, m.Full())
	differs("as it was written", "")
	change(func(b *nft.Batch) {
		b.AddElems(ours, "filled", []nft.Elem{{Key: addr(1)}})
		b.AddElems(ours, "addrs", []nft.Elem{{Key: addr(7)}})
		b.DelElems(ours, "where", []nft.Elem{{Key: addr(0).Port(80)}, {Key: addr(1).Port(80)}})
		b.AddElems(ours, "where", []nft.Elem{{Key: addr(1).Port(80), Data: addr(8)}})
		b.DelElems(ours, "next", []nft.Elem{{Key: addr(2).Port(1), Last: addr(2).Port(9)}})
		b.AddElems(ours, "next", []nft.Elem{{Key: addr(2).Port(1), Last: addr(2).Port(9), Code: nft.Drop}})
	})
	differs("elements of others", `delete @addrs 10.0.0.7
delete @next 10.0.0.2 . 1-9
delete @where 10.0.0.1 . 80
add @next 10.0.0.2 . 1-9 : goto more
add @where 10.0.0.0 . 80 : 10.0.0.9
add @where 10.0.0.1 . 80 : 10.0.0.9
`)
	k.take(t, m.Full())
	differs("after the differences were written", "")
	for what, f := range map[string]func(*nft.Batch){
		"a rule of others":          func(b *nft.Batch) { b.AddRule(ours, "more", nft.Do(nft.Drop, "")) },
		"a chain without its rules": func(b *nft.Batch) { b.FlushChain(ours, "in") },
		"a chain of others":         func(b *nft.Batch) { b.AddChain(ours, "theirs", nil) },
		"a set of others":           func(b *nft.Batch) { b.AddSet(ours, nft.Set{Name: "theirs", Key: []nft.Field{nft.Addr4}}) },
		"a table made anew by others": func(b *nft.Batch) {
			b.DelTable(ours)
			b.AddTable(ours)
			b.AddChain(ours, "in", &nft.Hook{Type: "filter", Num: unix.NF_INET_LOCAL_IN})
		},
	} {
		change(f)
		differs(what, "all")
		k.take(t, m.Full())
		differs("after "+what, "")
	}
}

func TestTableIsWrittenWholeWhateverWasThere(t *testing.T) {
	k := open(t)
	filled := &Set{Keep: true, Set: nft.Set{Name: "filled", Key: []nft.Field{nft.Addr4}}}
	mine := &Set{Set: nft.Set{Name: "mine", Key: []nft.Field{nft.Addr4}}}
	elem := nft.Elem{Key: nft.Key{10, 0, 0, 1}}
	var b nft.Batch
	b.AddTable(ours)
	for _, s := range []nft.Set{filled.Set, mine.Set, {Name: "theirs", Key: []nft.Field{nft.Port}}} {
		b.AddSet(ours, s)
	}
	b.AddElems(ours, "filled", []nft.Elem{elem})
	b.AddElems(ours, "mine", []nft.Elem{elem})
	b.AddChain(ours, "theirs", &nft.Hook{Type: "filter", Num: unix.NF_INET_FORWARD})
	b.AddRule(ours, "theirs", nft.Do(nft.Drop, ""))
	if err := k.conn.Commit(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	m := New(ours)
	m.AddSet(filled)
	m.AddSet(mine)
	m.SetChain(Chain{Name: "mine", Rules: []Rule{{member{mine}}}})
	k.take(t, m.Full())
	k.is(t, filled, 1)
	k.is(t, mine, 0)
	chains, err := k.conn.Chains(ours)
	if err != nil || len(chains) != 1 || chains[0] != "mine" {
		t.Errorf("chains: got %q, %v, want ours alone", chains, err)
	}
	removed, err := k.Remove(t.Context(), ours, nft.Table{Family: nft.IPv6, Name: "test"})
	if err != nil || len(removed) != 1 || removed[0] != "nftables table ip test" {
		t.Errorf("removed: got %q, %v, want the one that there was", removed, err)
	}
}
