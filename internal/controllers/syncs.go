package controllers

import (
	"slices"

	"github.com/kemudi/kemudi/internal/controller"
)

// Sync is how many keys a controller reconciles at once, which is upstream's number unless
// people say otherwise.
type Sync struct {
	Flag       string
	Of         string // what is reconciled, in words
	Keys       int
	controller string // its name
}

// DefaultSyncs has upstream's flags and numbers.
func DefaultSyncs() []Sync {
	return []Sync{
		{"concurrent-cron-job-syncs", "CronJobs", 5, "cronjob-controller"},
		{"concurrent-daemonset-syncs", "DaemonSets", 2, "daemon-set-controller"},
		{"concurrent-deployment-syncs", "Deployments", 5, "deployment-controller"},
		{"concurrent-device-taint-eviction-syncs", "pods with tainted devices, and DeviceTaintRules", 10, "device-taint-eviction-controller"},
		{"concurrent-disruption-syncs", "PodDisruptionBudgets", 1, "disruption-controller"},
		{"concurrent-endpoint-syncs", "services for Endpoints", 5, "endpoint-controller"},
		{"concurrent-ephemeralvolume-syncs", "pods for claims of their volumes", 5, "ephemeral-volume-controller"},
		{"concurrent-gc-syncs", "objects by the garbage collector", 20, "generic-garbage-collector"},
		{"concurrent-horizontal-pod-autoscaler-syncs", "HorizontalPodAutoscalers", 5, "horizontal-pod-autoscaler"},
		{"concurrent-job-syncs", "Jobs", 5, "job-controller"},
		{"concurrent-namespace-syncs", "namespaces", 10, "namespace-controller"},
		{"concurrent-node-lifecycle-syncs", "nodes that are not ready, and whose machines the cloud may have removed", 1, "cloud-node-lifecycle-controller"},
		{"concurrent-node-syncs", "nodes that the cloud is asked about", 1, "cloud-node-controller"},
		{"concurrent-rc-syncs", "ReplicationControllers", 5, "replication-controller"},
		{"concurrent-replicaset-syncs", "ReplicaSets", 5, "replicaset-controller"},
		{"concurrent-resource-claim-syncs", "ResourceClaims and pods that use them", 10, "resource-claim-controller"},
		{"concurrent-resource-quota-syncs", "quotas", 5, "resourcequota-controller"},
		{"concurrent-service-endpoint-syncs", "services for EndpointSlices", 5, "endpointslice-controller"},
		{"concurrent-service-syncs", "services with balancers of the cloud", 1, "service-controller"},
		{"concurrent-serviceaccount-token-syncs", "secrets with tokens of service accounts", 5, "serviceaccount-token-controller"},
		{"concurrent-statefulset-syncs", "StatefulSets", 5, "statefulset-controller"},
		{"concurrent-ttl-after-finished-syncs", "finished Jobs with a time to live", 5, "ttl-after-finished-controller"},
		{"mirroring-concurrent-service-endpoint-syncs", "hand-made Endpoints to mirror", 5, "endpointslicemirroring-controller"},
	}
}

// sized returns the controllers with as many workers as the options say.
func (o *Options) sized(all []*controller.Controller) []*controller.Controller {
	syncs := o.Syncs
	if syncs == nil {
		syncs = DefaultSyncs()
	}
	for i, c := range all {
		at := slices.IndexFunc(syncs, func(s Sync) bool { return s.controller == c.Name })
		if at >= 0 {
			sized := *c // which may be shared
			sized.Workers = syncs[at].Keys
			all[i] = &sized
		}
	}
	return all
}
