package controller

import (
	"slices"
	"strings"

	"github.com/kemudi/kemudi/internal/version"
)

// inUpstreams are the controllers that upstream's kube-controller-manager has, too.
var inUpstreams = strings.Fields(`
	attachdetach-controller bootstrap-signer certificatesigningrequest-approving-controller certificatesigningrequest-cleaner-controller
	certificatesigningrequest-signing-controller clusterrole-aggregation-controller cronjob-controller daemon-set-controller
	deployment-controller device-taint-eviction-controller disruption-controller endpoint-controller endpointslice-controller
	endpointslicemirroring-controller ephemeral-volume-controller expand-controller generic-garbage-collector horizontal-pod-autoscaler
	job-controller legacy-service-account-token-cleaner namespace-controller node-controller node-ipam-controller
	persistent-volume-binder pod-garbage-collector pv-protection-controller pvc-protection-controller replicaset-controller
	replication-controller resource-claim-controller resourcequota-controller root-ca-cert-publisher service-account-controller
	service-cidrs-controller serviceaccount-token-controller statefulset-controller storage-version-migrator-controller
	taint-eviction-controller token-cleaner ttl-after-finished-controller ttl-controller
	validatingadmissionpolicy-status-controller volumeattributesclass-protection-controller`)

// Agent is the name of the client by which a controller writes. Its part before the slash manages the fields that it sets.
// Of a controller that upstream has, that is the program it is in, as there: by it people and programs tell what was not
// written by hand (Argo CD's managedFieldsManagers, for one). Others have their own names.
func Agent(name string) string {
	if !slices.Contains(inUpstreams, name) {
		return name
	}
	return version.UserAgent("kube-controller-manager") + "/system:serviceaccount:kube-system:" + name
}
