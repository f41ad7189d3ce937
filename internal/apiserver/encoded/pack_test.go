package encoded

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"
)

func TestPackedTextsComeBack(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	random := func(n int) []byte {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(rnd.IntN(4)) + 'a' // few letters: many short matches
		}
		return b
	}
	for range 2000 {
		d := newDictionary(random(rnd.IntN(300)))
		text := random(rnd.IntN(100))
		for range rnd.IntN(4) { // with parts of the dictionary
			if n := len(d.text); n > 0 {
				from := rnd.IntN(n)
				text = append(text, d.text[from:from+rnd.IntN(n-from)]...)
			}
			text = append(text, random(rnd.IntN(20))...)
		}
		packed := d.pack([]byte("before"), text)
		if got := d.unpack([]byte("and"), packed[len("before"):]); string(got) != "and"+string(text) {
			t.Fatalf("dictionary %q\ntext %q\ncame back as %q", d.text, text, got)
		}
	}
}

func FuzzPack(f *testing.F) {
	f.Add([]byte("a dictionary of words"), []byte("words of a dictionary"))
	f.Fuzz(func(t *testing.T, words, text []byte) {
		d := newDictionary(words[:min(len(words), maxText)])
		if got := d.unpack(nil, d.pack(nil, text)); !bytes.Equal(got, text) {
			t.Errorf("dictionary %q: %q came back as %q", words, text, got)
		}
	})
}

// sibling is an object as one template makes many: about 5 KB that differ in a few places.
func sibling(i int) []byte {
	var b bytes.Buffer
	for part := range 40 {
		fmt.Fprintf(&b, `{"name":"part-%d","value":"%060d","kind":"of a long and winding description"},`, part, part*1000)
		if part%10 == 0 {
			fmt.Fprintf(&b, `"uid":"%08x-%04x","owner":"node-%d",`, i*2654435761, i%65536, i%100)
		}
	}
	return b.Bytes()
}

func TestSiblingsArePackedToAFraction(t *testing.T) {
	var l learner
	size, packed := 0, 0
	for i := range 200 {
		d := l.dictionary()
		if d == nil {
			d = noDictionary
		}
		text := sibling(i)
		p := d.pack(nil, text)
		l.packed(text, len(p))
		if got := d.unpack(nil, p); !bytes.Equal(got, text) {
			t.Fatalf("object %d came back as %q", i, got)
		}
		size, packed = size+len(text), packed+len(p)
	}
	if packed*20 > size {
		t.Errorf("%d bytes were packed into %d, want a twentieth", size, packed)
	}
}

func TestDictionaryFollowsWhatIsStored(t *testing.T) {
	var l learner
	old := func(i int) []byte {
		return fmt.Appendf(nil, "%d %s", i, bytes.Repeat([]byte("old kind of object "), 100+i%3))
	}
	fresh := func(seed uint64) []byte {
		rnd := rand.New(rand.NewPCG(seed, 0))
		b := make([]byte, 4000)
		for i := range b {
			b[i] = byte(rnd.Uint32())
		}
		return b
	}
	use := func(text []byte) int {
		d := l.dictionary()
		if d == nil {
			d = noDictionary
		}
		n := len(d.pack(nil, text))
		l.packed(text, n)
		return n
	}
	for i := range 100 {
		use(old(i))
	}
	for i := range uint64(3 * relearnAfter) { // a few kinds of objects that nothing before resembles
		use(fresh(i % 8))
	}
	for i := range uint64(8) {
		if n := use(fresh(i)); n > 1000 {
			t.Errorf("object %d, seen many times: packed into %d bytes of 4000", i, n)
		}
	}
	if n := len(l.dictionary().text); n > maxText {
		t.Errorf("the dictionary has %d bytes", n)
	}
}

func BenchmarkPack(b *testing.B) {
	d, text := newDictionary(sibling(0)), sibling(1234)
	var room []byte
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		room = d.pack(room[:0], text)
	}
	b.ReportMetric(float64(len(text))/float64(len(room)), "times-smaller")
}

func BenchmarkUnpack(b *testing.B) {
	d, text := newDictionary(sibling(0)), sibling(1234)
	packed := d.pack(nil, text)
	var room []byte
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		room = d.unpack(room[:0], packed)
	}
}

// TestLearnsMoreWhereItPays has objects of four kinds that resemble each other
// somewhat: with the first alone they would all be packed, but not well.
func TestLearnsMoreWhereItPays(t *testing.T) {
	var l learner
	made := map[*dictionary]bool{}
	size, packed := 0, 0
	for i := range 2000 {
		text := fmt.Appendf(sibling(i), "%s", bytes.Repeat([]byte{byte('a' + i%4)}, 10))
		for part := range 80 {
			text = fmt.Appendf(text, `"of kind %d":"%016d",`, i%4, (i%4+1)*part*7919)
		}
		d := l.dictionary()
		if d == nil {
			d = noDictionary
		}
		made[d] = true
		p := d.pack(nil, text)
		l.packed(text, len(p))
		size, packed = size+len(text), packed+len(p)
	}
	if packed*20 > size {
		t.Errorf("%d bytes were packed into %d, want a twentieth", size, packed)
	}
	if len(made) > 12 {
		t.Errorf("%d dictionaries were made for 2,000 objects, want few", len(made))
	}
}
