package api

import (
	"slices"

	"github.com/kemudi/kemudi/internal/api/admissionregistration"
	"github.com/kemudi/kemudi/internal/api/apiextensions"
	"github.com/kemudi/kemudi/internal/api/apiregistration"
	"github.com/kemudi/kemudi/internal/api/apps"
	"github.com/kemudi/kemudi/internal/api/authentication"
	"github.com/kemudi/kemudi/internal/api/authorization"
	"github.com/kemudi/kemudi/internal/api/autoscaling"
	"github.com/kemudi/kemudi/internal/api/batch"
	"github.com/kemudi/kemudi/internal/api/certificates"
	"github.com/kemudi/kemudi/internal/api/coordination"
	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/api/discovery"
	"github.com/kemudi/kemudi/internal/api/dra"
	"github.com/kemudi/kemudi/internal/api/flowcontrol"
	"github.com/kemudi/kemudi/internal/api/metrics"
	"github.com/kemudi/kemudi/internal/api/networking"
	"github.com/kemudi/kemudi/internal/api/node"
	"github.com/kemudi/kemudi/internal/api/policy"
	"github.com/kemudi/kemudi/internal/api/rbac"
	"github.com/kemudi/kemudi/internal/api/scheduling"
	"github.com/kemudi/kemudi/internal/api/settings"
	"github.com/kemudi/kemudi/internal/api/storage"
	"github.com/kemudi/kemudi/internal/api/storagemigration"
	"github.com/kemudi/kemudi/internal/resource"
)

// All lists every built-in resource, by group and kind.
func All() []*resource.Def {
	return slices.Concat(
		core.All(),
		admissionregistration.All(),
		apiextensions.All(),
		apiregistration.All(),
		apps.All(),
		authentication.All(),
		authorization.All(),
		autoscaling.All(),
		batch.All(),
		certificates.All(),
		coordination.All(),
		discovery.All(),
		dra.All(),
		flowcontrol.All(),
		metrics.All(),
		networking.All(),
		node.All(),
		policy.All(),
		rbac.All(),
		scheduling.All(),
		settings.All(),
		storage.All(),
		storagemigration.All(),
	)
}
