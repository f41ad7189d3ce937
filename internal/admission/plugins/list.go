package plugins

import (
	"github.com/kemudi/kemudi/internal/admission"
	"github.com/kemudi/kemudi/internal/admission/eventratelimit"
	"github.com/kemudi/kemudi/internal/admission/imagepolicy"
	"github.com/kemudi/kemudi/internal/admission/limitranger"
	"github.com/kemudi/kemudi/internal/admission/noderestriction"
	"github.com/kemudi/kemudi/internal/admission/podgroup"
	"github.com/kemudi/kemudi/internal/admission/podpreset"
	"github.com/kemudi/kemudi/internal/admission/podsecurity"
	"github.com/kemudi/kemudi/internal/admission/policy"
	"github.com/kemudi/kemudi/internal/admission/priority"
	"github.com/kemudi/kemudi/internal/admission/quota"
	"github.com/kemudi/kemudi/internal/admission/serviceaccount"
	"github.com/kemudi/kemudi/internal/admission/volumes"
	"github.com/kemudi/kemudi/internal/admission/webhook"
)

// entry is a plugin with whether it must be turned on, and why it cannot be: its
// configuration.
type entry struct {
	admission.Plugin
	off bool
	err error
}

func on(p admission.Plugin) entry  { return entry{Plugin: p} }
func off(p admission.Plugin) entry { return entry{Plugin: p, off: true} }

// configured is a plugin that is on and has a configuration.
func configured(p admission.Plugin, err error) entry { return entry{Plugin: p, err: err} }

func (e entry) unlessAsked() entry {
	e.off = true
	return e
}

// entries are all plugins in the order in which they are asked, which is
// upstream's: a later one sees what the ones before have changed.
func entries(o *admission.Options) []entry {
	hooks := webhook.New(o)
	return []entry{
		off(alwaysAdmit()),
		off(namespaceAutoProvision(o)),
		on(namespaceLifecycle(o)),
		off(namespaceExists(o)),
		off(limitPodHardAntiAffinityTopology()),
		off(podpreset.New(o)),
		on(limitranger.New(o)),
		on(serviceaccount.New(o)),
		on(noderestriction.New(o)),
		on(taintNodesByCondition()),
		off(alwaysPullImages()),
		configured(imagepolicy.New(o)).unlessAsked(),
		configured(podsecurity.New(o)),
		configured(podNodeSelector(o)).unlessAsked(),
		on(priority.New(o)),
		on(defaultTolerationSeconds(o)),
		configured(podTolerationRestriction(o)).unlessAsked(),
		configured(eventratelimit.New(o)).unlessAsked(),
		off(extendedResourceToleration()),
		on(volumes.NewDefaultClass(o)),
		on(volumes.NewProtection()),
		on(podgroup.New(o)),
		off(ownerReferencesPermissionEnforcement(o)),
		on(volumes.NewResize(o)),
		on(runtimeClass(o)),
		on(certificateApproval(o)),
		on(certificateSigning(o)),
		on(clusterTrustBundleAttest(o)),
		on(certificateSubjectRestriction()),
		on(defaultIngressClass(o)),
		off(denyServiceExternalIPs()),
		on(podTopologyLabels(o)),
		on(nodeDeclaredFeatures(o)),
		on(podResize(o)),
		on(escalation(o)),
		on(resourceClaims(o)),
		configured(policy.NewMutating(o)),
		configured(hooks.Mutating()),
		configured(policy.NewValidating(o)),
		configured(hooks.Validating()),
		configured(quota.New(o)),
		off(alwaysDeny()),
	}
}
