package cloud

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	cloudprovider "k8s.io/cloud-provider"
	cloudapi "k8s.io/cloud-provider/api"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/cloud/call"
	"github.com/kemudi/kemudi/internal/controller"
	"github.com/kemudi/kemudi/internal/resource"
)

// A balancer that could not be had is tried again, as upstream does.
const firstRetry, lastRetry = 5 * time.Second, 300 * time.Second

// NewService returns the loop that keeps a balancer in the cloud for each service of type
// LoadBalancer, leading to the nodes that there are.
func NewService(o Options) *controller.Controller {
	o = o.withDefaults()
	had := newBalancers()
	return controller.New(controller.Spec[*corev1.Service]{
		Name: serviceName,
		For:  core.Services,
		Watches: []controller.Watch{{
			Def: core.Nodes.Def, Same: sameToBalancers, Behind: true,
			Keys: func(*controller.Kit, resource.Object) []string { return had.keys() },
		}},
		Writes:  []controller.Permission{controller.Update(core.Services.Def), controller.Patch(core.Services.Def, "status")},
		Workers: 1,
		Setup: func(k *controller.Kit) controller.Reconciler[*corev1.Service] {
			had.forgetAll()
			cloud, _ := o.Provider.LoadBalancer()
			return &services{
				k: k, o: o, cloud: cloud, had: had, metrics: controller.OwnMetrics(k, newServiceMetrics),
				services: controller.For(k, core.Services), nodes: controller.For(k, core.Nodes),
			}
		},
	})
}

// sameToBalancers says that a change of a node is none of the balancers. That it is about to be
// removed by an autoscaler is none either: its connections may end in order.
func sameToBalancers(before, after resource.Object) bool {
	b, a := before.(*corev1.Node), after.(*corev1.Node)
	return core.BalancersInclude(b) == core.BalancersInclude(a) && b.Spec.ProviderID == a.Spec.ProviderID
}

type services struct {
	k        *controller.Kit
	o        Options
	cloud    cloudprovider.LoadBalancer
	had      *balancers
	metrics  serviceMetrics
	services controller.Client[*corev1.Service]
	nodes    controller.Client[*corev1.Node]
	serving  targets
}

// balancer is what the loop knows of a service's balancer.
type balancer struct {
	svc   *corev1.Service // as it was when the cloud was last asked for it
	nodes []machine       // that it leads to

	failed bool      // the cloud is to be asked again
	tries  int       // that have failed since one succeeded
	retry  time.Time // when the next is
}

// balancers are those of all services. Each is touched by the worker of its key alone.
type balancers struct {
	mu struct {
		sync.Mutex
		all map[string]*balancer
	}
}

func newBalancers() *balancers {
	b := &balancers{}
	b.forgetAll()
	return b
}

func (b *balancers) keys() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Collect(maps.Keys(b.mu.all))
}

func (b *balancers) get(key string) *balancer {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.mu.all[key]
}

// of is get, of a service that has none yet too.
func (b *balancers) of(key string) *balancer {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.mu.all[key] == nil {
		b.mu.all[key] = &balancer{}
	}
	return b.mu.all[key]
}

func (b *balancers) forget(key string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.mu.all, key)
}

func (b *balancers) forgetAll() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mu.all = map[string]*balancer{}
}

// Gone removes the balancer of a service that went without waiting for it.
func (r *services) Gone(ctx context.Context, key string) error {
	b := r.had.get(key)
	if b == nil || b.svc == nil {
		return nil
	}
	if err := r.abandoned(ctx, b.svc); err != nil {
		return err
	}
	r.had.forget(key)
	return nil
}

// abandoned removes the balancer of a service that is there no more.
func (r *services) abandoned(ctx context.Context, svc *corev1.Service) error {
	if !wants(svc) {
		return nil
	}
	r.event(svc, "DeletingLoadBalancer", "Deleting load balancer")
	if err := r.delete(ctx, svc); err != nil {
		r.warn(svc, "DeleteLoadBalancerFailed", fmt.Sprintf("Error deleting load balancer: %v", err))
		return err
	}
	r.event(svc, "DeletedLoadBalancer", "Deleted load balancer")
	return nil
}

