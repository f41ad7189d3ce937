package extend

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kemudi/kemudi/internal/api/apiextensions"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/cel/measure"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/custom"
	"github.com/kemudi/kemudi/internal/resource"
	"github.com/kemudi/kemudi/internal/task"
)

// Server serves kinds that come and go.
type Server interface {
	// AddKind returns when objects of the kind can be read.
	AddKind(ctx context.Context, def *resource.Def) error
	// ReplaceKind serves another definition of the same resource.
	ReplaceKind(old, now *resource.Def) error
	RemoveKind(def *resource.Def)
	// Defs are what is served at present.
	Defs() []*resource.Def
}

// Options are what a follower works with. All but Convert are required.
type Options struct {
	Transport client.Transport // as one who may do all
	Server    Server
	Convert   Converter        // nil: no objects are converted by webhooks
	Measure   *measure.Metrics // of rules
	Logger    *slog.Logger
}

// Follower has the kinds of definitions served, and writes what becomes of the definitions into their status.
type Follower struct {
	o    Options
	crds client.Client[*apiextensionsv1.CustomResourceDefinition]
	work *task.Group

	// Of the goroutine of Run.
	latest  map[string]*apiextensionsv1.CustomResourceDefinition // by name; the newest that was seen or written
	groups  map[string]map[string]bool                           // names by group
	served  map[string]*serving                                  // by name
	dirty   map[string]bool
	emptied map[string]context.CancelFunc // definitions whose objects are being deleted, by name
	pace    map[string]*task.Backoff      // of those that failed
	again   chan string                   // names whose time has come again
}

// serving is a kind that is served.
type serving struct {
	source *Source
	def    *resource.Def // nil: a built-in kind has its name
	of     generation
}

// generation is what a kind is compiled from. What is equal in it has the same spec.
type generation struct {
	uid    string
	number int64
	names  apiextensionsv1.CustomResourceDefinitionNames
	ending bool
}

// same reports that nothing has changed of what is served.
func (g generation) same(as generation) bool {
	return g.uid == as.uid && g.number == as.number && g.ending == as.ending && equality.Semantic.DeepEqual(g.names, as.names)
}

func generationOf(crd *apiextensionsv1.CustomResourceDefinition) generation {
	return generation{string(crd.UID), crd.Generation, crd.Status.AcceptedNames, crd.DeletionTimestamp != nil}
}

// NewFollower returns a follower that Run runs.
func NewFollower(o Options) *Follower {
	return &Follower{
		o: o, crds: client.For(o.Transport, apiextensions.CustomResourceDefinitions),
		latest: map[string]*apiextensionsv1.CustomResourceDefinition{}, groups: map[string]map[string]bool{},
		served: map[string]*serving{}, dirty: map[string]bool{}, emptied: map[string]context.CancelFunc{},
		pace: map[string]*task.Backoff{}, again: make(chan string),
	}
}

// Run follows the definitions until ctx ends. It calls ready when all that were there at first are
// served that can be. It is run once.
func (f *Follower) Run(ctx context.Context, ready func()) error {
	all := f.o.Transport.Cache(apiextensions.CustomResourceDefinitions.Def, "")
	select {
	case <-all.Synced():
	case <-ctx.Done():
		return nil
	}
	f.work = task.NewGroup(ctx)
	f.work.Go("follow", func(ctx context.Context) error { return f.follow(ctx, all, ready) })
	if err := f.work.Wait(); err != nil && ctx.Err() == nil {
		return err
	}
	return nil
}

func (f *Follower) follow(ctx context.Context, all *cache.Cache, ready func()) error {
	news := all.Follow(cache.FollowOptions{})
	defer news.Close()
	for {
		select {
		case <-news.Ready():
			for _, d := range news.Next() {
				f.note(d)
			}
		case name := <-f.again:
			f.dirty[name] = true
		case <-ctx.Done():
			return nil
		}
		for len(f.dirty) > 0 && ctx.Err() == nil {
			batch := f.dirty
			f.dirty = map[string]bool{}
			for _, name := range f.oldestFirst(batch) {
				f.settle(ctx, name)
			}
		}
		if ready != nil {
			ready()
			ready = nil
		}
	}
}

// oldestFirst orders names by the age of their definitions: who came first has its names.
func (f *Follower) oldestFirst(batch map[string]bool) []string {
	names := make([]string, 0, len(batch))
	for name := range batch {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int {
		x, y := f.latest[a], f.latest[b]
		switch {
		case x == nil || y == nil:
			return 0
		case !x.CreationTimestamp.Equal(&y.CreationTimestamp):
			return x.CreationTimestamp.Compare(y.CreationTimestamp.Time)
		}
		return int(min(max(revision(x)-revision(y), -1), 1))
	})
	return names
}

// note takes in what has become of a definition.
func (f *Follower) note(d cache.Delta) {
	crd := d.Last().Object.(*apiextensionsv1.CustomResourceDefinition)
	if d.Now == nil {
		if was := f.latest[crd.Name]; was != nil && was.UID == crd.UID {
			delete(f.latest, crd.Name)
			delete(f.groups[crd.Spec.Group], crd.Name)
			f.wakeGroup(crd.Spec.Group)
		}
		f.dirty[crd.Name] = true
		return
	}
	f.learn(crd)
	f.dirty[crd.Name] = true
}

