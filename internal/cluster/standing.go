package cluster

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kemudi/kemudi/internal/apiserver"
	"github.com/kemudi/kemudi/internal/apiserver/refusal"
	"github.com/kemudi/kemudi/internal/rawconn"
	"github.com/kemudi/kemudi/internal/store/etcd"
)

// Servers ask each other how far the store's log is by connections that are kept (decision 057): who
// asks names its member once, sends a byte for each question, and gets a standing for it, before it
// may send the next.
const (
	standingPath     = rawconn.PathPrefix + "standing"
	standingProtocol = "kemudi-standing/1"
	standingBytes    = 1 + 4*8 // whether it leads; who it is, whom it follows, its term, its index
	// A connection by which nobody asks for so long is given up.
	standingIdle = time.Minute
	// An answer has room on the way: who does not take it has gone.
	standingWrite = time.Second
)

// standing answers other servers, by GET.
func (m *seats) standing(_ context.Context, q apiserver.PlainRequest) (any, error) {
	if !slices.Contains(q.User.GetGroups(), user.SystemPrivilegedGroup) {
		return nil, refusal.BadRequest("only servers ask each other how far the store is")
	}
	asker, err := strconv.ParseUint(q.Query.Get("asker"), 16, 64)
	if err != nil {
		return nil, refusal.BadRequest("asker: want the ID of a member of the store, in hexadecimal")
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !rawconn.Asks(r, standingProtocol) {
			http.Error(w, "how far the store is, is asked over HTTP/1.1 with the header Upgrade: "+standingProtocol, http.StatusBadRequest)
			return
		}
		conn, err := rawconn.TakeOver(w, standingProtocol, nil)
		if err != nil {
			return // it has gone
		}
		m.answer(r.Context(), conn, asker)
	}), nil
}

// answer answers the questions that come by a connection, until it is given up or ctx ends.
func (m *seats) answer(ctx context.Context, conn net.Conn, asker uint64) {
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	var b [standingBytes]byte
	for {
		_ = conn.SetDeadline(time.Now().Add(standingIdle)) // one that is closed fails below
		if _, err := io.ReadFull(conn, b[:1]); err != nil {
			return
		}
		at, err := m.store.Standing(ctx, asker)
		if err != nil {
			return
		}
		b[0] = 0
		if at.Leads {
			b[0] = 1
		}
		for i, n := range []uint64{at.Member, at.Follows, at.Term, at.Index} {
			binary.BigEndian.PutUint64(b[1+8*i:], n)
		}
		_ = conn.SetDeadline(time.Now().Add(standingWrite))
		if _, err := conn.Write(b[:]); err != nil {
			return
		}
	}
}

// standings asks other servers. The zero value is of a server that has none.
type standings struct {
	s  *server
	mu struct {
		sync.Mutex
		lines map[uint64]net.Conn // by the members at their other ends
		over  bool
	}
}

var errNoMoreQuestions = errors.New("this server stops")

// ask asks a member, by the connection that is kept to it. It may have been given up at the other end. There
// is one question at a time, of a bounded time each: those who come meanwhile share the next one.
func (a *standings) ask(ctx context.Context, of etcd.Other) (etcd.Standing, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if kept := a.mu.lines[of.Asked]; kept != nil {
		said, err := inquire(ctx, kept)
		if err == nil && said.Member == of.Asked {
			return said, nil
		}
		a.drop(of.Asked)
		if ctx.Err() != nil {
			return said, fmt.Errorf("ask how far the store is: %w", err)
		}
	}
	return a.find(ctx, of)
}

// find asks the servers on the machines of a member, until it is the one that answers, and keeps the connections.
func (a *standings) find(ctx context.Context, of etcd.Other) (etcd.Standing, error) {
	if a.mu.over {
		return etcd.Standing{}, errNoMoreQuestions
	}
	var hosts []string
	for _, peer := range of.Peers {
		if at, err := url.Parse(peer); err == nil {
			hosts = append(hosts, at.Hostname())
		}
	}
	for _, server := range (nodes{a.s}).others() {
		at, err := url.Parse(server)
		if err != nil || !slices.Contains(hosts, at.Hostname()) {
			continue
		}
		at.Path, at.RawQuery = standingPath, url.Values{"asker": {strconv.FormatUint(of.Asker, 16)}}.Encode()
		said, err := a.call(ctx, at)
		if err != nil {
			return said, fmt.Errorf("ask how far the store is: %w", err)
		}
		if said.Member == of.Asked { // else it is another server of that machine
			return said, nil
		}
	}
	return etcd.Standing{}, fmt.Errorf("no server at %v is member %x of the store", hosts, of.Asked)
}

// call asks by a new connection, which is kept.
func (a *standings) call(ctx context.Context, at *url.URL) (etcd.Standing, error) {
	caller := rawconn.Caller{CA: a.s.pki.CA.Pool(), Certificate: a.s.pki.KubeletClientCertificate}
	conn, _, err := caller.Call(ctx, at, http.Header{"Upgrade": {standingProtocol}})
	if err != nil {
		return etcd.Standing{}, err
	}
	said, err := inquire(ctx, conn)
	if err != nil {
		_ = conn.Close()
		return said, err
	}
	a.drop(said.Member)
	if a.mu.lines == nil {
		a.mu.lines = map[uint64]net.Conn{}
	}
	a.mu.lines[said.Member] = conn
	return said, nil
}

// drop closes the connection to a member, if there is one.
func (a *standings) drop(member uint64) {
	if kept := a.mu.lines[member]; kept != nil {
		_ = kept.Close()
		delete(a.mu.lines, member)
	}
}

// inquire asks by a connection, for as long as ctx says.
func inquire(ctx context.Context, conn net.Conn) (said etcd.Standing, _ error) {
	until, _ := ctx.Deadline() // the zero time is for ever
	if err := conn.SetDeadline(until); err != nil {
		return said, err
	}
	var b [standingBytes]byte
	if _, err := conn.Write(b[:1]); err != nil {
		return said, err
	}
	if _, err := io.ReadFull(conn, b[:]); err != nil {
		return said, err
	}
	n := func(i int) uint64 { return binary.BigEndian.Uint64(b[1+8*i:]) }
	return etcd.Standing{Leads: b[0] == 1, Member: n(0), Follows: n(1), Term: n(2), Index: n(3)}, nil
}

// close closes the connections, for good.
func (a *standings) close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.mu.over = true
	for member := range a.mu.lines {
		a.drop(member)
	}
}
