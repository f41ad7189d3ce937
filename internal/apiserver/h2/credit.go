package h2

import "encoding/binary"

// A client that reads much says again and again that it may be sent more: Go's
// two frames for each 8 KiB, which go through three goroutines of the HTTP/2
// server each. credit adds those of one stream up until they are worth telling.
//
// So much may be held back for a while, since the client counts it as room that
// the server has not used yet: what a client waits with is far less than the rest
// of its window. Who waits for the very last byte is told by [Conn.Read] in time.
type credit struct {
	pass   int    // so many bytes belong to a frame that is passed on
	part   []byte // the beginning of a frame
	opened bool   // there has been a request
	window uint32 // what a stream may be sent to begin with
	whole  uint32 // the same of the connection
	held   []windowUpdate
	lanes  *lanes // nil: there are none
}

// windowUpdate is how much more a stream, or with 0 the connection, may be sent.
type windowUpdate struct{ stream, bytes uint32 }

// What of frames is needed here; RFC 9113, sections 3.4, 4.1, 6.5 and 6.9.
const (
	prefaceSize   = 24
	headSize      = 9
	updateSize    = 4 // of the content of a window update
	settingSize   = 6
	firstWindow   = 1<<16 - 1 // unless the client says otherwise
	initialWindow = 4         // the setting for it

	headersFrame  = 1
	settingsFrame = 4
	updateFrame   = 8
	ackFlag       = 1
	most31        = 1<<31 - 1 // of windows, and of what a reserved bit is before
)

const (
	heldShare = 8                 // this part of a window may be held back
	heldMost  = 512 << 10         // and no more than this
	heldKinds = 8                 // of so many streams
	lookedAt  = 100 * settingSize // the server refuses what has more
)

func newCredit() credit {
	return credit{pass: prefaceSize, window: firstWindow, whole: firstWindow}
}

// filter appends to dst what the server is to see of src, the client's next bytes. As
// long as the client keeps to the rules, the server is never shown more bytes than the client has sent.
func (c *credit) filter(dst, src []byte) []byte {
	for len(src) > 0 {
		if c.pass > 0 {
			n := min(c.pass, len(src))
			dst, src, c.pass = append(dst, src[:n]...), src[n:], c.pass-n
			continue
		}
		want := headSize
		if len(c.part) >= headSize {
			want += length(c.part)
		}
		n := min(want-len(c.part), len(src))
		c.part, src = append(c.part, src[:n]...), src[n:]
		switch {
		case len(c.part) < want || want == headSize && looksInto(c.part):
			continue // until there is all of it
		case want == headSize:
			c.opened = c.opened || c.part[3] == headersFrame
			if c.lanes != nil && c.part[3] == resetFrame {
				c.lanes.reset(readHead(c.part).stream)
			}
			dst, c.pass = append(dst, c.part...), length(c.part)
		case c.part[3] == settingsFrame:
			// All windows change, so that the shares of them held back do.
			dst = append(c.flush(dst), c.part...)
			c.settings(c.part[headSize:])
		default:
			dst = c.update(dst)
		}
		c.part = c.part[:0]
	}
	return dst
}

func length(head []byte) int { return int(head[0])<<16 | int(head[1])<<8 | int(head[2]) }

// looksInto says whether the content of a frame with this head is looked at.
func looksInto(head []byte) bool {
	switch n := length(head); head[3] {
	case updateFrame:
		return n == updateSize
	case settingsFrame:
		return head[4]&ackFlag == 0 && n > 0 && n <= lookedAt
	}
	return false
}

func (c *credit) settings(list []byte) {
	for ; len(list) >= settingSize; list = list[settingSize:] {
		if binary.BigEndian.Uint16(list) == initialWindow {
			c.window = binary.BigEndian.Uint32(list[2:])
			if c.lanes != nil {
				c.lanes.resize(c.window)
			}
		}
	}
}

// update takes the window update in part. The frame is passed on if it
// breaks the rules or is about more than may be held back.
func (c *credit) update(dst []byte) []byte {
	u := windowUpdate{binary.BigEndian.Uint32(c.part[5:]) & most31, binary.BigEndian.Uint32(c.part[headSize:]) & most31}
	if c.lanes != nil && u.bytes > 0 {
		left, ok := c.lanes.update(u, c.opened)
		if !ok { // so that the server finds it out, which knows of less
			u.bytes = most31
			return appendUpdate(appendUpdate(dst, u), u)
		}
		if left == 0 {
			return dst
		}
		u.bytes = left
		binary.BigEndian.PutUint32(c.part[headSize:], left)
	}
	window := c.window
	if u.stream == 0 {
		if window = c.whole; !c.opened { // so the client says how large it is
			c.whole = min(c.whole+u.bytes, most31)
		}
	}
	most := min(window/heldShare, heldMost)
	if !c.opened || u.bytes == 0 || u.bytes >= most {
		return append(dst, c.part...)
	}
	for i := range c.held {
		if h := &c.held[i]; h.stream == u.stream {
			if h.bytes += u.bytes; h.bytes < most {
				return dst
			}
			dst = appendUpdate(dst, *h)
			*h = c.held[len(c.held)-1]
			c.held = c.held[:len(c.held)-1]
			return dst
		}
	}
	if len(c.held) == heldKinds {
		dst = c.flush(dst) // most of the streams have ended
	}
	c.held = append(c.held, u)
	return dst
}

// flush appends all that is held back, unless what was passed on last is not yet a
// whole frame.
func (c *credit) flush(dst []byte) []byte {
	if c.pass > 0 {
		return dst
	}
	for _, u := range c.held {
		dst = appendUpdate(dst, u)
	}
	c.held = c.held[:0]
	return dst
}

func appendUpdate(dst []byte, u windowUpdate) []byte {
	dst = appendHead(dst, head{size: updateSize, kind: updateFrame, stream: u.stream})
	return binary.BigEndian.AppendUint32(dst, u.bytes)
}
