package flowcontrol

import (
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	"k8s.io/utils/ptr"

	"github.com/kemudi/kemudi/internal/resource"
)

// What a level has that says nothing of it.
const (
	defaultShares      = 30
	defaultQueues      = 64
	defaultHand        = 8
	defaultQueueLength = 50
)

// PriorityLevels say how many requests of a level run at a time, and what becomes of
// those that are more. What is checked is in prioritylevel_validate.go, older versions are in
// legacy.go.
var PriorityLevels = resource.Define(resource.Spec[*flowcontrolv1.PriorityLevelConfiguration]{
	Names:         resource.Names{Group: Group, Version: "v1", Kind: "PriorityLevelConfiguration", Plural: "prioritylevelconfigurations"},
	HasGeneration: true,
	Default:       defaultLevel,
	Prepare: func(obj, old *flowcontrolv1.PriorityLevelConfiguration) {
		if old == nil {
			obj.Status = flowcontrolv1.PriorityLevelConfigurationStatus{}
			return
		}
		obj.Status = old.Status
	},
	Validate: validateLevel,
	Columns: []resource.Column[*flowcontrolv1.PriorityLevelConfiguration]{
		{Name: "Type", Description: flowcontrolv1.PriorityLevelConfigurationSpec{}.SwaggerDoc()["type"], Value: func(pl *flowcontrolv1.PriorityLevelConfiguration) any { return string(pl.Spec.Type) }},
		{Name: "NominalConcurrencyShares", Description: flowcontrolv1.LimitedPriorityLevelConfiguration{}.SwaggerDoc()["nominalConcurrencyShares"], Value: func(pl *flowcontrolv1.PriorityLevelConfiguration) any {
			if pl.Spec.Limited == nil {
				return "<none>"
			}
			return int64(ptr.Deref(pl.Spec.Limited.NominalConcurrencyShares, 0))
		}},
		queuingColumn("Queues", "queues", func(q *flowcontrolv1.QueuingConfiguration) int32 { return q.Queues }),
		queuingColumn("HandSize", "handSize", func(q *flowcontrolv1.QueuingConfiguration) int32 { return q.HandSize }),
		queuingColumn("QueueLengthLimit", "queueLengthLimit", func(q *flowcontrolv1.QueuingConfiguration) int32 { return q.QueueLengthLimit }),
	},
	Sub: []resource.Sub[*flowcontrolv1.PriorityLevelConfiguration]{{
		Name: "status", Keeps: resource.KeepsMetadata,
		Merge: func(obj, old *flowcontrolv1.PriorityLevelConfiguration) { obj.Spec = old.Spec },
		Validate: func(obj, _ *flowcontrolv1.PriorityLevelConfiguration, errs *resource.Errors) {
			validateLevelStatus(obj, errs)
		},
	}},
	Versions: legacyLevels(),
})

// queuingColumn is a number of a level's queues, where it has some.
func queuingColumn(name, of string, value func(q *flowcontrolv1.QueuingConfiguration) int32) resource.Column[*flowcontrolv1.PriorityLevelConfiguration] {
	return resource.Column[*flowcontrolv1.PriorityLevelConfiguration]{
		Name: name, Description: flowcontrolv1.QueuingConfiguration{}.SwaggerDoc()[of],
		Value: func(pl *flowcontrolv1.PriorityLevelConfiguration) any {
			if pl.Spec.Limited == nil || pl.Spec.Limited.LimitResponse.Queuing == nil {
				return "<none>"
			}
			return int64(value(pl.Spec.Limited.LimitResponse.Queuing))
		},
	}
}

func defaultLevel(pl *flowcontrolv1.PriorityLevelConfiguration) {
	if e := pl.Spec.Exempt; e != nil {
		e.NominalConcurrencyShares = orElse(e.NominalConcurrencyShares, 0)
		e.LendablePercent = orElse(e.LendablePercent, 0)
	}
	l := pl.Spec.Limited
	if l == nil {
		return
	}
	l.NominalConcurrencyShares = orElse(l.NominalConcurrencyShares, defaultShares)
	l.LendablePercent = orElse(l.LendablePercent, 0)
	if q := l.LimitResponse.Queuing; q != nil {
		for _, f := range []struct {
			of   *int32
			none int32
		}{{&q.Queues, defaultQueues}, {&q.HandSize, defaultHand}, {&q.QueueLengthLimit, defaultQueueLength}} {
			if *f.of == 0 {
				*f.of = f.none
			}
		}
	}
}

// orElse is what p points to, or a new value.
func orElse(p *int32, value int32) *int32 {
	if p == nil {
		return &value
	}
	return p
}
