package kubelet

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	config "k8s.io/kubelet/config/v1beta1"
	"k8s.io/utils/ptr"

	"github.com/kemudi/kemudi/internal/kubelet/evict"
)

// configuration is how the agent is configured, as /configz shows it, as far as upstream's agent has
// the same settings. What cannot be set here has the value of upstream's that means the same.
func configuration(o *Options) config.KubeletConfiguration {
	s, images := &o.Settings, o.ImageConfig.WithDefaults()
	return config.KubeletConfiguration{
		TypeMeta:     metav1.TypeMeta{Kind: "KubeletConfiguration", APIVersion: "kubelet.config.k8s.io/v1beta1"},
		EnableServer: ptr.To(true), EnableDebuggingHandlers: ptr.To(true), Port: int32(o.Port), EnableSystemLogHandler: ptr.To(!s.NoSystemLogs),
		Authentication: config.KubeletAuthentication{
			Anonymous: config.KubeletAnonymousAuthentication{Enabled: ptr.To(false)}, Webhook: config.KubeletWebhookAuthentication{Enabled: ptr.To(true)},
		},
		Authorization: config.KubeletAuthorization{Mode: config.KubeletAuthorizationModeWebhook},
		RegisterNode:  ptr.To(!o.ByHand), RegisterWithTaints: o.Taints, StaticPodPath: s.ManifestDir, MaxPods: int32(s.MaxPods),
		ClusterDomain: o.ClusterDomain, ClusterDNS: o.ClusterDNS, ResolverConfig: ptr.To(o.ResolvConf),
		KubeReserved: reservedTexts(s.KubeReserved), SystemReserved: reservedTexts(s.SystemReserved), AllowedUnsafeSysctls: s.UnsafeSysctls,
		EvictionHard: thresholdTexts(s.Eviction), EvictionPressureTransitionPeriod: metav1.Duration{Duration: s.Transition},
		ImageGCHighThresholdPercent: ptr.To(int32(images.HighPercent)), ImageGCLowThresholdPercent: ptr.To(int32(images.LowPercent)),
		ImageMinimumGCAge: metav1.Duration{Duration: images.MinAge}, ImageMaximumGCAge: metav1.Duration{Duration: images.MaxAge},
		SerializeImagePulls: ptr.To(images.MaxPulls == 1), MaxParallelImagePulls: ptr.To(int32(images.MaxPulls)),
		ContainerLogMaxSize: s.LogMaxSize.String(), ContainerLogMaxFiles: ptr.To(int32(s.LogMaxFiles)), PodLogsDir: o.PodLogsDir,
		EnforceNodeAllocatable: s.Enforce, KubeReservedCgroup: s.KubeCgroup, SystemReservedCgroup: s.SystemCgroup,
		CgroupRoot: o.CgroupParent, CgroupsPerQOS: ptr.To(true), CgroupDriver: "cgroupfs", CPUManagerPolicy: "none", MemoryManagerPolicy: config.NoneMemoryManagerPolicy,
		TopologyManagerPolicy: config.NoneTopologyManagerPolicy, FailSwapOn: ptr.To(false), EnableControllerAttachDetach: ptr.To(true),
	}
}

func reservedTexts(list Reserved) map[string]string {
	texts := map[string]string{}
	for name, q := range list {
		texts[string(name)] = q.String()
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
