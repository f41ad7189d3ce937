package proxy

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kemudi/kemudi/internal/podnet/nft"
	"github.com/kemudi/kemudi/internal/podnet/nft/table"
)

// The statements of this file look up what other lookups found. The nft program cannot
// list that: up to its present version it ends with a failed assertion where a rule
// looks up, or stores, what a lookup found. But it takes note only of the register in
// which a value begins. So those values have an unused word before them, and where
// the rest of one goes, parts of the packet are loaded first, to be overwritten at
// once: they are what nft lists. A note of the rule says what it really is.

// unused is the word before a value that is found by a hidden lookup.
var unused = nft.Key(nil).Integer(0)

// word is one of the actions that a frontend has.
type word uint8

const (
	wordDo      word = iota // what is done with a connection to it
	wordGuarded             // what is done once its client has passed the firewall
	wordCluster             // where all endpoints of the port are, or are noted from
	wordLocal               // the same for those of this node
)

var wordNames = [...]string{"do", "guarded", "cluster", "local"}

// front is how a packet tells its frontend: the map of actions, that of the owners, and
// the key of both.
type front struct {
	actions, owners Set
	key             fields
}

var fronts = [...]front{
	byIP:   {ServiceIPs, ServiceOwners, destination},
	byPort: {NodePorts, NodePortOwners, destinationPort},
}

// act goes on with the action that the frontend has in one of its words, by one of the
// maps of actions. Actions are numbers, because the kernel checks the whole table for
// loops when a verdict changes; there are several maps of them, because to the
// kernel a chain leads to all that a map has.
type act struct {
	from origin
	word word
	by   Set
}

func (s act) Text(f nft.Family) string {
	return fmt.Sprintf("%s map @%s %s vmap @%s", fronts[s.from].key.Text(f), fronts[s.from].actions, wordNames[s.word], s.by)
}

func (s act) Note() string {
	return fmt.Sprintf("by what @%s has for the destination: %s", fronts[s.from].actions, wordNames[s.word])
}

func (s act) Lower(t nft.Table, _ *nft.Batch) []nft.Expr {
	return actions(t.Family, lookup{fronts[s.from].key, fronts[s.from].actions, s.word, s.by})
}

// masqueradeBy goes on with the action of one of the maps about masquerading.
type masqueradeBy struct {
	key fields
	set Set
}

func (s masqueradeBy) Text(f nft.Family) string {
	return fmt.Sprintf("%s map @%s vmap @%s", s.key.Text(f), s.set, MasqueradeActions)
}

func (s masqueradeBy) Note() string { return fmt.Sprintf("by what @%s has", s.set) }

func (s masqueradeBy) Lower(t nft.Table, _ *nft.Batch) []nft.Expr {
	return actions(t.Family, lookup{s.key, s.set, wordDo, MasqueradeActions})
}

// lookup is how an action is found: the key, the map that has it, in which word, and the
// map that says what it is.
type lookup struct {
	key  fields
	set  Set
	word word
	by   Set
}

// actions looks up an action, and what it is.
func actions(f nft.Family, l lookup) []nft.Expr {
	e, found := l.key.load(f)
	at := found + 1 + nft.Reg(l.word)
	return append(e,
		nft.Meta(unix.NFT_META_MARK, at), // for nft
		nft.MapTo(nft.Named(l.set.String()), nft.R0, found),
		nft.VerdictMap(nft.Named(l.by.String()), at))
}

// regs says in which registers things are, for all statements that choose an
// endpoint. The keys of the maps of endpoints begin with the pool, those of affinity with
// the client, which has more registers: the pool is in the last of them.
type regs struct {
	client, pool, proto, vip, port, index, to, toPort nft.Reg
}

func registers(f nft.Family) regs {
	a := addrRegs(f)
	r := regs{client: nft.R0, pool: nft.R0 + a - 1, proto: nft.R0 + a, vip: nft.R0 + a + 1}
	r.port = r.vip + a
	r.index = r.port + 1
	r.to = r.index + 1
	r.toPort = r.to + a
	return r
}

// poolOf is the number of the pool of a port's endpoints.
func poolOf(local bool) uint32 {
	if local {
		return 1
	}
	return 0
}

// choose sends the connection to one of the endpoints of its destination, if there is
// one at the place that is drawn.
type choose struct {
	draw
	size uint32
}

func (s choose) Text(f nft.Family) string {
	return fmt.Sprintf("dnat to 0 . meta l4proto . %s daddr . th dport . %s map @%s", f, s.text(f, s.size), ServiceEndpoints)
}

func (s choose) Lower(t nft.Table, _ *nft.Batch) []nft.Expr {
	f, r := t.Family, registers(t.Family)
	e := append(s.lower(f, s.size), nft.Number(r.pool, poolOf(false)), nft.TransportProto(r.proto), nft.DestinationAddr(f, r.vip), nft.DestinationPort(r.port))
	return append(e, nft.MapTo(nft.Named(ServiceEndpoints.String()), r.pool, r.pool), nft.DNAT(f, r.pool, r.pool+addrRegs(f)))
}

// owner puts protocol, cluster IP and port of the service port that the frontend belongs
// to into their registers. What is in those of the pool, the index and behind it is lost.
func (w way) owner(f nft.Family) []nft.Expr {
	r, a := registers(f), addrRegs(f)
	e := []nft.Expr{nft.TransportProto(r.proto), nft.DestinationAddr(f, r.vip), nft.DestinationPort(r.port)} // for nft
	key := r.index
	if w.from == byIP {
		e = append(e, nft.DestinationAddr(f, key), nft.TransportProto(key+a), nft.DestinationPort(key+a+1))
	} else {
		e = append(e, nft.TransportProto(key), nft.DestinationPort(key+1))
	}
	return append(e, nft.MapTo(nft.Named(fronts[w.from].owners.String()), key, r.pool))
}