// Reconcile has the cloud agree with a service.
func (r *services) Reconcile(ctx context.Context, svc *corev1.Service) (controller.Next, error) {
	key := cache.Key(svc.Namespace, svc.Name)
	b := r.had.get(key)
	if b == nil && !wants(svc) && !leaves(svc) {
		return controller.Done, nil
	}
	b = r.had.of(key)
	if left := time.Until(b.retry); left > 0 && b.svc != nil && sameBalancer(b.svc, svc) && leaves(b.svc) == leaves(svc) {
		return controller.After(left), nil
	}
	err := r.sync(ctx, b, svc)
	if err == nil {
		b.failed, b.tries, b.retry = false, 0, time.Time{}
		if leaves(svc) || !wants(svc) {
			r.had.forget(key)
		}
		return controller.Done, nil
	}
	if quiet(err) { // the caches were old
		b.failed = true
		return controller.Done, err
	}
	wait := min(firstRetry<<min(b.tries, 10), lastRetry)
	var later *cloudapi.RetryError
	if errors.As(err, &later) {
		wait = later.RetryAfter()
	} else {
		b.tries++
	}
	b.failed, b.retry = true, time.Now().Add(wait)
	r.k.Logger.Error("keep a service's balancer", "key", key, "err", err, "after", wait)
	return controller.After(wait), nil
}

func quiet(err error) bool { return apierrors.IsConflict(err) || apierrors.IsNotFound(err) }

// sync does what is to be done for a service: have its balancer removed, made or changed,
// or led to other nodes.
func (r *services) sync(ctx context.Context, b *balancer, svc *corev1.Service) error {
	if b.svc != nil && b.svc.UID != svc.UID { // another service of the name
		if err := r.abandoned(ctx, b.svc); err != nil {
			return err
		}
		*b = balancer{}
	}
	before := b.svc
	var err error
	switch {
	case leaves(svc) || !wants(svc):
		b.svc = svc
		err = r.remove(ctx, svc)
	case before == nil || b.failed || !sameBalancer(before, svc):
		b.svc = svc
		err = r.ensure(ctx, b, svc)
	default:
		return r.follow(ctx, b, svc)
	}
	if err != nil && !quiet(err) {
		r.warn(svc, "SyncLoadBalancerFailed", fmt.Sprintf("Error syncing load balancer: %v", err))
	}
	return err
}

// remove has the balancer removed, and then lets the service go.
func (r *services) remove(ctx context.Context, svc *corev1.Service) error {
	exists, err := r.exists(ctx, svc)
	if err != nil {
		return fmt.Errorf("failed to check if load balancer exists before cleanup: %w", err)
	}
	if exists {
		r.event(svc, "DeletingLoadBalancer", "Deleting load balancer")
		if err := r.delete(ctx, svc); err != nil && !errors.Is(err, cloudprovider.ImplementedElsewhere) {
			return fmt.Errorf("failed to delete load balancer: %w", err)
		}
	}
	fresh := svc
	// The finalizer goes last: as long as it is there, all of this is done again if need be.
	if svc.DeletionTimestamp == nil {
		if fresh, err = r.setStatus(ctx, svc, nil); err != nil {
			return fmt.Errorf("failed to update load balancer status: %w", err)
		}
	}
	if slices.Contains(fresh.Finalizers, core.FinalizerBalancer) {
		fresh = fresh.DeepCopy()
		fresh.Finalizers = slices.DeleteFunc(fresh.Finalizers, func(f string) bool { return f == core.FinalizerBalancer })
		if _, err := r.services.Update(ctx, fresh); err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("failed to remove load balancer cleanup finalizer: %w", err)
		}
	}
	r.event(svc, "DeletedLoadBalancer", "Deleted load balancer")
	return nil
}

