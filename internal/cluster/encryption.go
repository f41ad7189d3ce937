package cluster

import (
	"context"
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kemudi/kemudi/internal/api"
	"github.com/kemudi/kemudi/internal/apiserver"
	"github.com/kemudi/kemudi/internal/apiserver/refusal"
	"github.com/kemudi/kemudi/internal/encryption"
	"github.com/kemudi/kemudi/internal/obs"
	"github.com/kemudi/kemudi/internal/resource"
	"github.com/kemudi/kemudi/internal/store"
	"github.com/kemudi/kemudi/internal/store/seal"
	"github.com/kemudi/kemudi/internal/watchcache"
)

// Encryption says what lies encrypted in the store, each field by its flag.
type Encryption struct {
	File   string // --encryption-provider-config; empty: nothing does
	Reload bool   // --encryption-provider-config-automatic-reload
}

func (e *Encryption) check() error {
	o := encryption.Options{File: e.File, Reload: e.Reload}
	return o.Check()
}

// sealed is a store whose values are encrypted.
type sealed struct {
	keeper *encryption.Keeper
	raw    store.Store // as it lies there
}

// encryptionKeeper has the configuration, and what its plugins say; nil: there is none.
func (o *Options) encryptionKeeper(ctx context.Context, reg *prometheus.Registry) (*encryption.Keeper, error) {
	if o.API.Encryption.File == "" {
		return nil, nil
	}
	return encryption.Open(ctx, encryption.Options{
		File: o.API.Encryption.File, Reload: o.API.Encryption.Reload, Defs: api.All(), Server: o.NodeName, Registry: reg, Logger: o.Logger.With("part", "encryption"),
	})
}

// encrypt has what is written to the store encrypted from now on, and what is read opened.
func (s *server) encrypt(ctx context.Context, st *state) error {
	k, err := s.o.encryptionKeeper(ctx, s.registry)
	if err != nil || k == nil {
		return err
	}
	s.sealed = &sealed{keeper: k, raw: st.Store}
	st.Store = seal.Over(st.Store, k.Rules())
	return nil
}

// serveEncryption has the API server know what is encrypted.
func (s *server) serveEncryption(o *apiserver.Options, caches *watchcache.Set) {
	if s.sealed == nil {
		return
	}
	k := s.sealed.keeper
	k.OnReadable(caches.Again)
	o.Encrypted = k.Encrypted
	if name := k.HealthCheck(); name != "" {
		o.Health.Add(obs.Check{Name: name, Run: k.Healthy})
	}
	if o.Plain == nil {
		o.Plain = map[string]func(context.Context, apiserver.PlainRequest) (any, error){}
	}
	r := encryption.Rotator{Store: s.sealed.raw, Rules: k.Rules(), Defs: func() []*resource.Def { return s.plane.Defs() }}
	o.Plain["GET "+encryption.Path] = func(ctx context.Context, _ apiserver.PlainRequest) (any, error) { return r.Status(ctx) }
	o.Plain["POST "+encryption.Path+"/{name}"] = func(ctx context.Context, q apiserver.PlainRequest) (any, error) {
		step, err := r.Step(ctx, q.Name, q.Query.Get("from"))
		var unknown *encryption.ErrNotEncrypted
		var place *encryption.ErrBadPlace
		if errors.As(err, &unknown) || errors.As(err, &place) {
			return nil, refusal.BadRequest("%v", err)
		}
		return step, err
	}
}

// taken are the rules of a store that is taken over. end is to be called when they are not needed any more.
func (o *Options) taken(ctx context.Context) (rules seal.Rules, end func(), _ error) {
	k, err := o.encryptionKeeper(ctx, prometheus.NewRegistry())
	switch {
	case err != nil:
		return nil, nil, err
	case k == nil:
		return func(string) *seal.Chain { return nil }, func() {}, nil
	}
	return k.Rules(), k.Close, nil
}

// opened looks at values as they are when they are opened.
func opened(ctx context.Context, rules seal.Rules, look func(store.KV) error) func(store.KV) error {
	return func(kv store.KV) error {
		rules.Open(ctx, &kv)
		return look(kv)
	}
}

// changed makes a change of values that are opened one of values as they lie there.
func changed(ctx context.Context, rules seal.Rules, change func(store.KV) ([]byte, error)) func(store.KV) ([]byte, error) {
	return func(kv store.KV) ([]byte, error) {
		rules.Open(ctx, &kv)
		value, err := change(kv)
		if err != nil || value == nil {
			return nil, err
		}
		value, err = rules(kv.Key).Seal(value, kv.Key)
		if err != nil {
			return nil, fmt.Errorf("encrypt %s: %w", kv.Key, err)
		}
		return value, nil
	}
}
