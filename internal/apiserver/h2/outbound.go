package h2

import "encoding/binary"

// head is that of a frame; RFC 9113, section 4.1.
type head struct {
	size   int
	kind   byte
	flags  byte
	stream uint32
}

func readHead(b []byte) head {
	return head{length(b), b[3], b[4], binary.BigEndian.Uint32(b[5:]) & most31}
}

// The kinds and flags of frames that outbound and lanes mind.
const (
	dataFrame         = 0
	resetFrame        = 3
	continuationFrame = 9

	endStreamFlag  = 1
	endHeadersFlag = 4

	frameMost = 16 << 10 // of the content of a frame: every client takes it
)

// outbound follows what the HTTP/2 server writes, to know where its frames begin.
type outbound struct {
	part [headSize]byte // the beginning of a head
	have int            // bytes of part
	left int            // bytes of the frame's content that are to come
	open bool           // a header block goes on in the next frame
}

// between says that what was followed ends with a frame, and that a frame of any
// stream may come next.
func (o *outbound) between() bool { return o.have == 0 && o.left == 0 && !o.open }

// follow calls frame with the head of each frame that begins in what is written next.
func (o *outbound) follow(p []byte, frame func(head)) {
	for len(p) > 0 {
		if o.left > 0 {
			n := min(o.left, len(p))
			p, o.left = p[n:], o.left-n
			continue
		}
		n := copy(o.part[o.have:], p)
		p, o.have = p[n:], o.have+n
		if o.have < headSize {
			return
		}
		h := readHead(o.part[:])
		o.have, o.left = 0, h.size
		if h.kind == headersFrame || h.kind == continuationFrame {
			o.open = h.flags&endHeadersFlag == 0
		}
		frame(h)
	}
}
