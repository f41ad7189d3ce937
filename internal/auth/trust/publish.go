package trust

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/task"
)

// Publisher keeps the ConfigMap right.
type Publisher struct {
	t    client.Transport
	own  func() (Trust, error) // whom this server believes now
	wake chan struct{}         // holds a token while that may have become something else
	log  *slog.Logger
}

// NewPublisher returns a publisher of what own says, which does nothing until it runs.
func NewPublisher(t client.Transport, own func() (Trust, error), log *slog.Logger) *Publisher {
	return &Publisher{t: t, own: own, wake: make(chan struct{}, 1), log: log}
}

// Changed says that this server may believe others now.
func (p *Publisher) Changed() {
	select {
	case p.wake <- struct{}{}:
	default: // the token is there
	}
}

// Run publishes until ctx ends, whenever this server believes others or somebody has changed the
// ConfigMap.
func (p *Publisher) Run(ctx context.Context) error {
	all := client.Cached(p.t, core.ConfigMaps, scope)
	f := all.Follow(cache.FollowOptions{Namespace: metav1.NamespaceSystem})
	defer f.Close()
	retry := task.Backoff{Initial: 50 * time.Millisecond, Max: time.Minute, Jitter: 0.5}
	var again <-chan time.Time
	for due := true; ; {
		if due {
			due, again = false, nil
			if err := p.settle(ctx); err == nil {
				retry.Reset()
			} else if ctx.Err() == nil {
				p.log.Warn("tell other programs whom this server believes", "err", err)
				again = time.After(retry.Next())
			}
		}
		select {
		case <-f.Ready():
			for _, d := range f.Next() {
				due = due || d.Last().Key == cache.Key(metav1.NamespaceSystem, ConfigMap)
			}
		case <-p.wake:
			due = true
		case <-again:
			due = true
		case <-ctx.Done():
			return nil
		}
	}
}

// settle adds to the ConfigMap what this server believes. Where another server is faster it looks
// again.
func (p *Publisher) settle(ctx context.Context) error {
	own, err := p.own()
	if err != nil {
		return err
	}
	c := client.For(p.t, core.ConfigMaps)
	for {
		has, err := c.Get(ctx, metav1.NamespaceSystem, ConfigMap)
		if missing := apierrors.IsNotFound(err); err != nil && !missing {
			return fmt.Errorf("publish %s: %w", ConfigMap, err)
		} else if missing {
			has = &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: ConfigMap}}
		}
		known, err := Parse(has.Data)
		if err != nil {
			p.log.Warn("what other programs are told of whom to believe is written anew", "was", err)
		}
		data, err := known.With(own, time.Now()).Data()
		if err != nil || maps.Equal(data, has.Data) {
			return err
		}
		made := has.DeepCopy()
		if made.Data = data; made.ResourceVersion == "" {
			_, err = c.Create(ctx, made)
		} else {
			_, err = c.Update(ctx, made)
		}
		if err == nil || !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) {
			return err
		}
	}
}
