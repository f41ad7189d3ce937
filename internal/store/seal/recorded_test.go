package seal

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/kemudi/kemudi/internal/store"
	"github.com/kemudi/kemudi/internal/store/mem"
	"github.com/kemudi/kemudi/internal/store/storetest"
)

// recorded are stored values that another program has made as upstream's code says, in Python: by its package
// cryptography, and XSalsa20 by the book.
func recorded(t testing.TB) map[string][]byte {
	t.Helper()
	data, err := os.ReadFile("testdata/recorded.txt")
	if err != nil {
		t.Fatal(err)
	}
	all := map[string][]byte{}
	for line := range strings.Lines(string(data)) {
		name, text, _ := strings.Cut(strings.TrimSpace(line), " ")
		if all[name], err = base64.StdEncoding.DecodeString(text); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

const recordedKey = "/registry/secrets/default/recorded"

// numbers are n bytes that count up.
func numbers(from, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(from + i)
	}
	return b
}

// vault is a plugin that puts a word before what it encrypts.
type vault struct {
	id    string
	until time.Time
	seed  *Seed
	asked int
	lies  bool
	down  error
}

func (v *vault) Seed() (*Seed, error) {
	if v.seed == nil || v.seed.Header.KeyID != v.id {
		s, err := NewSeed(func(seed []byte) (Header, error) {
			return Header{KeyID: v.id, Source: append([]byte("sealed:"), seed...), Annotations: []Annotation{{Name: "a.example.com", Value: []byte("x")}}}, nil
		}, nil)
		if err != nil {
			return nil, err
		}
		v.seed = s
	}
	return v.seed.Good(v.until), nil
}

func (v *vault) Decrypt(_ context.Context, h *Header) ([]byte, error) {
	v.asked++
	if v.down != nil {
		return nil, v.down
	}
	seed, ok := bytes.CutPrefix(h.Source, []byte("sealed:"))
	if !ok {
		return nil, errors.New("that is none of mine")
	}
	if v.lies {
		return numbers(1, 32), nil
	}
	return seed, nil
}

func provider(t testing.TB, of func([]Key) (Provider, error), keys ...Key) Provider {
	t.Helper()
	p, err := of(keys)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// forms are a provider of each form, with the keys of the recorded values.
func forms(t testing.TB, v *vault) map[string]Provider {
	return map[string]Provider{
		"aescbc":    provider(t, NewCBC, Key{"key1", numbers(0, 32)}),
		"aesgcm":    provider(t, NewGCM, Key{"key2", numbers(100, 16)}),
		"secretbox": provider(t, NewBox, Key{"key3", numbers(0, 32)}),
		"kms-seed":  NewKMS("vault", NewEnvelope("vault", v, nil)),
		"kms-key":   NewKMS("vault", NewEnvelope("vault", v, nil)),
	}
}

func newVault() *vault { return &vault{id: "key-id-1", until: time.Now().Add(time.Hour)} }

func TestValuesThatOthersWroteAreOpened(t *testing.T) {
	all := recorded(t)
	for name, p := range forms(t, newVault()) {
		c := &Chain{Resource: "secrets", Providers: []Provider{p}}
		value, stale, err := c.Open(t.Context(), all[name], recordedKey)
		if err != nil || !bytes.Equal(value, all["plain"]) || stale != (name == "kms-key") {
			t.Errorf("%s: got %q, stale %t, %v; want %q", name, value, stale, err, all["plain"])
		}
		_, _, err = c.Open(t.Context(), all[name], recordedKey+"2")
		if bound := name != "aescbc" && name != "secretbox"; bound != (err != nil) {
			t.Errorf("%s: at another key: got %v", name, err)
		}
		for i := range all[name] {
			broken := bytes.Clone(all[name])
			broken[i] ^= 0x40
			if value, _, err := c.Open(t.Context(), broken, recordedKey); err == nil && bytes.Equal(value, all["plain"]) && !strings.HasPrefix(name, "kms") {
				t.Errorf("%s: opened although byte %d is another", name, i)
			}
		}
	}
}

func TestWhatIsWrittenIsOpenedAgainAndNeverTheSame(t *testing.T) {
	value := []byte("a value")
	for name, p := range forms(t, newVault()) {
		c := &Chain{Resource: "secrets", Providers: []Provider{p, {}}}
		seen := map[string]bool{}
		for range 10 {
			stored, err := c.Seal(value, "/k")
			if err != nil {
				t.Fatal(err)
			}
			if seen[string(stored)] || bytes.Contains(stored, value) || !strings.HasPrefix(string(stored), c.Writes()) {
				t.Errorf("%s: stored as %q", name, stored)
			}
			seen[string(stored)] = true
			if got, stale, err := c.Open(t.Context(), stored, "/k"); err != nil || stale || !bytes.Equal(got, value) {
				t.Errorf("%s: got %q, stale %t, %v", name, got, stale, err)
			}
		}
		if got, stale, err := c.Open(t.Context(), value, "/k"); err != nil || !stale || !bytes.Equal(got, value) {
			t.Errorf("%s: what was stored as it is: got %q, stale %t, %v", name, got, stale, err)
		}
	}
}

func TestKeysAreFoundByTheirNames(t *testing.T) {
	old := &Chain{Providers: []Provider{provider(t, NewGCM, Key{"old", numbers(0, 32)})}}
	stored, err := old.Seal([]byte("v"), "/k")
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		providers []Provider
		stale     bool
		err       string
	}{
		"second key":                      {[]Provider{provider(t, NewGCM, Key{"new", numbers(9, 32)}, Key{"old", numbers(0, 32)})}, true, ""},
		"second provider of the form":     {[]Provider{provider(t, NewGCM, Key{"old", numbers(9, 32)}), provider(t, NewGCM, Key{"old", numbers(0, 32)})}, true, ""},
		"stored as it is from now on":     {[]Provider{{}, provider(t, NewGCM, Key{"old", numbers(0, 32)})}, true, ""},
		"another key of the name":         {[]Provider{provider(t, NewGCM, Key{"old", numbers(9, 32)})}, false, "cipher: message authentication failed"},
		"no key of the name":              {[]Provider{provider(t, NewGCM, Key{"new", numbers(0, 32)})}, false, "no matching key was found for the provided AES transformer"},
		"no provider of the form":         {[]Provider{provider(t, NewBox, Key{"old", numbers(0, 32)})}, false, "no matching prefix found"},
		"none of the form, or as it is":   {[]Provider{provider(t, NewBox, Key{"old", numbers(0, 32)}), {}}, false, "no matching prefix found"},
		"two of the form, and none opens": {[]Provider{provider(t, NewGCM, Key{"new", numbers(0, 32)}), provider(t, NewGCM, Key{"old", numbers(9, 32)})}, false, "[no matching key was found for the provided AES transformer, cipher: message authentication failed]"},
	} {
		value, stale, err := (&Chain{Providers: c.providers}).Open(t.Context(), stored, "/k")
		switch {
		case c.err != "" && (err == nil || err.Error() != c.err):
			t.Errorf("%s: got %v, want %s", name, err, c.err)
		case c.err == "" && (err != nil || stale != c.stale || string(value) != "v"):
			t.Errorf("%s: got %q, stale %t, %v", name, value, stale, err)
		}
	}
	if _, _, err := (*Chain)(nil).Open(t.Context(), stored, "/k"); !errors.Is(err, ErrSealed) {
		t.Errorf("a resource that is not encrypted: got %v, want %v", err, ErrSealed)
	}
}

func TestStoreOverAnotherPassesTheSuite(t *testing.T) {
	c := &Chain{Resource: "secrets", Providers: []Provider{provider(t, NewGCM, Key{"key", numbers(0, 32)})}}
	storetest.Run(t, func(*testing.T) store.Store {
		return Over(mem.New(mem.Options{}), func(string) *Chain { return c })
	})
}

func TestAValueThatCannotBeOpenedSpoilsNothingElse(t *testing.T) {
	under := mem.New(mem.Options{})
	c := &Chain{Resource: "secrets", Providers: []Provider{provider(t, NewGCM, Key{"key", numbers(0, 32)})}}
	s := Over(under, func(string) *Chain { return c })
	ops := []store.Op{{Key: "/a", Value: []byte("1")}, {Key: "/b", Value: []byte("2")}, {Key: "/c", Value: []byte("3")}}
	if _, err := s.Txn(t.Context(), store.Txn{Ops: ops}); err != nil {
		t.Fatal(err)
	}
	if _, err := under.Txn(t.Context(), store.Txn{Ops: []store.Op{{Key: "/b", Value: []byte("k8s:enc:aesgcm:v1:lost:xxxx")}}}); err != nil {
		t.Fatal(err)
	}
	look := func(kv store.KV) string {
		if kv.Err != nil {
			return kv.Key + " " + kv.Err.Error()
		}
		return kv.Key + "=" + string(kv.Value)
	}
	page, err := s.List(t.Context(), "/", store.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, kv := range page.KVs {
		got = append(got, look(kv))
	}
	const want = "/a=1; /b no matching key was found for the provided AES transformer; /c=3"
	if s := strings.Join(got, "; "); s != want {
		t.Errorf("list: got %s, want %s", s, want)
	}
	seen, enough := 0, errors.New("enough")
	if err := s.Watch(t.Context(), "/", 1, func(changes []store.Change, _ int64) error {
		for _, c := range changes {
			seen++
			if (c.Err != nil) != (c.Key == "/b" && seen > 3) {
				t.Errorf("feed: %s", look(c.KV))
			}
		}
		if seen == 4 {
			return enough
		}
		return nil
	}); !errors.Is(err, enough) {
		t.Error(err)
	}
}

func TestPluginThatLiesOrIsDownIsAskedAgain(t *testing.T) {
	all := recorded(t)
	v := newVault()
	v.down = errors.New("down")
	e := NewEnvelope("vault", v, nil)
	c := &Chain{Providers: []Provider{NewKMS("vault", e)}}
	open := func(want string) {
		t.Helper()
		_, _, err := c.Open(t.Context(), all["kms-seed"], recordedKey)
		if got := ""; err != nil {
			got = err.Error()
			if got != want {
				t.Errorf("got %s, want %s", got, want)
			}
		} else if want != "" {
			t.Errorf("got no error, want %s", want)
		}
	}
	open("failed to decrypt DEK, error: down")
	open("failed to decrypt DEK, error: down")
	if v.asked != 1 {
		t.Errorf("a plugin that is down was asked %d times at once, want once", v.asked)
	}
	v.down, v.lies = nil, true
	e.Forget()
	open("cipher: message authentication failed")
	v.lies = false
	e.Forget()
	open("")
	v.down = errors.New("down")
	e.Forget()
	open("") // what it has said holds
	v.until = time.Now().Add(-time.Second)
	if _, err := c.Seal([]byte("v"), "/k"); err == nil || !strings.Contains(err.Error(), "expired at") {
		t.Errorf("a seed whose time is over: got %v", err)
	}
}

func FuzzOpen(f *testing.F) {
	v := newVault()
	var c Chain
	for name, stored := range recorded(f) {
		f.Add(stored)
		if p, ok := forms(f, v)[name]; ok {
			c.Providers = append(c.Providers, p)
		}
	}
	for _, s := range []string{"", "k8s:enc:", "k8s:enc:aescbc:v1:key1:", "k8s:enc:kms:v2:vault:\x0a\xff\xff\xff\xff\xff\xff\xff\xff\x7f", "k8s:enc:a:b:c", "{}"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, stored []byte) {
		value, _, err := c.Open(t.Context(), stored, recordedKey)
		if err == nil && value == nil && len(stored) > 0 && !Sealed(stored) {
			t.Errorf("%q: no value, and no error", stored)
		}
		if p := Prefix(stored); p != "" && (!Sealed(stored) || !bytes.HasPrefix(stored, []byte(p))) {
			t.Errorf("%q: prefix %q", stored, p)
		}
	})
}
