package admission

// entry is a plugin with whether it must be turned on.
type entry struct {
	Plugin
	off bool
}

func on(p Plugin) entry  { return entry{Plugin: p} }
func off(p Plugin) entry { return entry{Plugin: p, off: true} }

// plugins are all plugins in the order in which they are asked, which is
// upstream's: a later one sees what the ones before have changed.
func plugins(o *Options) []entry {
	return []entry{
		on(namespaceLifecycle(o)),
		off(limitPodHardAntiAffinityTopology()),
		on(limitRanger(o)),
		on(serviceAccount(o)),
		on(nodeRestriction(o)),
		on(taintNodesByCondition()),
		off(alwaysPullImages()),
		off(podNodeSelector(o)),
		on(priority(o)),
		on(defaultTolerationSeconds()),
		off(ownerReferencesPermissionEnforcement(o)),
		on(runtimeClass(o)),
		on(certificateApproval(o)),
		on(certificateSigning(o)),
		on(certificateSubjectRestriction()),
		off(denyServiceExternalIPs()),
		on(escalation(o)),
	}
}
