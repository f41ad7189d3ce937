// Package file reads files that people edit while a cloud is asked by them: each state is parsed once, however often the
// cloud is asked. What a file says is for who reads it.
package file

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"sync"
	"time"
)

// Parsed is what a file says. It may be used concurrently.
type Parsed[T any] struct {
	path  string
	parse func(data []byte) (T, error)
	mu    struct {
		sync.Mutex
		said T
		of   fs.FileInfo // the state that said it; nil: none that is known to stay
	}
}

// New returns a file that parse makes something of.
func New[T any](path string, parse func(data []byte) (T, error)) *Parsed[T] {
	return &Parsed[T]{path: path, parse: parse}
}

// ErrEmpty says that there is nothing in a file: somebody is about to write it.
var ErrEmpty = errors.New("it is empty")

// racy is how old a state has to be that is not parsed again: what is written right after may have
// the same time.
const racy = 2 * time.Second

// Get returns what the file says now, which is shared and read-only.
func (f *Parsed[T]) Get() (said T, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	is, err := os.Stat(f.path)
	if err != nil {
		return said, err
	}
	if was := f.mu.of; was != nil && os.SameFile(was, is) && was.ModTime().Equal(is.ModTime()) && was.Size() == is.Size() {
		return f.mu.said, nil
	}
	f.mu.of = nil
	if said, err = f.Fresh(); err != nil {
		return said, err
	}
	if time.Since(is.ModTime()) > racy {
		f.mu.said, f.mu.of = said, is
	}
	return said, nil
}

// Fresh is Get, of something that is nobody else's.
func (f *Parsed[T]) Fresh() (said T, err error) {
	data, err := os.ReadFile(f.path)
	if err != nil {
		return said, err
	}
	if len(bytes.TrimSpace(data)) == 0 {
		return said, ErrEmpty
	}
	return f.parse(data)
}
