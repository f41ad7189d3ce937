package wire

import (
	"math/bits"
	"unicode/utf8"
	"unsafe"
)

// plain tells the bytes that stand for themselves in a JSON string that is
// also safe within HTML.
var plain = func() (t [utf8.RuneSelf]bool) {
	for c := byte(' '); c < utf8.RuneSelf; c++ {
		t[c] = c != '"' && c != '\\' && c != '<' && c != '>' && c != '&' && c != 0x7f
	}
	t[0x7f] = true
	return t
}()

// A byte repeated eight times, to look at eight bytes at once.
const (
	ones  = 0x0101010101010101
	highs = 0x80 * ones
)

// has marks (by its highest bit) at least the first byte of v that equals c; all
// bytes of v must be below 0x80.
func has(v uint64, c byte) uint64 { return below(v^ones*uint64(c), 1) }

// below marks at least the first byte of v that is less than n; all bytes of v
// and n must be below 0x80.
func below(v uint64, n byte) uint64 { return (v - ones*uint64(n)) & highs }

// plainPrefix is how many bytes at the beginning of s stand for themselves, as
// far as that can be seen eight bytes at a time.
func plainPrefix(s string) int {
	p, n := unsafe.Pointer(unsafe.StringData(s)), 0
	for ; n+8 <= len(s); n += 8 {
		v := *(*uint64)(unsafe.Add(p, n))
		if v&highs != 0 {
			return n
		}
		if special := below(v, ' ') | has(v, '"') | has(v, '\\') | has(v, '<') | has(v, '>') | has(v, '&'); special != 0 {
			return n + bits.TrailingZeros64(special)/8
		}
	}
	return n
}

const hex = "0123456789abcdef"

// AppendString appends s as a JSON string, escaped as encoding/json does it.
func AppendString(dst []byte, s string) []byte {
	dst = append(dst, '"')
	start := 0
	for i := plainPrefix(s); i < len(s); {
		c := s[i]
		if c < utf8.RuneSelf {
			if plain[c] {
				i++
				continue
			}
			dst = append(dst, s[start:i]...)
			dst = appendEscape(dst, c)
			i++
			start = i
			continue
		}
		r, size := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && size == 1:
			dst = append(dst, s[start:i]...)
			dst = append(dst, `\ufffd`...)
		case r == '\u2028' || r == '\u2029':
			dst = append(dst, s[start:i]...)
			dst = append(dst, `\u202`...)
			dst = append(dst, hex[r&0xf])
		default:
			i += size
			continue
		}
		i += size
		start = i
	}
	dst = append(dst, s[start:]...)
	return append(dst, '"')
}

func appendEscape(dst []byte, c byte) []byte {
	switch c {
	case '"', '\\':
		return append(dst, '\\', c)
	case '\b':
		return append(dst, '\\', 'b')
	case '\f':
		return append(dst, '\\', 'f')
	case '\n':
		return append(dst, '\\', 'n')
	case '\r':
		return append(dst, '\\', 'r')
	case '\t':
		return append(dst, '\\', 't')
	}
	return append(dst, '\\', 'u', '0', '0', hex[c>>4], hex[c&0xf])
}
