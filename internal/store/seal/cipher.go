package seal

import (
	"bytes"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"sync"

	"golang.org/x/crypto/nacl/secretbox"
)

// overhead is by how much an encrypted value is longer at the most, but for that of a plugin.
const overhead = 64

// Errors in upstream's words.
var (
	errShort      = errors.New("the stored data was shorter than the required size")
	errBlockSize  = errors.New("the stored data is not a multiple of the block size")
	errNotPadded  = errors.New("invalid PKCS7 data (empty or not padded)")
	errBadPadding = errors.New("invalid padding on input")
	errBox        = errors.New("output array was not large enough for encryption")
)

// random appends n random bytes.
func random(dst []byte, n int) []byte {
	dst = append(dst, make([]byte, n)...)
	_, _ = rand.Read(dst[len(dst)-n:]) // never fails
	return dst
}

// cbc is AES in CBC mode with PKCS#7 padding: a random initialization vector and the blocks. It knows nothing
// of keys of the store.
type cbc struct {
	block   cipher.Block
	openers sync.Pool // decrypters of the block, which have copies of all of its key
}

func newCBC(secret []byte) (Cipher, error) {
	block, err := aes.NewCipher(secret)
	return &cbc{block: block}, err
}

// decrypter returns one to be used once and put back.
func (c *cbc) decrypter(iv []byte) cipher.BlockMode {
	d, ok := c.openers.Get().(interface{ SetIV(iv []byte) })
	if !ok {
		return cipher.NewCBCDecrypter(c.block, iv)
	}
	d.SetIV(iv)
	return d.(cipher.BlockMode)
}

func (c *cbc) Seal(dst, value []byte, _ string) ([]byte, error) {
	dst = random(dst, aes.BlockSize)
	iv, from := dst[len(dst)-aes.BlockSize:], len(dst)
	padding := aes.BlockSize - len(value)%aes.BlockSize
	dst = append(dst, value...)
	dst = append(dst, bytes.Repeat([]byte{byte(padding)}, padding)...)
	cipher.NewCBCEncrypter(c.block, iv).CryptBlocks(dst[from:], dst[from:])
	return dst, nil
}

func (c *cbc) Open(_ context.Context, sealed []byte, _ string) ([]byte, bool, error) {
	switch {
	case len(sealed) < aes.BlockSize:
		return nil, false, errShort
	case len(sealed)%aes.BlockSize != 0:
		return nil, false, errBlockSize
	case len(sealed) == aes.BlockSize:
		return nil, false, errNotPadded
	}
	value := make([]byte, len(sealed)-aes.BlockSize)
	d := c.decrypter(sealed[:aes.BlockSize])
	d.CryptBlocks(value, sealed[aes.BlockSize:])
	c.openers.Put(d)
	last := value[len(value)-1]
	n := int(last)
	if n == 0 || n > len(value) {
		return nil, false, errNotPadded
	}
	for _, b := range value[len(value)-n:] {
		if b != last {
			return nil, false, errBadPadding
		}
	}
	return value[:len(value)-n], false, nil
}

// gcm is AES in GCM mode: a random nonce, and what it encrypts together with the key of the store (E2).
type gcm struct{ aead cipher.AEAD }

func newGCM(secret []byte) (Cipher, error) {
	c, err := newSealer(secret)
	return c, err
}

func newSealer(secret []byte) (gcm, error) {
	block, err := aes.NewCipher(secret)
	if err != nil {
		return gcm{}, err
	}
	aead, err := cipher.NewGCM(block)
	return gcm{aead}, err
}

func (c gcm) Seal(dst, value []byte, key string) ([]byte, error) {
	dst = random(dst, c.aead.NonceSize())
	return c.aead.Seal(dst, dst[len(dst)-c.aead.NonceSize():], value, []byte(key)), nil
}

func (c gcm) Open(_ context.Context, sealed []byte, key string) ([]byte, bool, error) {
	n := c.aead.NonceSize()
	if len(sealed) < n {
		return nil, false, errShort
	}
	value, err := c.aead.Open(nil, sealed[:n], sealed[n:], []byte(key))
	return value, false, err
}

// box is XSalsa20 and Poly1305: a random nonce and the box. It knows nothing of keys of the store.
type box struct{ secret [32]byte }

const boxNonce = 24

func newBox(secret []byte) (Cipher, error) {
	c := &box{}
	if len(secret) != len(c.secret) {
		return nil, fmt.Errorf("expected key size %d for secretbox provider, got %d", len(c.secret), len(secret))
	}
	copy(c.secret[:], secret)
	return c, nil
}

func (c *box) Seal(dst, value []byte, _ string) ([]byte, error) {
	dst = random(dst, boxNonce)
	return secretbox.Seal(dst, value, (*[boxNonce]byte)(dst[len(dst)-boxNonce:]), &c.secret), nil
}

func (c *box) Open(_ context.Context, sealed []byte, _ string) ([]byte, bool, error) {
	if len(sealed) < boxNonce+secretbox.Overhead {
		return nil, false, errShort
	}
	value, ok := secretbox.Open(nil, sealed[boxNonce:], (*[boxNonce]byte)(sealed), &c.secret)
	if !ok {
		return nil, false, errBox
	}
	return value, false, nil
}

// seeded derives a key for each value from a seed and 32 random bytes, which go before what AES in GCM mode
// makes of it with that key.
type seeded struct {
	macs sync.Pool // HMACs with SHA-256 by the seed, which has been taken in
}

// seedSize is how long seeds, keys that are derived, and what they are derived with are.
const seedSize = 32

func newSeeded(seed []byte) (Cipher, error) {
	if len(seed) < seedSize {
		return nil, fmt.Errorf("invalid seed length %d used for key generation", len(seed))
	}
	return &seeded{macs: sync.Pool{New: func() any { return hmac.New(sha256.New, seed) }}}, nil
}

// derived is the key that HKDF expands the seed to (RFC 5869, section 2.3), of which one block is enough: that of
// the library takes in the seed anew each time, which is half of the work.
func (c *seeded) derived(info []byte) (gcm, error) {
	mac := c.macs.Get().(hash.Hash)
	defer c.macs.Put(mac)
	mac.Reset()
	mac.Write(info)
	mac.Write([]byte{1})
	return newSealer(mac.Sum(make([]byte, 0, seedSize)))
}

func (c *seeded) Seal(dst, value []byte, key string) ([]byte, error) {
	dst = random(dst, seedSize)
	d, err := c.derived(dst[len(dst)-seedSize:])
	if err != nil {
		return nil, err
	}
	return d.Seal(dst, value, key)
}

func (c *seeded) Open(ctx context.Context, sealed []byte, key string) ([]byte, bool, error) {
	if len(sealed) < seedSize {
		return nil, false, errShort
	}
	d, err := c.derived(sealed[:seedSize])
	if err != nil {
		return nil, false, err
	}
	return d.Open(ctx, sealed[seedSize:], key)
}
