package aggregate

import (
	"context"
	"maps"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"github.com/kemudi/kemudi/internal/api/apiregistration"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/task"
)

// The label of APIServices that API servers keep, and its values: those of built-in group-versions
// are made when a server starts, others for as long as there is what they are of.
const (
	labelManaged = "kube-aggregator.kubernetes.io/automanaged"
	onStart      = "onstart"
	always       = "true"
)

// afterStart is when the group-versions of this server are registered, from when it is ready.
const afterStart = time.Second

// Register keeps an APIService for each group-version that this server has until ctx ends. Those that people
// have made or changed for another server are left alone; of those that they delete the ones of custom group-versions
// come again. It begins after a while: what a cluster starts with comes first, and nobody waits for these.
func (a *Aggregator) Register(ctx context.Context) error {
	if task.Sleep(ctx, afterStart) != nil {
		return nil
	}
	retry := task.Backoff{Initial: askSoon, Max: askAgain, Jitter: 0.5}
	done := map[Local]bool{}
	apis := a.o.Cache(apiregistration.APIServices.Def).Follow(cache.FollowOptions{})
	defer apis.Close()
	for {
		now, changed := a.o.Local()
		var again <-chan time.Time
		if err := a.settle(ctx, now, done); err == nil {
			retry.Reset()
		} else if ctx.Err() == nil {
			a.log.Warn("register the group-versions of this server", "err", err)
			again = time.After(retry.Next())
		}
		select {
		case <-apis.Ready():
			for _, d := range apis.Next() {
				if d.Now == nil {
					maps.DeleteFunc(done, func(l Local, _ bool) bool {
						return l.Custom && apiregistration.Name(l.GroupVersion) == d.Prev.Object.GetName()
					})
				}
			}
		case <-changed:
		case <-again:
		case <-ctx.Done():
			return nil
		}
	}
}

// settle makes the APIServices that are missing, and takes away those of custom group-versions that
// were there (done) and are no more: what was removed while no server ran is not known to be.
func (a *Aggregator) settle(ctx context.Context, now []Local, done map[Local]bool) error {
	gone := maps.Clone(done)
	for _, l := range now {
		delete(gone, l)
		if done[l] {
			continue
		}
		if err := a.ensure(ctx, l); err != nil {
			return err
		}
		done[l] = true
	}
	for l := range gone {
		if err := a.forget(ctx, l.GroupVersion); err != nil {
			return err
		}
		delete(done, l)
	}
	return nil
}

// ensure has an APIService say that this server has a group-version.
func (a *Aggregator) ensure(ctx context.Context, l Local) error {
	want := local(l)
	it := a.o.Cache(apiregistration.APIServices.Def).Get(want.Name)
	api := client.For(a.o.API(), apiregistration.APIServices)
	if it == nil {
		_, err := api.Create(ctx, want)
		if apierrors.IsAlreadyExists(err) {
			return nil
		}
		return err
	}
	has := it.Object.(*apiregistrationv1.APIService)
	same := has.Spec.GroupPriorityMinimum == want.Spec.GroupPriorityMinimum && has.Spec.VersionPriority == want.Spec.VersionPriority
	if has.Labels[labelManaged] == "" || has.Spec.Service != nil || same {
		return nil
	}
	has = has.DeepCopy()
	has.Spec = want.Spec
	_, err := api.Update(ctx, has)
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return nil // somebody else has another idea
	}
	return err
}

// forget removes the APIService of a group-version that this server has no longer.
func (a *Aggregator) forget(ctx context.Context, gv schema.GroupVersion) error {
	it := a.o.Cache(apiregistration.APIServices.Def).Get(apiregistration.Name(gv))
	if it == nil {
		return nil
	}
	has := it.Object.(*apiregistrationv1.APIService)
	if has.Labels[labelManaged] != always || has.Spec.Service != nil {
		return nil
	}
	uid := has.UID
	err := client.For(a.o.API(), apiregistration.APIServices).Delete(ctx, "", has.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}

// local is the APIService of a group-version of this server.
func local(l Local) *apiregistrationv1.APIService {
	p, managed := apiregistration.PriorityOf(l.GroupVersion), onStart
	if l.Custom {
		managed = always
	}
	return &apiregistrationv1.APIService{
		ObjectMeta: metav1.ObjectMeta{Name: apiregistration.Name(l.GroupVersion), Labels: map[string]string{labelManaged: managed}},
		Spec: apiregistrationv1.APIServiceSpec{
			Group: l.Group, Version: l.Version, GroupPriorityMinimum: p.Group, VersionPriority: p.Version,
		},
	}
}
