package aggregate

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	apidiscovery "k8s.io/api/apidiscovery/v2"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/transport"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"github.com/kemudi/kemudi/internal/api/apiregistration"
	"github.com/kemudi/kemudi/internal/apiserver/discovery"
	"github.com/kemudi/kemudi/internal/backend"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/task"
)

// How other servers are asked whether they can be used.
const (
	askTimeout  = 5 * time.Second
	askAgain    = 30 * time.Second       // after an answer, or for the last time without one
	askSoon     = 200 * time.Millisecond // after the first time without an answer
	askAtMost   = 3                      // endpoints, before it is said that none answers
	maxDocument = 8 << 20                // bytes of an answer
)

// keep finds out again and again whether another server can be used, and writes it into the APIService.
func (a *Aggregator) keep(ctx context.Context, r *remote) error {
	defer r.close()
	retry := task.Backoff{Initial: askSoon, Max: askAgain, Jitter: 0.2}
	var known swagger
	for ctx.Err() == nil {
		c, err := a.check(ctx, r)
		var missing *backend.Missing
		var again <-chan time.Time // nil: an event comes first
		switch told := a.tell(ctx, r, c); {
		case told != nil && ctx.Err() == nil:
			a.log.Warn("tell whether an aggregated API can be used", "apiservice", r.name, "err", told)
			again = time.After(retry.Next())
		case err == nil:
			retry.Reset()
			again = time.After(askAgain)
		case !errors.As(err, &missing):
			again = time.After(retry.Next())
		}
		if err == nil && ctx.Err() == nil {
			a.learn(ctx, r, &known)
		}
		select {
		case <-r.wake:
		case <-again:
		case <-ctx.Done():
		}
	}
	return nil
}

// check finds out whether another server can be used, and what it has. The error is why it cannot.
func (a *Aggregator) check(ctx context.Context, r *remote) (apiregistrationv1.APIServiceCondition, error) {
	resources, err := a.look(ctx, r)
	said := ""
	if err == nil {
		said = a.document(ctx, r)
	}
	if ctx.Err() != nil {
		return apiregistrationv1.APIServiceCondition{}, ctx.Err()
	}
	a.note(r, resources, said, err)
	c := apiregistrationv1.APIServiceCondition{Status: apiregistrationv1.ConditionTrue, Reason: "Passed", Message: "all checks passed"}
	var missing *backend.Missing
	switch {
	case errors.As(err, &missing):
		c.Status, c.Reason, c.Message = apiregistrationv1.ConditionFalse, missing.Reason, missing.Message
	case err != nil:
		c.Status, c.Reason, c.Message = apiregistrationv1.ConditionFalse, "FailedDiscoveryCheck", steady(err)
	}
	return c, err
}

// steady is the text of an error without what is another each time, the local port of a connection: or a
// condition would be written each time.
func steady(err error) string {
	text := err.Error()
	var op *net.OpError
	if errors.As(err, &op) && op.Source != nil {
		text = strings.ReplaceAll(text, op.Source.String()+"->", "")
	}
	return text
}

// look asks another server for its document of the group-version. Where one endpoint does not answer
// it asks the next. Of a document that is none it takes no resources.
func (a *Aggregator) look(ctx context.Context, r *remote) (*metav1.APIResourceList, error) {
	endpoints, err := a.o.Services.Endpoints(r.port)
	if err != nil {
		return nil, err
	}
	if r.broken != nil {
		return nil, r.broken
	}
	var body []byte
	for range min(len(endpoints), askAtMost) {
		if body, err = a.send(ctx, r, request{path: r.root()}); err == nil || ctx.Err() != nil {
			break
		}
		r.close() // the next request connects to another endpoint
	}
	if err != nil {
		return nil, err
	}
	list := &metav1.APIResourceList{}
	if err := json.Unmarshal(body, list); err != nil || list.GroupVersion != r.gv.String() {
		a.log.Warn("an aggregated API does not say what there is", "apiservice", r.name, "groupVersion", list.GroupVersion, "err", err)
		return nil, nil // G4
	}
	return list, nil
}

