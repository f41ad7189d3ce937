package cluster

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/api/discovery"
	"github.com/kemudi/kemudi/internal/apiserver"
	"github.com/kemudi/kemudi/internal/apiserver/refusal"
	"github.com/kemudi/kemudi/internal/apiserver/request"
	"github.com/kemudi/kemudi/internal/auth/authn"
	"github.com/kemudi/kemudi/internal/auth/pki"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/inquiry"
	"github.com/kemudi/kemudi/internal/join"
	"github.com/kemudi/kemudi/internal/store"
	"github.com/kemudi/kemudi/internal/store/etcd"
	"github.com/kemudi/kemudi/internal/task"
	"github.com/kemudi/kemudi/internal/version"
	"github.com/kemudi/kemudi/internal/worker/settings"
)

// seats is what this server does about which servers there are: it takes further ones in, and
// takes them out.
type seats struct {
	s      *server
	store  *etcd.Server  // nil: the store is kept elsewhere
	turn   chan struct{} // has room for one, who changes the members
	grown  chan struct{} // a token: this server is one of several
	unsure chan struct{} // a token: nobody knows what became of a removal
	shared bool          // the control plane knows that others write, too; by whoever has the turn
}

func newSeats(s *server, st state) *seats {
	return &seats{s: s, store: st.own, turn: make(chan struct{}, 1), grown: make(chan struct{}, 1), unsure: make(chan struct{}, 1), shared: st.shared}
}

// paths are where they are asked for.
func (m *seats) paths() map[string]func(context.Context, apiserver.PlainRequest) (any, error) {
	paths := map[string]func(context.Context, apiserver.PlainRequest) (any, error){
		"POST " + join.ServersPath:               m.add,
		"GET " + join.ServersPath:                m.list,
		"DELETE " + join.ServersPath + "/{name}": m.remove,
	}
	if m.store != nil {
		paths["GET "+inquiry.Path] = m.answers
		paths["GET "+request.SnapshotPath] = m.snapshot
	}
	return paths
}

