package oidc

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/authentication/authenticator"

	"github.com/kemudi/kemudi/internal/auth/authn"
	"github.com/kemudi/kemudi/internal/inotify"
	"github.com/kemudi/kemudi/internal/reach/egress"
	"github.com/kemudi/kemudi/internal/task"
)

// With is what issuers are made of beside what people say of them.
type With struct {
	Own []string // names under which this cluster issues tokens itself: nobody else may
	// AnonymousSaid says that --anonymous-auth was said: no file may say it again.
	AnonymousSaid bool
	Server        string              // name of this server, in metrics
	Egress        egress.Selection    // by which providers are reached that say so; nil: none may
	Cache         *authn.CacheMetrics // counts how often it is remembered whose tokens are; required
	Registry      *prometheus.Registry
	Logger        *slog.Logger // required
}

// Issuers know people by the tokens of OpenID providers. They may be used concurrently; [Issuers.Run] fetches keys.
type Issuers struct {
	file    string // --authentication-config; empty: the flags say all
	with    With
	rules   rules
	metrics *metrics
	now     atomic.Pointer[set]
	changed chan struct{} // a token: which providers are needed is another thing now

	mu struct {
		sync.Mutex
		others map[source]*provider // of issuers that others say something by
	}
}

// set is what a configuration means.
type set struct {
	config  *apiserver.AuthenticationConfiguration
	text    string // of the file
	issuers map[string]*issuer
	cached  *authn.Cached
}

var _ authenticator.Token = (*Issuers)(nil)

// File returns the issuers that a file describes, which is read again when it changes.
func File(path string, with With) (*Issuers, error) {
	i := newIssuers(with)
	i.file = path
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("--authentication-config: %w", err)
	}
	if err := i.read(text); err != nil {
		return nil, fmt.Errorf("--authentication-config %s: %w", path, err)
	}
	i.metrics.applied(string(text))
	return i, nil
}

// New returns the issuer that the flags describe.
func New(f Flags, with With) (*Issuers, error) {
	if err := f.Check(); err != nil {
		return nil, err
	}
	i := newIssuers(with)
	c, err := f.config()
	if err != nil {
		return nil, err
	}
	algs := f.SigningAlgs
	if len(algs) == 0 {
		algs = FlagDefaults().SigningAlgs
	}
	if err := i.set(c, "", algs); err != nil {
		return nil, fmt.Errorf("the flags --oidc-...: %w", err)
	}
	return i, nil
}

func newIssuers(with With) *Issuers {
	i := &Issuers{
		with: with, rules: rules{decoder: newDecoder(), own: with.Own, egress: with.Egress, anonymousSaid: with.AnonymousSaid}, metrics: newMetrics(with.Registry, with.Server),
		changed: make(chan struct{}, 1), // a full one says enough
	}
	i.mu.others = map[source]*provider{}
	return i
}

// read does as a text says from now on, or changes nothing (O3).
func (i *Issuers) read(text []byte) error {
	c, err := parse(i.rules.decoder, text)
	if err != nil {
		return err
	}
	return i.set(c, string(text), algorithms)
}

// set does as c says from now on. Providers that are needed still keep their keys.
func (i *Issuers) set(c *apiserver.AuthenticationConfiguration, text string, algs []string) error {
	mappers, err := i.rules.mappers(c)
	if err != nil {
		return err
	}
	before := map[source]*provider{}
	if old := i.now.Load(); old != nil {
		for _, one := range old.issuers {
			before[one.keys.source] = one.keys
		}
	}
	s := &set{config: c, text: text, issuers: map[string]*issuer{}}
	for n := range c.JWT {
		rule := &c.JWT[n]
		from := source{rule.Issuer.URL, rule.Issuer.DiscoveryURL, rule.Issuer.CertificateAuthority, string(rule.Issuer.EgressSelectorType)}
		keys := before[from]
		if keys == nil {
			if keys, err = newProvider(from, i.with.Egress.To(from.egress), i.metrics, i.with.Logger); err != nil {
				return fmt.Errorf("jwt[%d].issuer: %w", n, err)
			}
		}
		one := &issuer{rules: rule, mapper: mappers[n], keys: keys}
		one.other = func(name string) (*provider, error) {
			return i.other(source{issuer: name, authority: from.authority, egress: from.egress})
		}
		for _, name := range algs {
			one.accepted = append(one.accepted, jose.SignatureAlgorithm(name))
		}
		s.issuers[from.issuer] = one
	}
	s.cached = authn.NewCached(s, authn.CacheOptions{Good: rememberFor, Metrics: i.with.Cache})
	i.now.Store(s)
	i.wake()
	return nil
}

