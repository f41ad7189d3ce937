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
