package identity

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/kemudi/kemudi/internal/auth/authn"
	"github.com/kemudi/kemudi/internal/auth/oidc"
	"github.com/kemudi/kemudi/internal/auth/pki"
	"github.com/kemudi/kemudi/internal/wholefile"
	"github.com/kemudi/kemudi/test/wait"
)

func TestOptionsThatMakeNoSenseAreRefused(t *testing.T) {
	t.Parallel()
	for want, o := range map[string]Options{
		"":                                  Defaults(),
		"--service-account-issuer can't be": {Issuers: []string{""}},
		`"a" is already specified`:          {Issuers: []string{"a", "b", "a"}},
		"contained a ':' but was not a valid URL":                               {Issuers: []string{"https://x:y"}},
		"--service-account-jwks-uri requires https scheme, parsed as: http://x": {KeySetURL: "http://x"},
		"--service-account-jwks-uri must be a valid URL":                        {KeySetURL: "https://x:y"},
		"--service-account-max-token-expiration must be between":                {MaxLife: time.Minute},
		"can't set --service-account-signing-key-file and/or":                   {Endpoint: "@a", SigningKey: "sa.key"},
		"with --service-account-signing-endpoint: they are mutually exclusive":  {Endpoint: "@a", Keys: []string{"sa.pub"}},
		`--service-account-signing-endpoint: invalid value "a"`:                 {Endpoint: "a"},
		"need --requestheader-client-ca-file":                                   {FrontProxy: FrontProxy{Names: []string{"gate"}}},
		"--authentication-config file and --oidc-* flags are mutually":          {ConfigFile: "f", OIDC: oidc.Flags{GroupsClaim: "groups"}},
		"oidc-issuer-url and oidc-client-id must be specified":                  {OIDC: oidc.Flags{ClientID: "api"}},
		`unsupported authentication webhook version "v2"`:                       {Webhook: authn.WebhookOptions{ConfigFile: "f", Version: "v2"}},
	} {
		if err := o.Check(); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: got %v, want %s", o, err, want)
		}
	}
}

// newKey puts a new key in the place of a file.
func newKey(t *testing.T, file string) {
	t.Helper()
	if _, err := pki.Key(file + ".new"); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(file+".new", file); err != nil {
		t.Fatal(err)
	}
}

func TestKeysInFilesOfTheOperatorAreExchanged(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	signing, others := filepath.Join(dir, "sa.key"), filepath.Join(dir, "old.key")
	newKey(t, signing)
	newKey(t, others)
	k, err := Open(t.Context(), &Options{SigningKey: signing, Keys: []string{others}}, With{URL: "https://x", Registry: prometheus.NewRegistry(), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	keys := func() (ids []string) {
		text, err := k.Issuer.KeySet()
		if err != nil {
			t.Fatal(err)
		}
		var set jose.JSONWebKeySet
		if err := json.Unmarshal(text, &set); err != nil {
			t.Fatal(err)
		}
		for _, key := range set.Keys {
			ids = append(ids, key.KeyID)
		}
		return ids
	}
	first := keys()
	if len(first) != 2 {
		t.Fatalf("keys: got %q, want two", first)
	}
	newKey(t, others)
	wait.Until(t, func() error {
		if now := keys(); len(now) != 2 || now[0] != first[0] || now[1] == first[1] {
			return fmt.Errorf("keys: got %q, before %q", now, first)
		}
		return nil
	})
	if err := wholefile.Private(signing, []byte("none")); err != nil {
		t.Fatal(err)
	}
	if _, err := (&Options{SigningKey: signing}).Signer(); err == nil || !strings.Contains(err.Error(), "--service-account-signing-key-file") {
		t.Errorf("a key that is none: got %v", err)
	}
	if now := keys(); len(now) != 2 || now[0] != first[0] {
		t.Errorf("while the file is bad: got %q, want %q to sign", now, first[0])
	}
}