// ensure has the balancer made, or as the service says now.
func (r *services) ensure(ctx context.Context, b *balancer, svc *corev1.Service) error {
	r.event(svc, "EnsuringLoadBalancer", "Ensuring load balancer")
	if !slices.Contains(svc.Finalizers, core.FinalizerBalancer) { // before there is something to clean up
		fresh := svc.DeepCopy()
		fresh.Finalizers = append(fresh.Finalizers, core.FinalizerBalancer)
		var err error
		if svc, err = r.services.Update(ctx, fresh); err != nil {
			return fmt.Errorf("failed to add load balancer cleanup finalizer: %w", err)
		}
	}
	nodes, machines := r.serving.of(r.nodes.Reader)
	if len(nodes) == 0 {
		r.warn(svc, "UnAvailableLoadBalancer", "There are no available nodes for LoadBalancer")
	}
	b.nodes = machines
	status, err := call.Get(ctx, "EnsureLoadBalancer", func(ctx context.Context) (*corev1.LoadBalancerStatus, error) {
		return r.cloud.EnsureLoadBalancer(ctx, r.o.ClusterName, svc.DeepCopy(), slices.Clone(nodes))
	})
	switch {
	case errors.Is(err, cloudprovider.ImplementedElsewhere):
		return nil
	case err != nil:
		return fmt.Errorf("failed to ensure load balancer: %w", err)
	case status == nil:
		return errors.New("service status returned by EnsureLoadBalancer is nil")
	}
	r.event(svc, "EnsuredLoadBalancer", "Ensured load balancer")
	if _, err := r.setStatus(ctx, svc, status.Ingress); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("failed to update load balancer status: %w", err)
	}
	return nil
}

// follow has the balancer lead to other nodes, if there are others.
func (r *services) follow(ctx context.Context, b *balancer, svc *corev1.Service) error {
	began := time.Now()
	defer func() { r.metrics.nodes.Observe(time.Since(began).Seconds()) }()
	nodes, machines := r.serving.of(r.nodes.Reader)
	if slices.Equal(b.nodes, machines) {
		return nil
	}
	b.nodes = machines
	r.metrics.syncs.Inc()
	err := call.Do(ctx, "UpdateLoadBalancer", func(ctx context.Context) error {
		return r.cloud.UpdateLoadBalancer(ctx, r.o.ClusterName, svc.DeepCopy(), slices.Clone(nodes))
	})
	r.metrics.hosts.Observe(time.Since(began).Seconds())
	switch {
	case err == nil && len(nodes) == 0:
		r.warn(svc, "UnAvailableLoadBalancer", "There are no available nodes for LoadBalancer")
		return nil
	case err == nil:
		r.event(svc, "UpdatedLoadBalancer", "Updated load balancer with new hosts")
		return nil
	case errors.Is(err, cloudprovider.ImplementedElsewhere):
		return nil
	}
	if exists, getErr := r.exists(ctx, svc); getErr == nil && !exists {
		return nil
	}
	r.metrics.failed.Inc()
	r.warn(svc, "UpdateLoadBalancerFailed", fmt.Sprintf("Error updating load balancer with new hosts %v [node names limited, total number of nodes: %d], error: %v", shortNames(nodes), len(nodes), err))
	return fmt.Errorf("failed to update load balancer hosts: %w", err)
}

func (r *services) exists(ctx context.Context, svc *corev1.Service) (bool, error) {
	return call.Get(ctx, "GetLoadBalancer", func(ctx context.Context) (bool, error) {
		_, exists, err := r.cloud.GetLoadBalancer(ctx, r.o.ClusterName, svc.DeepCopy())
		return exists, err
	})
}

func (r *services) delete(ctx context.Context, svc *corev1.Service) error {
	return call.Do(ctx, "EnsureLoadBalancerDeleted", func(ctx context.Context) error {
		return r.cloud.EnsureLoadBalancerDeleted(ctx, r.o.ClusterName, svc.DeepCopy())
	})
}

// setStatus writes where the balancer is reached, if that is new.
func (r *services) setStatus(ctx context.Context, svc *corev1.Service, ingress []corev1.LoadBalancerIngress) (*corev1.Service, error) {
	if sameIngress(svc.Status.LoadBalancer.Ingress, ingress) {
		return svc, nil
	}
	return r.services.MergePatch(ctx, svc, "status", map[string]any{"status": map[string]any{"loadBalancer": map[string]any{"ingress": ingress}}})
}

func (r *services) event(svc *corev1.Service, reason, message string) {
	r.k.Events.Event(svc, corev1.EventTypeNormal, reason, message)
}

func (r *services) warn(svc *corev1.Service, reason, message string) {
	r.k.Events.Event(svc, corev1.EventTypeWarning, reason, message)
}
