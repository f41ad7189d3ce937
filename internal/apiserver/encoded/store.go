package encoded

import (
	"sync"

	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/resource"
)

// Form is one way to write the objects of a resource: at a version, in a media
// type. It stands for itself: two Forms never share encodings.
type Form struct {
	// Append appends an object's bytes to dst.
	Append func(dst []byte, obj resource.Object) ([]byte, error)
	// Size is how many bytes Append would append, 0 if that is not known before.
	// It may be nil.
	Size func(obj resource.Object) int
	// Current reports whether the item is the newest state of its object; nil: no item
	// is asked for again, and no bytes are kept.
	Current func(it *cache.Item) bool

	learner learner
}

// Store bounds the memory that encodings take. It may be used concurrently.
type Store struct {
	raw, packed queue
}

// New returns a store that keeps up to limit bytes: a quarter of them as they
// are, the others packed.
func New(limit int64) *Store {
	outdated := func(e *encoding) bool { return !e.form.Current(e.item) } // E3
	return &Store{raw: queue{limit: limit / 4}, packed: queue{limit: limit - limit/4, stale: outdated}}
}

// encoding is an item's bytes in one form, kept with the item.
type encoding struct {
	item *cache.Item
	form *Form

	mu struct {
		sync.Mutex
		raw    []byte // nil: not kept
		packed []byte // nil: not kept; made with dict
		dict   *dictionary
		size   int // of the bytes when unpacked
	}
}

func encodingOf(it *cache.Item, f *Form) *encoding {
	return it.Note(f, func() any { return &encoding{item: it, form: f} }).(*encoding)
}

// Bytes returns the item's bytes in a form, and keeps them for the next reader.
func (s *Store) Bytes(it *cache.Item, f *Form) ([]byte, error) {
	if f.Current == nil {
		return f.Append(nil, it.Object)
	}
	e := encodingOf(it, f)
	b, made, err := e.bytes()
	if made {
		s.keep(e, len(b))
	}
	return b, err
}

// bytes returns the bytes as they are; made says that they were not before.
func (e *encoding) bytes() (b []byte, made bool, err error) {
	e.mu.Lock() // others wait for the bytes: they are made once
	defer e.mu.Unlock()
	if e.mu.raw != nil {
		return e.mu.raw, false, nil
	}
	if e.mu.packed != nil {
		b = e.mu.dict.unpack(make([]byte, 0, e.mu.size), e.mu.packed)
	} else {
		buf := scratch.Get().(*[]byte)
		defer scratch.Put(buf)
		if *buf, err = e.form.Append((*buf)[:0], e.item.Object); err != nil {
			return nil, false, err
		}
		b = append(make([]byte, 0, len(*buf)), *buf...)
	}
	e.mu.raw, e.mu.size = b, len(b)
	return b, true, nil
}

// scratch lends room to encode into when the size is not known.
var scratch = sync.Pool{New: func() any { b := make([]byte, 0, 16<<10); return &b }}

// Append appends the item's bytes in a form to dst. New ones are kept packed: it
// is for lists, which ask for many at once.
func (s *Store) Append(dst []byte, it *cache.Item, f *Form) ([]byte, error) {
	if f.Current == nil {
		return f.Append(dst, it.Object)
	}
	e := encodingOf(it, f)
	dst, packed, err := e.append(dst, s.packed.full)
	if packed > 0 {
		s.packed.add(e, packed, (*encoding).forgetPacked)
	}
	return dst, err
}

// append appends the bytes; packed is the size of what has been packed now.
func (e *encoding) append(dst []byte, full func() bool) (_ []byte, packed int, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.mu.raw != nil:
		return append(dst, e.mu.raw...), 0, nil
	case e.mu.packed != nil:
		return e.mu.dict.unpack(dst, e.mu.packed), 0, nil
	}
	n := len(dst)
	if dst, err = e.form.Append(dst, e.item.Object); err != nil {
		return dst, 0, err
	}
	if e.mu.size = len(dst) - n; full() {
		return dst, 0, nil
	}
	return dst, e.packLocked(dst[n:]), nil
}

// Size is how many bytes Append would append.
func (s *Store) Size(it *cache.Item, f *Form) (int, error) {
	if f.Current == nil && f.Size != nil {
		return f.Size(it.Object), nil
	}
	if n := encodingOf(it, f).size(s.packed.full); n > 0 {
		return n, nil
	}
	buf := scratch.Get().(*[]byte)
	defer scratch.Put(buf)
	var err error
	*buf, err = s.Append((*buf)[:0], it, f)
	return len(*buf), err
}

// Kept is how many bytes Append would append without making them, 0 if it would make
// them.
func (s *Store) Kept(it *cache.Item, f *Form) int {
	if f.Current == nil {
		return 0
	}
	e := encodingOf(it, f)
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.mu.raw == nil && e.mu.packed == nil {
		return 0
	}
	return e.mu.size
}

// size is the size of the bytes, 0 if they have to be made to know it.
func (e *encoding) size(full func() bool) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.mu.size == 0 && e.form.Size != nil && full() {
		e.mu.size = e.form.Size(e.item.Object)
	}
	return e.mu.size
}

// packLocked packs the bytes and returns their size then.
func (e *encoding) packLocked(text []byte) int {
	buf := scratch.Get().(*[]byte)
	defer scratch.Put(buf)
	d := e.form.learner.dictionary()
	if d == nil {
		d = noDictionary
	}
	*buf = d.pack((*buf)[:0], text)
	e.form.learner.packed(text, len(*buf))
	e.mu.packed, e.mu.dict = append(make([]byte, 0, len(*buf)), *buf...), d
	return len(*buf)
}

// noDictionary packs texts as themselves.
var noDictionary = newDictionary(nil)

// keep accounts for raw bytes that were just made. The oldest are packed to make
// room for them.
func (s *Store) keep(e *encoding, size int) {
	s.raw.add(e, size, s.shelve)
}

// Scavenge packs what is kept as it is, or lets it go, for a server that has little to do.
func (s *Store) Scavenge() {
	for _, d := range s.raw.empty() {
		if e := d.e.Value(); e != nil {
			s.shelve(e)
		}
	}
}

func (s *Store) shelve(e *encoding) {
	if size := e.shelve(); size > 0 {
		s.packed.add(e, size, (*encoding).forgetPacked)
	}
}

// shelve lets raw bytes go, packed if they will be asked for again (E3), and
// returns the size of what was packed.
func (e *encoding) shelve() int {
	current := e.form.Current(e.item)
	e.mu.Lock()
	defer e.mu.Unlock()
	raw := e.mu.raw
	e.mu.raw = nil
	if raw == nil || e.mu.packed != nil || !current {
		return 0
	}
	return e.packLocked(raw)
}

func (e *encoding) forgetPacked() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.mu.packed, e.mu.dict = nil, nil
}