// take gives the turn to the caller.
func (m *seats) take(ctx context.Context) (release func(), _ error) {
	select {
	case m.turn <- struct{}{}:
		return func() { <-m.turn }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// seat is what is noted of a server that has joined, under its name in the ConfigMap below.
type seat struct {
	Key    string `json:"key"`    // pin: by it a machine that asks again is known
	Member string `json:"member"` // ID in the store, in hexadecimal
}

// serversConfigMap is in kube-system. It says which server has which place; who keeps the store is
// known by the store itself.
const serversConfigMap = "kemudi-servers"

// add takes a machine in as a server, by POST.
func (m *seats) add(ctx context.Context, q apiserver.PlainRequest) (any, error) {
	var r join.ServerRequest
	if err := json.Unmarshal(q.Body, &r); err != nil {
		return nil, refusal.BadRequest("the request is not what a machine says that is to become a server: %v", err)
	}
	if err := m.check(r); err != nil {
		return nil, err
	}
	release, err := m.take(ctx)
	if err != nil {
		return nil, err
	}
	defer release()
	answer := join.ServerAnswer{}
	if m.store != nil {
		answer.Cluster, err = m.seat(ctx, q, r)
	} else {
		err = m.use(ctx, q, r.Key)
	}
	if err != nil {
		return nil, err
	}
	if answer.Settings, err = m.s.o.settings().Encode(); err != nil {
		return nil, err
	}
	if answer.Keys, err = m.s.pki.Shared(); err != nil {
		return nil, err
	}
	return answer, nil
}

// check refuses a machine that cannot be a server of this cluster, whatever else is so.
func (m *seats) check(r join.ServerRequest) error {
	if err := checkNodeName(r.Name); err != nil || r.Key == "" {
		return refusal.BadRequest("the request lacks a name or a key: %v", err)
	}
	theirs, err := version.Minor(r.Version)
	if err != nil {
		return refusal.BadRequest("the request lacks a version: %v", err)
	}
	ours, err := version.Minor(version.Git())
	if err != nil {
		return err
	}
	if d := theirs - ours; d < -1 || d > 1 {
		return refusal.BadRequest("this machine has %s, and the servers %s: servers of one cluster may be one minor version apart. Bring the older ones to a version in between first", r.Version, version.Git())
	}
	switch {
	case m.s.o.Ephemeral:
		return refusal.BadRequest("the server that was asked keeps its state in memory (--ephemeral), and is always alone: start it without, in another data directory")
	case m.store == nil && r.URL != "":
		return refusal.BadRequest("the servers of this cluster keep no store of their own: start this one with their --etcd-servers and the certificates for it, besides --server and --token")
	case m.store != nil && r.URL == "":
		return refusal.BadRequest("--etcd-servers: the servers of this cluster keep the store themselves; leave the flag out")
	}
	said, err := settings.ParseSaid(r.Settings)
	if err != nil {
		return refusal.BadRequest("%v", err)
	}
	is := m.s.o.settings()
	if err := is.Check(said); err != nil {
		return refusal.BadRequest("%v", err)
	}
	if is.CloudProvider != said.CloudProvider {
		return refusal.BadRequest("--cloud-provider: the other servers have one, %s, and any may run its loops; start this one with their flags for it", m.s.o.Controllers.Cloud.Name)
	}
	signer, err := m.s.o.Identity.Signer()
	if err != nil {
		return err
	}
	if signer != r.Signer {
		return refusal.BadRequest("--service-account-signing-key-file: what signs tokens of service accounts must be the same on all servers; this one has %s, and the others %s", cmp.Or(r.Signer, "the cluster's own"), cmp.Or(signer, "the cluster's own"))
	}
	return nil
}

// seat makes a machine a member of the store that counts for no majority yet. The caller has the turn.
func (m *seats) seat(ctx context.Context, q apiserver.PlainRequest, r join.ServerRequest) (*etcd.Cluster, error) {
	c, err := m.store.Members(ctx)
	if err != nil {
		return nil, err
	}
	seats, err := m.seats(ctx)
	if err != nil {
		return nil, err
	}
	before, err := m.taken(c, seats, r)
	if err != nil {
		return nil, err
	}
	if err := m.use(ctx, q, r.Key); err != nil {
		return nil, err
	}
	if err := m.grow(ctx); err != nil {
		return nil, err
	}
	if before.ID != 0 && before.URL != r.URL { // it has another address than when it asked first
		if err := m.store.Remove(ctx, before.ID); err != nil {
			return nil, err
		}
	}
	added, c, err := m.store.AddLearner(ctx, r.Name, r.URL)
	if errors.Is(err, etcd.ErrMember) {
		return nil, refusal.BadRequest("%v", err)
	}
	if err != nil {
		return nil, m.explain(err)
	}
	id := hexID(added.ID)
	own, err := m.own(ctx)
	if err != nil {
		return nil, err
	}
	if err := m.note(ctx, func(all map[string]seat) {
		all[m.s.o.NodeName] = own
		for name, other := range all {
			if other.Member == id && name != r.Name {
				delete(all, name) // of a machine that never came
			}
		}
		all[r.Name] = seat{Key: r.Key, Member: id}
	}); err != nil {
		return nil, err
	}
	m.s.o.Logger.Info("a machine joins the servers", "server", r.Name, "url", r.URL, "member", id)
	return &c, nil
}

// own is this server's place.
func (m *seats) own(ctx context.Context) (seat, error) {
	self, err := m.store.Self(ctx)
	if err != nil {
		return seat{}, err
	}
	pin, err := pki.PeerPin(m.s.o.DataDir)
	return seat{Key: pin, Member: hexID(self)}, err
}

// taken refuses a machine whose name another one has. It returns the member that the machine
// has become before, if it has asked before and not started since.
func (m *seats) taken(c etcd.Cluster, seats map[string]seat, r join.ServerRequest) (before etcd.Member, _ error) {
	const next = "give this machine a name of its own (--node-name), or, if that one is gone for good, remove it first: kemudi member remove %s, on another server"
	has, noted := seats[r.Name]
	for _, one := range c.Members {
		mine := noted && has.Member == hexID(one.ID)
		switch {
		case !mine && one.Name != r.Name:
		case !mine || has.Key != r.Key:
			return before, refusal.BadRequest("there is a server called %s already (%s), with another key: "+next, r.Name, one.URL, r.Name)
		case one.Name != "":
			return before, refusal.BadRequest("this machine is the server %s already, but has lost its data: remove it first (kemudi member remove %s, on another server), then it can join anew", r.Name, r.Name)
		default:
			before = one
		}
	}
	node, ok := client.Cached(m.s.plane.Admin(), core.Nodes, "").Get("", r.Name)
	if !ok || len(authn.NodeKeys(node)) == 0 {
		return before, nil
	}
	if core.NodeIsReady(node) {
		return before, refusal.BadRequest("there is a node called %s, whose agent runs on another machine: give this machine a name of its own (--node-name), or delete that node first (kubectl delete node %s)", r.Name, r.Name)
	}
	return before, nil
}

// grow makes this server one that others can join, without a restart.
func (m *seats) grow(ctx context.Context) error {
	name, at := m.s.o.NodeName, m.s.member.get()
	if !at.Several {
		p, err := m.s.peer()
		if err != nil {
			return err
		}
		if err := m.s.member.setSeveral(name, true); err != nil {
			return err
		}
		if err := m.store.SetPeer(ctx, p); err != nil {
			return errors.Join(fmt.Errorf("let other servers reach this one at %s: %w; is --peer-port taken?", p.Listen, err), m.s.member.setSeveral(name, false))
		}
	}
	if !m.shared {
		if err := m.s.plane.Share(ctx); err != nil {
			return err
		}
		m.shared = true
	}
	m.wake()
	return nil
}

// wake has keep look after the members.
func (m *seats) wake() {
	select {
	case m.grown <- struct{}{}:
	default: // the token is there
	}
}

// use counts a use of the token that the machine with that key has shown. Others than
// tokens may ask as often as they like.
func (m *seats) use(ctx context.Context, q apiserver.PlainRequest, pin string) error {
	id, ok := authn.BootstrapTokenOf(q.User.GetName(), q.User.GetGroups())
	if !ok {
		return nil
	}
	secrets := client.For(m.s.plane.Admin(), core.Secrets)
	return again(ctx, func() error {
		s, err := secrets.Get(ctx, metav1.NamespaceSystem, authn.BootstrapSecret(id))
		if err != nil {
			return fmt.Errorf("count a use of token %s: %w", id, err)
		}
		used, err := authn.UseBootstrapToken(s, pin)
		switch {
		case errors.Is(err, authn.ErrUsedUp):
			return refusal.BadRequest("%v --for server", err)
		case err != nil || used == nil:
			return err
		}
		_, err = secrets.Update(ctx, used)
		return err
	})
}

// again does what others may do at the same time, until nobody has.
func again(ctx context.Context, f func() error) error {
	retry := task.Backoff{Initial: 10 * time.Millisecond, Max: time.Second, Jitter: 0.5}
	for {
		err := f()
		if !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) {
			return err
		}
		if ended := task.Sleep(ctx, retry.Next()); ended != nil {
			return err
		}
	}
}

// seats are the places that are noted, by the names of their servers.
func (m *seats) seats(ctx context.Context) (map[string]seat, error) {
	has, err := client.For(m.s.plane.Admin(), core.ConfigMaps).Get(ctx, metav1.NamespaceSystem, serversConfigMap)
	if apierrors.IsNotFound(err) {
		return map[string]seat{}, nil
	}
	if err != nil {
		return nil, err
	}
	return seatsIn(has), nil
}

// seatsIn reads the places. What cannot be read is nobody's.
func seatsIn(has *corev1.ConfigMap) map[string]seat {
	all := map[string]seat{}
	for name, text := range has.Data {
		var one seat
		if json.Unmarshal([]byte(text), &one) == nil {
			all[name] = one
		}
	}
	return all
}

// note changes the places that are noted.
func (m *seats) note(ctx context.Context, change func(all map[string]seat)) error {
	maps := client.For(m.s.plane.Admin(), core.ConfigMaps)
	return again(ctx, func() error {
		has, err := maps.Get(ctx, metav1.NamespaceSystem, serversConfigMap)
		found := !apierrors.IsNotFound(err)
		switch {
		case !found:
			has = &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: serversConfigMap}}
		case err != nil:
			return err
		}
		all := seatsIn(has)
		change(all)
		next := has.DeepCopy()
		next.Data = map[string]string{}
		for name, one := range all {
			text, err := json.Marshal(one)
			if err != nil {
				return fmt.Errorf("encode the place of server %s: %w", name, err)
			}
			next.Data[name] = string(text)
		}
		if found {
			_, err = maps.Update(ctx, next)
		} else {
			_, err = maps.Create(ctx, next)
		}
		return err
	})
}

