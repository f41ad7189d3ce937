package encoded

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/resource"
)

// world is items and a form that counts how often it is made.
type world struct {
	mu    sync.Mutex
	made  int
	items []*cache.Item
	old   map[*cache.Item]bool // that are no longer the newest state
	form  *Form
}

func newWorld(n int) *world {
	w := &world{old: map[*cache.Item]bool{}}
	for i := range n {
		w.items = append(w.items, &cache.Item{Key: fmt.Sprint(i), Object: &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint(i)}}})
	}
	w.form = &Form{
		Append: func(dst []byte, obj resource.Object) ([]byte, error) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.made++
			if obj.GetName() == "bad" {
				return dst, errors.New("no form")
			}
			return append(dst, text(obj.GetName())...), nil
		},
		Current: func(it *cache.Item) bool { return !w.old[it] },
	}
	return w
}

func text(name string) string {
	return "object " + name + ": " + strings.Repeat("many words ", 90) + name
}

func (w *world) check(t *testing.T, got []byte, err error, i int) {
	t.Helper()
	if err != nil || string(got) != text(fmt.Sprint(i)) {
		t.Fatalf("item %d: got %q, %v", i, got, err)
	}
}

func TestBytesAreMadeOnceAndSurviveInLittleRoom(t *testing.T) {
	const n = 500 // half a megabyte as they are
	w, s := newWorld(n), New(100<<10)
	for round := range 3 {
		for i, it := range w.items {
			got, err := s.Bytes(it, w.form)
			w.check(t, got, err, i)
			size, err := s.Size(it, w.form)
			if err != nil || size != len(got) {
				t.Fatalf("size: got %d, %v, want %d", size, err, len(got))
			}
		}
		if w.made != n {
			t.Fatalf("after round %d: made %d times, want %d", round, w.made, n)
		}
	}
	if used := s.raw.mu.used + s.packed.mu.used; used > 100<<10 {
		t.Errorf("takes %d bytes, want 100 KiB at most", used)
	}
}

func TestNothingIsKeptAsItIsAtRest(t *testing.T) {
	w, s := newWorld(50), New(1<<20)
	for i, it := range w.items {
		got, err := s.Bytes(it, w.form)
		w.check(t, got, err, i)
	}
	before := s.raw.mu.used
	s.Scavenge()
	for _, it := range w.items {
		if e := encodingOf(it, w.form); e.mu.raw != nil || e.mu.packed == nil {
			t.Errorf("%s: kept as it is: %t, packed: %t", it.Key, e.mu.raw != nil, e.mu.packed != nil)
		}
	}
	if after := s.raw.mu.used + s.packed.mu.used; after > before/2 {
		t.Errorf("takes %d bytes, want far fewer than %d", after, before)
	}
	for i, it := range w.items {
		got, err := s.Bytes(it, w.form)
		w.check(t, got, err, i)
	}
	if w.made != len(w.items) {
		t.Errorf("made %d times, want %d", w.made, len(w.items))
	}
}

func TestListsKeepTheirObjectsPacked(t *testing.T) {
	const n = 500
	w, s := newWorld(n), New(400<<10)
	for range 3 {
		for i, it := range w.items {
			got, err := s.Append(nil, it, w.form)
			w.check(t, got, err, i)
		}
	}
	if w.made != n {
		t.Errorf("made %d times, want %d", w.made, n)
	}
	for i, it := range w.items {
		got, err := s.Bytes(it, w.form)
		w.check(t, got, err, i)
	}
	if w.made != n {
		t.Errorf("made %d times to have them as they are, want %d", w.made, n)
	}
}

// States of before are behind one object that has not changed since.
func TestFormerStatesTakeNoRoomFromLists(t *testing.T) {
	const n = 3000
	w, s := newWorld(n), New(300<<10)
	w.form.Append = func(dst []byte, _ resource.Object) ([]byte, error) {
		w.made++
		x := uint32(w.made)
		for range 100 { // nothing resembles another
			x = x*1664525 + 1013904223
			dst = append(dst, byte(x>>24), byte(x>>16), byte(x>>8))
		}
		return dst, nil
	}
	list := func(items []*cache.Item) (made int) {
		t.Helper()
		before := w.made
		for _, it := range items {
			if _, err := s.Append(nil, it, w.form); err != nil {
				t.Fatal(err)
			}
		}
		return w.made - before
	}
	list(w.items)
	full := len(s.packed.mu.kept)
	for _, it := range w.items[1:full] {
		w.old[it] = true
	}
	s.packed.mu.at = time.Time{} // as if the last look had been long ago
	now := w.items[n-full/2:]
	if list(now); list(now) != 0 {
		t.Errorf("%d objects are made for each list, although %d others are of former states", len(now), full-1)
	}
	if e := encodingOf(w.items[1], w.form); e.mu.packed != nil {
		t.Error("the encoding of a former state is kept")
	}
}

