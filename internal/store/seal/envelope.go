package seal

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
	"unicode/utf8"

	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Plugin is what keeps the key by which data keys are encrypted.
type Plugin interface {
	// Seed is what new values are encrypted with: an error while there is none.
	Seed() (*Seed, error)
	// Decrypt returns the data key, or the seed of data keys, that a header has.
	Decrypt(ctx context.Context, h *Header) ([]byte, error)
}

// Seed is what data keys are derived from, with the header by which it is found again. It never changes.
type Seed struct {
	Header Header
	// Until is how long it is good for new values.
	Until  time.Time
	cipher Cipher
}

// NewSeed makes a seed for new values. encrypt has the plugin encrypt it.
func NewSeed(encrypt func(seed []byte) (Header, error), m *Metrics) (*Seed, error) {
	began := time.Now()
	seed := make([]byte, seedSize)
	_, _ = rand.Read(seed) // never fails
	m.generated(began)
	h, err := encrypt(seed)
	if err != nil {
		return nil, fmt.Errorf("failed to encrypt DEK, error: %w", err)
	}
	h.Type = derivedKeys
	if err := h.check(); err != nil {
		return nil, err
	}
	c, err := newSeeded(seed)
	return &Seed{Header: h, cipher: c}, err
}

// Good is the same seed, good until a time.
func (s *Seed) Good(until time.Time) *Seed {
	next := *s
	next.Until = until
	return &next
}

// expired is why a seed is not good for new values.
func (s *Seed) expired() error {
	if now := time.Now(); now.After(s.Until) {
		return fmt.Errorf("encryptedDEKSource with keyID hash %q expired at %s (current time is %s)", Hash(s.Header.KeyID), s.Until.Format(time.RFC3339), now.Format(time.RFC3339))
	}
	return nil
}

// Hash is how keys of plugins are named in logs and metrics.
func Hash(id string) string {
	if id == "" {
		return ""
	}
	return fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(id)))
}

// How the data key of a value is made of what the plugin decrypts.
const (
	givenKey    = 0 // it is the key
	derivedKeys = 1 // it is a seed, of which the key is derived
)

// Header is what lies beside each value: how its data key is found.
type Header struct {
	KeyID       string
	Source      []byte // the data key or seed, as the plugin has encrypted it
	Annotations []Annotation
	Type        uint64
}

// Annotation is what a plugin wants to see again.
type Annotation struct {
	Name  string
	Value []byte
}

// How large parts of a header may be.
const (
	sourceMost      = 1 << 10
	keyIDMost       = 1 << 10
	annotationsMost = 32 << 10
)

// CheckKeyID refuses what cannot be the ID of a key. code says why, for metrics.
func CheckKeyID(id string) (code string, _ error) {
	switch {
	case id == "":
		return "empty", errors.New("keyID is empty")
	case len(id) > keyIDMost:
		return "too_long", fmt.Errorf("keyID is %d bytes, which exceeds the max size of %d", len(id), keyIDMost)
	}
	return "ok", nil
}

func (h *Header) check() error {
	switch {
	case h.Type != givenKey && h.Type != derivedKeys:
		return fmt.Errorf("unknown encryptedDEKSourceType: %d", h.Type)
	case len(h.Source) == 0:
		return errors.New("failed to validate encrypted DEK source: encrypted DEK source is empty")
	case len(h.Source) > sourceMost:
		return fmt.Errorf("failed to validate encrypted DEK source: encrypted DEK source is %d bytes, which exceeds the max size of %d", len(h.Source), sourceMost)
	case !utf8.ValidString(h.KeyID):
		return errors.New("failed to validate key id: it is no UTF-8")
	}
	if _, err := CheckKeyID(h.KeyID); err != nil {
		return fmt.Errorf("failed to validate key id: %w", err)
	}
	var wrong []error
	size := 0
	for _, a := range h.Annotations {
		if errs := validation.IsFullyQualifiedDomainName(field.NewPath("annotations"), a.Name); errs != nil {
			wrong = append(wrong, errs.ToAggregate())
		}
		size += len(a.Name) + len(a.Value)
	}
	if size > annotationsMost {
		wrong = append(wrong, fmt.Errorf("total size of annotations is %d, which exceeds the max size of %d", size, annotationsMost))
	}
	if err := utilerrors.NewAggregate(wrong); err != nil {
		return fmt.Errorf("failed to validate annotations: %w", err)
	}
	return nil
}

// Sort puts annotations in their order.
func (h *Header) Sort() {
	slices.SortFunc(h.Annotations, func(a, b Annotation) int { return cmp.Compare(a.Name, b.Name) })
}

// Envelope encrypts each value by a data key of its own, which lies beside it, encrypted by a plugin's key. Its methods
// may be called concurrently.
type Envelope struct {
	plugin  Plugin
	name    string
	metrics *Metrics
	recent  recent

	mu struct {
		sync.Mutex
		keys map[string]*dataKey // by what of a header identifies it
	}
}

var _ Cipher = (*Envelope)(nil)

