package seal

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"time"

	utilerrors "k8s.io/apimachinery/pkg/util/errors"
)

// mark is how all encrypted values begin.
const mark = "k8s:enc:"

// What values of each form begin with. The name of a key follows, with a colon; that of a plugin.
const (
	PrefixCBC = "k8s:enc:aescbc:v1:"
	PrefixGCM = "k8s:enc:aesgcm:v1:"
	PrefixBox = "k8s:enc:secretbox:v1:"
	PrefixKMS = "k8s:enc:kms:v2:"
)

// Errors in upstream's words.
var (
	// ErrSealed is that of an encrypted value where none is expected.
	ErrSealed = errors.New("identity transformer tried to read encrypted data")

	errNoProvider = errors.New("no matching prefix found")
	errNoAESKey   = errors.New("no matching key was found for the provided AES transformer")
	errNoBoxKey   = errors.New("no matching key was found for the provided Secretbox transformer")
)

// Sealed says that a value as it is stored is encrypted.
func Sealed(value []byte) bool { return bytes.HasPrefix(value, void) }

// Prefix is what an encrypted value begins with, up to the name of its key or plugin; "": it is none.
func Prefix(value []byte) string {
	if !Sealed(value) {
		return ""
	}
	rest := value[:min(len(value), prefixMost)]
	for end, colons := len(mark), 0; end < len(rest); end++ {
		if rest[end] != ':' {
			continue
		}
		if colons++; colons == 3 { // form, version, name
			return string(rest[:end+1])
		}
	}
	return mark
}

// prefixMost is how long a prefix is that somebody is told of.
const prefixMost = 512

// Cipher is how values are encrypted by one key.
type Cipher interface {
	// Seal appends an encrypted value to dst.
	Seal(dst, value []byte, key string) ([]byte, error)
	// Open returns what was encrypted, in memory of its own, and whether it would be encrypted otherwise now.
	Open(ctx context.Context, sealed []byte, key string) (value []byte, stale bool, err error)
}

// Provider is one way of encryption. The zero value is that values are stored as they are.
type Provider struct {
	prefix string // all values of it begin with it
	keys   []namedKey
	none   error // no key has the name
}

type namedKey struct {
	name   string // with the colon; empty: the prefix says it all
	cipher Cipher
}

// Key is a key of a provider, by its name.
type Key struct {
	Name   string
	Secret []byte
}

// NewCBC returns a provider that encrypts by AES in CBC mode, with the first of the keys.
func NewCBC(keys []Key) (Provider, error) { return newProvider(PrefixCBC, errNoAESKey, keys, newCBC) }

// NewGCM returns a provider that encrypts by AES in GCM mode, with random nonces.
func NewGCM(keys []Key) (Provider, error) { return newProvider(PrefixGCM, errNoAESKey, keys, newGCM) }

// NewBox returns a provider that encrypts by XSalsa20 and Poly1305.
func NewBox(keys []Key) (Provider, error) { return newProvider(PrefixBox, errNoBoxKey, keys, newBox) }

// NewKMS returns a provider that encrypts with keys that a plugin of the name keeps.
func NewKMS(name string, e *Envelope) Provider {
	return Provider{prefix: PrefixKMS + name + ":", keys: []namedKey{{cipher: e}}}
}

func newProvider(prefix string, none error, keys []Key, cipherOf func(secret []byte) (Cipher, error)) (Provider, error) {
	p := Provider{prefix: prefix, none: none}
	for _, k := range keys {
		c, err := cipherOf(k.Secret)
		if err != nil {
			return Provider{}, err
		}
		p.keys = append(p.keys, namedKey{k.Name + ":", c})
	}
	return p, nil
}

// plain says that the provider stores values as they are.
func (p *Provider) plain() bool { return p.prefix == "" }

// open opens what follows the provider's prefix.
func (p *Provider) open(ctx context.Context, rest []byte, key string) (value []byte, stale bool, err error) {
	var failed []error
	for i := range p.keys {
		k := &p.keys[i]
		sealed, ok := bytes.CutPrefix(rest, []byte(k.name))
		if !ok {
			continue
		}
		value, stale, err := k.cipher.Open(ctx, sealed, key)
		if err == nil {
			return value, stale || i > 0, nil
		}
		failed = append(failed, err) // two keys may have one name
	}
	if len(failed) == 0 {
		return nil, false, p.none
	}
	return nil, false, reduce(failed)
}

// Chain is how values of one resource are stored: the first provider writes, all read. Nil is that they
// are stored as they are.
type Chain struct {
	Resource  string // full name, for metrics
	Providers []Provider
	Metrics   *Metrics

	recent recent
}

// Plain says that new values are stored as they are.
func (c *Chain) Plain() bool { return c == nil || c.Providers[0].plain() }

// Writes is what new values begin with; "": they are stored as they are.
func (c *Chain) Writes() string {
	if c.Plain() {
		return ""
	}
	p := &c.Providers[0]
	return p.prefix + p.keys[0].name
}

// Seal encrypts a value of a key.
func (c *Chain) Seal(value []byte, key string) ([]byte, error) {
	if c == nil {
		return value, nil
	}
	began := time.Now()
	p := &c.Providers[0]
	if p.plain() {
		c.did(toStorage, "", began, nil)
		return value, nil
	}
	k := &p.keys[0]
	dst := make([]byte, 0, len(p.prefix)+len(k.name)+len(value)+overhead)
	dst = append(append(dst, p.prefix...), k.name...)
	dst, err := k.cipher.Seal(dst, value, key)
	c.did(toStorage, p.prefix, began, err)
	return dst, err
}

// Open opens a stored value of a key. stale says that it would be stored otherwise today.
func (c *Chain) Open(ctx context.Context, stored []byte, key string) (value []byte, stale bool, err error) {
	if c == nil {
		if Sealed(stored) {
			return nil, false, ErrSealed
		}
		return stored, false, nil
	}
	began := time.Now()
	var failed []error
	for i := range c.Providers {
		p := &c.Providers[i]
		if p.plain() {
			if Sealed(stored) {
				continue // one of the others has it
			}
			c.did(fromStorage, "identity", began, nil)
			return stored, i > 0, nil
		}
		rest, ok := bytes.CutPrefix(stored, []byte(p.prefix))
		if !ok {
			continue
		}
		value, stale, err := p.open(ctx, rest, key)
		c.did(fromStorage, p.prefix, began, err)
		if err == nil {
			return value, stale || i > 0, nil
		}
		failed = append(failed, err) // the same form may come again, with other keys
	}
	if len(failed) > 0 {
		return nil, false, reduce(failed)
	}
	c.did(fromStorage, "unknown", began, errNoProvider)
	return nil, false, errNoProvider
}

// reduce is what upstream says of several errors.
func reduce(failed []error) error { return utilerrors.Reduce(utilerrors.NewAggregate(failed)) }

// Named says whether a name can be part of a prefix without being taken for another's end.
func Named(name string) bool { return name != "" && !strings.Contains(name, ":") }
