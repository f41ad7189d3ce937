package seal

import (
	"bytes"
	"context"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// BenchmarkOpen opens a value of 1 KB, as a start does for each that there is.
func BenchmarkOpen(b *testing.B) {
	value, secret := bytes.Repeat([]byte("a secret"), 128), bytes.Repeat([]byte{7}, 32)
	m := NewMetrics(prometheus.NewRegistry(), "server")
	held := &oneSeed{}
	var err error
	if held.seed, err = NewSeed(held.encrypt, m); err != nil {
		b.Fatal(err)
	}
	held.seed = held.seed.Good(time.Now().Add(time.Hour))
	for name, provider := range map[string]func() (Provider, error){
		"identity":  func() (Provider, error) { return Provider{}, nil },
		"aesgcm":    func() (Provider, error) { return NewGCM([]Key{{"a", secret}}) },
		"aescbc":    func() (Provider, error) { return NewCBC([]Key{{"a", secret}}) },
		"secretbox": func() (Provider, error) { return NewBox([]Key{{"a", secret}}) },
		"kms":       func() (Provider, error) { return NewKMS("vault", NewEnvelope("vault", held, m)), nil },
	} {
		b.Run(name, func(b *testing.B) {
			p, err := provider()
			if err != nil {
				b.Fatal(err)
			}
			c := &Chain{Resource: "secrets", Providers: []Provider{p}, Metrics: m}
			const key = "/registry/secrets/default/one"
			sealed, err := c.Seal(value, key)
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				if got, _, err := c.Open(b.Context(), sealed, key); err != nil || len(got) != len(value) {
					b.Fatalf("got %d bytes, %v", len(got), err)
				}
			}
		})
	}
}

// oneSeed is a plugin with one key, which stays.
type oneSeed struct {
	seed  *Seed
	plain []byte
}

func (o *oneSeed) encrypt(seed []byte) (Header, error) {
	o.plain = bytes.Clone(seed)
	return Header{KeyID: "key-1", Source: []byte("encrypted")}, nil
}

func (o *oneSeed) Seed() (*Seed, error) { return o.seed, nil }

func (o *oneSeed) Decrypt(context.Context, *Header) ([]byte, error) { return o.plain, nil }
