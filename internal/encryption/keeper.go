package encryption

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kemudi/kemudi/internal/inotify"
	"github.com/kemudi/kemudi/internal/resource"
	"github.com/kemudi/kemudi/internal/store/seal"
	"github.com/kemudi/kemudi/internal/task"
)

// Options say what is encrypted. File, Defs, Registry and Logger are required.
type Options struct {
	File   string // --encryption-provider-config
	Reload bool   // --encryption-provider-config-automatic-reload
	// Defs are the built-in resources.
	Defs     []*resource.Def
	Server   string // names this process in metrics
	Registry *prometheus.Registry
	Logger   *slog.Logger
}

// Keeper has the configuration that is in force.
type Keeper struct {
	o       Options
	names   names
	metrics *metrics
	seals   *seal.Metrics
	now     atomic.Pointer[setup]
	read    func(context.Context) error // reads again what could not be read; nil: nobody does
	again   chan struct{}               // a token: it may be read now
}

// setup is a configuration with its plugins.
type setup struct {
	hash    string
	chains  *chains
	plugins []*plugin
}

// Check refuses a configuration that cannot be used, but for what plugins have to say.
func (o *Options) Check() error {
	if o.File == "" {
		if o.Reload {
			return errors.New("--encryption-provider-config-automatic-reload must be set with --encryption-provider-config")
		}
		return nil
	}
	c, err := read(o.File, o.Reload)
	if err == nil {
		_, err = newChains(c, nil, func(*kms) (seal.Provider, error) { return seal.Provider{}, nil })
	}
	if err != nil {
		return fmt.Errorf("--encryption-provider-config: %w", err)
	}
	return nil
}

// Open reads the configuration, and asks its plugins how they are. One that does not answer is no
// reason to fail.
func Open(ctx context.Context, o Options) (*Keeper, error) {
	k := &Keeper{o: o, again: make(chan struct{}, 1), names: newNames(o.Defs), metrics: newMetrics(o.Registry, o.Server), seals: seal.NewMetrics(o.Registry, o.Server)}
	s, err := k.load()
	if err != nil {
		return nil, fmt.Errorf("--encryption-provider-config: %w", err)
	}
	for _, p := range s.plugins {
		_ = p.check(ctx) // it is told of, and asked again
	}
	k.now.Store(s)
	return k, nil
}

