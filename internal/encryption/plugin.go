package encryption

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	kmsv2 "k8s.io/kms/apis/v2"

	"github.com/kemudi/kemudi/internal/store/seal"
	"github.com/kemudi/kemudi/internal/task"
)

// When a plugin is asked how it is, in upstream's times.
const (
	askWell   = time.Minute      // one that is well
	askIll    = 10 * time.Second // one that is not; sooner when its socket answers again
	goodFor   = 3 * time.Minute  // how long new values are encrypted after it was well for the last time
	wellFor   = 20 * time.Second // how long an answer holds for who asks for its health
	illFor    = 3 * time.Second  // the same of one that was not good
	reconnect = 3 * time.Second  // how often its socket is tried, at the least
)

// plugin is a KMS plugin, which keeps the keys that data keys are encrypted with.
type plugin struct {
	name     string
	timeout  time.Duration // of each call
	conn     *grpc.ClientConn
	client   kmsv2.KeyManagementServiceClient
	envelope *seal.Envelope
	metrics  *metrics
	seals    *seal.Metrics
	log      *slog.Logger
	// well is called when it is well that was not, or for the first time; from the goroutine of run.
	well func()

	seed atomic.Pointer[seal.Seed] // nil: it has not been well yet
	wake chan struct{}             // a token: it is to be asked now

	mu struct {
		sync.Mutex
		err     error         // what was wrong the last time
		at      time.Time     // when that was
		next    chan struct{} // closed and replaced when it was asked again
		version string        // of its API, which stays what it was
	}
}

var _ seal.Plugin = (*plugin)(nil)

var errNotAsked = errors.New("it has not been asked yet")

// open prepares the connection to the plugin. Nothing is connected before it is asked.
func (p *plugin) open(endpoint string) (err error) {
	p.wake = make(chan struct{}, 1)
	p.mu.next, p.mu.err = make(chan struct{}), errNotAsked
	p.envelope = seal.NewEnvelope(p.name, p, p.seals)
	path, err := socket(endpoint)
	if err != nil {
		return err
	}
	p.conn, err = grpc.NewClient("passthrough:///kms",
		grpc.WithAuthority("localhost"),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.WaitForReady(true)),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 2, Jitter: 0.2, MaxDelay: reconnect}, MinConnectTimeout: reconnect}),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", path)
		}),
	)
	if err != nil {
		return fmt.Errorf("could not configure KMSv2-Plugin's probe %q, error: %w", p.name, err)
	}
	p.client = kmsv2.NewKeyManagementServiceClient(p.conn)
	return nil
}

// socket is the path of an endpoint, unix:///run/kms.sock; of an abstract socket it begins with @.
func socket(endpoint string) (string, error) {
	u, err := url.Parse(endpoint)
	if err != nil {
		return "", fmt.Errorf("invalid endpoint %q for remote KMS provider, error: %w", endpoint, err)
	}
	if name, ok := strings.CutPrefix(u.Path, "/@"); ok {
		return "@" + name, nil
	}
	return u.Path, nil
}

// call calls the plugin, for no longer than it may take (E6).
func call[Q, A any](ctx context.Context, p *plugin, method string, of func(context.Context, Q, ...grpc.CallOption) (A, error), q Q) (A, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, p.timeout, fmt.Errorf("no answer within %s", p.timeout))
	defer cancel()
	began := time.Now()
	answer, err := of(ctx, q)
	p.metrics.called(p.name, method, began, err)
	return answer, err
}

// Seed is what new values are encrypted with.
func (p *plugin) Seed() (*seal.Seed, error) {
	if s := p.seed.Load(); s != nil {
		return s, nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return nil, fmt.Errorf("KMS plugin %s has not been healthy yet: %w", p.name, p.mu.err)
}

// Decrypt has the plugin decrypt a data key.
func (p *plugin) Decrypt(ctx context.Context, h *seal.Header) ([]byte, error) {
	q := &kmsv2.DecryptRequest{Ciphertext: h.Source, Uid: uuid.NewString(), KeyId: h.KeyID}
	for _, a := range h.Annotations {
		if q.Annotations == nil {
			q.Annotations = map[string][]byte{}
		}
		q.Annotations[a.Name] = a.Value
	}
	answer, err := call(ctx, p, kmsv2.KeyManagementService_Decrypt_FullMethodName, p.client.Decrypt, q)
	if err != nil {
		p.ask() // it may be ill
		return nil, err
	}
	return answer.Plaintext, nil
}

func (p *plugin) encrypt(ctx context.Context, seed []byte) (seal.Header, error) {
	answer, err := call(ctx, p, kmsv2.KeyManagementService_Encrypt_FullMethodName, p.client.Encrypt, &kmsv2.EncryptRequest{Plaintext: seed, Uid: uuid.NewString()})
	if err != nil {
		return seal.Header{}, err
	}
	h := seal.Header{KeyID: answer.KeyId, Source: answer.Ciphertext}
	for name, value := range answer.Annotations {
		h.Annotations = append(h.Annotations, seal.Annotation{Name: name, Value: value})
	}
	h.Sort()
	return h, nil
}

// ask has the plugin asked how it is, now.
func (p *plugin) ask() {
	select {
	case p.wake <- struct{}{}:
	default: // it will be
	}
}

// run asks the plugin how it is until ctx ends: now and then, when somebody wants to know, and when its socket answers again.
func (p *plugin) run(ctx context.Context) error {
	g := task.NewGroup(ctx)
	g.Go("connection", p.follow)
	g.Go("status", func(ctx context.Context) error {
		timer := time.NewTimer(askWell)
		defer timer.Stop()
		for {
			if p.last() != nil {
				timer.Reset(askIll)
			} else {
				timer.Reset(askWell)
			}
			select {
			case <-timer.C:
			case <-p.wake:
			case <-ctx.Done():
				return nil
			}
			p.check(ctx)
		}
	})
	return g.Wait()
}

// follow keeps the connection, and has a plugin that was ill asked when there is one again.
func (p *plugin) follow(ctx context.Context) error {
	for {
		state := p.conn.GetState()
		switch {
		case state == connectivity.Idle:
			p.conn.Connect()
		case state == connectivity.Ready && p.last() != nil, state == connectivity.TransientFailure && p.last() == nil:
			p.ask()
		case state == connectivity.Shutdown:
			return nil
		}
		if !p.conn.WaitForStateChange(ctx, state) {
			return nil
		}
	}
}

// last is what was wrong when it was asked for the last time; nil: nothing.
func (p *plugin) last() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.err
}

