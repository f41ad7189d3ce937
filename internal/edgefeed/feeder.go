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
var errNotNeeded = errors.New("no Ingress is obeyed any more")

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
	graves := task.NewGroup(ctx)
	first := true
	err := services.Each(ctx, cache.FollowOptions{Namespace: metav1.NamespaceSystem}, func(deltas []cache.Delta) error {
		_, needed := services.Get(metav1.NamespaceSystem, networking.EdgeService)
		switch {
		case needed && work == nil:
			work = task.NewGroup(ctx)
			work.Go("edge", f.feed)
		case !needed && (work != nil || first):
			if err := stop(errNotNeeded); err != nil {
				return err
			}
			f.dismiss(ctx)
			f.serveNothing()
			if child := f.child; child != nil {
				f.child = nil
				graves.Go("leaving edge", func(ctx context.Context) error { return bury(ctx, child) })
			}
		}
		first = false
		return nil
	})
	err = errors.Join(stop(context.Cause(ctx)), err)
	if f.child != nil {
		err = errors.Join(err, f.child.Release()) // it lives on
	}
	graves.Cancel(context.Canceled)
	return errors.Join(err, graves.Wait())
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
