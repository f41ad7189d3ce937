package dialback

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
)

// framed is a connection between servers, which one goroutine reads and one writes. It says where what is sent ends, so that what
// was broken off is not taken for all there is: TLS in Go does not tell them apart. Each
// frame is its length in four bytes, the highest first, and so many bytes; one of none is the end.
type framed struct {
	net.Conn
	left  uint32 // of the frame that is being read
	ended bool   // the last frame was read

	frame []byte // what was written last
	said  bool   // that nothing follows
}

// maxFrame is how long a frame is at the most.
const maxFrame = 32 << 10

const frameHead = 4

// Read reads what the other end has sent.
func (f *framed) Read(p []byte) (int, error) {
	if f.ended || len(p) == 0 {
		return 0, f.end()
	}
	if f.left == 0 {
		var head [frameHead]byte
		if _, err := io.ReadFull(f.Conn, head[:]); err != nil {
			return 0, broken(err)
		}
		f.left = binary.BigEndian.Uint32(head[:])
		if f.ended = f.left == 0; f.ended {
			return 0, io.EOF
		}
	}
	n, err := f.Conn.Read(p[:min(len(p), int(f.left))])
	f.left -= uint32(n)
	if n > 0 {
		return n, nil // an error comes again
	}
	return 0, broken(err)
}

func (f *framed) end() error {
	if f.ended {
		return io.EOF
	}
	return nil
}

// broken is the error of a connection that ends within what was to come.
func broken(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// Write sends to the other end.
func (f *framed) Write(p []byte) (n int, err error) {
	if f.said {
		return 0, net.ErrClosed
	}
	for len(p) > 0 {
		next := p[:min(len(p), maxFrame)]
		f.frame = append(binary.BigEndian.AppendUint32(f.frame[:0], uint32(len(next))), next...)
		if _, err := f.Conn.Write(f.frame); err != nil {
			return n, err
		}
		n += len(next)
		p = p[len(next):]
	}
	return n, nil
}

// CloseWrite tells the other end that nothing follows.
func (f *framed) CloseWrite() error {
	if f.said {
		return nil
	}
	f.said = true
	_, err := f.Conn.Write(make([]byte, frameHead))
	return err
}
