package apiserver

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kemudi/kemudi/internal/api"
	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/store"
	"github.com/kemudi/kemudi/internal/store/mem"
	"github.com/kemudi/kemudi/internal/store/seal"
	"github.com/kemudi/kemudi/internal/watchcache"
)

// encrypting has a server encrypt secrets in a store, by providers that may be others later.
type encrypting struct{ chain atomic.Pointer[seal.Chain] }

func (e *encrypting) use(providers ...seal.Provider) {
	e.chain.Store(&seal.Chain{Resource: "secrets", Providers: providers})
}

func (e *encrypting) rules(key string) *seal.Chain {
	if !strings.HasPrefix(key, "/registry/secrets/") {
		return nil
	}
	return e.chain.Load()
}

// over is the option of a server over a store.
func (e *encrypting) over(under store.Store) func(o *Options) {
	return func(o *Options) {
		o.Store = seal.Over(under, e.rules)
		o.Encrypted = func(key string) bool { return e.rules(key) != nil }
	}
}

func gcm(tb testing.TB, name string) seal.Provider {
	tb.Helper()
	p, err := seal.NewGCM([]seal.Key{{Name: name, Secret: bytes.Repeat([]byte(name), 32)}})
	if err != nil {
		tb.Fatal(err)
	}
	return p
}

const secretsPath = "/api/v1/namespaces/default/secrets"

// prefixOf is what the value of a secret begins with in the store.
func prefixOf(t *testing.T, under store.Store, name string) string {
	t.Helper()
	kv, _, err := under.Get(t.Context(), "/registry/secrets/default/"+name)
	if err != nil || kv.Rev == 0 {
		t.Fatalf("%s: %v, at %d", name, err, kv.Rev)
	}
	if strings.Contains(string(kv.Value), "hidden") {
		t.Errorf("%s: the store shows what it says", name)
	}
	return seal.Prefix(kv.Value)
}

func TestSecretsLieEncryptedInTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		under, e := mem.New(mem.Options{}), &encrypting{}
		e.use(gcm(t, "a"))
		f := newFixture(t, e.over(under))
		f.must(201, "POST", secretsPath, `{"metadata":{"name":"one"},"stringData":{"k":"hidden"}}`)
		f.must(201, "POST", mapsPath, `{"metadata":{"name":"one"},"data":{"k":"shown"}}`)
		if got := prefixOf(t, under, "one"); got != "k8s:enc:aesgcm:v1:a:" {
			t.Errorf("a secret begins with %q", got)
		}
		if kv, _, err := under.Get(t.Context(), "/registry/configmaps/default/one"); err != nil || seal.Sealed(kv.Value) {
			t.Errorf("a ConfigMap is stored as %q, %v", kv.Value, err)
		}
		same := f.must(200, "GET", secretsPath+"/one", "")
		if again := f.must(200, "PUT", secretsPath+"/one", same); again != same {
			t.Errorf("what changes nothing: got %s, want %s", again, same)
		}
		// With another key, what changes nothing is written once.
		e.use(gcm(t, "b"), gcm(t, "a"))
		if got := f.must(200, "GET", secretsPath+"/one", ""); got != same {
			t.Errorf("got %s, want %s", got, same)
		}
		next := f.must(200, "PUT", secretsPath+"/one", same)
		if got := prefixOf(t, under, "one"); got != "k8s:enc:aesgcm:v1:b:" || next == same {
			t.Errorf("after an update that changes nothing it begins with %q, at %s", got, next)
		}
		if again := f.must(200, "PUT", secretsPath+"/one", next); again != next {
			t.Errorf("and once more: got %s, want %s", again, next)
		}
	})
}