func (w way) ownerText(f nft.Family) string {
	return fmt.Sprintf("%s map @%s", fronts[w.from].key.Text(f), fronts[w.from].owners)
}

// chooseOwned sends the connection to one of the endpoints of the port that its frontend
// belongs to, if there is one at the place that is drawn.
type chooseOwned struct {
	way
	draw
	size uint32
}

func (s chooseOwned) Text(f nft.Family) string {
	return fmt.Sprintf("dnat to %d . (%s) . %s map @%s", poolOf(s.local), s.ownerText(f), s.text(f, s.size), ServiceEndpoints)
}

func (s chooseOwned) Note() string {
	return fmt.Sprintf("of the service port in @%s", fronts[s.from].owners)
}

func (s chooseOwned) Lower(t nft.Table, _ *nft.Batch) []nft.Expr {
	f, r := t.Family, registers(t.Family)
	e := append(s.owner(f), nft.Number(r.pool, poolOf(s.local)))
	return append(append(e, s.lower(f, s.size)...),
		nft.MapTo(nft.Named(ServiceEndpoints.String()), r.pool, r.pool),
		nft.DNAT(f, r.pool, r.pool+addrRegs(f)))
}

// noteTimeout is how long a choice is kept that is not used at once; see recall.
const noteTimeout = time.Minute

// remember notes one of the endpoints for the client in the affinity map, if there is one
// at the place that is drawn. What is noted already stays: another connection of the
// client may have been quicker.
type remember struct {
	way
	draw
	size uint32
}

func (s remember) Text(f nft.Family) string {
	return fmt.Sprintf("update @%s { %s saddr . (%s) : %d . (...) . %s map @%s }", affinitySet, f, s.ownerText(f), poolOf(s.local), s.text(f, s.size), StickyPicks)
}

func (s remember) Note() string {
	return fmt.Sprintf("one of @%s for the client", StickyPicks)
}

func (s remember) Lower(t nft.Table, _ *nft.Batch) []nft.Expr {
	f, r := t.Family, registers(t.Family)
	e := append(s.owner(f), nft.Number(r.pool, poolOf(s.local)))
	e = append(append(e, s.lower(f, s.size)...), hidden(f)...)
	return append(e,
		nft.MapTo(nft.Named(StickyPicks.String()), r.pool, r.index),
		nft.SourceAddr(f, r.client), nft.Load(r.index, unused),
		nft.Remember(nft.Named(affinitySet), r.client, r.index, noteTimeout))
}

// hidden loads what nft takes an endpoint for that is found.
func hidden(f nft.Family) []nft.Expr {
	r := registers(f)
	return []nft.Expr{nft.DestinationAddr(f, r.to), nft.DestinationPort(r.toPort)}
}

// recall sends the connection where the client's last one went, if that still
// is one of the endpoints.
type recall struct{ way }

func (s recall) Text(f nft.Family) string {
	return fmt.Sprintf("dnat to %s saddr . (%s) map @%s in @%s update timeout %s", f, s.ownerText(f), affinitySet, s.valid(), s.after())
}

func (s recall) Note() string {
	return fmt.Sprintf("to what @%s has for the client, if it is in @%s", affinitySet, s.valid())
}

// valid is the set of the endpoints that may be recalled.
func (s recall) valid() Set {
	if s.local {
		return StickyLocal
	}
	return StickyCluster
}

func (s recall) after() time.Duration { return time.Duration(s.timeout) * time.Second }

func (s recall) Lower(t nft.Table, _ *nft.Batch) []nft.Expr {
	f, r := t.Family, registers(t.Family)
	affinity := nft.Named(affinitySet)
	e := append(s.owner(f), nft.SourceAddr(f, r.client))
	e = append(e, hidden(f)...)
	return append(e,
		nft.MapTo(affinity, r.client, r.index),
		nft.TransportProto(r.index), // part of the key
		nft.In(nft.Named(s.valid().String()), r.vip),
		nft.Load(r.index, unused),
		nft.Remember(affinity, r.client, r.index, s.after()),
		nft.DNAT(f, r.to, r.toPort))
}

// forget drops what is known of the client's last connection: the endpoint it
// went to is gone.
type forget struct{ way }

func (s forget) Text(f nft.Family) string {
	return fmt.Sprintf("delete @%s { %s saddr . (%s) }", affinitySet, f, s.ownerText(f))
}

func (s forget) Lower(t nft.Table, _ *nft.Batch) []nft.Expr {
	f, r := t.Family, registers(t.Family)
	e := append(s.owner(f), nft.SourceAddr(f, r.client), nft.Load(r.index, unused))
	return append(append(e, hidden(f)...), nft.Forget(nft.Named(affinitySet), r.client, r.index)) // any value of the right length does
}

// allowed holds if the client may use the balancer's address.
type allowed struct{}

func (allowed) Text(f nft.Family) string {
	return fmt.Sprintf("(%s) . %s saddr @%s", way{}.ownerText(f), f, Sources)
}

func (allowed) Note() string { return fmt.Sprintf("from where @%s has for the service port", Sources) }

func (allowed) Lower(t nft.Table, _ *nft.Batch) []nft.Expr {
	f, r := t.Family, registers(t.Family)
	return append(way{}.owner(f), nft.SourceAddr(f, r.index), nft.In(nft.Named(Sources.String()), r.proto))
}

var (
	_ table.Noter = act{}
	_ table.Noter = masqueradeBy{}
	_ table.Noter = chooseOwned{}
	_ table.Noter = remember{}
	_ table.Noter = recall{}
	_ table.Noter = allowed{}
)
