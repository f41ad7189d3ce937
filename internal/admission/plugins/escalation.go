package plugins

import (
	"context"

	"github.com/kemudi/kemudi/internal/admission"
	"github.com/kemudi/kemudi/internal/auth/rbac"
	"github.com/kemudi/kemudi/internal/resource"
)

// escalation keeps users from granting, by roles and bindings, what they do not
// have themselves. Upstream does this in the storage of those kinds.
func escalation(o *admission.Options) admission.Plugin {
	p := admission.Plugin{Name: "RBACEscalation"}
	if o.Rules == nil || o.Authorizer == nil {
		return p
	}
	e := &rbac.Escalation{Rules: o.Rules, Ask: o.Authorizer}
	p.Validate = func(ctx context.Context, a *admission.Attributes) error {
		obj, ok := a.Object.(resource.Object)
		if !ok || a.Sub != "" || a.Operation != admission.Create && a.Operation != admission.Update {
			return nil
		}
		return e.Check(ctx, a.User, obj, a.Old)
	}
	return p
}
