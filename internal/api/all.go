package api

import (
	"github.com/kemudi/kemudi/internal/api/apps"
	"github.com/kemudi/kemudi/internal/api/authentication"
	"github.com/kemudi/kemudi/internal/api/authorization"
	"github.com/kemudi/kemudi/internal/api/batch"
	"github.com/kemudi/kemudi/internal/api/certificates"
	"github.com/kemudi/kemudi/internal/api/coordination"
	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/api/discovery"
	"github.com/kemudi/kemudi/internal/api/node"
	"github.com/kemudi/kemudi/internal/api/policy"
	"github.com/kemudi/kemudi/internal/api/rbac"
	"github.com/kemudi/kemudi/internal/api/scheduling"
	"github.com/kemudi/kemudi/internal/api/storage"
	"github.com/kemudi/kemudi/internal/resource"
)

// All lists every built-in resource, by group and kind.
func All() []*resource.Def {
	return []*resource.Def{
		core.Bindings.Def,
		core.ConfigMaps.Def,
		core.Endpoints.Def,
		core.Events.Def,
		core.LimitRanges.Def,
		core.Namespaces.Def,
		core.Nodes.Def,
		core.PersistentVolumeClaims.Def,
		core.PersistentVolumes.Def,
		core.PodTemplates.Def,
		core.Pods.Def,
		core.ReplicationControllers.Def,
		core.ResourceQuotas.Def,
		core.Secrets.Def,
		core.ServiceAccounts.Def,
		core.Services.Def,

		apps.ControllerRevisions.Def,
		apps.DaemonSets.Def,
		apps.Deployments.Def,
		apps.ReplicaSets.Def,
		apps.StatefulSets.Def,

		authentication.SelfSubjectReviews.Def,
		authentication.TokenReviews.Def,

		authorization.LocalSubjectAccessReviews.Def,
		authorization.SelfSubjectAccessReviews.Def,
		authorization.SelfSubjectRulesReviews.Def,
		authorization.SubjectAccessReviews.Def,

		batch.CronJobs.Def,
		batch.Jobs.Def,

		certificates.CertificateSigningRequests.Def,

		coordination.Leases.Def,

		discovery.EndpointSlices.Def,

		node.RuntimeClasses.Def,

		policy.PodDisruptionBudgets.Def,

		rbac.ClusterRoleBindings.Def,
		rbac.ClusterRoles.Def,
		rbac.RoleBindings.Def,
		rbac.Roles.Def,

		scheduling.PriorityClasses.Def,

		storage.CSIDrivers.Def,
		storage.CSINodes.Def,
		storage.StorageClasses.Def,
		storage.VolumeAttachments.Def,
	}
}
