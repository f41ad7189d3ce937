package parts

import (
	"net/netip"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kemudi/kemudi/internal/controllers"
	"github.com/kemudi/kemudi/internal/secureport"
)

// section is one of the sections of a configuration, by the names that its fields have on the wire.
type section = map[string]any

// configuration is how the controllers are configured, as far as upstream's have the same settings.
// Fields of that kind have the names that they have in Go.
func (o *ControllerManager) configuration() secureport.Configuration {
	c := &o.Controllers
	life := &c.NodeLifecycle
	tree := section{
		"kind": "KubeControllerManagerConfiguration", "apiVersion": "kubecontrollermanager.config.k8s.io/v1alpha1",
		"Generic": section{
			"Port": o.Secure.Port, "Address": o.Secure.Bind.String(), "Controllers": c.Enabled, "ClientConnection": section{"kubeconfig": o.API.Kubeconfig},
			"LeaderElection": section{
				"leaderElect": !o.Election.Off, "leaseDuration": span(o.Election.LeaseDuration), "renewDeadline": span(o.Election.RenewDeadline),
				"retryPeriod": span(o.Election.RetryPeriod), "resourceLock": o.Election.Lock, "resourceName": o.Election.Names[0], "resourceNamespace": o.Election.Namespace,
			},
			"Debugging": section{"enableProfiling": o.Secure.Profiling},
		},
		"KubeCloudShared": section{
			"CloudProvider": section{"Name": c.Cloud.Name, "CloudConfigFile": c.Cloud.ConfigFile}, "UseServiceAccountCredentials": o.Accounts,
			"RouteReconciliationPeriod": span(c.Cloud.RoutePeriod), "NodeMonitorPeriod": span(life.MonitorPeriod), "ClusterName": c.Cloud.ClusterName,
			"ClusterCIDR": joined(o.ClusterCIDRs), "AllocateNodeCIDRs": o.NodeCIDRs, "ConfigureCloudRoutes": !c.Cloud.NoRoutes,
		},
		"AttachDetachController": section{"DisableForceDetachOnTimeout": c.AttachDetach.Patient},
		"CSRSigningController": section{
			"ClusterSigningCertFile": o.Keys.Signing.Cert, "ClusterSigningKeyFile": o.Keys.Signing.Key, "ClusterSigningDuration": span(c.Certificates.Life),
		},
		"EndpointSliceController":          section{"MaxEndpointsPerSlice": c.EndpointSlice.MaxEndpointsPerSlice},
		"EndpointSliceMirroringController": section{"MirroringMaxEndpointsPerSubset": c.EndpointSliceMirroring.MaxEndpointsPerSubset},
		"HPAController": section{
			"HorizontalPodAutoscalerSyncPeriod":                   span(c.PodAutoscaler.SyncPeriod),
			"HorizontalPodAutoscalerDownscaleStabilizationWindow": span(c.PodAutoscaler.Downscale),
			"HorizontalPodAutoscalerTolerance":                    c.PodAutoscaler.Tolerance,
			"HorizontalPodAutoscalerCPUInitializationPeriod":      span(c.PodAutoscaler.CPUInitialization),
			"HorizontalPodAutoscalerInitialReadinessDelay":        span(c.PodAutoscaler.InitialReadinessDelay),
		},
		"NodeIPAMController": section{"NodeCIDRMaskSize": c.NodeIPAM.Bits, "NodeCIDRMaskSizeIPv4": c.NodeIPAM.Bits4, "NodeCIDRMaskSizeIPv6": c.NodeIPAM.Bits6},
		"NodeLifecycleController": section{
			"NodeEvictionRate": life.EvictionRate, "SecondaryNodeEvictionRate": life.SecondaryEvictionRate, "NodeStartupGracePeriod": span(life.StartupGracePeriod),
			"NodeMonitorGracePeriod": span(life.GracePeriod), "LargeClusterSizeThreshold": life.LargeClusterSize, "UnhealthyZoneThreshold": life.UnhealthyZoneThreshold,
		},
		"PodGCController":            section{"TerminatedPodGCThreshold": c.PodGC.Threshold},
		"ResourceQuotaController":    section{"ResourceQuotaSyncPeriod": span(c.ResourceQuota.SyncPeriod)},
		"SAController":               section{"ServiceAccountKeyFile": o.Keys.Accounts, "RootCAFile": o.Keys.RootCA},
		"LegacySATokenCleaner":       section{"CleanUpPeriod": span(c.LegacyTokens.CleanUpPeriod)},
		"GarbageCollectorController": section{"EnableGarbageCollector": !o.NoGarbage},
	}
	for s, own := range o.Keys.Signers {
		tree["CSRSigningController"].(section)[s.Field] = section{"CertFile": own.Cert, "KeyFile": own.Key}
	}
	addSyncs(tree, c.Syncs)
	return secureport.Configuration{Name: "kubecontrollermanager.config.k8s.io", Value: tree}
}

