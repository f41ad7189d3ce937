package node

import (
	"context"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// leaseState is the node's lease as last written; nil if not known.
type leaseState struct{ last *coordinationv1.Lease }

// renew says that the node is alive: its lease in kube-node-lease.
func (h *heartbeat) renew(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, LeaseInterval)
	defer cancel()
	leases := h.n.leases
	var err error
	if h.lease.last == nil {
		h.lease.last, err = leases.Get(ctx, v1.NamespaceNodeLease, h.n.o.Name)
		if apierrors.IsNotFound(err) {
			h.lease.last, err = leases.Create(ctx, h.fresh(&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
				Namespace: v1.NamespaceNodeLease, Name: h.n.o.Name,
			}}))
			if err != nil {
				h.lease.last = nil
				return fmt.Errorf("create lease: %w", err)
			}
			return nil
		}
		if err != nil {
			h.lease.last = nil
			return fmt.Errorf("get lease: %w", err)
		}
	}
	written, err := leases.Update(ctx, h.fresh(h.lease.last.DeepCopy()))
	if err != nil {
		h.lease.last = nil // look at it anew next time
		return fmt.Errorf("update lease: %w", err)
	}
	h.lease.last = written
	return nil
}

// fresh sets what a lease renewed now says.
func (h *heartbeat) fresh(l *coordinationv1.Lease) *coordinationv1.Lease {
	seconds := int32(LeaseDuration / time.Second)
	now := metav1.NewMicroTime(time.Now())
	l.Spec.HolderIdentity, l.Spec.LeaseDurationSeconds, l.Spec.RenewTime = &h.n.o.Name, &seconds, &now
	l.OwnerReferences = ownedBy(h.node)
	return l
}