// errElsewhere answers who asks for the members of a store that others keep.
func errElsewhere() error {
	return refusal.BadRequest("the servers of this cluster keep no store of their own: ask the etcd of --etcd-servers for its members")
}

// list is the servers that there are, by GET.
func (m *seats) list(ctx context.Context, _ apiserver.PlainRequest) (any, error) {
	if m.store == nil {
		return nil, errElsewhere()
	}
	return m.states(ctx)
}

func (m *seats) states(ctx context.Context) ([]join.ServerState, error) {
	c, err := m.store.Members(ctx)
	if err != nil {
		return nil, err
	}
	var seats map[string]seat // as the cache has them: it needs no majority
	if has, ok := client.Cached(m.s.plane.Admin(), core.ConfigMaps, metav1.NamespaceSystem).Get(metav1.NamespaceSystem, serversConfigMap); ok {
		seats = seatsIn(has)
	}
	list := []join.ServerState{}
	for _, one := range c.Members {
		s := join.ServerState{Name: one.Name, Member: hexID(one.ID), URL: one.URL, Role: "voter", Started: one.Name != ""}
		for name, noted := range seats {
			if noted.Member == s.Member && s.Name == "" {
				s.Name = name
			}
		}
		switch {
		case one.Learner:
			s.Role = "learner"
		case one.Leader:
			s.Role = "leader"
		}
		list = append(list, s)
	}
	slices.SortFunc(list, func(a, b join.ServerState) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Member, b.Member))
	})
	return list, nil
}

