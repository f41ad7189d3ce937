package servicecidr

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kemudi/kemudi/internal/api/networking"
	"github.com/kemudi/kemudi/internal/controller"
	"github.com/kemudi/kemudi/internal/resource"
)

// grace is how long ranges stay that nobody uses, after they are deleted: a server may not
// have seen that yet, and give out an address of them.
const grace = 10 * time.Second

// Options say which ranges the cluster begins with: those of the flag
// --service-cluster-ip-range. None: nobody makes any.
type Options struct{ Ranges []netip.Prefix }

// New returns the controller.
func New(o Options) *controller.Controller {
	return controller.New(controller.Spec[*networkingv1.ServiceCIDR]{
		Name: "service-cidrs-controller", Source: "service-cidr-controller",
		For: networking.ServiceCIDRs,
		Watches: []controller.Watch{
			{Def: networking.ServiceCIDRs.Def, Keys: func(k *controller.Kit, _ resource.Object) []string { return leaving(k) }},
			{Def: networking.IPAddresses.Def, SkipNew: true, Keys: func(k *controller.Kit, _ resource.Object) []string { return leaving(k) }},
		},
		Writes: []controller.Permission{
			controller.Create(networking.ServiceCIDRs.Def), controller.Update(networking.ServiceCIDRs.Def), controller.UpdateStatus(networking.ServiceCIDRs.Def),
		},
		Workers: 1,
		Setup: func(k *controller.Kit) controller.Reconciler[*networkingv1.ServiceCIDR] {
			return &reconciler{o: o, k: k, ranges: controller.For(k, networking.ServiceCIDRs), addresses: controller.For(k, networking.IPAddresses)}
		},
	})
}

// leaving are the keys of ranges that are deleted: an address that is given back may let them
// go, and so may other ranges.
func leaving(k *controller.Kit) (keys []string) {
	for _, c := range controller.For(k, networking.ServiceCIDRs).List("", nil) {
		if c.DeletionTimestamp != nil {
			keys = append(keys, c.Name)
		}
	}
	return keys
}

type reconciler struct {
	o         Options
	k         *controller.Kit
	ranges    controller.Client[*networkingv1.ServiceCIDR]
	addresses controller.Client[*networkingv1.IPAddress]
	told      atomic.Bool // of ranges that are not those of the flag
}

// Gone makes the default ranges anew, which somebody has replaced by others of the flag.
func (r *reconciler) Gone(ctx context.Context, key string) error {
	if key != networking.DefaultServiceCIDR || len(r.o.Ranges) == 0 {
		return nil
	}
	_, err := r.ranges.Create(ctx, networking.NewDefaultServiceCIDR(r.o.Ranges))
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// Reconcile says that ranges are ready, or lets them go.
func (r *reconciler) Reconcile(ctx context.Context, c *networkingv1.ServiceCIDR) (controller.Next, error) {
	if c.DeletionTimestamp != nil {
		return r.release(ctx, c)
	}
	if !slices.Contains(c.Finalizers, networking.ServiceCIDRFinalizer) {
		c = c.DeepCopy()
		c.Finalizers = append(c.Finalizers, networking.ServiceCIDRFinalizer)
		_, err := r.ranges.Update(ctx, c)
		return controller.Done, err // what is to be done beside follows when that is seen
	}
	if c.Name == networking.DefaultServiceCIDR {
		if extended, err := r.compare(ctx, c); extended || err != nil {
			return controller.Done, err
		}
	}
	err := r.say(ctx, c, networking.ReadyServiceCIDR(c))
	if err != nil && !apierrors.IsConflict(err) {
		r.k.Events.Event(c, corev1.EventTypeWarning, "KubernetesServiceCIDRError", "The ServiceCIDR Status can not be set to Ready=True")
	}
	return controller.Done, err
}

// compare holds the default ranges against those of the flag. A second family that the flag
// adds is added; what is different otherwise is told of.
func (r *reconciler) compare(ctx context.Context, c *networkingv1.ServiceCIDR) (extended bool, _ error) {
	has, want := networking.ServiceRanges(c), slices.Clone(r.o.Ranges)
	for i := range want {
		want[i] = want[i].Masked()
	}
	switch {
	case len(want) == 0 || slices.Equal(has, want):
		return false, nil
	case len(want) == 2 && len(has) == 1 && has[0] == want[0]:
		now := c.DeepCopy()
		now.Spec.CIDRs = append(now.Spec.CIDRs, want[1].String())
		_, err := r.ranges.Update(ctx, now)
		if err != nil && !apierrors.IsConflict(err) {
			r.k.Events.Event(c, corev1.EventTypeWarning, "KubernetesDefaultServiceCIDRError",
				fmt.Sprintf("The default ServiceCIDR can not be upgraded from %s to dual stack %v : %v", has[0], want, err))
		}
		return true, err
	case !r.told.Swap(true):
		r.k.Events.Event(c, corev1.EventTypeWarning, "KubernetesDefaultServiceCIDRInconsistent",
			fmt.Sprintf("The default ServiceCIDR %v does not match the flag configurations %s", c.Spec.CIDRs, want))
	}
	return false, nil
}

// release lets ranges go that are deleted, when no Service needs them.
func (r *reconciler) release(ctx context.Context, c *networkingv1.ServiceCIDR) (controller.Next, error) {
	if !slices.Contains(c.Finalizers, networking.ServiceCIDRFinalizer) {
		return controller.Done, nil
	}
	began := time.Now()
	if err := r.addresses.WaitRev(ctx, resource.Revision(c)); err != nil {
		return controller.Done, fmt.Errorf("wait for the addresses of the revision at which %s was deleted: %w", c.Name, err)
	}
	used := inUse(c, r.ranges.List("", nil), func() []*networkingv1.IPAddress { return r.addresses.List("", nil) })
	next := controller.Done.Costly(time.Since(began))
	if used {
		return next, r.say(ctx, c, metav1.Condition{
			Type: networkingv1.ServiceCIDRConditionReady, Status: metav1.ConditionFalse, Reason: networkingv1.ServiceCIDRReasonTerminating,
			Message: "There are still IPAddresses referencing the ServiceCIDR, please remove them or create a new ServiceCIDR",
		})
	}
	if left := time.Until(c.DeletionTimestamp.Add(grace)); left > 0 {
		return controller.After(left), nil
	}
	c = c.DeepCopy()
	c.Finalizers = slices.DeleteFunc(c.Finalizers, func(f string) bool { return f == networking.ServiceCIDRFinalizer })
	_, err := r.ranges.Update(ctx, c)
	return next, err
}

// say writes a condition that is not there yet.
func (r *reconciler) say(ctx context.Context, c *networkingv1.ServiceCIDR, is metav1.Condition) error {
	was := meta.FindStatusCondition(c.Status.Conditions, is.Type)
	if was != nil && was.Status == is.Status && was.Reason == is.Reason && was.Message == is.Message {
		return nil
	}
	c = c.DeepCopy()
	meta.SetStatusCondition(&c.Status.Conditions, is)
	_, err := r.ranges.UpdateStatus(ctx, c)
	return err
}