// checker is who asks, as other servers know upstream's.
var checker = &user.DefaultInfo{Name: "system:kube-aggregator", Groups: []string{user.SystemPrivilegedGroup}}

// request is one that this server makes itself.
type request struct {
	method string // default GET
	path   string
	accept string    // default JSON
	by     user.Info // default checker
	unless string    // the tag of an answer that is known: it need not come again
}

// answer is what another server has answered, and how.
type answer struct {
	code int // 0: it has not
	tag  string
	body []byte
}

// send has another server answer a request well, soon, and returns the body.
func (a *Aggregator) send(ctx context.Context, r *remote, q request) ([]byte, error) {
	got, err := a.exchange(ctx, r, q)
	return got.body, err
}

// exchange is send for who wants to know more of the answer, which is there with an error as well.
func (a *Aggregator) exchange(ctx context.Context, r *remote, q request) (got answer, _ error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	at := r.url(q.path)
	req, err := http.NewRequestWithContext(ctx, q.method, at.String(), nil)
	if err != nil {
		return got, fmt.Errorf("ask %s: %w", at, err)
	}
	req.Header.Set("Accept", cmp.Or(q.accept, "application/json"))
	req.Header.Set("Via", a.via())
	if q.unless != "" {
		req.Header.Set("If-None-Match", q.unless)
	}
	by := q.by
	if by == nil {
		by = checker
	}
	transport.SetAuthProxyHeaders(req, by.GetName(), by.GetUID(), by.GetGroups(), by.GetExtra())
	c := &http.Client{Transport: r.transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp, err := c.Do(req)
	if err != nil {
		return got, fmt.Errorf("failing or missing response from %s: %w", at, err)
	}
	defer resp.Body.Close()
	got.code, got.tag = resp.StatusCode, resp.Header.Get("Etag")
	if q.unless != "" && got.code == http.StatusNotModified {
		return got, nil
	}
	if resp.StatusCode < 200 || resp.StatusCode >= 300 {
		return got, fmt.Errorf("failing or missing response from %s: bad status from %s: %d", at, at, resp.StatusCode)
	}
	if got.body, err = io.ReadAll(io.LimitReader(resp.Body, maxDocument)); err != nil {
		return got, fmt.Errorf("failing or missing response from %s: %w", at, err)
	}
	return got, nil
}

// note takes in what was found out of what another server has; err is why it was not asked.
func (a *Aggregator) note(r *remote, list *metav1.APIResourceList, document string, err error) {
	var resources []apidiscovery.APIResourceDiscovery
	if list != nil {
		resources = discovery.Aggregated(list)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.mu.remotes[r.name] != r {
		return // another has taken its place
	}
	r.state.stale = list == nil
	if err == nil {
		r.state.resources, r.state.document = resources, document // what it said before counts no more
	}
	a.publishLocked()
}

// tell writes the condition into the APIService, if it says something else.
func (a *Aggregator) tell(ctx context.Context, r *remote, c apiregistrationv1.APIServiceCondition) error {
	if ctx.Err() != nil {
		return nil
	}
	api := client.For(a.o.API(), apiregistration.APIServices)
	it := a.o.Cache(apiregistration.APIServices.Def).Get(r.name)
	if it == nil {
		return nil
	}
	for s := it.Object.(*apiregistrationv1.APIService); ; {
		if s.Spec.Service == nil || !r.isOf(s) {
			return nil // it is told of another server, by another
		}
		was := apiregistration.Available(s)
		if was != nil && was.Status == c.Status && was.Reason == c.Reason && was.Message == c.Message {
			return nil
		}
		s = s.DeepCopy()
		apiregistration.SetAvailable(&s.Status, c)
		_, err := api.UpdateStatus(ctx, s)
		if !apierrors.IsConflict(err) {
			if err == nil {
				a.count(r.name, was, c)
				a.log.Info("whether an aggregated API can be used has changed", "apiservice", r.name, "available", c.Status, "reason", c.Reason)
			}
			if apierrors.IsNotFound(err) {
				return nil
			}
			return err
		}
		if s, err = api.Get(ctx, "", r.name); err != nil {
			if apierrors.IsNotFound(err) {
				return nil
			}
			return err
		}
	}
}
