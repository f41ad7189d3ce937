package hook

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	kjson "sigs.k8s.io/json"
)

// RemoteOptions say which webhook is called, and how.
type RemoteOptions struct {
	Kubeconfig string        // the file: its cluster is where, its user as whom
	Timeout    time.Duration // of one try; 0: 30 s
	Backoff    time.Duration // before the second try, and half as long again before each further one; 0: 500 ms
	Agent      string        // the User-Agent
	// Dial makes the connections. Nil: they are made directly.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// How often a webhook of a kubeconfig is tried, how many calls of it are under way at a time, and
// what holds unless the options say otherwise.
const (
	remoteTries   = 5
	remoteCalls   = 256
	remoteTimeout = 30 * time.Second
	remoteBackoff = 500 * time.Millisecond
)

// Remote is a webhook that is named in a kubeconfig file, as the server's own configuration has them.
// It may be used concurrently.
type Remote struct {
	o      RemoteOptions
	client *http.Client
	to     string
	room   chan struct{} // calls that are under way
}

// Trip is one try of a call.
type Trip struct {
	Code int // of the answer; 0: there was none
	Took time.Duration
	Err  error
}

// OpenRemote reads the kubeconfig. Nothing is called.
func OpenRemote(o RemoteOptions) (*Remote, error) {
	if o.Timeout == 0 {
		o.Timeout = remoteTimeout
	}
	if o.Backoff == 0 {
		o.Backoff = remoteBackoff
	}
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = o.Kubeconfig
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{}).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig %s: %w", o.Kubeconfig, err)
	}
	config.Timeout, config.UserAgent, config.Dial = o.Timeout, o.Agent, o.Dial
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig %s: %w", o.Kubeconfig, err)
	}
	base, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig %s: %w", o.Kubeconfig, err)
	}
	own := *client
	own.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse } // K2
	base.RawQuery = url.Values{"timeout": {o.Timeout.String()}}.Encode()
	return &Remote{o: o, client: &own, to: base.String(), room: make(chan struct{}, remoteCalls)}, nil
}

// Close closes the connections that wait for calls.
func (r *Remote) Close() { r.client.CloseIdleConnections() }

// Post sends a document to the webhook, as JSON, and reads its answer into out. What a webhook may
// get over is tried again some times. told is called after each try; nil: nobody is told.
func (r *Remote) Post(ctx context.Context, in, out any, told func(Trip)) error {
	doc, err := json.Marshal(in)
	if err != nil {
		return fmt.Errorf("write the request: %w", err)
	}
	select {
	case r.room <- struct{}{}:
		defer func() { <-r.room }()
	case <-ctx.Done():
		return fmt.Errorf("wait for earlier calls of the webhook: %w", context.Cause(ctx))
	}
	var failed error
	backoff := wait.Backoff{Duration: r.o.Backoff, Factor: 1.5, Jitter: 0.2, Steps: remoteTries}
	err = wait.ExponentialBackoffWithContext(ctx, backoff, func(ctx context.Context) (bool, error) {
		t := r.try(ctx, doc, out)
		if told != nil {
			told(t)
		}
		failed = t.Err
		return failed == nil || !passing(failed), nil
	})
	if failed != nil {
		return failed
	}
	return err
}

func (r *Remote) try(ctx context.Context, doc []byte, out any) (t Trip) {
	start := time.Now()
	defer func() { t.Took = time.Since(start) }()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.to, bytes.NewReader(doc))
	if err != nil {
		t.Err = err
		return t
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, */*")
	a, err := read(r.client.Do(req))
	if err != nil {
		t.Err = err
		return t
	}
	t.Code = a.code
	if t.Err = a.refusal(); t.Err != nil {
		return t
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(a.body, out); err != nil {
		t.Err = fmt.Errorf("read the answer: %w", err)
	}
	return t
}

// passing reports failures that may be over when it is tried again.
func passing(err error) bool {
	if utilnet.IsConnectionReset(err) || utilnet.IsHTTP2ConnectionLost(err) {
		return true
	}
	if _, said := apierrors.SuggestsClientDelay(err); said {
		return true
	}
	return apierrors.IsInternalError(err) || apierrors.IsTimeout(err) || apierrors.IsTooManyRequests(err)
}

// IsTimeout reports calls that ended because the webhook did not answer in time.
func IsTimeout(err error) bool {
	var refused *apierrors.StatusError
	if errors.As(err, &refused) {
		return apierrors.IsTimeout(err) || refused.ErrStatus.Code == http.StatusGatewayTimeout
	}
	return utilnet.IsTimeout(err) || errors.Is(err, context.DeadlineExceeded)
}