func TestWhatCannotBeDecryptedIsRefusedAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		under, lost, e := mem.New(mem.Options{}), &encrypting{}, &encrypting{}
		lost.use(gcm(t, "a"))
		value, err := watchcache.Encode(core.Secrets.Def, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "lost", Finalizers: []string{"example.com/stay"}}})
		if err != nil {
			t.Fatal(err)
		}
		put := func() {
			t.Helper()
			if _, err := seal.Over(under, lost.rules).Txn(t.Context(), store.Txn{Ops: []store.Op{{Key: "/registry/secrets/default/lost", Value: value}}}); err != nil {
				t.Fatal(err)
			}
		}
		put()
		e.use(gcm(t, "b"))
		f := newFixture(t, e.over(under))
		f.must(201, "POST", secretsPath, `{"metadata":{"name":"good"}}`)
		f.must(200, "GET", secretsPath+"/good", "")
		f.must(200, "GET", mapsPath, "")
		const why = "StorageError: corrupt object, Code: 7, Key: /registry/secrets/default/lost, ResourceVersion: 0, AdditionalErrorMsg: data from the storage is not transformable revision=0: no matching key was found for the provided AES transformer"
		refused := func(want, method, path, body string, headers ...string) {
			t.Helper()
			if got := decoded[metav1.Status](t, f.must(500, method, path, body, headers...)); got.Message != want {
				t.Errorf("%s %s: got %s, want %s", method, path, got.Message, want)
			}
		}
		refused("Internal error occurred: "+why, "GET", secretsPath+"/lost", "")
		refused("Internal error occurred: "+why, "DELETE", secretsPath+"/lost", "")
		refused("Internal error occurred: "+why, "PUT", secretsPath+"/lost", `{"metadata":{"name":"lost"}}`)
		refused("Internal error occurred: "+why, "GET", secretsPath+"?fieldSelector=metadata.name%3Dlost", "")
		refused("failed to read one or more secrets from the storage: "+why, "GET", secretsPath, "")
		refused("failed to read one or more secrets from the storage: "+why, "GET", "/api/v1/secrets", "")
		refused("failed to read one or more secrets from the storage: "+why, "DELETE", secretsPath, "")
		f.must(200, "GET", secretsPath+"?fieldSelector=metadata.name%3Dgood", "")
		f.must(200, "GET", "/api/v1/namespaces/other/secrets", "")
		f.must(409, "POST", secretsPath, `{"metadata":{"name":"lost"}}`)

		// It can be deleted by who says that it is to be, whatever it says.
		const unsafe = `{"ignoreStoreReadErrorWithClusterBreakingPotential":true`
		f.must(422, "DELETE", secretsPath+"/lost", unsafe+`,"gracePeriodSeconds":0}`)
		f.must(422, "DELETE", secretsPath, unsafe+"}")
		if got := f.must(409, "DELETE", secretsPath+"/good", unsafe+"}"); !strings.Contains(got, "unsafe deletion is not allowed because the object is decodable from storage") {
			t.Errorf("of one that can be read: got %s", got)
		}
		f.must(200, "DELETE", secretsPath+"/lost", unsafe+`,"dryRun":["All"]}`)
		refused("Internal error occurred: "+why, "GET", secretsPath+"/lost", "")
		f.must(200, "DELETE", secretsPath+"/lost", unsafe+"}")
		synctest.Wait()
		f.must(404, "GET", secretsPath+"/lost", "")
		f.must(404, "DELETE", secretsPath+"/lost", unsafe+"}")
		f.must(200, "GET", secretsPath, "")

		// One that comes while the server runs is shown as soon as there is its key.
		put()
		synctest.Wait()
		refused("Internal error occurred: "+why, "GET", secretsPath+"/lost", "")
		e.use(gcm(t, "b"), gcm(t, "a"))
		if err := f.o.Caches.(*watchcache.Set).Again(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := f.must(200, "GET", secretsPath+"/lost", ""); !strings.Contains(got, "example.com/stay") {
			t.Errorf("got %s", got)
		}
		if got := f.must(200, "GET", secretsPath, ""); !strings.Contains(got, `"name":"good"`) || !strings.Contains(got, `"name":"lost"`) {
			t.Errorf("got %s", got)
		}
	})
}

// TestWatchGoesOnAfterARestart: what has happened while nobody was there is told by the store's history.
func TestWatchGoesOnAfterARestart(t *testing.T) {
	st := newStore(t)
	var rev string
	t.Run("before", func(t *testing.T) {
		f := newFixture(t, func(o *Options) { o.Store = st })
		for _, name := range []string{"changes", "goes", "stays", "twice"} {
			f.must(201, "POST", mapsPath, `{"metadata":{"name":"`+name+`","labels":{"of":"one"}}}`)
		}
		rev = decoded[metav1.List](t, f.must(200, "GET", mapsPath, "")).ResourceVersion
		f.must(200, "PUT", mapsPath+"/changes", `{"metadata":{"name":"changes","labels":{"of":"two"}}}`)
		f.must(200, "DELETE", mapsPath+"/goes", "")
		f.must(200, "DELETE", mapsPath+"/twice", "")
		f.must(201, "POST", mapsPath, `{"metadata":{"name":"twice","labels":{"of":"one"}}}`)
		f.must(201, "POST", mapsPath, `{"metadata":{"name":"comes","labels":{"of":"two"}}}`)
		f.must(201, "POST", "/api/v1/namespaces/other/configmaps", `{"metadata":{"name":"elsewhere"}}`)
	})
	f := newFixture(t, func(o *Options) { o.Store = st })
	f.must(201, "POST", mapsPath, `{"metadata":{"name":"later"}}`)
	for query, want := range map[string]string{
		"":                                     "MODIFIED changes, DELETED goes, DELETED twice, ADDED twice, ADDED comes, ADDED later",
		"&labelSelector=of%3Done":              "DELETED changes, DELETED goes, DELETED twice, ADDED twice",
		"&labelSelector=of%3Dtwo":              "ADDED changes, ADDED comes",
		"&fieldSelector=metadata.name%3Dcomes": "ADDED comes",
	} {
		var got []string
		for line := range strings.Lines(f.must(200, "GET", mapsPath+"?watch=1&timeoutSeconds=1&resourceVersion="+rev+query, "")) {
			e := decoded[watched](t, line)
			got = append(got, e.Type+" "+e.Object.Metadata.Name)
		}
		if s := strings.Join(got, ", "); s != want {
			t.Errorf("%q: got %s, want %s", query, s, want)
		}
	}
	if got := f.names("resourceVersionMatch=Exact&resourceVersion=" + rev); got != "changes goes stays twice" {
		t.Errorf("the state then: got %s", got)
	}
}