// rememberFor is how long it is remembered whose a token is, as upstream does.
const rememberFor = 10 * time.Second

// maxOthers bounds how many issuers are known that only speak of what others have not said themselves.
const maxOthers = 64

// other is the keys of an issuer of claims that tokens of another refer to.
func (i *Issuers) other(from source) (*provider, error) {
	i.mu.Lock()
	p := i.mu.others[from]
	if p == nil && len(i.mu.others) < maxOthers {
		var err error
		if p, err = newProvider(from, i.with.Egress.To(from.egress), i.metrics, i.with.Logger); err != nil {
			i.mu.Unlock()
			return nil, err
		}
		i.mu.others[from] = p
		i.wake()
	}
	i.mu.Unlock()
	if p == nil {
		return nil, errors.New("there are too many issuers of distributed claims")
	}
	return p, nil
}

func (i *Issuers) wake() {
	select {
	case i.changed <- struct{}{}:
	default: // it has been told
	}
}

// Anonymous says what may be asked for by who shows nothing; nil: the configuration does not say.
func (i *Issuers) Anonymous() *apiserver.AnonymousAuthConfig { return i.now.Load().config.Anonymous }

// AuthenticateToken says whose token it is. Those that bear no name of an issuer are none of its business.
func (i *Issuers) AuthenticateToken(ctx context.Context, token string) (*authenticator.Response, bool, error) {
	s := i.now.Load()
	one := s.issuers[issuerOf(token)]
	if one == nil {
		return nil, false, nil
	}
	began := time.Now()
	res, ok, err := s.cached.AuthenticateToken(ctx, token)
	i.metrics.authenticated(one.keys.issuer, began, err)
	return res, ok, err
}

// AuthenticateToken says whose token it is, without remembering anything.
func (s *set) AuthenticateToken(ctx context.Context, token string) (*authenticator.Response, bool, error) {
	one := s.issuers[issuerOf(token)]
	if one == nil {
		return nil, false, nil
	}
	res, err := one.authenticate(ctx, token)
	return res, err == nil, err
}

// Run fetches keys, and follows the file, until ctx ends.
func (i *Issuers) Run(ctx context.Context) error {
	g := task.NewGroup(ctx)
	g.Go("keys of providers", func(ctx context.Context) error { return i.fetch(ctx, g) })
	if i.file != "" {
		g.Go("follow --authentication-config", i.follow)
	}
	return g.Wait()
}

// fetch has those providers run that are needed.
func (i *Issuers) fetch(ctx context.Context, g *task.Group) error {
	running := map[*provider]context.CancelFunc{}
	defer func() {
		for _, stop := range running {
			stop()
		}
	}()
	for {
		needed := map[*provider]bool{}
		for _, one := range i.now.Load().issuers {
			needed[one.keys] = true
		}
		i.mu.Lock()
		for _, p := range i.mu.others {
			needed[p] = true
		}
		i.mu.Unlock()
		for p, stop := range running {
			if !needed[p] {
				stop()
				delete(running, p)
				i.metrics.forget(p.issuer)
			}
		}
		for p := range needed {
			if running[p] == nil {
				within, stop := context.WithCancel(ctx)
				running[p] = stop
				g.Go("keys of "+p.issuer, func(context.Context) error { return p.run(within) })
			}
		}
		select {
		case <-i.changed:
		case <-ctx.Done():
			return nil
		}
	}
}

// follow reads the file again when it may have changed. What is wrong with it is told and changes nothing.
func (i *Issuers) follow(ctx context.Context) error {
	told := "" // what was wrong
	err := inotify.Follow(ctx, i.file, func(context.Context) bool {
		text, err := os.ReadFile(i.file)
		if err == nil && string(text) != i.now.Load().text {
			if err = i.read(text); err == nil {
				i.with.Logger.Info("read --authentication-config again", "file", i.file)
				i.metrics.reloaded(string(text), nil)
			}
		}
		switch {
		case err == nil:
			told = ""
		case told != err.Error()+string(text):
			told = err.Error() + string(text)
			i.metrics.reloaded("", err)
			i.with.Logger.Error("--authentication-config cannot be used; what it said before holds", "file", i.file, "err", err)
		}
		return false
	})
	if err != nil {
		return fmt.Errorf("--authentication-config: %w", err)
	}
	return nil
}
