package plugins

import (
	"context"

	"github.com/kemudi/kemudi/internal/admission"
)

// alwaysAdmit does nothing; documents of long ago name it.
func alwaysAdmit() admission.Plugin { return admission.Plugin{Name: "AlwaysAdmit"} }

// alwaysDeny refuses every write, for tests of what happens then.
func alwaysDeny() admission.Plugin {
	deny := func(_ context.Context, a *admission.Attributes) error {
		return a.Forbid("admission control is denying all modifications")
	}
	return admission.Plugin{Name: "AlwaysDeny", Mutate: deny, Validate: deny}
}
