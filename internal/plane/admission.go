package plane

import (
	"github.com/kemudi/kemudi/internal/admission"
	"github.com/kemudi/kemudi/internal/admission/plugins"
	"github.com/kemudi/kemudi/internal/api/certificates"
	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/api/dra"
	"github.com/kemudi/kemudi/internal/api/networking"
	rbacapi "github.com/kemudi/kemudi/internal/api/rbac"
	"github.com/kemudi/kemudi/internal/api/storage"
	"github.com/kemudi/kemudi/internal/auth/modes"
	"github.com/kemudi/kemudi/internal/auth/node"
	"github.com/kemudi/kemudi/internal/auth/rbac"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/reach/egress"
	"github.com/kemudi/kemudi/internal/resource"
)

// Plugins names the admission plugins that are on or off other than by default, and
// says what they are told.
type Plugins struct {
	Enable  []string // --enable-admission-plugins
	Disable []string // --disable-admission-plugins
	Config  admission.Configurations
	Stay    admission.Stay
}

// told hands on what a component has to tell. It is made before the server that the
// recorder writes through.
type told struct {
	p         *Plane
	component string
}

func (t told) Event(obj resource.Object, kind, reason, message string) {
	t.p.recorder.For(t.component).Event(obj, kind, reason, message)
}

// admission makes the chain that every write passes, and the authorizers: unless told
// otherwise node agents' own, and then the roles.
func (p *Plane) admission() (*admission.Chain, error) {
	cache := func(def *resource.Def) *cache.Cache { return p.caches.Cache(def) }
	p.roles = rbac.New(rbac.Caches{
		Roles: cache(rbacapi.Roles.Def), ClusterRoles: cache(rbacapi.ClusterRoles.Def),
		RoleBindings: cache(rbacapi.RoleBindings.Def), ClusterRoleBindings: cache(rbacapi.ClusterRoleBindings.Def),
	})
	var err error
	if p.authorizer, err = modes.New(p.o.Authorization, modes.Built{
		Node: node.New(node.Caches{
			Pods: cache(core.Pods.Def), Claims: cache(core.PersistentVolumeClaims.Def), Volumes: cache(core.PersistentVolumes.Def),
			VolumeAttachments: cache(storage.VolumeAttachments.Def), ResourceSlices: cache(dra.ResourceSlices.Def),
			PodCertificates: cache(certificates.PodCertificateRequests.Def), NetworkPolicies: cache(networking.NetworkPolicies.Def),
			Ingresses: cache(networking.Ingresses.Def), IngressClasses: cache(networking.IngressClasses.Def), Services: cache(core.Services.Def),
		}),
		RBAC: p.roles, Dial: p.o.Egress.To(egress.ControlPlane), Registry: p.o.Registry, Logger: p.o.Logger.With("part", "authorization"), ID: p.o.Host,
	}); err != nil {
		return nil, err
	}
	return plugins.New(admission.Options{
		Caches: cache, Fresh: p.caches.Fresh, Authorizer: p.authorizer, Rules: p.roles, Defs: p.kinds.now(), Kinds: p.kinds.now,
		Enable: p.o.Plugins.Enable, Disable: p.o.Plugins.Disable, Config: p.o.Plugins.Config, Stay: p.o.Plugins.Stay,
		Served: func(def *resource.Def) bool { return p.server.Serves(def) }, Events: told{p, "admission"}, API: p.Admin, Webhooks: p.calls, Registry: p.o.Registry,
		Server: p.o.Host, Logger: p.o.Logger.With("part", "admission"),
	})
}
