package authn

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kemudi/kemudi/internal/hook"
	"github.com/kemudi/kemudi/internal/task"
)

// WebhookOptions say who is asked about tokens that are of no other kind.
type WebhookOptions struct {
	ConfigFile string        // --authentication-token-webhook-config-file: kubeconfig that leads to it; none: nobody
	Version    string        // --authentication-token-webhook-version: of the TokenReviews; default v1beta1
	CacheTTL   time.Duration // --authentication-token-webhook-cache-ttl: how long answers are remembered; 0: not at all
}

// WebhookDefaults are those of the flags.
func WebhookDefaults() WebhookOptions {
	return WebhookOptions{Version: "v1beta1", CacheTTL: 2 * time.Minute}
}

// Check says what is wrong with the options.
func (o *WebhookOptions) Check() error {
	if o.ConfigFile != "" && o.Version != "" && o.Version != "v1" && o.Version != "v1beta1" {
		return fmt.Errorf("--authentication-token-webhook-version: unsupported authentication webhook version %q, supported versions are \"v1\", \"v1beta1\"", o.Version)
	}
	if o.CacheTTL < 0 {
		return errors.New("--authentication-token-webhook-cache-ttl must not be negative")
	}
	return nil
}

// Webhook asks a server whose tokens are, by posting TokenReviews to it.
type Webhook struct {
	client    *http.Client
	url       string
	version   string
	audiences []string // of the API server, for which a token is if the answer names none
}

var _ authenticator.Token = (*Webhook)(nil)

// What may be expected of a webhook.
const (
	webhookTimeout = 30 * time.Second // for an answer, with all that is tried
	webhookTries   = 5
	maxAnswer      = 1 << 20 // bytes
)

// WebhookWith is what a server has for a webhook.
type WebhookWith struct {
	// Dial makes the connections. Nil: they are made directly.
	Dial    func(ctx context.Context, network, address string) (net.Conn, error)
	Metrics *CacheMetrics // required
}

// NewWebhook returns who asks, with a memory of the answers.
func NewWebhook(o WebhookOptions, audiences []string, with WebhookWith) (authenticator.Token, error) {
	if err := o.Check(); err != nil {
		return nil, err
	}
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = o.ConfigFile
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{}).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("--authentication-token-webhook-config-file %s: %w", o.ConfigFile, err)
	}
	config.Dial = with.Dial
	shared, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("--authentication-token-webhook-config-file %s: %w", o.ConfigFile, err)
	}
	w := &Webhook{client: &http.Client{
		Transport: shared.Transport, Timeout: webhookTimeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}, url: config.Host, version: o.Version, audiences: audiences}
	if !strings.Contains(w.url, "://") {
		w.url = "https://" + w.url
	}
	if w.version == "" {
		w.version = WebhookDefaults().Version
	}
	return NewCached(w, CacheOptions{Good: o.CacheTTL, Bad: o.CacheTTL, Timeout: webhookTimeout, Metrics: with.Metrics}), nil
}

// AuthenticateToken says whose token it is, or fails as the webhook does.
func (w *Webhook) AuthenticateToken(ctx context.Context, token string) (*authenticator.Response, bool, error) {
	wanted, limited := authenticator.AudiencesFrom(ctx)
	answer, err := w.review(ctx, &authenticationv1.TokenReview{
		TypeMeta: w.kind(),
		Spec:     authenticationv1.TokenReviewSpec{Token: token, Audiences: wanted},
	})
	if err != nil {
		return nil, false, fmt.Errorf("token webhook: %w", err)
	}
	s := &answer.Status
	if !s.Authenticated {
		if s.Error != "" {
			return nil, false, errors.New(s.Error)
		}
		return nil, false, nil
	}
	if s.User.Username == "" {
		return nil, false, errors.New("token webhook: its answer names no user")
	}
	var audiences []string
	if limited {
		has := s.Audiences
		if len(has) == 0 {
			has = w.audiences
		}
		if audiences = intersect(wanted, has); len(audiences) == 0 {
			return nil, false, nil
		}
	}
	u := &user.DefaultInfo{Name: s.User.Username, UID: s.User.UID, Groups: s.User.Groups}
	for key, values := range s.User.Extra {
		if u.Extra == nil {
			u.Extra = map[string][]string{}
		}
		u.Extra[key] = values
	}
	return &authenticator.Response{User: u, Audiences: audiences}, true, nil
}

// kind is that of questions and answers. Of both versions the JSON is alike.
func (w *Webhook) kind() metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: "authentication.k8s.io/" + w.version, Kind: "TokenReview"}
}

// againError is a failure that may be none a moment later.
type againError struct{ err error }

func (e *againError) Error() string { return e.err.Error() }

// Unwrap is what has failed.
func (e *againError) Unwrap() error { return e.err }

// review posts a question, again where that may help.
func (w *Webhook) review(ctx context.Context, ask *authenticationv1.TokenReview) (*authenticationv1.TokenReview, error) {
	body, err := json.Marshal(ask)
	if err != nil {
		return nil, err
	}
	pause := task.Backoff{Initial: 500 * time.Millisecond, Max: 2 * time.Second, Jitter: 0.2}
	for n := 1; ; n++ {
		answer, err := w.post(ctx, body)
		var again *againError
		if err == nil || !errors.As(err, &again) || n == webhookTries {
			return answer, err
		}
		if task.Sleep(ctx, pause.Next()) != nil {
			return nil, err
		}
	}
}

// post posts a question once.
func (w *Webhook) post(ctx context.Context, body []byte) (*authenticationv1.TokenReview, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, w.url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json")
	res, err := w.client.Do(r)
	if err != nil {
		if utilnet.IsConnectionReset(err) || utilnet.IsHTTP2ConnectionLost(err) {
			err = &againError{err}
		}
		return nil, err
	}
	defer res.Body.Close()
	data, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer+1))
	if err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx) // what came as the connection was closed is no answer
	}
	if res.StatusCode < 200 || res.StatusCode > 299 {
		err := errors.New("it answers " + strconv.Itoa(res.StatusCode))
		switch res.StatusCode {
		case http.StatusInternalServerError, http.StatusTooManyRequests, http.StatusGatewayTimeout:
			return nil, &againError{err}
		}
		if res.Header.Get("Retry-After") != "" {
			return nil, &againError{err}
		}
		return nil, err
	}
	if len(data) > maxAnswer {
		return nil, fmt.Errorf("its answer is larger than %d bytes", maxAnswer)
	}
	answer := &authenticationv1.TokenReview{}
	if err := json.Unmarshal(data, answer); err != nil {
		return nil, fmt.Errorf("its answer: %w", err)
	}
	return answer, hook.CheckKind(answer.TypeMeta, w.kind())
}