// load makes a setup of the file as it is.
func (k *Keeper) load() (*setup, error) {
	c, err := read(k.o.File, k.o.Reload)
	if err != nil {
		return nil, err
	}
	for _, name := range k.names.unknown(c) {
		k.o.Logger.Warn("the encryption configuration names a resource that there is not", "file", k.o.File, "resource", name)
	}
	s := &setup{hash: c.hash}
	s.chains, err = newChains(c, k.seals, func(a *kms) (seal.Provider, error) {
		p := &plugin{name: a.Name, timeout: a.Timeout.Duration, metrics: k.metrics, seals: k.seals, log: k.o.Logger, well: k.readable}
		if err := p.open(a.Endpoint); err != nil {
			return seal.Provider{}, err
		}
		s.plugins = append(s.plugins, p)
		return seal.NewKMS(a.Name, p.envelope), nil
	})
	if err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

func (s *setup) close() {
	for _, p := range s.plugins {
		p.close()
	}
}

// grace is how long requests may still wait for the plugins of a setup that is replaced.
func (s *setup) grace() (d time.Duration) {
	for _, p := range s.plugins {
		d += 2 * p.timeout
	}
	return d
}

// Close ends the connections to plugins of a Keeper that is not run.
func (k *Keeper) Close() { k.now.Load().close() }

// Rules say how values are stored.
func (k *Keeper) Rules() seal.Rules {
	return func(key string) *seal.Chain {
		gr, ok := k.names.of(key)
		if !ok {
			return nil
		}
		return k.now.Load().chains.of(gr)
	}
}

// Encrypted says whether the value of a key may lie there encrypted.
func (k *Keeper) Encrypted(key string) bool { return k.Rules()(key) != nil }

// OnReadable has Run call read whenever what could not be read may be read: with another configuration, or
// when a plugin is well again. It comes before Run.
func (k *Keeper) OnReadable(read func(context.Context) error) { k.read = read }

func (k *Keeper) readable() {
	select {
	case k.again <- struct{}{}:
	default: // it will be
	}
}

// readAgain has read again what could not be read.
func (k *Keeper) readAgain(ctx context.Context) error {
	for {
		select {
		case <-k.again:
		case <-ctx.Done():
			return nil
		}
		if k.read == nil {
			continue
		}
		if err := k.read(ctx); err != nil && ctx.Err() == nil {
			k.o.Logger.Warn("what could not be decrypted was not read again", "err", err)
		}
	}
}

// Run keeps the plugins in view, and follows the file if it is to be, until ctx ends.
func (k *Keeper) Run(ctx context.Context) error {
	closing := task.NewGroup(ctx)
	closing.Go("read again", k.readAgain)
	for ctx.Err() == nil {
		s := k.now.Load()
		g := task.NewGroup(ctx)
		for _, p := range s.plugins {
			g.Go("KMS plugin "+p.name, p.run)
		}
		g.Go("encryption configuration", func(ctx context.Context) error {
			if !k.o.Reload {
				<-ctx.Done()
				return nil
			}
			next, err := k.follow(ctx, s)
			if next != nil {
				k.now.Store(next)
				g.Cancel(errReplaced)
			}
			return err
		})
		if err := g.Wait(); err != nil && !errors.Is(err, errReplaced) {
			closing.Cancel(err)
			return cmp.Or(closing.Wait(), err)
		}
		if ctx.Err() == nil {
			k.readable()
		}
		closing.Go("close plugins", func(ctx context.Context) error {
			_ = task.Sleep(ctx, s.grace()) // nobody waits any more when it ends
			s.close()
			return nil
		})
	}
	return closing.Wait()
}

var errReplaced = errors.New("there is another encryption configuration")

// follow returns the setup that replaces one, or nil when ctx ends (E5).
func (k *Keeper) follow(ctx context.Context, s *setup) (next *setup, err error) {
	told := ""
	err = inotify.Follow(ctx, k.o.File, func(ctx context.Context) bool {
		var err error
		next, err = k.changed(ctx, s)
		switch {
		case ctx.Err() != nil:
			if next != nil {
				next.close()
				next = nil
			}
			return true
		case err != nil:
			k.metrics.reloaded(err, "")
			if err.Error() != told {
				k.o.Logger.Error("the encryption configuration is not taken over, and the last good one stays in force", "file", k.o.File, "err", err)
			}
			told = err.Error()
		case next != nil:
			k.metrics.reloaded(nil, next.hash)
			k.o.Logger.Info("took over the encryption configuration", "file", k.o.File, "hash", next.hash)
		default:
			told = ""
		}
		return next != nil
	})
	if err != nil {
		return nil, fmt.Errorf("--encryption-provider-config-automatic-reload: %w", err)
	}
	return next, nil
}

// wellWithin is how long the plugins of a new configuration may take to be well, at the least.
const wellWithin = 10 * time.Second

// changed is the setup of the file if that has changed. Its plugins are well.
func (k *Keeper) changed(ctx context.Context, s *setup) (*setup, error) {
	hash, _, err := readHash(k.o.File)
	if err != nil || hash == s.hash {
		return nil, err
	}
	next, err := k.load()
	if err != nil {
		return nil, err
	}
	if next.hash == s.hash {
		next.close()
		return nil, nil
	}
	within, cancel := context.WithTimeout(ctx, max(wellWithin, next.grace()))
	defer cancel()
	for _, p := range next.plugins {
		wait := task.Backoff{Initial: 100 * time.Millisecond, Max: time.Second}
		for {
			err := p.check(within)
			if err == nil {
				break
			}
			if task.Sleep(within, wait.Next()) != nil {
				next.close()
				return nil, fmt.Errorf("health check for new transformers failed: %w", cmp.Or(p.last(), err))
			}
		}
	}
	return next, nil
}

// HealthCheck is the name under which plugins are asked for in health checks; "": there is nothing to ask.
func (k *Keeper) HealthCheck() string {
	if !k.o.Reload && len(k.now.Load().plugins) == 0 {
		return ""
	}
	return "kms-providers"
}

// Healthy says what is wrong with the plugins.
func (k *Keeper) Healthy(ctx context.Context) error {
	var failed []error
	for i, p := range k.now.Load().plugins {
		if err := p.health(ctx); err != nil {
			failed = append(failed, fmt.Errorf("kms-provider-%d: %w", i, err))
		}
	}
	return errors.Join(failed...)
}
