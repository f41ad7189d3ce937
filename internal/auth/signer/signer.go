package signer

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	externaljwt "k8s.io/externaljwt/apis/v1"
)

// How long the signer may take, and how often its socket is tried.
const (
	within       = 10 * time.Second // for each call
	startWithin  = time.Minute      // for its first keys: it may start beside the server
	againAfter   = 10 * time.Second // keys are asked for again that were not got
	reconnect    = 3 * time.Second
	minLife      = 600 * time.Second // of tokens: the API promises as much to who asks
	longestKeyID = 1024
)

// Algorithms are those that tokens of service accounts may be signed by.
func Algorithms() []jose.SignatureAlgorithm {
	return []jose.SignatureAlgorithm{jose.RS256, jose.ES256, jose.ES384, jose.ES512}
}

// Options say which signer there is.
type Options struct {
	Endpoint string               // path of its socket; of an abstract one it begins with @. Required
	Registry *prometheus.Registry // required
	Logger   *slog.Logger         // required
}

// CheckEndpoint says what is wrong with an endpoint: upstream's rule for the characters of paths and names.
func CheckEndpoint(endpoint string) error {
	rest, abstract := strings.CutPrefix(endpoint, "@")
	odd := strings.ContainsFunc(rest, func(r rune) bool {
		return !('a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || strings.ContainsRune("_.-", r) || r == '/' && !abstract)
	})
	if odd || rest == "" || !abstract && (rest[0] != '/' || strings.HasSuffix(rest, "/")) {
		return fmt.Errorf("invalid value %q, should be a valid location on the filesystem or must be prefixed with @ to name UDS in abstract namespace", endpoint)
	}
	return nil
}

// Signer signs tokens, and knows the keys that they are checked by. It may be used concurrently.
type Signer struct {
	conn    *grpc.ClientConn
	client  externaljwt.ExternalJWTSignerClient
	metrics *metrics
	log     *slog.Logger
	maxLife time.Duration

	keys atomic.Pointer[Keys]
	wake chan struct{} // a token: keys are to be asked for now

	mu struct {
		sync.Mutex
		begun, done int           // how often keys were asked for, and how often that has ended
		next        chan struct{} // closed and replaced when it has
		until       time.Time     // when they are to be asked for again
		err         error         // what was wrong the last time
	}
}

// Open asks the signer for its keys and for how long tokens may live. The connection lasts until [Signer.Run] ends.
func Open(ctx context.Context, o Options) (*Signer, error) {
	conn, err := grpc.NewClient("passthrough:///signer",
		grpc.WithAuthority("localhost"),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.WaitForReady(true)),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 2, Jitter: 0.2, MaxDelay: reconnect}, MinConnectTimeout: reconnect}),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", o.Endpoint)
		}),
	)
	if err != nil {
		return nil, fmt.Errorf("prepare connection to %s: %w", o.Endpoint, err)
	}
	s := &Signer{conn: conn, client: externaljwt.NewExternalJWTSignerClient(conn), metrics: newMetrics(o.Registry), log: o.Logger, wake: make(chan struct{}, 1)}
	s.mu.next = make(chan struct{})
	if err := s.ask(ctx); err != nil {
		_ = conn.Close() // nothing has been sent that could be lost
		return nil, fmt.Errorf("signer at %s: %w", o.Endpoint, err)
	}
	return s, nil
}

// ask learns what must be known before the first token.
func (s *Signer) ask(ctx context.Context) error {
	if err := s.fetch(ctx, startWithin); err != nil {
		return err
	}
	about, err := call(ctx, s, externaljwt.ExternalJWTSigner_Metadata_FullMethodName, s.client.Metadata, &externaljwt.MetadataRequest{})
	if err != nil {
		return fmt.Errorf("ask how long tokens may live: %w", err)
	}
	if about.MaxTokenExpirationSeconds < int64(minLife/time.Second) {
		return fmt.Errorf("max token life supported by external-jwt-signer (%ds) is less than acceptable (min %ds)", about.MaxTokenExpirationSeconds, int64(minLife/time.Second))
	}
	s.maxLife = seconds(about.MaxTokenExpirationSeconds)
	return nil
}

// MaxLife is how long tokens may live that it signs.
func (s *Signer) MaxLife() time.Duration { return s.maxLife }

// call calls the signer, for no longer than it may take (S1).
func call[Q, A any](ctx context.Context, s *Signer, method string, of func(context.Context, Q, ...grpc.CallOption) (A, error), q Q) (A, error) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	began := time.Now()
	answer, err := of(ctx, q)
	s.metrics.called(method, began, err)
	return answer, err
}

// Sign makes a token of what it is to say, as JSON.
func (s *Signer) Sign(ctx context.Context, payload []byte) (string, error) {
	token, err := s.sign(ctx, base64.RawURLEncoding.EncodeToString(payload))
	s.metrics.signed(err)
	return token, err
}

func (s *Signer) sign(ctx context.Context, claims string) (string, error) {
	answer, err := call(ctx, s, externaljwt.ExternalJWTSigner_Sign_FullMethodName, s.client.Sign, &externaljwt.SignJWTRequest{Claims: claims})
	if err != nil {
		return "", fmt.Errorf("have the token signed: %w", err)
	}
	id, err := checkHeader(answer.Header)
	if err != nil {
		return "", fmt.Errorf("header of the token that was signed: %w", err)
	}
	if answer.Signature == "" {
		return "", errors.New("the token was signed with an empty signature")
	}
	if s.Find(ctx, id).hidden(id) {
		return "", fmt.Errorf("key used for signing JWT (kid: %s) is excluded from OIDC discovery docs", id)
	}
	return answer.Header + "." + claims + "." + answer.Signature, nil
}

// checkHeader refuses a header that has more than it must have, or less, and returns the ID of the key.
func checkHeader(header string) (keyID string, _ error) {
	text, err := base64.RawURLEncoding.DecodeString(header)
	if err != nil {
		return "", fmt.Errorf("decode it: %w", err)
	}
	var h struct {
		Algorithm string `json:"alg,omitempty"`
		KeyID     string `json:"kid,omitempty"`
		Type      string `json:"typ,omitempty"`
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&h); err != nil {
		return "", fmt.Errorf("decode it: %w", err)
	}
	switch {
	case h.Type != "JWT":
		return "", fmt.Errorf("bad type %q", h.Type)
	case h.KeyID == "":
		return "", errors.New("key id missing")
	case len(h.KeyID) > longestKeyID:
		return "", errors.New("key id longer than 1 kb")
	case !slices.Contains(Algorithms(), jose.SignatureAlgorithm(h.Algorithm)):
		return "", fmt.Errorf("bad signing algorithm %q", h.Algorithm)
	}
	return h.KeyID, nil
}

// seconds are n of them, as far as there is a duration for it.
func seconds(n int64) time.Duration {
	return time.Duration(min(n, int64((1<<63-1)/time.Second))) * time.Second
}
