package flowcontrol

import (
	"fmt"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apiserver/pkg/util/shufflesharding"
	"k8s.io/utils/ptr"

	"github.com/kemudi/kemudi/internal/resource"
)

// maxQueues is how many queues a level may have.
const maxQueues = 10_000_000

func validateLevel(pl, _ *flowcontrolv1.PriorityLevelConfiguration, errs *resource.Errors) {
	s := &pl.Spec
	if (pl.Name == flowcontrolv1.PriorityLevelConfigurationNameExempt) != (s.Type == flowcontrolv1.PriorityLevelEnablementExempt) {
		errs.Invalid("spec.type", s.Type, "type must be 'Exempt' if and only if name is 'exempt'")
	}
	switch s.Type {
	case flowcontrolv1.PriorityLevelEnablementExempt:
		if s.Limited != nil {
			errs.Forbidden("spec.limited", "must be nil if the type is not Limited")
		}
		if e := s.Exempt; e != nil {
			validateShares(e.NominalConcurrencyShares, e.LendablePercent, errs.At("spec.exempt"))
		}
	case flowcontrolv1.PriorityLevelEnablementLimited:
		if s.Exempt != nil {
			errs.Forbidden("spec.exempt", "must be nil if the type is Limited")
		}
		if s.Limited == nil {
			errs.Required("spec.limited", "must not be empty when type is Limited")
		} else {
			validateLimited(s.Limited, errs.At("spec.limited"))
		}
	default:
		resource.NotSupported(errs, "spec.type", s.Type, flowcontrolv1.PriorityLevelEnablementExempt, flowcontrolv1.PriorityLevelEnablementLimited)
	}
	validateFixed(pl, errs)
	validateLevelStatus(pl, errs)
}

// validateFixed: what every server needs is as it is, but for the shares of what is exempt.
func validateFixed(pl *flowcontrolv1.PriorityLevelConfiguration, errs *resource.Errors) {
	fixed := mandatoryLevel(pl.Name)
	if fixed == nil {
		return
	}
	if pl.Name != flowcontrolv1.PriorityLevelConfigurationNameExempt {
		if !equality.Semantic.DeepEqual(pl.Spec, fixed.Spec) {
			errs.Invalid("spec", pl.Spec, fmt.Sprintf("spec of '%s' must equal the fixed value", pl.Name))
		}
		return
	}
	has := pl.Spec
	has.Exempt = fixed.Spec.Exempt
	if !equality.Semantic.DeepEqual(has, fixed.Spec) {
		errs.Invalid("spec", pl.Spec, fmt.Sprintf("spec of '%s' except the 'spec.exempt' field must equal the fixed value", pl.Name))
	}
}

func validateShares(shares, lendable *int32, errs *resource.Errors) {
	if n := ptr.Deref(shares, 0); n < 0 {
		errs.Invalid("nominalConcurrencyShares", n, "must be a non-negative integer")
	}
	if n := ptr.Deref(lendable, 0); n < 0 || n > 100 {
		errs.Invalid("lendablePercent", n, "must be between 0 and 100, inclusive")
	}
}

func validateLimited(l *flowcontrolv1.LimitedPriorityLevelConfiguration, errs *resource.Errors) {
	validateShares(l.NominalConcurrencyShares, l.LendablePercent, errs)
	if n := ptr.Deref(l.BorrowingLimitPercent, 0); n < 0 {
		errs.Invalid("borrowingLimitPercent", n, "if specified, must be a non-negative integer")
	}
	switch r := &l.LimitResponse; r.Type {
	case flowcontrolv1.LimitResponseTypeReject:
		if r.Queuing != nil {
			errs.Forbidden("limitResponse.queuing", "must be nil if limited.limitResponse.type is not Limited")
		}
	case flowcontrolv1.LimitResponseTypeQueue:
		if r.Queuing == nil {
			errs.Required("limitResponse.queuing", "must not be empty if limited.limitResponse.type is Limited")
		} else {
			validateQueuing(r.Queuing, errs.At("limitResponse.queuing"))
		}
	default:
		resource.NotSupported(errs, "limitResponse.type", r.Type, flowcontrolv1.LimitResponseTypeQueue, flowcontrolv1.LimitResponseTypeReject)
	}
}

func validateQueuing(q *flowcontrolv1.QueuingConfiguration, errs *resource.Errors) {
	if q.QueueLengthLimit <= 0 {
		errs.Invalid("queueLengthLimit", q.QueueLengthLimit, "must be positive")
	}
	if q.Queues <= 0 {
		errs.Invalid("queues", q.Queues, "must be positive")
	} else if q.Queues > maxQueues {
		errs.Invalid("queues", q.Queues, fmt.Sprintf("must not be greater than %d", maxQueues))
	}
	switch {
	case q.HandSize <= 0:
		errs.Invalid("handSize", q.HandSize, "must be positive")
	case q.HandSize > q.Queues:
		errs.Invalid("handSize", q.HandSize, fmt.Sprintf("should not be greater than queues (%d)", q.Queues))
	case shufflesharding.RequiredEntropyBits(int(q.Queues), int(q.HandSize)) > shufflesharding.MaxHashBits:
		errs.Invalid("handSize", q.HandSize, fmt.Sprintf("required entropy bits of deckSize %d and handSize %d should not be greater than %d", q.Queues, q.HandSize, shufflesharding.MaxHashBits))
	}
}

func validateLevelStatus(pl *flowcontrolv1.PriorityLevelConfiguration, errs *resource.Errors) {
	types := make([]string, len(pl.Status.Conditions))
	for i, c := range pl.Status.Conditions {
		types[i] = string(c.Type)
	}
	validateConditionTypes(types, errs)
}
