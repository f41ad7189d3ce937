package edgefeed

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/api/networking"
	"github.com/kemudi/kemudi/internal/balancer"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/edge"
	"github.com/kemudi/kemudi/internal/task"
)

// Options say whose edge it is. All fields are required but those with a default.
type Options struct {
	Transport client.Transport
	NodeName  string
	RunDir    string // where its socket is
	LogFile   string // what the process writes
	AccessLog string // where it logs connections to balancers that are to be logged; empty: there too
	Cgroup    string // of the process; empty: that of this one
	Ports     edge.Ports
	Version   string           // of this program
	Events    client.EventSink // default: nowhere
	Log       *slog.Logger     // default: no log
}

// Feeder keeps the edge of a node.
type Feeder struct {
	o     Options
	rules atomic.Pointer[inForce] // what is known of the edge's tables; nil: nothing is served
	child *os.Process             // that was fed last, if it was started by this process; of Run alone
}

// New returns a feeder; nothing is done before Run.
func New(o Options) *Feeder {
	if o.Events == nil {
		o.Events = client.NoEvents
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	f := &Feeder{o: o}
	f.rules.Store(&inForce{}) // until it is known whether there is an edge, one may serve what it was told before
	return f
}

// Socket is where an edge takes orders. Who can open it is root already.
func Socket(runDir string) string { return filepath.Join(runDir, "edge.sock") }

// errNotNeeded ends the work for an edge when there is no Ingress any more.
var errNotNeeded = errors.New("nothing is served any more")

// errOther ends it when something else is to be served.
var errOther = errors.New("something else is served")

// need is what an edge is needed for.
type need struct{ ingresses, gateways, balancers bool }

func (n need) any() bool { return n.ingresses || n.gateways || n.balancers }

// ports are those that are served for all that it is needed for; Gateways and balancers have ports of their own.
func (f *Feeder) ports(n need) edge.Ports {
	if n.ingresses {
		return f.o.Ports
	}
	return edge.Ports{Status: f.o.Ports.Status}
}

// Run keeps the edge until ctx ends. The process goes on then.
func (f *Feeder) Run(ctx context.Context) error {
	services := client.Cached(f.o.Transport, core.Services, "")
	var work *task.Group // nil: there is no edge to feed
	stop := func(why error) error {
		if work == nil {
			return nil
		}
		work.Cancel(why)
		err := work.Wait()
		work = nil
		return err
	}
	beside := task.NewGroup(ctx)
	clashes := newClashes(f, services)
	beside.Go("clashes", clashes.follow)
	first, last := true, need{}
	relayed := map[string]bool{} // Services whose balancers the edge serves
	err := services.Each(ctx, cache.FollowOptions{}, func(deltas []cache.Delta) error {
		for _, d := range deltas {
			if delete(relayed, d.Last().Key); d.Now != nil && balancer.Served(d.Now.Object.(*corev1.Service)) {
				relayed[d.Last().Key] = true
			}
		}
		now := need{balancers: len(relayed) > 0}
		if f.o.Ports.HTTP != 0 || f.o.Ports.HTTPS != 0 {
			_, now.ingresses = services.Get(metav1.NamespaceSystem, networking.EdgeService)
		}
		_, now.gateways = services.Get(metav1.NamespaceSystem, networking.GatewayService)
		switch {
		case now.any() && now != last:
			if err := stop(errOther); err != nil { // the edge goes on
				return err
			}
			work = task.NewGroup(ctx)
			work.Go("edge", func(ctx context.Context) error { return f.feed(ctx, now) })
		case !now.any() && (work != nil || first):
			if err := stop(errNotNeeded); err != nil {
				return err
			}
			f.dismiss(ctx)
			f.serveNothing()
			if child := f.child; child != nil {
				f.child = nil
				beside.Go("leaving edge", func(ctx context.Context) error { return bury(ctx, child) })
			}
		}
		first, last = false, now
		clashes.changed(deltas, now.ingresses)
		return nil
	})
	err = errors.Join(stop(context.Cause(ctx)), err)
	if f.child != nil {
		err = errors.Join(err, f.child.Release()) // it lives on
	}
	beside.Cancel(context.Canceled)
	return errors.Join(err, beside.Wait())
}

// node is this node's object, for events; nil if it is not there.
func (f *Feeder) node() *corev1.Node {
	n, ok := client.Cached(f.o.Transport, core.Nodes, "metadata.name="+f.o.NodeName).Get("", f.o.NodeName)
	if !ok {
		return nil
	}
	return n
}

// event tells people of the node about its edge.
func (f *Feeder) event(kind, reason, message string) {
	if n := f.node(); n != nil {
		f.o.Events.Event(n, kind, reason, message)
	}
}
