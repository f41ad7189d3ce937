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
	{36, `
		AtomicFIFO CRIListStreaming ClientsAllowCARotation ClientsAllowTLSCacheGC ControllerManagerReleaseLeaderElectionLockOnExit DRAListTypeAttributes
		DRANodeAllocatableResources DRAResourceClaimGranularStatusAuthorization DRAResourcePoolStatus DRAWorkloadResourceClaims DeclarativeValidationBeta
		ExtendWebSocketsToKubelet InPlacePodVerticalScalingInitContainers ManifestBasedAdmissionControlConfig NativeHistograms PLEGOnDemandRelist
		PersistentVolumeClaimUnusedSinceTime PodLevelResourceManagers PodsAPI ReloadKubeletClientCAFile ResourceHealthStatusMessage ShardedListAndWatch
		StaleControllerConsistencyDaemonSet StaleControllerConsistencyJob StaleControllerConsistencyReplicaSet StaleControllerConsistencyStatefulSet
		TopologyAwareWorkloadScheduling UnlockWhileProcessingFIFO WorkloadAwarePreemption WorkloadWithJob`},
	{37, `
		APIServerWebhookAuthenticationToken AtomicWriteVolumeUserFields CompositePodGroup ConsistentListFromCacheSkipTimeoutFallback DRADerivedAttributes
		DRADeviceCompatibilityGroups DRAOptionalNodeOperations DRAPartitionableDevicesType DefaultPodSysctls EmptyDirVolumeMode EtcdRangeStream
		EvictionRequestAPI ExcludeAdmissionWebhookVirtualResources GRPCContainerProbeTLS H2CContainerProbe HPAOptimizedSelectorStore
		HugepageAwareEviction InPlacePodVerticalScalingMemoryBackedVolumes InPlacePodVerticalScalingSchedulerPreemption InterPodAffinityHostnameFastPath
		KubeProxyNFTablesLocalhostNodePorts NFTablesNetlink NodeControllerLeaseCircuitBreaker NodeLifecycleConditions PodGroupPreemptionPolicy
		SchedulerPreQueueingHints StaleControllerConsistencyHPA StatefulSetRecreateStrategy VolumeBindMountOptions WatchListCompression
		WebhookRoundTripLoadBalancing`},
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
