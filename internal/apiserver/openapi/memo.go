package openapi

import (
	"bytes"
	"compress/gzip"
	"crypto/sha512"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"strings"
	"sync"
	"time"
	"weak"
)

// unused is how long a document is kept that nobody asks for.
const unused = 10 * time.Minute

// memo is the documents that have been made and are still asked for. It outlives the services that make
// them: when a kind comes or goes, most documents stay as they were.
type memo struct {
	mu struct {
		sync.Mutex
		entries map[string]*entry // by the document's name
	}
	all struct {
		sync.Mutex
		weak.Pointer[models] // while something else needs them, they are not read again
	}
}

func newMemo() *memo {
	m := &memo{}
	m.mu.entries = map[string]*entry{}
	return m
}

// entry is one document. Who makes it holds the lock.
type entry struct {
	mu struct {
		sync.Mutex
		from   string            // the hash of what it was made from
		packed map[string][]byte // compressed, by media type, as long as somebody asks for it
		forget *time.Timer
	}
}

// entry returns that of a document.
func (m *memo) entry(name string) *entry {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.mu.entries[name]
	if e == nil {
		e = &entry{}
		m.mu.entries[name] = e
	}
	return e
}

// retain forgets the documents that are not there any more.
func (m *memo) retain(there map[string]string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	maps.DeleteFunc(m.mu.entries, func(name string, _ *entry) bool { return there[name] == "" })
}

// models returns the schemas of types.
func (m *memo) models() (*models, error) {
	m.all.Lock()
	defer m.all.Unlock()
	if all := m.all.Value(); all != nil {
		return all, nil
	}
	all, err := readModels()
	if err == nil {
		m.all.Pointer = weak.Make(all)
	}
	return all, err
}

// ofLocked says what the document is to be made from, and forgets it if it was made from something else.
func (e *entry) ofLocked(from string) {
	if e.mu.from != from {
		e.mu.from, e.mu.packed = from, nil
	}
}

// keepLocked keeps a form of the document for a while, which write makes.
func (e *entry) keepLocked(mediaType string, write func(io.Writer) error) error {
	data, err := compressed(write)
	if err != nil {
		return err
	}
	if e.mu.packed == nil {
		e.mu.packed = map[string][]byte{}
	}
	e.mu.packed[mediaType] = data
	return nil
}

// compressed is what write writes.
func compressed(write func(io.Writer) error) ([]byte, error) {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	err := write(z)
	if err == nil {
		err = z.Close()
	}
	if err != nil {
		return nil, fmt.Errorf("make a document: %w", err)
	}
	return bytes.Clone(b.Bytes()), nil
}

// usedLocked puts off that the document is forgotten.
func (e *entry) usedLocked() {
	if e.mu.forget != nil {
		e.mu.forget.Reset(unused)
		return
	}
	e.mu.forget = time.AfterFunc(unused, func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.mu.packed, e.mu.forget = nil, nil
	})
}

// schemasSum tells apart the schemas of one program and another.
var schemasSum = sync.OnceValue(func() string {
	sum := sha512.Sum512(packed)
	return string(sum[:])
})

// hashOf tells apart documents by what they are made from: their name, what is served in them, and the schemas.
func hashOf(name, from string) string {
	sum := sha512.Sum512([]byte(name + "\n" + from + "\n" + schemasSum()))
	return strings.ToUpper(hex.EncodeToString(sum[:]))
}
