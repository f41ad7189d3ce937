package bootstrap

import rbacv1 "k8s.io/api/rbac/v1"

// systemRoles are for all who may talk to the cluster and for its own parts.
func systemRoles() []*rbacv1.ClusterRole {
	var roles []*rbacv1.ClusterRole
	for _, some := range [][]*rbacv1.ClusterRole{everybodysRoles(), nodeRoles(), partRoles(), certificateRoles(), addonRoles(), cloudRoles()} {
		roles = append(roles, some...)
	}
	return roles
}

func everybodysRoles() []*rbacv1.ClusterRole {
	return []*rbacv1.ClusterRole{
		clusterRole("system:discovery", paths("get",
			"/livez", "/readyz", "/healthz", "/version", "/version/", "/openapi", "/openapi/*", "/api", "/api/*", "/apis", "/apis/*")),
		clusterRole("system:public-info-viewer", paths("get", "/livez", "/readyz", "/healthz", "/version", "/version/")),
		clusterRole("system:basic-user",
			rule("create", "authorization.k8s.io", "selfsubjectaccessreviews,selfsubjectrulesreviews"),
			rule("create", "authentication.k8s.io", "selfsubjectreviews")),
		clusterRole("system:monitoring", paths("get",
			"/metrics", "/metrics/slis", "/livez", "/readyz", "/healthz", "/livez/*", "/readyz/*", "/healthz/*", "/statusz", "/flagz")),
		clusterRole("system:cluster-trust-bundle-discovery", rule(read, "certificates.k8s.io", "clustertrustbundles")),
		clusterRole("system:service-account-issuer-discovery", paths("get",
			"/.well-known/openid-configuration", "/.well-known/openid-configuration/", "/openid/v1/jwks", "/openid/v1/jwks/")),
		clusterRole("system:auth-delegator",
			rule("create", "authentication.k8s.io", "tokenreviews"), rule("create", "authorization.k8s.io", "subjectaccessreviews")),
	}
}

// NodeRules are what a node agent does. The node authorizer narrows most of
// them to what concerns its node.
func NodeRules() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		rule("create", "authentication.k8s.io", "tokenreviews"),
		rule("create", "authorization.k8s.io", "subjectaccessreviews,localsubjectaccessreviews"),
		rule(read, "", "services"),
		rule("create,get,list,watch", "", "nodes"),
		rule("patch,update", "", "nodes/status"),
		rule("patch,update", "", "nodes"),
		rule("create,patch,update", ",events.k8s.io", "events"),
		rule(read, "", "pods"),
		rule("create,delete", "", "pods"),
		rule("patch,update", "", "pods/status"),
		rule("create", "", "pods/eviction"),
		rule(read, "", "configmaps,secrets"),
		rule(read, "", "persistentvolumeclaims"),                      // single ones
		rule("delete,get,list,update,watch", "", "persistentvolumes"), // update: of volumes that are directories of the node, to let go of them
		rule("get,patch,update", "", "persistentvolumeclaims/status"),
		rule("create", "", "serviceaccounts/token"),
		rule("get", "", "serviceaccounts"),
		rule("create,get,list,watch", "certificates.k8s.io", "certificatesigningrequests"),
		rule("create,delete,get,patch,update", "coordination.k8s.io", "leases"),
		rule("get", "storage.k8s.io", "volumeattachments"),
		rule(read, "storage.k8s.io", "csidrivers"),
		rule("create,delete,get,patch,update", "storage.k8s.io", "csinodes"),
		rule(read, "node.k8s.io", "runtimeclasses"),
		rule("get", "resource.k8s.io", "resourceclaims"),
		rule("create,delete,deletecollection,get,list,patch,update,watch", "resource.k8s.io", "resourceslices"),
		rule(read, "certificates.k8s.io", "clustertrustbundles"),
		rule("create,get,list,watch", "certificates.k8s.io", "podcertificaterequests"),
	}
}

func nodeRoles() []*rbacv1.ClusterRole {
	return []*rbacv1.ClusterRole{
		clusterRole("system:node", NodeRules()...),
		// What a node's proxy, DNS, edge, routes to other nodes' pods and network policies need beyond that.
		clusterRole("kemudi:node", rule(read, "", "namespaces,nodes"), rule(read, "discovery.k8s.io", "endpointslices"),
			rule(read, "networking.k8s.io", "ingressclasses,ingresses,networkpolicies,servicecidrs")),
		// What a machine needs that becomes a server, by a token for that.
		clusterRole("kemudi:server-joiner", paths("post", "/kemudi.io/v1/servers")),
		clusterRole("system:node-proxier",
			rule("list,watch", "", "services,endpoints"),
			rule(read, "", "nodes"),
			events(),
			rule("list,watch", "discovery.k8s.io", "endpointslices"),
			rule("list,watch", "networking.k8s.io", "servicecidrs,networkpolicies"),
			rule("list,watch", "", "pods,namespaces")),
		clusterRole("system:node-problem-detector", rule("get", "", "nodes"), rule("patch", "", "nodes/status"), events()),
		clusterRole("system:node-bootstrapper", rule("create,get,list,watch", "certificates.k8s.io", "certificatesigningrequests")),
		clusterRole("system:kubelet-api-admin",
			rule(read, "", "nodes"), rule("proxy", "", "nodes"),
			rule("*", "", "nodes/proxy,nodes/metrics,nodes/stats,nodes/log,nodes/configz,nodes/healthz,nodes/pods")),
	}
}

