package kubelet

import (
	"encoding/json"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kemudi/kemudi/internal/kubelet/evict"
	"github.com/kemudi/kemudi/internal/kubelet/image"
)

func TestConfigurationSaysWhatTheAgentWasTold(t *testing.T) {
	o := Options{
		Port: 10250, ClusterDomain: "cluster.local", ClusterDNS: []string{"10.96.0.10"}, ResolvConf: "/etc/resolv.conf", Dirs: Dirs{PodLogsDir: "/var/log/pods"},
		Taints: []v1.Taint{{Key: "a", Value: "b", Effect: v1.TaintEffectNoSchedule}}, ImageConfig: image.Config{HighPercent: 90, MaxPulls: 1, MaxAge: time.Hour},
		Settings: Settings{
			MaxPods: 7, KubeReserved: Reserved{v1.ResourceCPU: resource.MustParse("100m")}, UnsafeSysctls: []string{"kernel.msg*"}, ManifestDir: "/etc/manifests",
			Eviction: evict.Thresholds{{Signal: "memory.available", Amount: 100 << 20}, {Signal: "nodefs.available", Percent: 5}},
		},
	}
	var err error
	if o.Settings, err = o.Settings.withDefaults(); err != nil {
		t.Fatal(err)
	}
	data, err := json.Marshal(configuration(&o))
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]any{}
	if err := json.Unmarshal(data, &got); err != nil {
		t.Fatal(err)
	}
	for field, want := range map[string]string{
		"kind": `"KubeletConfiguration"`, "apiVersion": `"kubelet.config.k8s.io/v1beta1"`, "maxPods": `7`, "staticPodPath": `"/etc/manifests"`,
		"evictionHard": `{"memory.available":"100Mi","nodefs.available":"5%"}`, "kubeReserved": `{"cpu":"100m"}`, "allowedUnsafeSysctls": `["kernel.msg*"]`,
		"imageGCHighThresholdPercent": `90`, "imageGCLowThresholdPercent": `80`, "imageMaximumGCAge": `"1h0m0s"`, "serializeImagePulls": `true`,
		"evictionPressureTransitionPeriod": `"5m0s"`, "containerLogMaxSize": `"10Mi"`, "containerLogMonitorInterval": `"10s"`,
		"nodeStatusUpdateFrequency": `"10s"`, "nodeStatusReportFrequency": `"5m0s"`, "nodeLeaseDurationSeconds": `40`, "imageMinimumGCAge": `"2m0s"`,
		"streamingConnectionIdleTimeout": `"4h0m0s"`, "runtimeRequestTimeout": `"2m0s"`, "volumeStatsAggPeriod": `"1m0s"`, "cpuCFSQuotaPeriod": `"100ms"`,
		"crashLoopBackOff": `{"maxContainerRestartPeriod":"5m0s"}`, "syncFrequency": `"0s"`,
		"authorization": `{"mode":"Webhook","webhook":{"cacheAuthorizedTTL":"5m0s","cacheUnauthorizedTTL":"30s"}}`,
		"cgroupDriver":  `"cgroupfs"`, "cpuManagerPolicy": `"none"`,
		"registerWithTaints": `[{"effect":"NoSchedule","key":"a","value":"b"}]`, "clusterDNS": `["10.96.0.10"]`, "registerNode": `true`, "failSwapOn": `false`, "enforceNodeAllocatable": `["pods"]`,
	} {
		if text, err := json.Marshal(got[field]); err != nil || string(text) != want {
			t.Errorf("%s: got %s, %v, want %s", field, text, err, want)
		}
	}
}
