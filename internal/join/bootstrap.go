package join

import (
	"context"
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kemudi/kemudi/internal/client/https"
	"github.com/kemudi/kemudi/internal/task"
)

// Bootstrap makes the machine part of the cluster that the transport asks, by the credentials
// that it has: those of a bootstrap kubeconfig. One that is part of it already asks for nothing. It tries
// again what may come right by itself until ctx ends.
func (i *Identity) Bootstrap(ctx context.Context, t *https.Transport, c Cluster) error {
	if i.Joined() {
		return nil
	}
	if err := i.remember(record{Node: i.o.NodeName, Machine: i.o.Machine, Servers: c.Servers, CA: string(c.CA)}); err != nil {
		return err
	}
	key, err := i.client.key()
	if err != nil {
		return err
	}
	backoff := task.Backoff{Initial: firstTry, Max: longestTry, Jitter: 0.2}
	for {
		var signed []byte
		err := using(ctx, t, func(ctx context.Context) (err error) {
			signed, err = ask(ctx, t, clientWish(i.o.NodeName, key), func(name string) {
				i.o.Log.Info("asked the cluster for a certificate", "node", i.o.NodeName, "request", name)
			})
			return err
		})
		var final *Refusal
		switch {
		case err == nil:
			return i.client.keep(signed, key)
		case apierrors.IsUnauthorized(err) || apierrors.IsForbidden(err):
			return refuse("the cluster does not let the user of --bootstrap-kubeconfig ask for a certificate of node %s: %w", i.o.NodeName, err)
		case errors.As(err, &final) || ctx.Err() != nil:
			return err
		}
		wait := backoff.Next()
		i.o.Log.Warn("could not get a certificate yet", "node", i.o.NodeName, "err", err, "again", wait.Round(time.Millisecond))
		if task.Sleep(ctx, wait) != nil {
			return err
		}
	}
}
