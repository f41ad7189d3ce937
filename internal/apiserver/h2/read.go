package h2

import (
	"errors"
	"os"
	"time"
)

const (
	readSize = 1 << 10
	// heldFor is how long a client's window updates are held back at most. Only one that
	// waits for the last byte of its window ever waits for them.
	heldFor = 100 * time.Millisecond
)

// inbound is the receiving side of a Conn. It belongs to the goroutine that reads.
type inbound struct {
	came   [readSize]byte // what has come
	kept   []byte         // what the server is to see of it
	seen   int            // how much of kept it has seen
	credit credit
	late   *time.Timer // ends the present read, or else the next one
	armed  bool        // late has been set, and has not ended a read yet
}

// Read returns what the client has sent, less the window updates that are held back. One
// goroutine at a time may read, and nobody may set a deadline for it.
func (c *Conn) Read(p []byte) (n int, err error) {
	in := &c.in
	for in.seen == len(in.kept) {
		if len(in.credit.held) > 0 && !in.armed {
			in.armed = true
			in.late.Reset(heldFor)
		}
		in.kept, in.seen = in.kept[:0], 0
		if most := min(in.credit.pass, len(p)); most > 0 { // as it is, without a detour
			n, err = c.Conn.Read(p[:most])
			if in.credit.pass -= n; n > 0 {
				return n, nil
			}
		} else {
			n, err = c.Conn.Read(in.came[:])
			in.kept = in.credit.filter(in.kept, in.came[:n])
		}
		if in.armed && errors.Is(err, os.ErrDeadlineExceeded) {
			in.armed = false
			err = c.SetReadDeadline(time.Time{})
			in.kept = in.credit.flush(in.kept)
		}
		if err != nil && len(in.kept) == 0 {
			return 0, err // what comes with bytes comes again
		}
	}
	n = copy(p, in.kept[in.seen:])
	in.seen += n
	return n, nil
}

// tellLate lets the goroutine that reads tell what is held back.
func (c *Conn) tellLate() {
	_ = c.SetReadDeadline(time.Unix(1, 0)) // it fails when the connection is closed: nobody reads then
}
