package coordination

import (
	coordinationv1 "k8s.io/api/coordination/v1"
	coordinationv1beta1 "k8s.io/api/coordination/v1beta1"
	"k8s.io/utils/ptr"

	"github.com/kemudi/kemudi/internal/resource"
)

// Leases are heartbeats and locks.
var Leases = resource.Define(resource.Spec[*coordinationv1.Lease]{
	Names:     resource.Names{Group: "coordination.k8s.io", Version: "v1", Kind: "Lease", Plural: "leases", Namespaced: true},
	Untracked: true, Update: resource.UpdateCreates | resource.UpdateNeedsRevision,
	Validate: validateLease,
	Needs:    []resource.Need[*coordinationv1.Lease]{{Served: LeaseCandidates.Def, Drop: dropStrategy}},
	Columns: []resource.Column[*coordinationv1.Lease]{
		{Name: "Holder", Description: coordinationv1.LeaseSpec{}.SwaggerDoc()["holderIdentity"], Value: func(l *coordinationv1.Lease) any {
			return ptr.Deref(l.Spec.HolderIdentity, "")
		}},
	},
	Versions: []resource.Version[*coordinationv1.Lease]{resource.SameWire[*coordinationv1beta1.Lease](resource.Version[*coordinationv1.Lease]{
		Group: "coordination.k8s.io", Version: "v1beta1",
		Deprecated: "coordination.k8s.io/v1beta1 Lease is deprecated in v1.19+, unavailable in v1.22+; use coordination.k8s.io/v1 Lease",
	})},
})

// dropStrategy takes away how a lease is given to candidates, where there are none.
func dropStrategy(obj, old *coordinationv1.Lease) {
	if old == nil || old.Spec.Strategy == nil {
		obj.Spec.Strategy = nil
	}
	if old == nil || old.Spec.PreferredHolder == nil {
		obj.Spec.PreferredHolder = nil
	}
}

func validateLease(obj, _ *coordinationv1.Lease, errs *resource.Errors) {
	s := &obj.Spec
	if d := s.LeaseDurationSeconds; d != nil && *d <= 0 {
		errs.Invalid("spec.leaseDurationSeconds", *d, "must be greater than 0")
	}
	errs.NonNegative("spec.leaseTransitions", int64(ptr.Deref(s.LeaseTransitions, 0)))
	if s.Strategy != nil {
		validateStrategy(*s.Strategy, errs)
	}
	if ptr.Deref(s.PreferredHolder, "") != "" && ptr.Deref(s.Strategy, "") == "" {
		errs.Forbidden("spec.preferredHolder", "may only be specified if `strategy` is defined")
	}
}