// check asks the plugin how it is, and for a new seed if it has another key. One caller at a time.
func (p *plugin) check(ctx context.Context) error {
	err := p.status(ctx)
	if ctx.Err() != nil {
		return err // nobody has been asked
	}
	p.mu.Lock()
	was := p.mu.err
	p.mu.err, p.mu.at = err, time.Now()
	close(p.mu.next)
	p.mu.next = make(chan struct{})
	p.mu.Unlock()
	switch {
	case err == nil && was != nil:
		p.envelope.Forget()
		p.log.Info("KMS plugin is healthy", "plugin", p.name)
		if p.well != nil {
			p.well()
		}
	case err != nil && (was == nil || was.Error() != err.Error()):
		p.log.Error("KMS plugin is not healthy", "plugin", p.name, "err", err)
	}
	return err
}

// status asks once.
func (p *plugin) status(ctx context.Context) error {
	until := time.Now().Add(goodFor)
	answer, err := call(ctx, p, kmsv2.KeyManagementService_Status_FullMethodName, p.client.Status, &kmsv2.StatusRequest{})
	if err != nil {
		return fmt.Errorf("failed to perform status section of the healthz check for KMS Provider %s, error: %w", p.name, err)
	}
	var wrong []error
	if answer.Healthz != "ok" {
		wrong = append(wrong, fmt.Errorf("got unexpected healthz status: %s", answer.Healthz))
	}
	if err := p.fits(answer.Version); err != nil {
		wrong = append(wrong, err)
	}
	if code, err := seal.CheckKeyID(answer.KeyId); err != nil {
		p.metrics.badKeyID(p.name, code)
		wrong = append(wrong, fmt.Errorf("got invalid KMSv2 KeyID hash %q: %w", seal.Hash(answer.KeyId), err))
	} else {
		p.metrics.sawKeyID(p.name, answer.KeyId)
		if err := p.renew(ctx, answer.KeyId, until); err != nil {
			wrong = append(wrong, err)
		}
	}
	if err := utilerrors.Reduce(utilerrors.NewAggregate(wrong)); err != nil {
		return fmt.Errorf("kmsv2 Provider %s is not healthy, error: %w", p.name, err)
	}
	return nil
}

// fits refuses a plugin of another version, or whose version changes.
func (p *plugin) fits(version string) error {
	if version != "v2" && version != "v2beta1" {
		return fmt.Errorf("expected KMSv2 API version v2, got %s", version)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.version == "" {
		p.mu.version = version
	}
	if p.mu.version != version {
		return fmt.Errorf("KMSv2 API version should not change after the initial status response version %s, got %s", p.mu.version, version)
	}
	return nil
}

// renew has the seed last longer while the plugin's key stays the same, and makes another one if it does not. What was
// stays in force if that fails, until its time is over.
func (p *plugin) renew(ctx context.Context, keyID string, until time.Time) error {
	now := p.seed.Load()
	if now != nil && now.Header.KeyID == keyID {
		p.seed.Store(now.Good(until))
		return nil
	}
	had := ""
	if now != nil {
		had = seal.Hash(now.Header.KeyID)
	}
	next, err := seal.NewSeed(func(seed []byte) (seal.Header, error) { return p.encrypt(ctx, seed) }, p.seals)
	if err == nil && next.Header.KeyID != keyID {
		err = fmt.Errorf("it encrypts with the key of hash %q", seal.Hash(next.Header.KeyID))
	}
	if err != nil {
		return fmt.Errorf("failed to rotate DEK: statusKeyIDHash=%q, stateKeyIDHash=%q: %w", seal.Hash(keyID), had, err)
	}
	p.seed.Store(next.Good(until))
	if had != "" {
		p.log.Info("KMS plugin has another key", "plugin", p.name, "hash", seal.Hash(keyID))
	}
	return nil
}

// health is what is wrong with the plugin, as of lately.
func (p *plugin) health(ctx context.Context) error {
	p.mu.Lock()
	err, at, next := p.mu.err, p.mu.at, p.mu.next
	p.mu.Unlock()
	holds := wellFor
	if err != nil {
		holds = illFor
	}
	if time.Since(at) < holds {
		return err
	}
	p.ask()
	select {
	case <-next:
		return p.last()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (p *plugin) close() { _ = p.conn.Close() } // there is nothing to lose
