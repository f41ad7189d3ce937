package audit

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/wait"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kemudi/kemudi/internal/task"
)

// webhook posts events to who is named in a kubeconfig. What it is told is posted by
// tasks of run, which know when the server ends; who has told it waits for that.
type webhook struct {
	client  *rest.RESTClient
	backoff wait.Backoff
	posts   chan post
	ended   chan struct{}
	told    *telling
}

var _ backend = (*webhook)(nil)

// post is events to be posted.
type post struct {
	events []*auditv1.Event
	done   chan bool // whether they were
}

// How often a post is tried, and how long each time.
const (
	tries       = 5
	postTimeout = 30 * time.Second
)

func newWebhook(o *WebhookOptions, t *telling) (*webhook, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = o.ConfigFile
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{}).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("initializing audit webhook: %w", err)
	}
	config.Timeout, config.QPS, config.Dial = postTimeout, -1, o.Dial
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, metav1.SchemeGroupVersion) // Status, for what it answers
	config.ContentType, config.NegotiatedSerializer = runtime.ContentTypeJSON, serializer.NewCodecFactory(scheme).WithoutConversion()
	client, err := rest.UnversionedRESTClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("initializing audit webhook: %w", err)
	}
	return &webhook{
		client: client, posts: make(chan post), ended: make(chan struct{}), told: t,
		backoff: wait.Backoff{Duration: o.InitialBackoff, Factor: 1.5, Jitter: 0.2, Steps: tries},
	}, nil
}

// process waits until events were posted, or it is given up.
func (w *webhook) process(events []*auditv1.Event) bool {
	p := post{events, make(chan bool, 1)} // one answer, which nobody may wait for any more
	select {
	case w.posts <- p:
		return <-p.done
	case <-w.ended:
		w.told.dropped("webhook", len(events), errEnded)
		return false
	}
}

// run posts what is to be posted.
func (w *webhook) run(ctx context.Context) error {
	g := task.NewGroup(ctx)
	for ctx.Err() == nil {
		select {
		case p := <-w.posts:
			g.Go("post", func(ctx context.Context) error {
				err := task.Contain(func() error { return w.post(ctx, p.events) })
				if err != nil {
					w.told.dropped("webhook", len(p.events), err)
				}
				p.done <- err == nil
				return nil
			})
		case <-ctx.Done():
		}
	}
	close(w.ended)
	return g.Wait()
}

// post posts events, and again some times if that fails, whatever the reason.
func (w *webhook) post(ctx context.Context, events []*auditv1.Event) error {
	body, err := encodeList(events)
	if err != nil {
		return err
	}
	var failed error
	err = wait.ExponentialBackoffWithContext(ctx, w.backoff, func(ctx context.Context) (bool, error) {
		failed = w.client.Post().SetHeader("Content-Type", runtime.ContentTypeJSON).Body(body).Do(ctx).Error()
		return failed == nil, nil
	})
	if failed != nil {
		return failed
	}
	return err
}
