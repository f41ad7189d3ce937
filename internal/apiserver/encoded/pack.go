package encoded

import (
	"encoding/binary"
	"math/bits"
)

// dictionary is text that others are packed against. It is immutable.
type dictionary struct {
	text  []byte
	table []uint16 // the place after a hash of 8 bytes of text; 0: nowhere
	shift uint     // of hashes to the size of table
}

// Limits of dictionaries and matches.
const (
	maxText  = 64<<10 - 1 // places fit into the table
	minMatch = 8          // shorter ones would cost what they save
	maxSkip  = 16         // bytes passed over at a time where nothing matches
)

func newDictionary(text []byte) *dictionary {
	size := bits.Len(uint(len(text)))
	d := &dictionary{text: text, table: make([]uint16, 1<<size), shift: uint(64 - size)}
	// From the end, so that of equal parts the first is found: what follows it is longest.
	for i := len(text) - minMatch; i >= 0; i-- {
		d.table[d.hash(binary.LittleEndian.Uint64(text[i:]))] = uint16(i + 1)
	}
	return d
}

func (d *dictionary) hash(v uint64) uint64 { return v * 0x9E3779B97F4A7C15 >> d.shift }

// A packed text is a sequence of: the length of a literal, the literal, the
// length of a match, and its place in the dictionary; all numbers are varints.
// The last match may be missing.

// pack appends src, as it is written with the dictionary, to dst.
func (d *dictionary) pack(dst, src []byte) []byte {
	literal, at, along := 0, 0, 0 // along is where in the text a match would go on
	misses := 0
	for at+minMatch <= len(src) {
		v := binary.LittleEndian.Uint64(src[at:])
		// After a difference of equal length, such as another digit, the old match goes on.
		from := along + (at - literal)
		if from+minMatch > len(d.text) || binary.LittleEndian.Uint64(d.text[from:]) != v {
			from = int(d.table[d.hash(v)]) - 1
			if from < 0 || binary.LittleEndian.Uint64(d.text[from:]) != v {
				misses++
				at += 1 + min(misses>>5, maxSkip)
				continue
			}
		}
		n := minMatch + matchLen(src[at+minMatch:], d.text[from+minMatch:])
		for at > literal && from > 0 && src[at-1] == d.text[from-1] {
			at, from, n = at-1, from-1, n+1
		}
		dst = append(binary.AppendUvarint(dst, uint64(at-literal)), src[literal:at]...)
		dst = binary.AppendUvarint(binary.AppendUvarint(dst, uint64(n)), uint64(from))
		at += n
		literal, along, misses = at, from+n, 0
	}
	if literal < len(src) {
		dst = append(binary.AppendUvarint(dst, uint64(len(src)-literal)), src[literal:]...)
	}
	return dst
}

// matchLen is how many bytes a and b have in common at their beginnings.
func matchLen(a, b []byte) int {
	n, most := 0, min(len(a), len(b))
	for n+8 <= most {
		if diff := binary.LittleEndian.Uint64(a[n:]) ^ binary.LittleEndian.Uint64(b[n:]); diff != 0 {
			return n + bits.TrailingZeros64(diff)/8
		}
		n += 8
	}
	for n < most && a[n] == b[n] {
		n++
	}
	return n
}

// unpack appends the text that was packed to dst.
func (d *dictionary) unpack(dst, packed []byte) []byte {
	for len(packed) > 0 {
		n, size := binary.Uvarint(packed)
		end := size + int(n)
		dst = append(dst, packed[size:end]...)
		if packed = packed[end:]; len(packed) == 0 {
			break
		}
		n, size = binary.Uvarint(packed)
		from, more := binary.Uvarint(packed[size:])
		packed = packed[size+more:]
		dst = append(dst, d.text[from:from+n]...)
	}
	return dst
}
