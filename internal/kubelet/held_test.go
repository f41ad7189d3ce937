package kubelet

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	v1 "k8s.io/api/core/v1"
	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/kubelet/apitest"
)

func TestSummaryHasWhatPodsHoldOnDisk(t *testing.T) {
	n := newDiskNode(t)
	made(n, core.ConfigMaps, &v1.ConfigMap{}, "metadata: {namespace: default, name: conf}\ndata: {a: text}")
	apitest.CreatePod(t, n.api, "web", `
containers: [{name: main, image: pause, volumeMounts: [{name: work, mountPath: /w}, {name: conf, mountPath: /c}, {name: about, mountPath: /a}]}]
volumes: [{name: work, emptyDir: {}}, {name: conf, configMap: {name: conf}}, {name: about, downwardAPI: {items: [{path: name, fieldRef: {fieldPath: metadata.name}}]}},
  {name: unused, emptyDir: {}}, {name: host, hostPath: {path: /}}]
`)
	n.running("web")
	work := filepath.Join(n.root, "pods", string(apitest.GetPod(t, n.api, "web").UID), "volumes/kubernetes.io~empty-dir/work")
	write := func(name string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(work, name), make([]byte, 1<<20), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("first")
	look := func() stats.PodStats {
		t.Helper()
		var s stats.Summary
		if err := json.Unmarshal([]byte(n.get("/stats/summary")), &s); err != nil {
			t.Fatal(err)
		}
		if len(s.Pods) != 1 {
			t.Fatalf("got pods %+v", s.Pods)
		}
		return s.Pods[0]
	}
	p, held := look(), map[string]stats.VolumeStats{}
	for _, v := range p.VolumeStats {
		held[v.Name] = v
	}
	if len(p.VolumeStats) != 3 || len(held) != 3 {
		t.Fatalf("got volumes %+v, want work, conf and about", p.VolumeStats)
	}
	if v := held["work"]; *v.UsedBytes < 1<<20 || *v.UsedBytes > 1<<20+64<<10 || *v.InodesUsed != 2 || *v.CapacityBytes < *v.UsedBytes || v.AvailableBytes == nil || v.Time.IsZero() || v.PVCRef != nil {
		t.Errorf("work: got %+v", v.FsStats)
	}
	for _, name := range []string{"conf", "about"} {
		if v := held[name]; v.InodesUsed == nil || *v.InodesUsed < 3 || v.CapacityBytes == nil {
			t.Errorf("%s: got %+v", name, v.FsStats)
		}
	}
	e, logs := p.EphemeralStorage, p.Containers[0].Logs
	if e == nil || logs == nil {
		t.Fatalf("got local storage %+v, logs %+v", e, logs)
	}
	least := *held["work"].UsedBytes + *held["conf"].UsedBytes
	if *e.UsedBytes < least || *e.UsedBytes > least+64<<10 || e.CapacityBytes == nil || e.Time.IsZero() {
		t.Errorf("local storage: got %+v, want %d bytes and little more", e, least)
	}
	if got := n.get("/metrics"); !regexp.MustCompile(`(?m)^kubelet_cgroup_version [12]$`).MatchString(got) {
		t.Error("the metrics do not tell the version of cgroups")
	}
	write("second")
	if again := look(); *again.EphemeralStorage.UsedBytes != *e.UsedBytes {
		t.Errorf("asked again at once: got %d bytes, want the %d that were counted", *again.EphemeralStorage.UsedBytes, *e.UsedBytes)
	}
}
