package signer

import (
	"context"
	"crypto/ed25519"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	externaljwt "k8s.io/externaljwt/apis/v1"

	"github.com/kemudi/kemudi/internal/task"
	"github.com/kemudi/kemudi/test/metric"
	"github.com/kemudi/kemudi/test/signer"
	"github.com/kemudi/kemudi/test/wait"
)

// open opens a signer and has it run until the test ends.
func open(t *testing.T, at string) (*Signer, *prometheus.Registry) {
	t.Helper()
	reg := prometheus.NewRegistry()
	s, err := Open(t.Context(), Options{Endpoint: at, Registry: reg, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	g := task.NewGroup(t.Context())
	g.Go("signer", s.Run)
	t.Cleanup(func() {
		g.Cancel(context.Canceled)
		if err := g.Wait(); err != nil {
			t.Error(err)
		}
	})
	return s, reg
}

func TestEndpointsArePathsOrAbstract(t *testing.T) {
	for endpoint, good := range map[string]bool{
		"/run/an_b-d/s.sock": true, "@signer": true, "@signer.eng.a": true,
		"": false, "abc": false, "@": false, "@abc@": false, "@abc.abc  .ae": false, "@a/b": false, "/e /xyz": false, "/@e/xyz": false, "/run/": false, "unix:///run/s": false,
	} {
		if err := CheckEndpoint(endpoint); (err == nil) != good {
			t.Errorf("%q: got %v, want good: %t", endpoint, err, good)
		}
	}
}

func TestSignerIsRefusedAtTheStart(t *testing.T) {
	t.Parallel()
	edwards, _, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	unfit, err := x509.MarshalPKIXPublicKey(edwards)
	if err != nil {
		t.Fatal(err)
	}
	key := func(id string, der []byte) signer.Lies {
		return signer.Lies{Keys: []*externaljwt.Key{{KeyId: id, Key: der}}}
	}
	for want, lies := range map[string]signer.Lies{
		"the keys are locked away":             {Fails: errors.New("the keys are locked away")},
		"found no keys":                        {Keys: []*externaljwt.Key{}},
		"found invalid refresh hint (-1s)":     {Refresh: -1},
		"(599s) is less than acceptable":       {MaxLife: 599},
		`found invalid public key id ""`:       key("", unfit),
		`found invalid public key id "xxxxxxx`: key(strings.Repeat("x", 1025), unfit),
		`parse public key "a"`:                 key("a", []byte("none")),
		`"a": tokens cannot be signed`:         key("a", unfit),
	} {
		p := signer.New(t)
		p.Lie(lies)
		_, err := Open(t.Context(), Options{Endpoint: p.Socket, Registry: prometheus.NewRegistry(), Logger: slog.New(slog.DiscardHandler)})
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), p.Socket) {
			t.Errorf("got %v, want %s, and where", err, want)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if _, err := Open(ctx, Options{Endpoint: "@nobody-is-there", Registry: prometheus.NewRegistry(), Logger: slog.New(slog.DiscardHandler)}); err == nil || !strings.Contains(err.Error(), "@nobody-is-there") {
		t.Errorf("nobody is there: got %v, want where that is", err)
	}
}

func TestHeadersThatLieAreRefused(t *testing.T) {
	t.Parallel()
	p := signer.New(t)
	p.Rotate("second")
	s, reg := open(t, p.Socket)
	for want, lies := range map[string]signer.Lies{
		`bad signing algorithm "none"`:  {Header: `{"alg":"none","kid":"second","typ":"JWT"}`},
		`bad signing algorithm "HS256"`: {Header: `{"alg":"HS256","kid":"second","typ":"JWT"}`},
		`bad type "at+jwt"`:             {Header: `{"alg":"ES256","kid":"second","typ":"at+jwt"}`},
		"key id missing":                {Header: `{"alg":"ES256","typ":"JWT"}`},
		"key id longer":                 {Header: `{"alg":"ES256","kid":"` + strings.Repeat("x", 1025) + `","typ":"JWT"}`},
		`unknown field "crit"`:          {Header: `{"alg":"ES256","kid":"second","typ":"JWT","crit":["b64"]}`},
		"invalid character":             {Header: "none"},
		"(kid: first) is excluded":      {Header: `{"alg":"ES256","kid":"first","typ":"JWT"}`},
		"empty signature":               {Unsaid: true},
	} {
		p.Lie(lies)
		if token, err := s.Sign(t.Context(), []byte("{}")); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %q, %v, want %s", token, err, want)
		}
	}
	p.Lie(signer.Lies{})
	if _, err := s.Sign(t.Context(), []byte("{}")); err != nil {
		t.Error(err)
	}
	if got := metric.Value(t, reg, "apiserver_externaljwt_sign_request_total", "code=unknown-non-grpc"); got != 9 {
		t.Errorf("signings refused: got %v, want 9", got)
	}
}

func TestKeysStayUpToDate(t *testing.T) {
	t.Parallel()
	p := signer.New(t)
	s, reg := open(t, p.Socket)
	first := s.Keys()

	// A key that is known is not asked for, one that is not known at once; an answer of the same keys changes nothing.
	if s.Find(t.Context(), "first"); p.Fetched() != 1 {
		t.Errorf("a key that is known: asked %d times, want once", p.Fetched())
	}
	if got := s.Find(t.Context(), "strange"); got != first || p.Fetched() != 2 {
		t.Errorf("a key that is not there: asked %d times, the same keys: %t", p.Fetched(), got == first)
	}
	p.Rotate("second")
	if got := s.Find(t.Context(), "second"); !got.Has("second") || !got.hidden("first") || got.hidden("second") {
		t.Errorf("after a rotation: got %+v", got)
	}

	// What cannot be used changes nothing (S3).
	p.Lie(signer.Lies{Keys: []*externaljwt.Key{}})
	if got := s.Find(t.Context(), "third"); !got.Has("second") {
		t.Errorf("after a bad answer: got %+v", got)
	}
	if got := metric.Value(t, reg, "apiserver_externaljwt_fetch_keys_request_total", "code=unknown-non-grpc"); got != 1 {
		t.Errorf("answers that could not be used: got %v, want 1", got)
	}

	// When the signer says so it is asked again.
	p.Lie(signer.Lies{Refresh: 1})
	s.Find(t.Context(), "third")
	p.Forget()
	wait.Until(t, func() error {
		if s.Keys().Has("first") {
			return fmt.Errorf("the key is believed that was forgotten")
		}
		return nil
	})
	if got := metric.Value(t, reg, "apiserver_externaljwt_fetch_keys_data_timestamp"); got != 1_700_000_000 {
		t.Errorf("as of when the keys are: got %v", got)
	}

	// One that is away leaves what it said, and nobody waits for longer than he wants to (S1).
	p.Stop()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := s.Sign(ctx, []byte("{}")); err == nil {
		t.Error("a token was signed while the signer was away")
	}
	if got := s.Find(ctx, "third"); !got.Has("second") {
		t.Errorf("while it is away: got %+v", got)
	}
}