// syncFields are where the configuration has how many keys controllers reconcile at once, by the
// flags that say so.
var syncFields = map[string]struct{ section, field string }{
	"concurrent-cron-job-syncs":                   {"CronJobController", "ConcurrentCronJobSyncs"},
	"concurrent-daemonset-syncs":                  {"DaemonSetController", "ConcurrentDaemonSetSyncs"},
	"concurrent-deployment-syncs":                 {"DeploymentController", "ConcurrentDeploymentSyncs"},
	"concurrent-device-taint-eviction-syncs":      {"DeviceTaintEvictionController", "ConcurrentSyncs"},
	"concurrent-disruption-syncs":                 {"DisruptionController", "ConcurrentDisruptionSyncs"},
	"concurrent-endpoint-syncs":                   {"EndpointController", "ConcurrentEndpointSyncs"},
	"concurrent-ephemeralvolume-syncs":            {"EphemeralVolumeController", "ConcurrentEphemeralVolumeSyncs"},
	"concurrent-gc-syncs":                         {"GarbageCollectorController", "ConcurrentGCSyncs"},
	"concurrent-horizontal-pod-autoscaler-syncs":  {"HPAController", "ConcurrentHorizontalPodAutoscalerSyncs"},
	"concurrent-job-syncs":                        {"JobController", "ConcurrentJobSyncs"},
	"concurrent-namespace-syncs":                  {"NamespaceController", "ConcurrentNamespaceSyncs"},
	"concurrent-rc-syncs":                         {"ReplicationController", "ConcurrentRCSyncs"},
	"concurrent-replicaset-syncs":                 {"ReplicaSetController", "ConcurrentRSSyncs"},
	"concurrent-resource-claim-syncs":             {"ResourceClaimController", "ConcurrentSyncs"},
	"concurrent-resource-quota-syncs":             {"ResourceQuotaController", "ConcurrentResourceQuotaSyncs"},
	"concurrent-service-endpoint-syncs":           {"EndpointSliceController", "ConcurrentServiceEndpointSyncs"},
	"concurrent-service-syncs":                    {"ServiceController", "ConcurrentServiceSyncs"},
	"concurrent-serviceaccount-token-syncs":       {"SAController", "ConcurrentSATokenSyncs"},
	"concurrent-statefulset-syncs":                {"StatefulSetController", "ConcurrentStatefulSetSyncs"},
	"concurrent-ttl-after-finished-syncs":         {"TTLAfterFinishedController", "ConcurrentTTLSyncs"},
	"mirroring-concurrent-service-endpoint-syncs": {"EndpointSliceMirroringController", "MirroringConcurrentServiceEndpointSyncs"},
}

func addSyncs(tree section, syncs []controllers.Sync) {
	for _, s := range syncs {
		at, ok := syncFields[s.Flag]
		if !ok {
			continue // upstream's file does not have it
		}
		own, _ := tree[at.section].(section)
		if own == nil {
			own = section{}
			tree[at.section] = own
		}
		own[at.field] = s.Keys
	}
}

// configuration is how the proxy is configured, likewise.
func (o *Proxy) configuration() secureport.Configuration {
	ports := texts(o.NodePorts)
	if o.Primary {
		ports = append(ports, "primary")
	}
	return secureport.Configuration{Name: "kubeproxy.config.k8s.io", Value: section{
		"kind": "KubeProxyConfiguration", "apiVersion": "kubeproxy.config.k8s.io/v1alpha1", "mode": "nftables",
		"clientConnection": section{"kubeconfig": o.API.Kubeconfig}, "hostnameOverride": o.NodeName,
		"healthzBindAddress": o.Healthz.String(), "metricsBindAddress": o.Metrics.String(), "enableProfiling": o.Profiling,
		"clusterCIDR": joined(o.ClusterCIDRs), "detectLocalMode": "ClusterCIDR", "nodePortAddresses": ports,
		"nftables": section{"masqueradeAll": o.MasqueradeAll},
		"conntrack": section{
			"maxPerCore": o.Conntrack.MaxPerCore, "min": o.Conntrack.Min, "tcpBeLiberal": o.Conntrack.TCPLiberal,
			"tcpEstablishedTimeout": span(o.Conntrack.TCPEstablished), "tcpCloseWaitTimeout": span(o.Conntrack.TCPCloseWait),
			"udpTimeout": span(o.Conntrack.UDP), "udpStreamTimeout": span(o.Conntrack.UDPStream),
		},
	}}
}

func span(d time.Duration) metav1.Duration { return metav1.Duration{Duration: d} }

func texts(list []netip.Prefix) []string {
	all := make([]string, len(list))
	for i, p := range list {
		all[i] = p.String()
	}
	return all
}

func joined(list []netip.Prefix) string { return strings.Join(texts(list), ",") }