// removeWithin is how long members may take to agree to a removal: less than a request may.
const removeWithin = 30 * time.Second

// remove takes a server out, by DELETE: a living one ends, a dead one will when it comes back.
func (m *seats) remove(ctx context.Context, q apiserver.PlainRequest) (any, error) {
	if m.store == nil {
		return nil, errElsewhere()
	}
	release, err := m.take(ctx)
	if err != nil {
		return nil, err
	}
	defer release()
	gone, err := m.takeOut(ctx, q.Name)
	if err != nil {
		return nil, m.explain(err)
	}
	return gone, nil
}

// takeOut does so. The caller has the turn.
func (m *seats) takeOut(ctx context.Context, name string) (gone join.ServerState, _ error) {
	list, err := m.states(ctx)
	if err != nil {
		return gone, err
	}
	i := slices.IndexFunc(list, func(s join.ServerState) bool { return s.Name == name || s.Member == name })
	if i < 0 {
		if err := m.note(ctx, func(all map[string]seat) { delete(all, name) }); err != nil { // of a removal that was cut off
			return gone, err
		}
		var names []string
		for _, s := range list {
			names = append(names, s.Name)
		}
		return gone, refusal.BadRequest("there is no server %q: there are %s (kemudi member list)", name, strings.Join(names, ", "))
	}
	if len(list) == 1 {
		return gone, refusal.BadRequest("%s is the last server: kemudi reset removes it, with the cluster", list[i].Name)
	}
	id, err := strconv.ParseUint(list[i].Member, 16, 64)
	if err != nil {
		return gone, fmt.Errorf("read the ID of member %s: %w", list[i].Member, err)
	}
	ctx, cancel := context.WithTimeout(ctx, removeWithin)
	defer cancel()
	self, err := m.store.Self(ctx)
	if err != nil {
		return gone, err
	}
	forget := func() error {
		return m.note(ctx, func(all map[string]seat) { delete(all, list[i].Name) })
	}
	if id == self { // it writes nothing afterwards
		if err := forget(); err != nil {
			return gone, err
		}
	}
	if err := m.store.Remove(ctx, id); err != nil {
		m.doubt()
		return gone, err
	}
	m.s.o.Logger.Info("a server was removed", "server", list[i].Name, "member", list[i].Member)
	if id == self {
		return list[i], nil
	}
	if err := forget(); err != nil {
		m.doubt()
		return list[i], err
	}
	return list[i], nil
}

