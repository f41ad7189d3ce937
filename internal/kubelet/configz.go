package kubelet

import (
	"cmp"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	config "k8s.io/kubelet/config/v1beta1"
	"k8s.io/utils/ptr"

	"github.com/kemudi/kemudi/internal/auth/delegated"
	"github.com/kemudi/kemudi/internal/kubelet/container"
	"github.com/kemudi/kemudi/internal/kubelet/csi"
	"github.com/kemudi/kemudi/internal/kubelet/evict"
	"github.com/kemudi/kemudi/internal/kubelet/memory"
	"github.com/kemudi/kemudi/internal/kubelet/node"
	"github.com/kemudi/kemudi/internal/kubelet/shutdown"
)

// configuration is how the agent is configured, as /configz shows it, as far as upstream's agent has
// the same settings. What cannot be set here has the value of upstream's that means the same: no time, where it is
// the kernel or the API that tells of changes and nothing is looked at again and again.
func configuration(o *Options) config.KubeletConfiguration {
	s, p, images := &o.Settings, &o.Settings.Pinning, o.ImageConfig.WithDefaults()
	return config.KubeletConfiguration{
		TypeMeta:     metav1.TypeMeta{Kind: "KubeletConfiguration", APIVersion: "kubelet.config.k8s.io/v1beta1"},
		EnableServer: ptr.To(true), EnableDebuggingHandlers: ptr.To(!s.Serve.NoDebugging), Port: int32(o.Port), EnableSystemLogHandler: ptr.To(!s.Serve.NoSystemLogs), EnableSystemLogQuery: ptr.To(s.Serve.LogQueries),
		EnableProfilingHandler: ptr.To(!s.Serve.NoProfiles), EnableDebugFlagsHandler: ptr.To(!s.Serve.NoVerbosity),
		Authentication: config.KubeletAuthentication{
			Anonymous: config.KubeletAnonymousAuthentication{Enabled: ptr.To(false)}, Webhook: config.KubeletWebhookAuthentication{Enabled: ptr.To(true), CacheTTL: lasting(delegated.TokenGood)},
		},
		Authorization: config.KubeletAuthorization{
			Mode:    config.KubeletAuthorizationModeWebhook,
			Webhook: config.KubeletWebhookAuthorization{CacheAuthorizedTTL: lasting(delegated.RightGiven), CacheUnauthorizedTTL: lasting(delegated.RightNot)},
		},
		RegisterNode: ptr.To(!o.ByHand), RegisterWithTaints: o.Taints, StaticPodPath: s.ManifestDir, StaticPodURL: s.ManifestURL.Address, StaticPodURLHeader: s.ManifestURL.Header, MaxPods: int32(s.MaxPods), PodsPerCore: int32(s.PodsPerCore),
		ClusterDomain: o.ClusterDomain, ClusterDNS: o.ClusterDNS, ResolverConfig: ptr.To(o.ResolvConf),
		KubeReserved: reservedTexts(s.KubeReserved), SystemReserved: reservedTexts(s.SystemReserved), AllowedUnsafeSysctls: s.UnsafeSysctls,
		EvictionHard: thresholdTexts(s.Eviction), EvictionPressureTransitionPeriod: lasting(s.Transition),
		EvictionSoft: thresholdTexts(s.Soft.Thresholds), EvictionSoftGracePeriod: graceTexts(s.Soft.Grace), EvictionMaxPodGracePeriod: int32(s.Soft.MaxPodGrace),
		EvictionMinimumReclaim:      thresholdTexts(s.MinReclaim),
		ImageGCHighThresholdPercent: ptr.To(int32(images.HighPercent)), ImageGCLowThresholdPercent: ptr.To(int32(images.LowPercent)),
		ImageMinimumGCAge: lasting(images.MinAge), ImageMaximumGCAge: lasting(images.MaxAge),
		SerializeImagePulls: ptr.To(images.MaxPulls == 1), MaxParallelImagePulls: ptr.To(int32(images.MaxPulls)),
		ImagePullCredentialsVerificationPolicy: config.ImagePullCredentialsVerificationPolicy(images.Verify.Policy), PreloadedImagesVerificationAllowlist: images.Verify.Allowed,
		PodPidsLimit: ptr.To(s.Containers.Processes), SeccompDefault: ptr.To(s.Containers.SeccompDefault), DefaultPodSysctls: s.Containers.Sysctls, CPUCFSQuota: ptr.To(!s.Containers.NoCPULimits),
		CPUCFSQuotaPeriod: ptr.To(lasting(s.Containers.CPUPeriod)), SingleProcessOOMKill: ptr.To(s.Containers.OneProcess),
		CrashLoopBackOff:    config.CrashLoopBackOffConfig{MaxContainerRestartPeriod: ptr.To(lasting(s.Containers.RestartWait))},
		ShutdownGracePeriod: lasting(s.Shutdown.Period), ShutdownGracePeriodCriticalPods: lasting(s.Shutdown.Critical),
		ShutdownGracePeriodByPodPriority: groupsOf(s.Shutdown.ByPriority),
		MemoryThrottlingFactor:           throttling(s.Containers.Memory.Throttle), MemoryReservationPolicy: config.MemoryReservationPolicy(cmp.Or(s.Containers.Memory.Policy, NoReservation)),
		QOSReserved: s.Containers.Memory.Reserved,
		MemorySwap:  config.MemorySwapConfiguration{SwapBehavior: s.Containers.Swap},
		ProviderID:  s.ProviderID, NodeStatusMaxImages: ptr.To(int32(s.MostImages)),
		CPUManagerPolicy: p.CPUPolicy, CPUManagerPolicyOptions: p.CPUOptions, ReservedSystemCPUs: p.ReservedCPU,
		MemoryManagerPolicy: p.MemoryPolicy, ReservedMemory: reservedMemory(p.ReservedMemory),
		TopologyManagerPolicy: p.TopologyPolicy, TopologyManagerScope: p.TopologyScope, TopologyManagerPolicyOptions: p.TopologyOptions,
		ContainerLogMaxSize: s.LogMaxSize.String(), ContainerLogMaxFiles: ptr.To(int32(s.LogMaxFiles)), PodLogsDir: o.PodLogsDir,
		ContainerLogMonitorInterval: ptr.To(lasting(pace)), ContainerLogMaxWorkers: ptr.To(int32(1)),
		NodeStatusUpdateFrequency: lasting(node.LeaseInterval), NodeStatusReportFrequency: lasting(s.StatusPeriod), NodeLeaseDurationSeconds: int32(node.LeaseDuration / time.Second),
		StreamingConnectionIdleTimeout: lasting(s.Serve.StreamIdle), RuntimeRequestTimeout: lasting(container.CallTimeout), VolumeStatsAggPeriod: lasting(csi.MeasureAgain),
		EnforceNodeAllocatable: s.Enforce, KubeReservedCgroup: s.KubeCgroup, SystemReservedCgroup: s.SystemCgroup,
		CgroupRoot: o.CgroupParent, CgroupsPerQOS: ptr.To(true), CgroupDriver: "cgroupfs", FailSwapOn: ptr.To(false), EnableControllerAttachDetach: ptr.To(true),
	}
}

