package features

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/kemudi/kemudi/internal/version"
)

// since is in which of the releases that a server may act as features came. All others are older.
var since = []struct {
	minor uint
	names string
}{
	{35, `
		AuthorizePodWebsocketUpgradeCreatePermission CRDObservedGenerationTracking CSIServiceAccountTokenSecrets
		CloudControllerManagerWatchBasedRoutesReconciliation ConstrainedImpersonation DRADeviceTaintRules GangScheduling GenericWorkload
		ImageVolumeWithDigest InOrderInformersBatchProcess InPlacePodLevelResourcesVerticalScaling MutablePVNodeAffinity
		MutablePodResourcesForSuspendedJobs MutableSchedulingDirectivesForSuspendedJobs NodeDeclaredFeatures OpportunisticBatching
		RestartAllContainersOnContainerExits StructuredAuthenticationConfigurationJWKSMetrics TaintTolerationComparisonOperators
		UserNamespacesHostNetworkSupport VolumeLimitScaling`},
	// Those of 1.37 are among them: what is told of a server that acts as 1.36 is too little by these, and never too much.
	{36, `
		APIServerWebhookAuthenticationToken AtomicFIFO AtomicWriteVolumeUserFields CRIListStreaming ClientsAllowCARotation ClientsAllowTLSCacheGC
		CompositePodGroup ConsistentListFromCacheSkipTimeoutFallback ControllerManagerReleaseLeaderElectionLockOnExit DRADerivedAttributes
		DRADeviceCompatibilityGroups DRAListTypeAttributes DRANodeAllocatableResources DRAOptionalNodeOperations DRAPartitionableDevicesType
		DRAResourceClaimGranularStatusAuthorization DRAResourcePoolStatus DRAWorkloadResourceClaims DeclarativeValidationBeta DefaultPodSysctls
		EmptyDirVolumeMode EtcdRangeStream EvictionRequestAPI ExcludeAdmissionWebhookVirtualResources ExtendWebSocketsToKubelet GRPCContainerProbeTLS
		H2CContainerProbe HPAOptimizedSelectorStore HugepageAwareEviction InPlacePodVerticalScalingInitContainers
		InPlacePodVerticalScalingMemoryBackedVolumes InPlacePodVerticalScalingSchedulerPreemption InterPodAffinityHostnameFastPath
		KubeProxyNFTablesLocalhostNodePorts ManifestBasedAdmissionControlConfig NFTablesNetlink NativeHistograms NodeControllerLeaseCircuitBreaker
		NodeLifecycleConditions PLEGOnDemandRelist PersistentVolumeClaimUnusedSinceTime PodGroupPreemptionPolicy PodLevelResourceManagers PodsAPI
		ReloadKubeletClientCAFile ResourceHealthStatusMessage SchedulerPreQueueingHints ShardedListAndWatch StaleControllerConsistencyDaemonSet
		StaleControllerConsistencyHPA StaleControllerConsistencyJob StaleControllerConsistencyReplicaSet StaleControllerConsistencyStatefulSet
		StatefulSetRecreateStrategy TopologyAwareWorkloadScheduling UnlockWhileProcessingFIFO VolumeBindMountOptions WatchListCompression
		WebhookRoundTripLoadBalancing WorkloadAwarePreemption WorkloadWithJob`},
}

// CheckAt refuses gates of features that are newer than the release that a server acts as.
func (g Gates) CheckAt(l version.Level) error {
	for _, name := range slices.Sorted(maps.Keys(g)) {
		for _, s := range since {
			if s.minor > l.Emulates() && slices.Contains(strings.Fields(s.names), name) {
				return fmt.Errorf("cannot set feature gate %s to %v, feature is PreAlpha at emulated version %s, min compatibility version %s",
					name, g[name], version.Text(l.Emulates()), version.Text(l.Compatible()))
			}
		}
	}
	return nil
}
