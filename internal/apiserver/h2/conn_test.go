package h2

import (
	"bytes"
	"strconv"
	"testing"
)

// TestLargeBuffersAreForWhoSendsMuch: others keep small ones, of which there may be
// as many as connections.
func TestLargeBuffersAreForWhoSendsMuch(t *testing.T) {
	for range 100 {
		much := withRoom(newBuffer(), gatherMost)
		much.Write(make([]byte, gatherMost))
		putBuffer(much)
		little := newBuffer()
		little.Write(make([]byte, 1000))
		if little.Cap() > smallMost {
			t.Fatalf("who sends little has a buffer of %d bytes", little.Cap())
		}
		putBuffer(little)
	}
	b := newBuffer()
	b.WriteString("what came before")
	if b = withRoom(b, smallMost); b.String() != "what came before" || b.Cap() < largeFrom {
		t.Errorf("after growing: got %q in a buffer of %d bytes", b, b.Cap())
	}
	putBuffer(b)
	if b := withRoom(newBuffer(), gatherMost); b.Len() != 0 {
		t.Errorf("got a buffer with %d bytes in it", b.Len())
	}
	between := bytes.NewBuffer(make([]byte, smallMost, smallMost+1))
	if b := withRoom(between, 2); b.Cap() < largeFrom || b.Len() != smallMost {
		t.Errorf("after growing once more: got %d bytes in a buffer of %d", b.Len(), b.Cap())
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
