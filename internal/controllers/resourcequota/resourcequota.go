package resourcequota

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/api/core/usage"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/controller"
	"github.com/kemudi/kemudi/internal/resource"
)

// Options configure the controller. The zero value is upstream's.
type Options struct {
	// SyncPeriod is how often quotas are counted without cause (--resource-quota-sync-period).
	SyncPeriod time.Duration
}

// Defaults are the options of a controller that is given none.
func Defaults() Options { return Options{}.withDefaults() }

func (o Options) withDefaults() Options {
	o.SyncPeriod = cmp.Or(o.SyncPeriod, 5*time.Minute)
	return o
}

// Check says what is wrong with the options.
func (o Options) Check() error {
	if o.SyncPeriod < 0 {
		return fmt.Errorf("--resource-quota-sync-period %s is negative", o.SyncPeriod)
	}
	return nil
}

// New returns the controller of quotas over all resources of the server.
func New(kinds controller.Kinds, o Options) *controller.Controller {
	return controller.NewKeyed(controller.Keyed{
		Name: "resourcequota-controller",
		Watches: []controller.Watch{{
			Def: core.ResourceQuotas.Def,
			Keys: func(_ *controller.Kit, obj resource.Object) []string {
				return []string{cache.Key(obj.GetNamespace(), obj.GetName())}
			},
			// What is charged changes the status again and again.
			Same: func(before, after resource.Object) bool {
				return before.GetUID() == after.GetUID() && sameSpec(before.(*corev1.ResourceQuota), after.(*corev1.ResourceQuota))
			},
		}},
		Every:  &controller.Every{Kinds: kinds, Of: freed, Changed: all},
		Writes: []controller.Permission{controller.UpdateStatus(core.ResourceQuotas.Def)},
		Rules:  []rbacv1.PolicyRule{{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"list", "watch"}}},
		Setup: func(k *controller.Kit) func(ctx context.Context, key string) (controller.Next, error) {
			r := &reconciler{k: k, kinds: kinds, period: o.withDefaults().SyncPeriod, quotas: controller.For(k, core.ResourceQuotas)}
			r.world = cache.Finder(func(def *resource.Def) *cache.Cache { return k.Transport().Cache(def, "") })
			return r.reconcile
		},
	})
}

func sameSpec(a, b *corev1.ResourceQuota) bool { return equality.Semantic.DeepEqual(a.Spec, b.Spec) }

// freed watches a resource for objects that take less than before: what is new has
// been charged.
func freed(def *resource.Def) (controller.Watch, bool) {
	counter, ok := usage.For(def)
	return controller.Watch{
		Def: def, SkipNew: true, Same: counter.Same,
		Keys: func(k *controller.Kit, obj resource.Object) []string {
			var keys []string
			for _, it := range quotasOf(k, obj.GetNamespace()) {
				if counter.TakesAny(it.Object.(*corev1.ResourceQuota).Spec.Hard) {
					keys = append(keys, it.Key)
				}
			}
			return keys
		},
	}, ok
}

func quotasOf(k *controller.Kit, namespace string) []*cache.Item {
	c := controller.For(k, core.ResourceQuotas).Cache
	if c.Len() == 0 {
		return nil
	}
	return c.ByIndex(core.IndexNamespace, namespace)
}

// all are the keys of all quotas: they may name a kind that has come.
func all(k *controller.Kit) []string {
	var keys []string
	for _, it := range controller.For(k, core.ResourceQuotas).Cache.List("", nil) {
		keys = append(keys, it.Key)
	}
	return keys
}

type reconciler struct {
	k      *controller.Kit
	kinds  controller.Kinds
	period time.Duration
	quotas controller.Client[*corev1.ResourceQuota]
	world  usage.World
}

// reconcile counts what is taken of a quota, and puts its status right.
func (r *reconciler) reconcile(ctx context.Context, key string) (controller.Next, error) {
	began := time.Now()
	c, err := r.count(key)
	if err != nil || c == nil {
		return controller.Done, err
	}
	after := r.period
	if !c.again.IsZero() {
		after = min(after, time.Until(c.again)+time.Second) // once it is past
	}
	next := controller.After(after).Costly(time.Since(began))
	return next, r.write(ctx, c)
}

// errNoSnapshot says that the caches have moved on too far: it is tried again.
var errNoSnapshot = errors.New("the caches cannot show one revision of all that a quota counts")

// count counts at one revision; nil: there is no such quota then, or it is not yet
// known what there is of all that it counts. It is woken when it is.
func (r *reconciler) count(key string) (*counted, error) {
	it := r.quotas.Cache.Get(key)
	if it == nil {
		return nil, nil
	}
	kinds := r.counting(it.Object.(*corev1.ResourceQuota))
	rev := r.quotas.Cache.Rev()
	for _, kind := range kinds {
		select {
		case <-kind.cache.Synced():
		default:
			return nil, nil
		}
		rev = min(rev, kind.cache.Rev())
	}
	quotas := r.quotas.Cache.SnapshotAt(rev)
	if quotas == nil {
		return nil, errNoSnapshot
	}
	if it = quotas.Get(key); it == nil {
		return nil, errNoSnapshot // it is newer
	}
	q := it.Object.(*corev1.ResourceQuota)
	c := newCounted(q)
	for _, kind := range r.counting(q) {
		objects := kind.cache.SnapshotAt(rev)
		if objects == nil {
			return nil, errNoSnapshot
		}
		c.add(kind.counter.Names(q.Spec.Hard), uses(objects, q, kind.counter))
	}
	return c, nil
}

// uses are those of the objects of the quota's namespace that are in its scopes.
func uses(objects *cache.Snapshot, q *corev1.ResourceQuota, counter usage.Counter) iter.Seq[*usage.Use] {
	return func(yield func(*usage.Use) bool) {
		objects.Scan(q.Namespace, "", func(it *cache.Item) bool {
			if !counter.In(q, it.Object) {
				return true
			}
			use := counter.Of(it.Object)
			return yield(&use)
		})
	}
}

// kind is a resource that a quota counts objects of.
type kind struct {
	counter usage.Counter
	cache   *cache.Cache
}

// counting are the resources that a quota counts objects of.
func (r *reconciler) counting(q *corev1.ResourceQuota) []kind {
	var list []kind
	defs, _ := r.kinds.Defs()
	for _, def := range defs {
		counter, ok := usage.For(def)
		if !ok || !counter.TakesAny(q.Spec.Hard) {
			continue
		}
		if c := r.k.Transport().Cache(def, ""); c != nil {
			list = append(list, kind{counter.Within(r.world), c})
		}
	}
	return list
}

// maxTries bounds how often a count is added to a status that others change.
const maxTries = 50

// write puts the quota's status right, whatever has been charged since it was counted.
func (r *reconciler) write(ctx context.Context, c *counted) error {
	if c.right() {
		return nil
	}
	q := c.quota
	for range maxTries {
		next := q.DeepCopy()
		next.Status = c.status(q)
		_, err := r.quotas.UpdateStatus(ctx, next)
		if !apierrors.IsConflict(err) {
			return gone(err)
		}
		if q, err = r.quotas.Live(ctx, q.Namespace, q.Name); err != nil {
			return gone(err)
		}
		if q.UID != c.quota.UID || !sameSpec(q, c.quota) {
			return nil // it is woken by that
		}
	}
	return fmt.Errorf("write the status of quota %s/%s: others change it all the time", q.Namespace, q.Name)
}

// gone passes over that there is no such quota any more.
func gone(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