// doubt has settle look again: a removal that failed has perhaps been proposed, and comes about as
// soon as there is a majority.
func (m *seats) doubt() {
	select {
	case m.unsure <- struct{}{}:
	default:
	}
}

// settle forgets the places of members that were removed, whatever became of who removed them:
// at once, and after each removal whose end is not known.
func (m *seats) settle(ctx context.Context) error {
	retry := task.Backoff{Initial: time.Second, Max: 15 * time.Second, Jitter: 0.1}
	for {
		if err := m.forgetRemoved(ctx); err != nil { // there is no majority yet
			if task.Sleep(ctx, retry.Next()) != nil {
				return nil
			}
			continue
		}
		retry.Reset()
		select {
		case <-m.unsure:
		case <-ctx.Done():
			return nil
		}
	}
}

// forgetRemoved does so. Who has a place was a member before: of the members that are agreed upon
// after that, who is missing was removed. The change of the ConfigMap has keep look who is left.
func (m *seats) forgetRemoved(ctx context.Context) error {
	seats, err := m.seats(ctx)
	if err != nil {
		return err
	}
	if _, err := m.store.Rev(ctx); err != nil {
		return err
	}
	list, err := m.states(ctx)
	if err != nil {
		return err
	}
	maps.DeleteFunc(seats, func(_ string, one seat) bool {
		return one.Member == "" || slices.ContainsFunc(list, func(s join.ServerState) bool { return s.Member == one.Member })
	})
	if len(seats) == 0 {
		return nil
	}
	return m.note(ctx, func(all map[string]seat) {
		maps.DeleteFunc(all, func(name string, one seat) bool { return seats[name].Member != "" && seats[name].Member == one.Member })
	})
}

// explain says what to do about members that do not agree to a change.
func (m *seats) explain(err error) error {
	if errors.Is(err, store.ErrNoMajority) || errors.Is(err, context.DeadlineExceeded) || apierrors.IsServiceUnavailable(err) {
		return apierrors.NewServiceUnavailable(fmt.Sprintf("%v; a change of the servers needs a majority of them: start those that are down. If they are gone for good, stop this one (kemudi down) and make a cluster of one of it (kemudi member recover)", err))
	}
	return err
}

func hexID(id uint64) string { return strconv.FormatUint(id, 16) }

// keep looks after the members while there are several, until ctx ends: who is left alone goes back
// to what a single server costs.
func (m *seats) keep(ctx context.Context) error {
	for {
		select {
		case <-m.grown:
		case <-ctx.Done():
			return nil
		}
		if err := m.shrink(ctx); errors.Is(err, errAlone) { // it was cut off before another one came
			continue
		}
		g := task.NewGroup(ctx)
		g.Go("members", func(ctx context.Context) error {
			maps := client.Cached(m.s.plane.Admin(), core.ConfigMaps, metav1.NamespaceSystem)
			return maps.Each(ctx, cache.FollowOptions{Namespace: metav1.NamespaceSystem}, func(changes []cache.Delta) error {
				if !slices.ContainsFunc(changes, func(d cache.Delta) bool { return d.Last().Object.GetName() == serversConfigMap }) {
					return nil
				}
				return m.shrink(ctx)
			})
		})
		g.Go("addresses", m.remember)
		g.Go("removals", m.settle)
		// Why the store ends, as one does whose server was removed, it says itself.
		if err := g.Wait(); err != nil && !errors.Is(err, errAlone) && !errors.Is(err, etcd.ErrStopped) {
			return err
		}
	}
}

