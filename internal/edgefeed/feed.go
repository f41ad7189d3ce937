package edgefeed

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kemudi/kemudi/internal/edge"
	"github.com/kemudi/kemudi/internal/task"
)

const (
	// secretPatience is how long Secrets are waited for before an edge is told the first time.
	secretPatience = 5 * time.Second
	// gather is the least time between two orders, so that a burst of changes becomes one; the first
	// change after a pause does not wait.
	gather = 10 * time.Millisecond
)

// feed starts the edge, or finds it, and tells it what changes, again and again until ctx
// ends.
func (f *Feeder) feed(ctx context.Context, n need) error {
	g := task.NewGroup(ctx)
	in := newIntake()
	known := in.follow(g, f.o.Transport)
	held := newSecrets(g, f.o.Transport, in)
	known.Secrets = held.get
	g.Go("orders", func(ctx context.Context) error {
		o := &orders{f: f, in: in, held: held, models: f.newModels(known), ports: f.ports(n)}
		back := task.Backoff{Initial: 100 * time.Millisecond, Max: 10 * time.Second, Jitter: 0.2}
		for {
			began := time.Now()
			err := o.serve(ctx)
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if time.Since(began) > time.Minute {
				back.Reset()
			}
			wait := back.Next()
			f.o.Log.Error("edge has ended, and is started again", "err", err, "retry", wait)
			f.event(corev1.EventTypeWarning, "EdgeFailed", fmt.Sprintf("the process that serves Ingresses has ended, and is started again: %v; see %s", err, f.o.LogFile))
			if err := task.Sleep(ctx, wait); err != nil {
				return err
			}
		}
	})
	return g.Wait()
}

// orders is who talks to one edge after the other.
type orders struct {
	f    *Feeder
	in   *intake
	held *secrets
	*models
	ports edge.Ports
	last  int64 // generation
	begun bool  // all kinds have come
	rev   int64 // of the newest slice that was taken in
}

// serve connects to an edge and feeds it until it ends.
func (o *orders) serve(ctx context.Context) error {
	if err := o.complete(ctx); err != nil {
		return err
	}
	p, err := o.f.connect(ctx)
	if err != nil {
		o.f.serveNothing()
		return err
	}
	rules := o.f.serveAnew()
	defer o.f.serveNothing()
	g := task.NewGroup(ctx)
	g.Go("reports", func(ctx context.Context) error { return o.f.hear(ctx, p, rules) })
	g.Go("orders", func(ctx context.Context) error { return o.tell(ctx, p, rules) })
	err = g.Wait()
	p.Close()
	switch {
	case p.child == nil:
	case ctx.Err() == nil: // one that hangs must not be in the way of the next
		end(p.child)
	default:
		o.f.child = p.child
	}
	return err
}

// complete waits until all has come that a whole table is made of (F3).
func (o *orders) complete(ctx context.Context) error {
	for !o.begun {
		select {
		case <-o.in.ready:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		o.begun = o.take()
	}
	o.named()
	o.commit()
	await(ctx, o.held.want(o.secrets()), secretPatience)
	return nil
}

// take has the model take in what has changed.
func (o *orders) take() bool {
	changes, rev, ok := o.in.take()
	for _, change := range changes {
		change(o.models)
	}
	o.rev = rev
	return ok
}

// tell sends the whole table, and then what changes.
func (o *orders) tell(ctx context.Context, p *process, rules *inForce) error {
	o.forget()
	o.take()
	order := edge.Order{Ports: &o.ports, Change: o.commit()}
	for {
		o.held.want(o.secrets())
		if order.Ports != nil || !order.Change.Empty() {
			o.last++
			order.Generation = o.last
			rules.sent(o.last, o.rev)
			if err := p.Send(order); err != nil {
				return err
			}
		} else {
			rules.same(o.rev)
		}
		began := time.Now()
		select {
		case <-o.in.ready:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if err := task.Sleep(ctx, gather-time.Since(began)); err != nil {
			return err
		}
		o.take()
		order = edge.Order{Change: o.commit()}
	}
}

// hear takes in what the edge reports.
func (f *Feeder) hear(ctx context.Context, p *process, rules *inForce) error {
	defer context.AfterFunc(ctx, func() { p.Close() })()
	failing := map[string]bool{}
	for {
		var r edge.Report
		if err := p.Receive(&r); err != nil {
			return fmt.Errorf("the connection to the edge has ended: %w", err)
		}
		if r.Applied > 0 {
			rules.heard(r.Applied)
		}
		if s := r.Port; s != nil {
			f.port(s, failing)
		}
	}
}

// port tells people of a port that is not served, and that it is again.
func (f *Feeder) port(s *edge.PortState, failing map[string]bool) {
	switch {
	case s.Error == "" && failing[s.Name]:
		delete(failing, s.Name)
		f.o.Log.Info("port of the edge is served now", "port", s.Port)
		if strings.HasPrefix(s.Name, edge.BalancerPort) {
			f.event(corev1.EventTypeNormal, "BalancerPortServed", fmt.Sprintf("a balancer is served on port %d of the node now", s.Port))
			return
		}
		if strings.HasPrefix(s.Name, edge.DoorPort) {
			f.event(corev1.EventTypeNormal, "GatewayPortServed", fmt.Sprintf("a Gateway is served on port %d of the node now", s.Port))
			return
		}
		f.event(corev1.EventTypeNormal, "IngressPortServed", fmt.Sprintf("Ingresses are served on port %d of the node now", s.Port))
	case s.Error != "" && !failing[s.Name]:
		failing[s.Name] = true
		message := fmt.Sprintf("port %d of the node cannot be served: %s; it is tried again", s.Port, s.Error)
		if strings.HasPrefix(s.Name, edge.BalancerPort) {
			f.o.Log.Error("port of a balancer cannot be served", "port", s.Port, "err", s.Error)
			f.event(corev1.EventTypeWarning, "BalancerPortTaken", message)
			return
		}
		if strings.HasPrefix(s.Name, edge.DoorPort) {
			f.o.Log.Error("port of a Gateway cannot be served", "port", s.Port, "err", s.Error)
			f.event(corev1.EventTypeWarning, "GatewayPortTaken", message)
			return
		}
		if s.Taken {
			message = fmt.Sprintf("port %d of the node is taken by another program: Ingresses are served there as soon as it is free; --ingress-%s-port names another one", s.Port, s.Name)
		}
		f.o.Log.Error("port of Ingresses cannot be served", "port", s.Port, "err", s.Error)
		f.event(corev1.EventTypeWarning, "IngressPortTaken", message)
	}
}
