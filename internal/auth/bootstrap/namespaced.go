package bootstrap

import rbacv1 "k8s.io/api/rbac/v1"

const (
	kubeSystem = "kube-system"
	kubePublic = "kube-public"
)

// namespacedRoles are the roles within the system's own namespaces.
func namespacedRoles() []*rbacv1.Role {
	return []*rbacv1.Role{
		role(kubeSystem, "extension-apiserver-authentication-reader", named(read, "", "configmaps", "extension-apiserver-authentication")),
		role(kubeSystem, "system:controller:bootstrap-signer", rule(read, "", "secrets")),
		role(kubeSystem, "system:controller:token-cleaner", rule("delete,get,list,watch", "", "secrets"), events()),
		role(kubeSystem, "system:controller:cloud-provider", rule("create,get,list,update,watch", "", "configmaps")),
		role(kubeSystem, "system::leader-locking-kube-controller-manager",
			rule("watch", "", "configmaps"), named("get,update", "", "configmaps", "kube-controller-manager")),
		role(kubeSystem, "system::leader-locking-kube-scheduler",
			rule("watch", "", "configmaps"), named("get,update", "", "configmaps", "kube-scheduler")),
		// What all machines of the cluster have in common, and what its DNS does.
		role(kubeSystem, "kemudi:cluster-settings", named(read, "", "configmaps", "kemudi-cluster,coredns,kube-dns")),
		role(kubePublic, "system:controller:bootstrap-signer",
			rule(read, "", "configmaps"), named("update", "", "configmaps", "cluster-info"), events()),
		// What is in kube-public is for everybody to read.
		role(kubePublic, "kemudi:public-reader", rule(read, "", "configmaps"), rule("get", "", "namespaces")),
	}
}

func namespacedBindings() []*rbacv1.RoleBinding {
	controllers, scheduler := User("system:kube-controller-manager"), User("system:kube-scheduler")
	return []*rbacv1.RoleBinding{
		bind(kubeSystem, "system::extension-apiserver-authentication-reader", "extension-apiserver-authentication-reader", controllers, scheduler),
		bind(kubeSystem, "system:controller:bootstrap-signer", "system:controller:bootstrap-signer", Account(kubeSystem, "bootstrap-signer")),
		bind(kubeSystem, "system:controller:token-cleaner", "system:controller:token-cleaner", Account(kubeSystem, "token-cleaner")),
		bind(kubeSystem, "system:controller:cloud-provider", "system:controller:cloud-provider", Account(kubeSystem, "cloud-provider")),
		bind(kubeSystem, "system::leader-locking-kube-controller-manager", "system::leader-locking-kube-controller-manager", controllers, Account(kubeSystem, "kube-controller-manager")),
		bind(kubeSystem, "system::leader-locking-kube-scheduler", "system::leader-locking-kube-scheduler", scheduler, Account(kubeSystem, "kube-scheduler")),
		bind(kubeSystem, "kemudi:cluster-settings", "kemudi:cluster-settings", Group("system:nodes"), Group("system:bootstrappers")),
		bind(kubePublic, "system:controller:bootstrap-signer", "system:controller:bootstrap-signer", Account(kubeSystem, "bootstrap-signer")),
		bind(kubePublic, "kemudi:public-reader", "kemudi:public-reader", Group("system:authenticated"), Group("system:unauthenticated")),
	}
}

// clusterBindings give the cluster roles of their names.
func clusterBindings() []*rbacv1.ClusterRoleBinding {
	authenticated := Group("system:authenticated")
	return []*rbacv1.ClusterRoleBinding{
		Cluster("cluster-admin", Group("system:masters")),
		Cluster("system:monitoring", Group("system:monitoring")),
		Cluster("system:discovery", authenticated),
		Cluster("system:basic-user", authenticated),
		Cluster("system:public-info-viewer", authenticated, Group("system:unauthenticated")),
		Cluster("system:service-account-issuer-discovery", Group("system:serviceaccounts")),
		Cluster("system:cluster-trust-bundle-discovery", Group("system:serviceaccounts")),
		Cluster("system:node"), // nobody: the node authorizer is for nodes
		Cluster("kemudi:node", Group("system:nodes")),
		Cluster("kemudi:server-joiner", Group("system:bootstrappers:kemudi:servers")),
		Cluster("system:node-proxier", User("system:kube-proxy")),
		Cluster("system:kube-controller-manager", User("system:kube-controller-manager")),
		Cluster("system:kube-scheduler", User("system:kube-scheduler")),
		Cluster("system:volume-scheduler", User("system:kube-scheduler")),
		Cluster("system:kube-dns", Account(kubeSystem, "kube-dns")),
		Cluster("system:coredns", Account(kubeSystem, "coredns")),
		Cluster(controllerRole(routes), Account(kubeSystem, routes)),
		Cluster(controllerRole(services), Account(kubeSystem, services)),
		// Machines that join get a certificate with a token, and new ones with the old.
		Cluster("system:node-bootstrapper", Group("system:bootstrappers")),
		Cluster("system:certificates.k8s.io:certificatesigningrequests:nodeclient", Group("system:bootstrappers")),
		Cluster("system:certificates.k8s.io:certificatesigningrequests:selfnodeclient", Group("system:nodes")),
	}
}
