// Package signer is a program for tests that signs tokens of service accounts (KEP-740): a real gRPC server on a
// Unix socket, that exchanges its keys, goes away and lies when it is told to.
package signer

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/timestamppb"
	externaljwt "k8s.io/externaljwt/apis/v1"
)

// Signer is a signer that runs until its test ends. Its functions may be called at any time.
type Signer struct {
	externaljwt.UnimplementedExternalJWTSignerServer

	Socket string

	t  testing.TB
	mu struct {
		sync.Mutex
		srv     *grpc.Server
		ended   chan struct{}
		keys    []*externaljwt.Key
		key     *ecdsa.PrivateKey // signs
		id      string
		fetched int
		lies    Lies
	}
}

// Lies are answers other than the right ones; the zero value is the truth.
type Lies struct {
	Header  string // of the tokens that it signs
	Unsaid  bool   // the signature is empty
	Fails   error  // what it answers when it is asked for keys
	Refresh int64  // seconds for which its keys are up to date; 0: an hour
	MaxLife int64  // seconds that tokens may live; 0: a day
	Keys    []*externaljwt.Key
}

// New starts a signer with one key, whose ID is first.
func New(t testing.TB) *Signer {
	t.Helper()
	dir, err := os.MkdirTemp("", "signer") // the path of a socket may not be long
	if err != nil {
		t.Fatal(err)
	}
	s := &Signer{Socket: filepath.Join(dir, "s.sock"), t: t}
	t.Cleanup(func() {
		s.Stop()
		_ = os.RemoveAll(dir) // it lies among what is temporary
	})
	s.Rotate("first")
	s.Start()
	return s
}

// Start starts the server at the socket.
func (s *Signer) Start() {
	s.t.Helper()
	l, err := net.Listen("unix", s.Socket)
	if err != nil {
		s.t.Fatal(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	srv, ended := grpc.NewServer(), make(chan struct{})
	externaljwt.RegisterExternalJWTSignerServer(srv, s)
	s.mu.srv, s.mu.ended = srv, ended
	go func() {
		defer close(ended)
		_ = srv.Serve(l) // it ends when it is stopped
	}()
}

// Stop has it go away.
func (s *Signer) Stop() {
	s.mu.Lock()
	srv, ended := s.mu.srv, s.mu.ended
	s.mu.Unlock()
	srv.Stop()
	<-ended
}

// Rotate has it sign by a new key of that ID. The keys of before are good still, for older tokens alone.
func (s *Signer) Rotate(id string) {
	s.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		s.t.Fatal(err)
	}
	public, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		s.t.Fatal(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var keys []*externaljwt.Key
	for _, old := range s.mu.keys {
		keys = append(keys, &externaljwt.Key{KeyId: old.KeyId, Key: old.Key, ExcludeFromOidcDiscovery: true})
	}
	s.mu.keys = append([]*externaljwt.Key{{KeyId: id, Key: public}}, keys...)
	s.mu.key, s.mu.id = key, id
}

// Forget has it believe its newest key alone.
func (s *Signer) Forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.keys = s.mu.keys[:1]
}

// Lie has it answer so from now on.
func (s *Signer) Lie(l Lies) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.lies = l
}

// Fetched is how often it was asked for its keys.
func (s *Signer) Fetched() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.fetched
}

// Sign signs a token.
func (s *Signer) Sign(_ context.Context, q *externaljwt.SignJWTRequest) (*externaljwt.SignJWTResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	header := s.mu.lies.Header
	if header == "" {
		header = fmt.Sprintf(`{"alg":"ES256","kid":%q,"typ":"JWT"}`, s.mu.id)
	}
	header = base64.RawURLEncoding.EncodeToString([]byte(header))
	if s.mu.lies.Unsaid {
		return &externaljwt.SignJWTResponse{Header: header}, nil
	}
	signed, err := signature(s.mu.key, header+"."+q.Claims)
	return &externaljwt.SignJWTResponse{Header: header, Signature: signed}, err
}

// signature is that of a text by ES256.
func signature(key *ecdsa.PrivateKey, text string) (string, error) {
	digest := sha256.Sum256([]byte(text))
	r, v, err := ecdsa.Sign(rand.Reader, key, digest[:])
	if err != nil {
		return "", err
	}
	both := make([]byte, 2*crypto.SHA256.Size())
	r.FillBytes(both[:len(both)/2])
	v.FillBytes(both[len(both)/2:])
	return base64.RawURLEncoding.EncodeToString(both), nil
}

// FetchKeys tells the keys.
func (s *Signer) FetchKeys(context.Context, *externaljwt.FetchKeysRequest) (*externaljwt.FetchKeysResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.fetched++
	if s.mu.lies.Fails != nil {
		return nil, s.mu.lies.Fails
	}
	answer := &externaljwt.FetchKeysResponse{Keys: s.mu.keys, DataTimestamp: timestamppb.New(time.Unix(1_700_000_000, 0)), RefreshHintSeconds: 3600}
	if s.mu.lies.Refresh != 0 {
		answer.RefreshHintSeconds = s.mu.lies.Refresh
	}
	if s.mu.lies.Keys != nil {
		answer.Keys = s.mu.lies.Keys
	}
	return answer, nil
}

// Metadata tells how long tokens may live.
func (s *Signer) Metadata(context.Context, *externaljwt.MetadataRequest) (*externaljwt.MetadataResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.lies.MaxLife != 0 {
		return &externaljwt.MetadataResponse{MaxTokenExpirationSeconds: s.mu.lies.MaxLife}, nil
	}
	return &externaljwt.MetadataResponse{MaxTokenExpirationSeconds: 24 * 60 * 60}, nil
}
