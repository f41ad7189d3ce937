package inquiry

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/kemudi/kemudi/internal/rawconn"
	"github.com/kemudi/kemudi/internal/store/etcd"
)

const (
	// Path is where a server is asked, with the member that asks as the parameter asker, in hexadecimal.
	Path = rawconn.PathPrefix + "standing"

	protocol = "kemudi-standing/1"
	size     = 1 + 4*8 // of an answer: whether it leads; who it is, whom it follows, its term, its index
	// A connection by which nobody asks for so long is given up.
	idle = time.Minute
	// An answer has room on the way: who does not take it has gone.
	writeTime = time.Second
)

// Handler answers questions by one connection, each with what at says then. It returns when the connection is given up, at
// fails or the request's context ends.
func Handler(at func(context.Context) (etcd.Standing, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !rawconn.Asks(r, protocol) {
			http.Error(w, "how far the store is, is asked over HTTP/1.1 with the header Upgrade: "+protocol, http.StatusBadRequest)
			return
		}
		conn, err := rawconn.TakeOver(w, protocol, nil)
		if err != nil {
			return // it has gone
		}
		answer(r.Context(), conn, at)
	})
}

// answer answers the questions that come by a connection, until it is given up or ctx ends.
func answer(ctx context.Context, conn net.Conn, at func(context.Context) (etcd.Standing, error)) {
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	var b [size]byte
	for {
		_ = conn.SetDeadline(time.Now().Add(idle)) // one that is closed fails below
		if _, err := io.ReadFull(conn, b[:1]); err != nil {
			return
		}
		s, err := at(ctx)
		if err != nil {
			return
		}
		write(&b, s)
		_ = conn.SetDeadline(time.Now().Add(writeTime))
		if _, err := conn.Write(b[:]); err != nil {
			return
		}
	}
}

func write(b *[size]byte, s etcd.Standing) {
	b[0] = 0
	if s.Leads {
		b[0] = 1
	}
	for i, n := range []uint64{s.Member, s.Follows, s.Term, s.Index} {
		binary.BigEndian.PutUint64(b[1+8*i:], n)
	}
}

func read(b *[size]byte) etcd.Standing {
	n := func(i int) uint64 { return binary.BigEndian.Uint64(b[1+8*i:]) }
	return etcd.Standing{Leads: b[0] == 1, Member: n(0), Follows: n(1), Term: n(2), Index: n(3)}
}
