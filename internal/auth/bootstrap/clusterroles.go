package bootstrap

import (
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Labels by which a cluster role becomes part of admin, edit or view.
const (
	toAdmin = "rbac.authorization.k8s.io/aggregate-to-admin"
	toEdit  = "rbac.authorization.k8s.io/aggregate-to-edit"
	toView  = "rbac.authorization.k8s.io/aggregate-to-view"
)

// userRoles are for people. admin, edit and view are made of the roles that
// carry their labels; extensions add to them the same way.
func userRoles() []*rbacv1.ClusterRole {
	return []*rbacv1.ClusterRole{
		clusterRole("cluster-admin", rule("*", "*", "*"), paths("*", "*")),
		aggregated("admin", toAdmin, ""),
		aggregated("edit", toEdit, toAdmin),
		aggregated("view", toView, toEdit),
		partOf(toAdmin, clusterRole("system:aggregate-to-admin", adminRules()...)),
		partOf(toEdit, clusterRole("system:aggregate-to-edit", editRules()...)),
		partOf(toView, clusterRole("system:aggregate-to-view", viewRules()...)),
		partOf(toAdmin, partOf(toEdit, partOf(toView, clusterRole("system:aggregated-metrics-reader", rule(read, "metrics.k8s.io", "pods,nodes"))))),
	}
}

func aggregated(name, of, into string) *rbacv1.ClusterRole {
	r := clusterRole(name)
	r.AggregationRule = &rbacv1.AggregationRule{ClusterRoleSelectors: []metav1.LabelSelector{{MatchLabels: map[string]string{of: "true"}}}}
	if into != "" {
		return partOf(into, r)
	}
	return r
}

func partOf(label string, r *rbacv1.ClusterRole) *rbacv1.ClusterRole {
	r.Labels[label] = "true"
	return r
}

func adminRules() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		rule("create", "authorization.k8s.io", "localsubjectaccessreviews"),
		rule(readWrite, "rbac.authorization.k8s.io", "roles,rolebindings"),
	}
}

func editRules() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		rule(read, "", "pods/attach,pods/proxy,pods/exec,pods/portforward,secrets,services/proxy"),
		rule("impersonate", "", "serviceaccounts"),
		rule(write, "", "pods,pods/attach,pods/proxy,pods/exec,pods/portforward"),
		rule("create", "", "pods/eviction"),
		rule(write, "", "replicationcontrollers,replicationcontrollers/scale,serviceaccounts,services,services/proxy,persistentvolumeclaims,configmaps,secrets,events"),
		rule("create", "", "serviceaccounts/token"),
		rule(write, "apps", "statefulsets,statefulsets/scale,daemonsets,deployments,deployments/scale,deployments/rollback,replicasets,replicasets/scale"),
		rule(write, "autoscaling", "horizontalpodautoscalers"),
		rule(write, "batch", "jobs,cronjobs"),
		rule(write, "extensions", "daemonsets,deployments,deployments/scale,deployments/rollback,ingresses,replicasets,replicasets/scale,replicationcontrollers/scale,networkpolicies"),
		rule(write, "policy", "poddisruptionbudgets"),
		rule(write, "networking.k8s.io", "networkpolicies,ingresses"),
		rule(readWrite, "coordination.k8s.io", "leases"),
		rule(write, "resource.k8s.io", "resourceclaims,resourceclaimtemplates"),
		rule(write, "scheduling.k8s.io", "podgroups,workloads"),
		rule(readWrite, "settings.k8s.io", "podpresets"),
	}
}

func viewRules() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		rule(read, "", "pods,replicationcontrollers,replicationcontrollers/scale,serviceaccounts,services,services/status,endpoints,persistentvolumeclaims,persistentvolumeclaims/status,configmaps"),
		rule(read, "", "limitranges,resourcequotas,bindings,events,pods/status,resourcequotas/status,namespaces/status,replicationcontrollers/status,pods/log"),
		rule(read, "", "namespaces"),
		rule(read, "discovery.k8s.io", "endpointslices"),
		rule(read, "apps", "controllerrevisions,statefulsets,statefulsets/status,statefulsets/scale,daemonsets,daemonsets/status,deployments,deployments/status,deployments/scale,replicasets,replicasets/status,replicasets/scale"),
		rule(read, "autoscaling", "horizontalpodautoscalers,horizontalpodautoscalers/status"),
		rule(read, "batch", "jobs,cronjobs,cronjobs/status,jobs/status"),
		rule(read, "extensions", "daemonsets,daemonsets/status,deployments,deployments/status,deployments/scale,ingresses,ingresses/status,replicasets,replicasets/status,replicasets/scale,replicationcontrollers/scale,networkpolicies"),
		rule(read, "policy", "poddisruptionbudgets,poddisruptionbudgets/status"),
		rule(read, "networking.k8s.io", "networkpolicies,ingresses,ingresses/status"),
		rule(read, "resource.k8s.io", "resourceclaims,resourceclaims/status,resourceclaimtemplates"),
		rule(read, "scheduling.k8s.io", "podgroups,podgroups/status,workloads"),
		rule(read, "settings.k8s.io", "podpresets"),
	}
}
