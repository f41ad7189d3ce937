package plane

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/api/flowcontrol"
	"github.com/kemudi/kemudi/internal/api/networking"
	"github.com/kemudi/kemudi/internal/api/scheduling"
	"github.com/kemudi/kemudi/internal/auth/bootstrap"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/controller"
	"github.com/kemudi/kemudi/internal/resource"
)

// systemNamespaces are in every cluster.
var systemNamespaces = []string{
	metav1.NamespaceDefault, metav1.NamespaceSystem, metav1.NamespacePublic, corev1.NamespaceNodeLease,
}

// bootstrap creates the objects that every cluster has, where they are missing.
func (p *Plane) bootstrap(ctx context.Context, all []*controller.Controller) error {
	t := p.Admin()
	for _, name := range systemNamespaces {
		if err := Ensure(ctx, t, core.Namespaces, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
			return err
		}
	}
	close(p.made.namespaces)
	for _, pc := range scheduling.SystemClasses() {
		if err := Ensure(ctx, t, scheduling.PriorityClasses, pc); err != nil {
			return err
		}
	}
	close(p.made.priorities)
	for _, given := range []flowcontrol.Given{flowcontrol.Mandatory(), flowcontrol.Suggested()} {
		for _, pl := range given.Levels {
			if err := Ensure(ctx, t, flowcontrol.PriorityLevels, pl.DeepCopy()); err != nil {
				return err
			}
		}
		for _, fs := range given.Schemas {
			if err := Ensure(ctx, t, flowcontrol.FlowSchemas, fs.DeepCopy()); err != nil {
				return err
			}
		}
	}
	if err := p.ensureRanges(ctx, t); err != nil {
		return err
	}
	if err := bootstrap.Reconcile(ctx, t, bootstrap.Default().Join(controllerPolicy(all))); err != nil {
		return err
	}
	close(p.made.roles)
	return nil
}

// ensureRanges makes the ServiceCIDR of the flags' ranges if there is none, and says that it is ready.
func (p *Plane) ensureRanges(ctx context.Context, t client.Transport) error {
	if _, ok := client.Cached(t, networking.ServiceCIDRs, "").Get("", networking.DefaultServiceCIDR); ok {
		return nil
	}
	ranges := client.For(t, networking.ServiceCIDRs)
	made, err := ranges.Create(ctx, networking.NewDefaultServiceCIDR(p.o.Network.ServiceCIDRs))
	if err == nil {
		made = made.DeepCopy()
		meta.SetStatusCondition(&made.Status.Conditions, networking.ReadyServiceCIDR(made))
		_, err = ranges.UpdateStatus(ctx, made)
	}
	if err != nil && !apierrors.IsAlreadyExists(err) && !apierrors.IsConflict(err) { // another server does the same
		return fmt.Errorf("create ServiceCIDR %s: %w", networking.DefaultServiceCIDR, err)
	}
	return nil
}

// controllerPolicy gives every controller the rights that it declares.
func controllerPolicy(all []*controller.Controller) bootstrap.Policy {
	var policy bootstrap.Policy
	for _, c := range all {
		role := c.Role()
		policy.ClusterRoles = append(policy.ClusterRoles, role)
		policy.ClusterRoleBindings = append(policy.ClusterRoleBindings, bootstrap.Cluster(role.Name, bootstrap.Account(metav1.NamespaceSystem, c.Name)))
	}
	return policy
}

// Ensure creates an object if it is not there yet.
func Ensure[T resource.Object](ctx context.Context, t client.Transport, r *resource.Resource[T], obj T) error {
	if _, ok := client.Cached(t, r, "").Get(obj.GetNamespace(), obj.GetName()); ok {
		return nil
	}
	name := obj.GetName()
	_, err := client.For(t, r).Create(ctx, obj)
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create %s %s: %w", r, name, err)
	}
	return nil
}