// learn takes in a state of a definition, unless a newer one is known.
func (f *Follower) learn(crd *apiextensionsv1.CustomResourceDefinition) {
	was := f.latest[crd.Name]
	if was != nil && revision(was) >= revision(crd) {
		return
	}
	f.latest[crd.Name] = crd
	if f.groups[crd.Spec.Group] == nil {
		f.groups[crd.Spec.Group] = map[string]bool{}
	}
	f.groups[crd.Spec.Group][crd.Name] = true
	if was != nil && !equality.Semantic.DeepEqual(was.Status.AcceptedNames, crd.Status.AcceptedNames) {
		f.wakeGroup(crd.Spec.Group) // it may have given names up
	}
}

func revision(crd *apiextensionsv1.CustomResourceDefinition) int64 {
	n, _ := strconv.ParseInt(crd.ResourceVersion, 10, 64) // the server's own number
	return n
}

// wakeGroup has those definitions of a group looked at that wait for names.
func (f *Follower) wakeGroup(group string) {
	for name := range f.groups[group] {
		if !apiextensions.IsTrue(f.latest[name], apiextensionsv1.NamesAccepted) {
			f.dirty[name] = true
		}
	}
}

// settle brings a definition forward, and tries again later if that fails.
func (f *Follower) settle(ctx context.Context, name string) {
	err := task.Contain(func() error { return f.reconcile(ctx, name) })
	switch {
	case err == nil:
		delete(f.pace, name)
		return
	case ctx.Err() != nil:
		return
	case apierrors.IsConflict(err) || apierrors.IsNotFound(err):
		// Somebody has changed it: that wakes it.
		return
	}
	f.o.Logger.Warn("custom resource definition is not settled", "crd", name, "err", err)
	if f.pace[name] == nil {
		f.pace[name] = &task.Backoff{Initial: 50 * time.Millisecond, Max: 30 * time.Second, Jitter: 0.1}
	}
	wait := f.pace[name].Next()
	f.work.Go("try "+name+" again", func(ctx context.Context) error {
		if task.Sleep(ctx, wait) == nil {
			select {
			case f.again <- name:
			case <-ctx.Done():
			}
		}
		return nil
	})
}

func (f *Follower) reconcile(ctx context.Context, name string) error {
	crd := f.latest[name]
	if crd == nil {
		f.forget(name)
		return nil
	}
	next := crd.DeepCopy()
	var err error
	if establish := crd.DeletionTimestamp == nil && Accept(next, f.others(crd)); establish {
		// It is served before it says so.
		if err = f.serve(ctx, next); err != nil {
			return err
		}
	}
	if !equality.Semantic.DeepEqual(next.Status, crd.Status) {
		// What is served stays as it is: the API changes what it is sent.
		if crd, err = f.crds.UpdateStatus(ctx, next.DeepCopy()); err != nil {
			return fmt.Errorf("write status of %s: %w", name, err)
		}
		f.learn(crd)
	}
	if apiextensions.IsTrue(crd, apiextensionsv1.Established) {
		if err := f.serve(ctx, crd); err != nil {
			return err
		}
	}
	if crd.DeletionTimestamp != nil && slices.Contains(crd.Finalizers, apiextensionsv1.CustomResourceCleanupFinalizer) {
		f.empty(crd)
	}
	return nil
}

// others are the other definitions of the group.
func (f *Follower) others(crd *apiextensionsv1.CustomResourceDefinition) (out []*apiextensionsv1.CustomResourceDefinition) {
	for name := range f.groups[crd.Spec.Group] {
		if name != crd.Name {
			out = append(out, f.latest[name])
		}
	}
	return out
}

// serve has the kind of a definition served as it is now.
func (f *Follower) serve(ctx context.Context, crd *apiextensionsv1.CustomResourceDefinition) error {
	was, now := f.served[crd.Name], generationOf(crd)
	if was != nil && was.of.uid != now.uid {
		f.forget(crd.Name) // another definition of the name
		was = nil
	}
	if was != nil && was.of.same(now) {
		was.source.crd.Store(crd)
		return nil
	}
	s := &serving{source: NewSource(crd), of: now}
	s.source.measure = f.o.Measure
	switch {
	case was != nil && was.def != nil:
		kind := Compile(s.source, f.o.Convert)
		kind.Replaces = was.def
		s.def = custom.Define(kind).Def
		if err := f.o.Server.ReplaceKind(was.def, s.def); err != nil {
			return fmt.Errorf("serve %s: %w", crd.Name, err)
		}
	case !f.builtIn(crd):
		s.def = custom.Define(Compile(s.source, f.o.Convert)).Def
		if err := f.o.Server.AddKind(ctx, s.def); err != nil {
			return fmt.Errorf("serve %s: %w", crd.Name, err)
		}
	}
	f.served[crd.Name] = s
	return nil
}

// builtIn reports that the server has the resource without the definition.
func (f *Follower) builtIn(crd *apiextensionsv1.CustomResourceDefinition) bool {
	return slices.ContainsFunc(f.o.Server.Defs(), func(d *resource.Def) bool {
		return d.Dynamic == nil && d.Group == crd.Spec.Group && d.Plural == crd.Spec.Names.Plural
	})
}

// forget ends what there is of a definition that is gone.
func (f *Follower) forget(name string) {
	if stop := f.emptied[name]; stop != nil {
		stop()
		delete(f.emptied, name)
	}
	if s := f.served[name]; s != nil && s.def != nil {
		f.o.Server.RemoveKind(s.def)
	}
	delete(f.served, name)
	delete(f.pace, name)
}

// errGone says that a definition has gone, or is another.
var errGone = errors.New("the definition is gone")