func TestListsLeaveAloneWhatFillsTheRoom(t *testing.T) {
	const n = 3000
	w, s := newWorld(n), New(300<<10)
	for i, it := range w.items { // nothing resembles another
		it.Object.SetName(fmt.Sprintf("%d%x", i, i*2654435761))
	}
	w.form.Append = func(dst []byte, obj resource.Object) ([]byte, error) {
		w.made++
		x := uint32(w.made)
		for range 100 {
			x = x*1664525 + 1013904223
			dst = append(dst, byte(x>>24), byte(x>>16), byte(x>>8))
		}
		return dst, nil
	}
	w.form.Size = func(resource.Object) int { return 300 }
	for _, it := range w.items {
		if _, err := s.Append(nil, it, w.form); err != nil {
			t.Fatal(err)
		}
	}
	kept, before := len(s.packed.mu.kept), w.made
	for _, it := range w.items {
		if _, err := s.Append(nil, it, w.form); err != nil {
			t.Fatal(err)
		}
	}
	if again := w.made - before; again != n-kept || kept == 0 {
		t.Errorf("of %d objects %d were kept and %d made again", n, kept, again)
	}
	if n, err := s.Size(newWorld(1).items[0], w.form); n != 300 || err != nil {
		t.Errorf("size without room: got %d, %v, want what the form says", n, err)
	}
}

func TestOldStatesAreNotPacked(t *testing.T) {
	w, s := newWorld(100), New(40<<10)
	for _, it := range w.items[:50] {
		w.old[it] = true
	}
	for i, it := range w.items {
		got, err := s.Bytes(it, w.form)
		w.check(t, got, err, i)
	}
	for i, it := range w.items[:50] {
		if e := encodingOf(it, w.form); e.mu.packed != nil || e.mu.raw != nil {
			t.Errorf("old item %d is kept", i)
		}
	}
	if e := encodingOf(w.items[60], w.form); e.mu.packed == nil {
		t.Error("a new item is not packed")
	}
}

func TestOutdatedEncodingsGiveWayBeforeTheRoomIsFull(t *testing.T) {
	w, s := newWorld(100), New(1<<20)
	list := func(items []*cache.Item) {
		for _, it := range items {
			if _, err := s.Append(nil, it, w.form); err != nil {
				t.Fatal(err)
			}
		}
	}
	list(w.items[:50])
	full := s.packed.mu.used
	for _, it := range w.items[:50] {
		w.old[it] = true
	}
	list(w.items[50:])
	if used := s.packed.mu.used; used > full {
		t.Errorf("50 encodings take %d bytes, with 50 new ones instead %d", full, used)
	}
	for i, it := range w.items {
		if kept := encodingOf(it, w.form).mu.packed != nil; kept != (i >= 50) {
			t.Errorf("item %d: kept is %t", i, kept)
		}
	}
}

func TestErrorsAreNotKept(t *testing.T) {
	w, s := newWorld(1), New(1<<20)
	bad := &cache.Item{Object: &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "bad"}}}
	for range 2 {
		if _, err := s.Bytes(bad, w.form); err == nil {
			t.Error("bytes of a bad object: no error")
		}
		if got, err := s.Append([]byte("x"), bad, w.form); err == nil || string(got) != "x" {
			t.Errorf("append of a bad object: got %q, %v", got, err)
		}
		if _, err := s.Size(bad, w.form); err == nil {
			t.Error("size of a bad object: no error")
		}
	}
}

func TestEncodingsDoNotKeepItemsAlive(t *testing.T) {
	w, s := newWorld(1), New(1<<20)
	gone := make(chan struct{})
	func() {
		it := newWorld(1).items[0]
		runtime.AddCleanup(it, func(c chan struct{}) { close(c) }, gone)
		if _, err := s.Bytes(it, w.form); err != nil {
			t.Fatal(err)
		}
	}()
	for range 100 {
		runtime.GC()
		select {
		case <-gone:
			return
		default:
		}
		runtime.Gosched()
	}
	t.Error("the item is still there")
}

func TestManyReadersAgree(t *testing.T) {
	const n = 200
	w, s := newWorld(n), New(30<<10)
	var wg sync.WaitGroup
	for reader := range 4 {
		wg.Go(func() {
			for round := range 5 {
				for i, it := range w.items {
					var got []byte
					var err error
					if (reader+round)%2 == 0 {
						got, err = s.Bytes(it, w.form)
					} else {
						got, err = s.Append(nil, it, w.form)
					}
					if err != nil || string(got) != text(fmt.Sprint(i)) {
						t.Errorf("item %d: got %q, %v", i, got, err)
					}
				}
			}
		})
	}
	wg.Wait()
}

func TestWhatIsKeptIsToldWithoutMakingIt(t *testing.T) {
	w, s := newWorld(2), New(1<<20)
	for _, it := range w.items {
		if n := s.Kept(it, w.form); n != 0 {
			t.Errorf("before anybody asked %d bytes are kept", n)
		}
	}
	if _, err := s.Bytes(w.items[0], w.form); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Append(nil, w.items[1], w.form); err != nil {
		t.Fatal(err)
	}
	for i, it := range w.items {
		if n := s.Kept(it, w.form); n != len(text(fmt.Sprint(i))) {
			t.Errorf("item %d: got %d bytes, want %d", i, n, len(text(fmt.Sprint(i))))
		}
	}
	if w.made != 2 {
		t.Errorf("made %d times, want 2", w.made)
	}
	if n := s.Kept(w.items[0], &Form{}); n != 0 {
		t.Errorf("of a form that keeps nothing %d bytes are kept", n)
	}
}
