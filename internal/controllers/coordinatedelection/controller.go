package coordinatedelection

import (
	"context"
	"errors"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/kemudi/kemudi/internal/api/coordination"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/controller"
)

// Name is that of the controller, and of the lease that says which server runs it.
const Name = "leader-election-controller"

// Controller is the controller of coordinated leader elections. It is a part of API servers and acts as they do.
var Controller = controller.NewKeyed(controller.Keyed{
	Name: Name,
	Watches: []controller.Watch{
		controller.Mapped(coordination.LeaseCandidates, func(_ *controller.Kit, c *candidate) []string {
			return []string{cache.Key(c.Namespace, c.Spec.LeaseName)}
		}),
		controller.Mapped(coordination.Leases, stoodFor),
	},
	Writes: []controller.Permission{
		controller.Create(coordination.Leases.Def), controller.Update(coordination.Leases.Def),
		controller.Update(coordination.LeaseCandidates.Def), controller.Delete(coordination.LeaseCandidates.Def),
	},
	Setup: func(k *controller.Kit) func(ctx context.Context, key string) (controller.Next, error) {
		r := &elections{controller.For(k, coordination.Leases), controller.For(k, coordination.LeaseCandidates)}
		return r.reconcile
	},
})

// stoodFor wakes the key of a lease if somebody stands for it: most are heartbeats of nodes.
func stoodFor(k *controller.Kit, l *lease) []string {
	if len(standing(controller.For(k, coordination.LeaseCandidates), l.Namespace, l.Name)) == 0 {
		return nil
	}
	return []string{cache.Key(l.Namespace, l.Name)}
}

// standing are the candidates for a lease.
func standing(all controller.Client[*candidate], namespace, name string) (list []*candidate) {
	for _, c := range all.List(namespace, nil) {
		if c.Spec.LeaseName == name {
			list = append(list, c)
		}
	}
	return list
}

type elections struct {
	leases     controller.Client[*lease]
	candidates controller.Client[*candidate]
}

// reconcile takes the election for a lease a step further. What has changed meanwhile is a conflict, and is looked at anew.
func (e *elections) reconcile(ctx context.Context, key string) (controller.Next, error) {
	namespace, name, _ := strings.Cut(key, "/")
	now := time.Now()
	l, _ := e.leases.Get(namespace, name)
	p, err := decide(now, metav1.ObjectMeta{Namespace: namespace, Name: name}, l, standing(e.candidates, namespace, name))
	for _, c := range p.gone {
		err = errors.Join(err, e.candidates.Delete(ctx, c))
	}
	for _, c := range p.ask {
		asked := c.DeepCopy()
		asked.Spec.PingTime = ptr.To(metav1.NewMicroTime(now))
		_, failed := e.candidates.Update(ctx, asked)
		err = errors.Join(err, failed)
	}
	if p.write != nil {
		store := e.leases.Update
		if p.write.ResourceVersion == "" {
			store = e.leases.Create
		}
		_, failed := store(ctx, p.write)
		err = errors.Join(err, failed)
	}
	if p.again == 0 {
		return controller.Done, err
	}
	return controller.After(p.again), err
}
