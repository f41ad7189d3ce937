package signer

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/rsa"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-jose/go-jose/v4"
	externaljwt "k8s.io/externaljwt/apis/v1"
)

// Keys are those by which tokens were good at one time, in the signer's order.
type Keys struct {
	All   []jose.JSONWebKey
	Shown []jose.JSONWebKey // to others, who check tokens of today; the rest has signed older ones
	from  time.Time         // as of when the signer knows them
}

// Has reports whether one of them bears that ID.
func (k *Keys) Has(id string) bool { return has(k.All, id) }

// hidden reports whether it is there for older tokens alone.
func (k *Keys) hidden(id string) bool { return has(k.All, id) && !has(k.Shown, id) }

func has(keys []jose.JSONWebKey, id string) bool {
	return slices.ContainsFunc(keys, func(k jose.JSONWebKey) bool { return k.KeyID == id })
}

// same reports whether the keys are the same ones, and as old.
func (k *Keys) same(other *Keys) bool {
	alike := func(a, b jose.JSONWebKey) bool {
		key, ok := a.Key.(interface{ Equal(crypto.PublicKey) bool })
		return a.KeyID == b.KeyID && ok && key.Equal(b.Key)
	}
	return k.from.Equal(other.from) && slices.EqualFunc(k.All, other.All, alike) && slices.EqualFunc(k.Shown, other.Shown, alike)
}

// WebKey describes a public key by which tokens of service accounts are checked.
func WebKey(key crypto.PublicKey, id string) (jose.JSONWebKey, error) {
	web := jose.JSONWebKey{Key: key, KeyID: id, Use: "sig"}
	switch k := key.(type) {
	case *rsa.PublicKey:
		web.Algorithm = string(jose.RS256)
	case *ecdsa.PublicKey:
		switch k.Curve.Params().BitSize {
		case 256:
			web.Algorithm = string(jose.ES256)
		case 384:
			web.Algorithm = string(jose.ES384)
		case 521:
			web.Algorithm = string(jose.ES512)
		}
	}
	if web.Algorithm == "" {
		return web, fmt.Errorf("tokens cannot be signed with keys of type %T", key)
	}
	return web, nil
}

// Keys are those that there are now. It is the same value while they stay the same.
func (s *Signer) Keys() *Keys { return s.keys.Load() }

// Find are the keys that there are now, after the signer was asked for newer ones if none bears that ID.
func (s *Signer) Find(ctx context.Context, id string) *Keys {
	if k := s.keys.Load(); k.Has(id) {
		return k
	}
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	s.mu.Lock()
	want := s.mu.begun + 1 // what the signer is saying now may be older than the token
	s.mu.Unlock()
	select {
	case s.wake <- struct{}{}:
	default: // it is about to be asked
	}
	for {
		s.mu.Lock()
		done, next := s.mu.done, s.mu.next
		s.mu.Unlock()
		if k := s.keys.Load(); done >= want || k.Has(id) {
			return k
		}
		select {
		case <-next:
		case <-ctx.Done():
			return s.keys.Load()
		}
	}
}

// FreshFor is how long the keys are up to date, as the signer says.
func (s *Signer) FreshFor() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return max(0, time.Until(s.mu.until))
}

// Run asks for the keys until ctx ends: when the signer wants to be asked again, and when somebody shows a
// token whose key is not known (S2). Then it ends the connection.
func (s *Signer) Run(ctx context.Context) error {
	defer func() { _ = s.conn.Close() }() // there is nothing to lose
	timer := time.NewTimer(s.FreshFor())
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-s.wake:
		case <-ctx.Done():
			return nil
		}
		if err := s.fetch(ctx, within); err != nil {
			timer.Reset(againAfter)
		} else {
			timer.Reset(s.FreshFor())
		}
	}
}

// fetch asks for the keys. One caller at a time.
func (s *Signer) fetch(ctx context.Context, within time.Duration) error {
	s.mu.Lock()
	s.mu.begun++
	s.mu.Unlock()
	keys, until, err := s.read(ctx, within)
	if ctx.Err() != nil {
		return err // nobody has been asked
	}
	s.metrics.fetched(err)
	before := s.keys.Load()
	if err == nil {
		s.metrics.asOf(keys.from)
		if before == nil || !before.same(keys) {
			s.keys.Store(keys)
		}
	}
	s.mu.Lock()
	was := s.mu.err
	s.mu.err = err
	if err == nil {
		s.mu.until = until
	}
	s.mu.done = s.mu.begun
	close(s.mu.next)
	s.mu.next = make(chan struct{})
	s.mu.Unlock()
	switch {
	case before == nil: // who starts the server is told
	case err != nil && (was == nil || was.Error() != err.Error()):
		s.log.Error("keys of service accounts' tokens were not got from their signer; those of before hold", "err", err)
	case err == nil && s.keys.Load() != before:
		s.log.Info("the signer of service accounts' tokens has other keys", "believed", len(keys.All))
	case err == nil && was != nil:
		s.log.Info("the signer of service accounts' tokens answers again")
	}
	return err
}

// read asks once. What cannot be used is an error as a whole (S3).
func (s *Signer) read(ctx context.Context, within time.Duration) (*Keys, time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	began := time.Now()
	answer, err := s.client.FetchKeys(ctx, &externaljwt.FetchKeysRequest{})
	s.metrics.called(externaljwt.ExternalJWTSigner_FetchKeys_FullMethodName, began, err)
	if err != nil {
		return nil, time.Time{}, fmt.Errorf("ask for the keys of tokens: %w", err)
	}
	switch {
	case answer.RefreshHintSeconds <= 0:
		return nil, time.Time{}, fmt.Errorf("keys of tokens: found invalid refresh hint (%ds)", answer.RefreshHintSeconds)
	case len(answer.Keys) == 0:
		return nil, time.Time{}, errors.New("keys of tokens: found no keys")
	}
	if err := answer.DataTimestamp.CheckValid(); err != nil {
		return nil, time.Time{}, fmt.Errorf("keys of tokens: invalid data timestamp: %w", err)
	}
	k := &Keys{Shown: []jose.JSONWebKey{}, from: answer.DataTimestamp.AsTime()} // no keys are a list as well
	for _, one := range answer.Keys {
		web, err := parse(one)
		if err != nil {
			return nil, time.Time{}, fmt.Errorf("keys of tokens: %w", err)
		}
		k.All = append(k.All, web)
		if !one.ExcludeFromOidcDiscovery {
			k.Shown = append(k.Shown, web)
		}
	}
	return k, time.Now().Add(seconds(answer.RefreshHintSeconds)), nil
}

func parse(k *externaljwt.Key) (jose.JSONWebKey, error) {
	if id := k.GetKeyId(); id == "" || len(id) > longestKeyID {
		return jose.JSONWebKey{}, fmt.Errorf("found invalid public key id %q", id)
	}
	key, err := x509.ParsePKIXPublicKey(k.Key)
	if err != nil {
		return jose.JSONWebKey{}, fmt.Errorf("parse public key %q: %w", k.KeyId, err)
	}
	web, err := WebKey(key, k.KeyId)
	if err != nil {
		return web, fmt.Errorf("public key %q: %w", k.KeyId, err)
	}
	return web, nil
}
