package h2

import "testing"

// TestBuffersThatHaveGrownAreForWhoSendsMuch: others keep small ones, of which there may be
// as many as connections.
func TestBuffersThatHaveGrownAreForWhoSendsMuch(t *testing.T) {
	for range 100 {
		large := newBuffer(0)
		large.Write(make([]byte, gatherMost))
		putBuffer(large)
		small := newBuffer(0)
		small.Write(make([]byte, 1000))
		if small.Cap() >= grownFrom {
			t.Fatalf("who sends little has a buffer of %d bytes", small.Cap())
		}
		putBuffer(small)
	}
	if b := newBuffer(gatherMost); b.Len() != 0 {
		t.Errorf("got a buffer with %d bytes in it", b.Len())
	}
}