// NewEnvelope returns the cipher of a plugin.
func NewEnvelope(name string, p Plugin, m *Metrics) *Envelope {
	e := &Envelope{plugin: p, name: name, metrics: m}
	e.mu.keys = map[string]*dataKey{}
	return e
}

// dataKey is what the plugin has answered for a header.
type dataKey struct {
	asked  time.Time     // when
	asking chan struct{} // closed when the answer is there: the next two may be read then
	cipher Cipher        // nil: there is none
	err    error         // why not

	proven bool // it has opened a value (E3); under the lock
}

// done says that the answer is there.
func (k *dataKey) done() bool {
	select {
	case <-k.asking:
		return true
	default:
		return false
	}
}

// answered is closed.
var answered = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

const (
	// askAgain is how soon a plugin is asked again for what it could not decrypt, or has decrypted to what opens nothing.
	askAgain = 10 * time.Second
	// keysMost is how many data keys are kept: each start of a server, and each key of the plugin, makes one.
	keysMost = 4096
)

// Forget has the plugin asked again for what it could not decrypt.
func (e *Envelope) Forget() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for id, k := range e.mu.keys {
		if k.done() && !k.proven {
			delete(e.mu.keys, id)
		}
	}
	e.metrics.cached(e.name, len(e.mu.keys))
}

// Seal appends an encrypted value.
func (e *Envelope) Seal(dst, value []byte, key string) ([]byte, error) {
	s, err := e.plugin.Seed()
	if err == nil {
		err = s.expired()
	}
	if err != nil {
		return nil, err
	}
	if id := s.Header.identity(); e.known(id) == nil {
		e.keep(id, &dataKey{asking: answered, cipher: s.cipher, proven: true})
	}
	data, err := s.cipher.Seal(make([]byte, 0, len(value)+2*seedSize+overhead), value, key)
	if err != nil {
		return nil, err
	}
	e.used(toStorage, s.Header.KeyID)
	return s.Header.appendTo(dst, data), nil
}

// Open opens a value. It is stale if the plugin has another key now.
func (e *Envelope) Open(ctx context.Context, sealed []byte, key string) ([]byte, bool, error) {
	h, data, err := parse(sealed)
	if err != nil {
		return nil, false, err
	}
	now, err := e.plugin.Seed()
	if err != nil {
		return nil, false, err
	}
	id := h.identity()
	k, err := e.key(ctx, id, &h)
	if err != nil {
		return nil, false, err
	}
	e.used(fromStorage, h.KeyID)
	value, _, err := k.cipher.Open(ctx, data, key)
	e.judge(id, k, err == nil)
	return value, h.KeyID != now.Header.KeyID || h.Type != now.Header.Type, err
}

// judge notes whether a data key has opened a value. One that has opened none is asked for again in a while (E3).
func (e *Envelope) judge(id string, k *dataKey, opened bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case opened:
		k.proven = true
	case !k.proven && time.Since(k.asked) > askAgain && e.mu.keys[id] == k:
		delete(e.mu.keys, id)
	}
}

func (e *Envelope) known(id string) *dataKey {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.mu.keys[id]
}

func (e *Envelope) keep(id string, k *dataKey) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.keepLocked(id, k)
}

func (e *Envelope) keepLocked(id string, k *dataKey) {
	if len(e.mu.keys) >= keysMost {
		for id, k := range e.mu.keys {
			if k.done() {
				delete(e.mu.keys, id)
			}
		}
	}
	e.mu.keys[id] = k
	e.metrics.cached(e.name, len(e.mu.keys))
}

// key is the data key of a header. Those who want one at the same time ask the plugin once.
func (e *Envelope) key(ctx context.Context, id string, h *Header) (*dataKey, error) {
	k, mine := e.claim(id)
	if mine {
		e.ask(ctx, id, k, h)
	}
	select {
	case <-k.asking:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	return k, k.err
}

// claim is the data key of an identity, and whether the caller is to ask the plugin for it.
func (e *Envelope) claim(id string) (k *dataKey, mine bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	k = e.mu.keys[id]
	if k != nil && (!k.done() || k.err == nil || time.Since(k.asked) < askAgain) {
		return k, false
	}
	k = &dataKey{asked: time.Now(), asking: make(chan struct{})}
	e.keepLocked(id, k)
	return k, true
}

// ask has the plugin decrypt a data key. What it answers is there for all who wait for it.
func (e *Envelope) ask(ctx context.Context, id string, k *dataKey, h *Header) {
	defer close(k.asking)
	e.metrics.missed()
	secret, err := e.plugin.Decrypt(ctx, h)
	switch {
	case err != nil:
		k.err = fmt.Errorf("failed to decrypt DEK, error: %w", err)
	case h.Type == derivedKeys:
		k.cipher, k.err = newSeeded(secret)
	default:
		k.cipher, k.err = newGCM(secret)
	}
	if ctx.Err() != nil && k.err != nil { // who asked has gone: that says nothing of the plugin
		e.mu.Lock()
		defer e.mu.Unlock()
		if e.mu.keys[id] == k {
			delete(e.mu.keys, id)
		}
	}
}
