package join

import (
	"context"
	"crypto"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"

	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/task"
)

// Waits of renewal.
const (
	decideWithin  = 15 * time.Minute // then the machine asks anew
	firstRenewal  = time.Second      // after a failure
	longestWait   = 5 * time.Minute
	lookAtTheTime = time.Hour // a machine may have slept, or its clock been set
)

// Run keeps the certificates good until ctx ends: it renews each after 70 to 90 % of its
// life, the serving one also when the hosts have changed. The transport asks as the node.
func (i *Identity) Run(ctx context.Context, t client.Transport) error {
	g := task.NewGroup(ctx)
	g.Go("client certificate", func(ctx context.Context) error { return i.RunClient(ctx, t) })
	g.Go("serving certificate", func(ctx context.Context) error { return i.RunServing(ctx, t) })
	return g.Wait()
}

// RunClient keeps the certificate good that the machine shows to the API, and no other.
func (i *Identity) RunClient(ctx context.Context, t client.Transport) error {
	return i.renew(ctx, t, &renewal{name: "client", of: i.client, wish: func(key crypto.Signer, _ []string) *wish { return clientWish(i.o.NodeName, key) }})
}

// RunServing keeps the certificate good that the machine's agent serves with, and no other.
func (i *Identity) RunServing(ctx context.Context, t client.Transport) error {
	return i.renew(ctx, t, &renewal{
		name: "serving", of: i.serving, hosts: i.hosts, changed: i.changed,
		wish: func(key crypto.Signer, hosts []string) *wish { return servingWish(i.o.NodeName, key, hosts) },
	})
}

// renewal is how one of the certificates is kept good.
type renewal struct {
	name    string
	of      *credential
	hosts   func() []string // nil: it is for no hosts
	changed <-chan struct{} // nil: nothing but time makes it be renewed
	wish    func(key crypto.Signer, hosts []string) *wish
}

// hosts are the names and addresses of the machine, sorted.
func (i *Identity) hosts() []string {
	hosts := []string{i.o.NodeName}
	for _, h := range i.o.Hosts() {
		if ip := net.ParseIP(h); ip != nil {
			h = ip.String()
		}
		hosts = append(hosts, h)
	}
	slices.Sort(hosts)
	return slices.Compact(hosts)
}

func (i *Identity) renew(ctx context.Context, t client.Transport, r *renewal) error {
	backoff := task.Backoff{Initial: firstRenewal, Max: longestWait, Jitter: 0.2}
	for {
		var hosts []string
		if r.hosts != nil {
			hosts = r.hosts()
		}
		wait := min(time.Until(r.of.due(hosts)), lookAtTheTime)
		if wait <= 0 {
			err := i.once(ctx, t, r, hosts)
			switch {
			case errors.Is(err, errChanged):
				continue
			case err == nil:
				backoff.Reset()
				i.o.Log.Info("renewed a certificate", "node", i.o.NodeName, "certificate", r.name, "until", r.of.get().Leaf.NotAfter)
			case ctx.Err() == nil:
				r.of.failures.Add(1)
				i.o.Log.Warn("could not renew a certificate", "node", i.o.NodeName, "certificate", r.name, "err", err)
			}
			wait = backoff.Next()
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-r.changed:
			timer.Stop()
		case <-ctx.Done():
			timer.Stop()
			return nil
		}
	}
}

// errChanged ends a request for hosts that are not the machine's any more.
var errChanged = errors.New("the addresses have changed")

// once gets a new certificate.
func (i *Identity) once(ctx context.Context, t client.Transport, r *renewal, hosts []string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, decideWithin, errors.New("nobody has decided in time"))
	defer cancel()
	key, err := r.of.key()
	if err != nil {
		return err
	}
	ctx, change := context.WithCancelCause(ctx)
	defer change(nil)
	g := task.NewGroup(ctx)
	g.Go("changes", func(ctx context.Context) error {
		for {
			select {
			case <-r.changed:
				if !slices.Equal(r.hosts(), hosts) {
					change(errChanged)
					return nil
				}
			case <-ctx.Done():
				return nil
			}
		}
	})
	signed, err := ask(g.Context(), t, r.wish(key, hosts), func(string) {})
	g.Cancel(context.Canceled)
	if ended := g.Wait(); ended != nil {
		return ended
	}
	if err != nil {
		return fmt.Errorf("get a certificate: %w", err)
	}
	return r.of.keep(signed, key)
}