func partRoles() []*rbacv1.ClusterRole {
	return []*rbacv1.ClusterRole{
		clusterRole("system:kube-controller-manager",
			events(),
			rule("create", "coordination.k8s.io", "leases"),
			named("get,update", "coordination.k8s.io", "leases", "kube-controller-manager"),
			rule("create", "", "secrets,serviceaccounts"),
			rule("delete", "", "secrets"),
			rule("get", "", "namespaces,secrets,serviceaccounts,configmaps"),
			rule("update", "", "secrets,serviceaccounts"),
			rule("create", "authentication.k8s.io", "tokenreviews"),
			rule("create", "authorization.k8s.io", "subjectaccessreviews"),
			rule("list,watch", "*", "*"),
			rule("create", "", "serviceaccounts/token")),
		clusterRole("system:kube-scheduler", schedulerRules()...),
		clusterRole("system:volume-scheduler",
			rule("get,list,patch,update,watch", "", "persistentvolumes,persistentvolumeclaims"),
			rule(read, "storage.k8s.io", "storageclasses")),
		clusterRole("system:kube-aggregator", rule(read, "", "services,endpoints"), rule(read, "discovery.k8s.io", "endpointslices")),
	}
}

func schedulerRules() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		events(),
		rule("create", "coordination.k8s.io", "leases"),
		named("get,update", "coordination.k8s.io", "leases", "kube-scheduler"),
		rule(read, "", "nodes,namespaces"),
		rule("delete,get,list,watch", "", "pods"),
		rule("create", "", "pods/binding,bindings"),
		rule("patch,update", "", "pods/status"),
		rule(read, "", "replicationcontrollers,services"),
		rule(read, "apps,extensions", "replicasets"),
		rule(read, "apps", "statefulsets"),
		rule(read, "policy", "poddisruptionbudgets"),
		rule(read, "", "persistentvolumeclaims,persistentvolumes"),
		rule("create", "authentication.k8s.io", "tokenreviews"),
		rule("create", "authorization.k8s.io", "subjectaccessreviews"),
		rule(read, "storage.k8s.io", "csinodes,csidrivers,csistoragecapacities,volumeattachments,storageclasses"),
		rule(read, "scheduling.k8s.io", "podgroups,priorityclasses"),
		rule("patch,update", "scheduling.k8s.io", "podgroups/status"),
		rule(read, "resource.k8s.io", "deviceclasses,resourceslices,devicetaintrules"),
		rule("create,delete,get,list,patch,update,watch", "resource.k8s.io", "resourceclaims"),
		rule("patch,update", "resource.k8s.io", "resourceclaims/status,resourceclaims/binding"),
		rule("update", "", "pods/finalizers"),
	}
}

func certificateRoles() []*rbacv1.ClusterRole {
	const group, requests = "certificates.k8s.io", "certificatesigningrequests"
	approver := func(signer string) *rbacv1.ClusterRole {
		return clusterRole("system:certificates.k8s.io:"+signer+"-approver", named("approve", group, "signers", "kubernetes.io/"+signer))
	}
	return []*rbacv1.ClusterRole{
		clusterRole("system:certificates.k8s.io:certificatesigningrequests:nodeclient", rule("create", group, requests+"/nodeclient")),
		clusterRole("system:certificates.k8s.io:certificatesigningrequests:selfnodeclient", rule("create", group, requests+"/selfnodeclient")),
		approver("legacy-unknown"), approver("kubelet-serving"), approver("kube-apiserver-client-kubelet"), approver("kube-apiserver-client"),
	}
}

func addonRoles() []*rbacv1.ClusterRole {
	return []*rbacv1.ClusterRole{
		clusterRole("system:kube-dns", rule("list,watch", "", "endpoints,services")),
		clusterRole("system:coredns",
			rule("list,watch", "", "endpoints,services,pods,namespaces"), rule("list,watch", "discovery.k8s.io", "endpointslices")),
		clusterRole("system:persistent-volume-provisioner",
			rule("create,delete,get,list,watch", "", "persistentvolumes"),
			rule("get,list,update,watch", "", "persistentvolumeclaims"),
			rule(read, "storage.k8s.io", "storageclasses"),
			rule("watch", "", "events"),
			events()),
		clusterRole("system:heapster", rule(read, "", "events,pods,nodes,namespaces"), rule(read, "extensions", "deployments")),
	}
}

// cloudRoles are for the managers of clouds that others write: each of their loops asks as the account that
// is called as it is, and has what it needs by these roles. That of nodes has it by the role of our
// controller of that name.
func cloudRoles() []*rbacv1.ClusterRole {
	return []*rbacv1.ClusterRole{
		clusterRole(controllerRole(routes), rule("list,watch", "", "nodes"), rule("patch", "", "nodes/status"), events()),
		clusterRole(controllerRole(services),
			rule(read, "", "services"), rule("patch,update", "", "services/status"), rule("list,watch", "", "nodes"), events()),
	}
}

// Accounts of their loops.
const (
	routes   = "route-controller"
	services = "service-controller"
)

func controllerRole(account string) string { return "system:controller:" + account }
