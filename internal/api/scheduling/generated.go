package scheduling

import (
	"context"

	"k8s.io/apimachinery/pkg/api/operation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kemudi/kemudi/internal/resource"
)

// background is for checks that wait for nothing and ask nobody.
var background = context.Background()

// generated has an object checked by what the library generates of its types, which
// v1alpha3 alone has, with the same form. check is handed both objects so.
func generated[Stored, Checked resource.Wire](errs *resource.Errors, obj, old Stored, check func(op operation.Operation, obj, old Checked)) {
	op := operation.Operation{Type: operation.Create, Options: features()}
	now, err := resource.Recode[Checked](obj)
	if err != nil {
		errs.Add(field.InternalError(nil, err))
		return
	}
	var was Checked
	if any(old) != any(*new(Stored)) {
		op.Type = operation.Update
		if was, err = resource.Recode[Checked](old); err != nil {
			errs.Add(field.InternalError(nil, err))
			return
		}
	}
	check(op, now, was)
}

// features are the switches that the generated checks ask for, as they are where the
// resources are served. Those that are off are alpha.
func features() map[string]bool {
	return map[string]bool{
		"CompositePodGroup": false, "PodGroupPreemptionPolicy": false,
		"DRAWorkloadResourceClaims": true, "TopologyAwareWorkloadScheduling": true,
	}
}

// enforce takes what a check has found, but not what it is only to be found out about.
func enforce(errs *resource.Errors, found field.ErrorList) {
	for _, err := range found {
		if !err.IsAlpha() {
			errs.Add(err)
		}
	}
}