// remember notes where the other servers serve the API, for when this one comes back and they
// are not there.
func (m *seats) remember(ctx context.Context) error {
	const service = metav1.NamespaceDefault + "/kubernetes"
	found := client.Cached(m.s.plane.Admin(), discovery.EndpointSlices, "")
	return found.Each(ctx, cache.FollowOptions{Index: discovery.IndexService, Value: service}, func([]cache.Delta) error {
		at := m.s.at.get().advertise.String()
		var urls []string
		for _, s := range found.ByIndex(discovery.IndexService, service) {
			for _, url := range serverURLs(s) {
				if url != "https://"+net.JoinHostPort(at, strconv.Itoa(int(m.s.o.SecurePort))) {
					urls = append(urls, url)
				}
			}
		}
		known := m.s.member.get().Servers // those that died a moment ago are worth asking, too
		for _, url := range known {
			if !slices.Contains(urls, url) && len(urls) < mostServers {
				urls = append(urls, url)
			}
		}
		return m.s.member.setServers(urls)
	})
}

// mostServers is how many addresses of servers are remembered.
const mostServers = 9

// moved tells the other servers where this one is reached when its addresses have changed.
func (m *seats) moved(ctx context.Context) error {
	if m.store == nil || !m.s.member.get().Several || m.s.o.Joining.PeerAddress.IsValid() {
		return nil
	}
	release, err := m.take(ctx)
	if err != nil {
		return err
	}
	defer release()
	p, err := m.s.peer()
	if err != nil {
		return err
	}
	return m.store.SetPeer(ctx, p)
}

// errAlone ends the look at members that are no more.
var errAlone = errors.New("this server is alone")

// leaving is how long a server may take to be taken out that was forgotten already.
const leaving = time.Minute

// shrink makes this server a single one again if all others have been removed.
func (m *seats) shrink(ctx context.Context) error {
	until, retry := time.Now().Add(leaving), task.Backoff{Initial: 50 * time.Millisecond, Max: 5 * time.Second}
	for {
		more, err := m.tryShrink(ctx)
		switch {
		case errors.Is(err, errAlone) || ctx.Err() != nil:
			return err
		case err != nil:
			m.s.o.Logger.Warn("could not go back to being a single server", "err", err)
		case !more:
			return nil
		}
		if time.Now().After(until) || task.Sleep(ctx, retry.Next()) != nil {
			return nil
		}
	}
}

// tryShrink does so at once. more says that there is a member without a place: it may be leaving.
func (m *seats) tryShrink(ctx context.Context) (more bool, _ error) {
	release, err := m.take(ctx)
	if err != nil {
		return false, err
	}
	defer release()
	list, err := m.states(ctx)
	if err != nil {
		return true, err
	}
	if len(list) > 1 {
		seats, err := m.seats(ctx)
		if err != nil {
			return true, err
		}
		return slices.ContainsFunc(list, func(s join.ServerState) bool { return seats[s.Name].Member != s.Member }), nil
	}
	if err := m.store.SetPeer(ctx, etcd.Peer{}); err != nil {
		return true, err
	}
	if err := m.s.member.setSeveral(m.s.o.NodeName, false); err != nil {
		return true, err
	}
	err = client.For(m.s.plane.Admin(), core.ConfigMaps).Delete(ctx, metav1.NamespaceSystem, serversConfigMap, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return true, err
	}
	m.s.o.Logger.Info("this server is the only one again")
	return false, errAlone
}
