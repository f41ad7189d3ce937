package apiserver

import (
	"errors"
	"sync"
	"time"
	"weak"

	"github.com/kemudi/kemudi/internal/apiserver/request"
	"github.com/kemudi/kemudi/internal/apiserver/wire"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/resource"
)

// form names one encoding of an object: the key of cache.Item.Encoding. JSON is
// kept without kind and apiVersion, protobuf without its envelope: both are put
// around the bytes when they are sent.
type form struct {
	v *served
	m request.Media
}

// errNoProto says that a kind cannot be sent as protobuf.
var errNoProto = errors.New("object does not implement the protobuf marshalling interface and cannot be encoded to a protobuf message")

// appendObject appends an object of the storage version in a form.
func (f form) appendObject(dst []byte, obj resource.Object) ([]byte, error) {
	out, err := f.v.fromStorage(obj)
	if err != nil {
		return dst, err
	}
	if f.m == request.MediaProto {
		p, ok := out.(wire.Proto)
		if !ok {
			return dst, errNoProto
		}
		return wire.AppendProtoBody(dst, p)
	}
	return wire.AppendJSON(dst, out)
}

func (f form) encode(obj resource.Object) ([]byte, error) {
	if f.m == request.MediaProto && f.v.ver == nil {
		return f.appendObject(nil, obj) // knows its size
	}
	room := scratch.Get().(*[]byte)
	defer scratch.Put(room)
	b, err := f.appendObject((*room)[:0], obj)
	if err != nil {
		return nil, err
	}
	*room = b
	return append(make([]byte, 0, len(b)), b...), nil
}

// scratch lends room to encode into when the size is not known.
var scratch = sync.Pool{New: func() any { b := make([]byte, 0, 16<<10); return &b }}

// bytes returns the item's bytes in a form and keeps them for the next reader.
func (s *Server) bytes(it *cache.Item, f form) ([]byte, error) {
	size := 0
	b, err := it.Encoding(f, func(obj resource.Object) ([]byte, error) {
		b, err := f.encode(obj)
		size = len(b)
		return b, err
	})
	if size > 0 {
		s.encoded.keep(it, f, size)
	}
	return b, err
}

// encodedBudget bounds the memory that encodings of cached objects take. When
// it is used up, those kept longest go first.
type encodedBudget struct {
	limit int64

	mu struct {
		sync.Mutex
		used int64
		kept []keptEncoding // a queue: the oldest is at next
		next int
	}
}

type keptEncoding struct {
	item  weak.Pointer[cache.Item]
	form  form
	size  int
	since time.Time
}

func newEncodedBudget(limit int64) *encodedBudget { return &encodedBudget{limit: limit} }

// keep accounts for an encoding that was just made, and makes room for it.
func (b *encodedBudget) keep(it *cache.Item, f form, size int) {
	b.mu.Lock()
	b.mu.used += int64(size)
	b.mu.kept = append(b.mu.kept, keptEncoding{weak.Make(it), f, size, time.Now()})
	var drop []keptEncoding
	for b.mu.used > b.limit && b.mu.next < len(b.mu.kept)-1 {
		old := b.mu.kept[b.mu.next]
		b.mu.kept[b.mu.next] = keptEncoding{}
		b.mu.next++
		b.mu.used -= int64(old.size)
		drop = append(drop, old)
	}
	if b.mu.next > len(b.mu.kept)/2 && b.mu.next > 1024 {
		b.mu.kept = append(b.mu.kept[:0], b.mu.kept[b.mu.next:]...)
		b.mu.next = 0
	}
	b.mu.Unlock()
	for _, d := range drop {
		if it := d.item.Value(); it != nil {
			it.Forget(d.form)
		}
	}
}

// A list of everything would push out what the next one needs first. So a list
// adds to what is kept only while there is room, or in the place of what was
// made some time ago.
const (
	roomy = 256 << 10
	aged  = 30 * time.Second
)

// full reports that a list had better not have its encodings kept.
func (b *encodedBudget) full() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.mu.used+roomy >= b.limit && b.mu.next < len(b.mu.kept) && time.Since(b.mu.kept[b.mu.next].since) < aged
}