// throttling is how far containers may go; nil: as far as they like.
func throttling(factor float64) *float64 {
	if factor == 0 {
		return nil
	}
	return &factor
}

func lasting(d time.Duration) metav1.Duration { return metav1.Duration{Duration: d} }

func reservedTexts(list Reserved) map[string]string {
	texts := map[string]string{}
	for name, q := range list {
		texts[string(name)] = q.String()
	}
	return texts
}

func reservedMemory(list memory.Reserved) (out []config.MemoryReservation) {
	for _, node := range slices.Sorted(maps.Keys(list)) {
		out = append(out, config.MemoryReservation{NumaNode: int32(node), Limits: v1.ResourceList(list[node])})
	}
	return out
}

func groupsOf(list shutdown.Groups) (out []config.ShutdownGracePeriodByPodPriority) {
	for _, g := range list {
		out = append(out, config.ShutdownGracePeriodByPodPriority{Priority: g.Priority, ShutdownGracePeriodSeconds: int64(g.Period / time.Second)})
	}
	return out
}

func graceTexts(list evict.Graces) map[string]string {
	texts := map[string]string{}
	for signal, d := range list {
		texts[string(signal)] = d.String()
	}
	return texts
}

func thresholdTexts(list []evict.Threshold) map[string]string {
	texts := map[string]string{}
	for _, t := range list {
		texts[string(t.Signal)] = t.Value()
	}
	return texts
}