// keptSeed is a plugin that has one seed for ever.
type keptSeed struct{ seed *seal.Seed }

func (k *keptSeed) Seed() (*seal.Seed, error) { return k.seed, nil }

func (k *keptSeed) Decrypt(_ context.Context, h *seal.Header) ([]byte, error) { return h.Source, nil }

// benchForms are the ways of encryption that are measured.
func benchForms(b *testing.B) map[string]func() seal.Provider {
	key := []seal.Key{{Name: "key", Secret: bytes.Repeat([]byte("k"), 32)}}
	of := func(newProvider func([]seal.Key) (seal.Provider, error)) func() seal.Provider {
		return func() seal.Provider {
			p, err := newProvider(key)
			if err != nil {
				b.Fatal(err)
			}
			return p
		}
	}
	return map[string]func() seal.Provider{
		"aescbc": of(seal.NewCBC), "aesgcm": of(seal.NewGCM), "secretbox": of(seal.NewBox),
		"kms": func() seal.Provider {
			s, err := seal.NewSeed(func(seed []byte) (seal.Header, error) { return seal.Header{KeyID: "1", Source: bytes.Clone(seed)}, nil }, nil)
			if err != nil {
				b.Fatal(err)
			}
			return seal.NewKMS("vault", seal.NewEnvelope("vault", &keptSeed{s.Good(time.Now().Add(time.Hour))}, nil))
		},
	}
}

// BenchmarkEncryption creates secrets of 2 KB, lists 10,000 of them, and reads them after a start.
func BenchmarkEncryption(b *testing.B) {
	forms := benchForms(b)
	secret := `{"metadata":{"name":"NAME"},"data":{"k":"` + base64.StdEncoding.EncodeToString(bytes.Repeat([]byte("x"), 1900)) + `"}}`
	for _, form := range []string{"none", "aescbc", "aesgcm", "secretbox", "kms"} {
		with := func(under store.Store) func(o *Options) {
			if form == "none" {
				return func(o *Options) { o.Store = under }
			}
			e := &encrypting{}
			e.use(forms[form]())
			return e.over(under)
		}
		create := func(b *testing.B, f *fixture, n int) {
			r, err := http.NewRequestWithContext(b.Context(), http.MethodPost, secretsPath, strings.NewReader(strings.Replace(secret, "NAME", fmt.Sprint("s", n), 1)))
			if err != nil {
				b.Fatal(err)
			}
			r.Header.Set("Content-Type", "application/json")
			f.serve(b, r, http.StatusCreated)
		}
		b.Run("create/"+form, func(b *testing.B) {
			f := newFixture(b, with(newEtcd(b, b.TempDir())))
			defer cpu(b)()
			n := 0
			for b.Loop() {
				n++
				create(b, f, n)
			}
		})
		b.Run("many/"+form, func(b *testing.B) {
			const many = 10_000
			under := mem.New(mem.Options{})
			f := newFixture(b, with(under))
			for n := range many {
				create(b, f, n)
			}
			b.Run("list", func(b *testing.B) {
				defer cpu(b)()
				for b.Loop() {
					r, err := http.NewRequestWithContext(b.Context(), http.MethodGet, "/api/v1/secrets", nil)
					if err != nil {
						b.Fatal(err)
					}
					f.serve(b, r, http.StatusOK)
				}
			})
			b.Run("start", func(b *testing.B) {
				defer cpu(b)()
				for b.Loop() {
					ctx, cancel := context.WithCancelCause(b.Context())
					set, err := watchcache.New(watchcache.Options{Store: f.o.Store, Defs: api.All()})
					if err != nil {
						b.Fatal(err)
					}
					var wg sync.WaitGroup
					wg.Go(func() { _ = set.Run(ctx) })
					<-set.Synced()
					cancel(errors.New("done"))
					wg.Wait()
				}
			})
		})
	}
}
