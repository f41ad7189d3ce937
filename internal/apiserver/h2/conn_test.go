package h2

import (
	"bytes"
	"strconv"
	"testing"
)

// TestBuffersThatHaveGrownAreForWhoSendsMuch: others keep small ones, of which there may be
// as many as connections.
func TestBuffersThatHaveGrownAreForWhoSendsMuch(t *testing.T) {
	for range 100 {
		large := withRoom(newBuffer(), gatherMost)
		large.Write(make([]byte, gatherMost))
		putBuffer(large)
		small := newBuffer()
		small.Write(make([]byte, 1000))
		if small.Cap() >= grownFrom {
			t.Fatalf("who sends little has a buffer of %d bytes", small.Cap())
		}
		putBuffer(small)
	}
	b := newBuffer()
	b.WriteString("what came before")
	if b = withRoom(b, grownFrom); b.String() != "what came before" || b.Cap() < grownTo {
		t.Errorf("after growing: got %q in a buffer of %d bytes", b, b.Cap())
	}
	putBuffer(b)
	if b := withRoom(newBuffer(), gatherMost); b.Len() != 0 {
		t.Errorf("got a buffer with %d bytes in it", b.Len())
	}
}

// BenchmarkBursts sends one event of 5 KB, then eleven, and so on: what a watch has when
// it is its turn differs from one time to the next.
func BenchmarkBursts(b *testing.B) {
	event := bytes.Repeat([]byte("e"), 5<<10)
	for _, most := range []int{1, 11} {
		b.Run(strconv.Itoa(most), func(b *testing.B) {
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				buf := newBuffer()
				for range 1 + i%2*(most-1) {
					buf = withRoom(buf, len(event))
					buf.Write(event)
				}
				putBuffer(buf)
			}
		})
	}
}
