package served

import (
	"sync"
	"sync/atomic"
)

// End is when a resource is served no longer as it is: what its definition says of what is read has changed,
// or it is gone. Its methods may be called concurrently.
type End struct {
	come atomic.Bool // set with the lock held
	mu   struct {
		sync.Mutex
		tell map[*func()]struct{} // who waits for it
	}
}

// Come tells all who wait that the end has come. It may be called more than once.
func (e *End) Come() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.come.Store(true)
	for tell := range e.mu.tell {
		(*tell)()
	}
	e.mu.tell = nil
}

// HasCome reports whether Come was called.
func (e *End) HasCome() bool { return e.come.Load() }

// Await has tell called once when the end comes, or now if it has come. tell must not block, nor call
// what is of the end. Who waits no more calls stop, as often as they like.
func (e *End) Await(tell func()) (stop func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.come.Load() {
		tell()
		return func() {}
	}
	if e.mu.tell == nil {
		e.mu.tell = map[*func()]struct{}{}
	}
	e.mu.tell[&tell] = struct{}{}
	return func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		delete(e.mu.tell, &tell)
	}
}
