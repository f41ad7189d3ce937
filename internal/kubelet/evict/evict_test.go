package evict

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

func podOf(t *testing.T, text string) *v1.Pod {
	t.Helper()
	pod := &v1.Pod{}
	if err := yaml.UnmarshalStrict([]byte(text), pod); err != nil {
		t.Fatal(err)
	}
	return pod
}

const mi = int64(1 << 20)

func TestThresholdsAreReadAndRefusedWithTheReason(t *testing.T) {
	list, err := Parse(Default)
	if err != nil || len(list) != 5 || list[0] != (Threshold{Signal: MemoryAvailable, Amount: 100 * mi}) || list[1] != (Threshold{Signal: NodeFSAvailable, Percent: 5}) {
		t.Fatalf("default: got %+v, %v", list, err)
	}
	if got := Held(list, NodeFSAvailable, 200); got != 10 {
		t.Errorf("held of the disk: got %d, want 10", got)
	}
	for text, want := range map[string]string{
		"":                                        "",
		" memory.available<1Gi , ":                "",
		"nodefs.available<0%":                     "",
		"pid.available<1000":                      "",
		"memory.available":                        "must be of the form signal<value",
		"swap.available<1Gi":                      `unsupported eviction signal "swap.available"`,
		"memory.available<-1Mi":                   "must be 0 or more",
		"memory.available<lots":                   "must be 0 or more",
		"nodefs.available<110%":                   "must be from 0 to 100",
		"nodefs.available<NaN%":                   "must be from 0 to 100",
		"nodefs.available<5%,nodefs.available<6%": "the signal is given twice",
	} {
		if _, err := Parse(text); want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: got %v, want %q", text, err, want)
		}
	}
}

func TestPressureOutlastsItsCauseForAWhile(t *testing.T) {
	list, err := Parse("memory.available<100Mi,nodefs.available<10%")
	if err != nil {
		t.Fatal(err)
	}
	m := &Monitor{Thresholds: list, Transition: 5 * time.Minute}
	start := time.Now()
	for _, tc := range []struct {
		after        time.Duration
		memory, disk int64
		want         string
	}{
		{0, 200 * mi, 50, ""},
		{time.Minute, 99 * mi, 50, "MemoryPressure: The node was low on resource: memory. Threshold quantity: 100Mi, available: 99Mi. "},
		{2 * time.Minute, 99 * mi, 9, "DiskPressure MemoryPressure: The node was low on resource: memory. Threshold quantity: 100Mi, available: 99Mi. The node was low on resource: ephemeral-storage. Threshold quantity: 10, available: 9. "},
		{3 * time.Minute, 200 * mi, 50, "DiskPressure MemoryPressure"},
		{7 * time.Minute, 200 * mi, 50, ""},
	} {
		pressure, starved := m.Observe(Readings{MemoryAvailable: {tc.memory, 1000 * mi}, NodeFSAvailable: {tc.disk, 100}}, start.Add(tc.after))
		var got string
		for _, c := range []v1.NodeConditionType{v1.NodeDiskPressure, v1.NodeMemoryPressure} {
			if pressure[c] {
				got += " " + string(c)
			}
		}
		got = strings.TrimSpace(got)
		for i, s := range starved {
			if i == 0 {
				got += ": "
			}
			got += s.Message()
		}
		if got != tc.want {
			t.Errorf("after %s: got %q, want %q", tc.after, got, tc.want)
		}
	}
}

func TestSoftThresholdsNeedTheirTimes(t *testing.T) {
	soft := Soft{}
	if err := soft.Thresholds.Set("memory.available<1Gi,nodefs.available<15%"); err != nil {
		t.Fatal(err)
	}
	if err := soft.Grace.Set("memory.available=1m30s"); err != nil {
		t.Fatal(err)
	}
	if _, err := soft.With(nil); err == nil || err.Error() != "grace period must be specified for the soft eviction threshold nodefs.available" {
		t.Errorf("without a time: got %v", err)
	}
	if err := soft.Grace.Set("memory.available=1m30s, nodefs.available=2m"); err != nil || soft.Grace.String() != "memory.available=1m30s,nodefs.available=2m0s" {
		t.Errorf("times: got %q, %v", soft.Grace.String(), err)
	}
	hard := []Threshold{{Signal: MemoryAvailable, Amount: 100 * mi}}
	all, err := soft.With(hard)
	if want := append(hard, Threshold{Signal: MemoryAvailable, Amount: 1024 * mi, Grace: 90 * time.Second}, Threshold{Signal: NodeFSAvailable, Percent: 15, Grace: 2 * time.Minute}); err != nil || !slices.Equal(all, want) {
		t.Errorf("got %+v, %v, want %+v", all, err, want)
	}
	for _, text := range []string{"memory.available", "memory=1s", "memory.available=soon", "memory.available=-1s"} {
		if err := soft.Grace.Set(text); err == nil {
			t.Errorf("%q: got no error", text)
		}
	}
	var reclaim Amounts
	if err := reclaim.Set("nodefs.available=500Mi,imagefs.available=2%"); err != nil || reclaim.String() != "nodefs.available=500Mi,imagefs.available=2%" {
		t.Errorf("amounts: got %q, %v", reclaim.String(), err)
	}
	if err := reclaim.Set("nodefs.available<500Mi"); err == nil || !strings.Contains(err.Error(), "must be of the form signal=value") {
		t.Errorf("amount with a wrong sign: got %v", err)
	}
}

func TestWhatHasRunOutIsOverWhenEnoughIsThereAgain(t *testing.T) {
	m := &Monitor{Thresholds: []Threshold{{Signal: MemoryAvailable, Amount: 500, Grace: time.Minute}, {Signal: MemoryAvailable, Amount: 100}}, Reclaim: []Threshold{{Signal: MemoryAvailable, Amount: 50}}}
	start := time.Now()
	for _, tc := range []struct {
		after     time.Duration
		available int64
		want      string
	}{
		{0, 499, "pressure"}, {time.Minute - 1, 499, "pressure"}, {time.Minute, 520, "pressure soft"}, {time.Minute + 1, 550, ""},
		{2 * time.Minute, 520, ""}, {3 * time.Minute, 99, "pressure hard"}, {3*time.Minute + 1, 120, "pressure hard"}, {3*time.Minute + 2, 150, "pressure"}, {4 * time.Minute, 150, "pressure soft"},
	} {
		pressure, starved := m.Observe(Readings{MemoryAvailable: {tc.available, 1000}}, start.Add(tc.after))
		got := ""
		if pressure[v1.NodeMemoryPressure] {
			got = "pressure"
		}
		for _, s := range starved {
			got += map[bool]string{true: " soft", false: " hard"}[s.Soft]
		}
		if got != tc.want {
			t.Errorf("after %s, with %d: got %q, want %q", tc.after, tc.available, got, tc.want)
		}
	}
}

func TestWhoUsesMoreThanAskedForGoesFirst(t *testing.T) {
	user := func(name, extra string, used int64) User {
		pod := podOf(t, "metadata: {name: "+name+"}\nspec: {containers: [{name: c"+extra)
		return User{Pod: pod, Used: map[string]int64{"c": used}}
	}
	within := user("within", ", resources: {requests: {memory: 500Mi}}}]}", 400*mi)
	low := user("low", "}], priority: -5}", 10*mi)
	big := user("big", "}]}", 300*mi)
	bigger := user("bigger", ", resources: {requests: {memory: 100Mi}}}]}", 350*mi)
	critical := user("critical", "}], priority: 2000000000}", 999*mi)
	static := user("static", "}]}", 999*mi)
	pidUsers := []User{{Pod: low.Pod, Other: 1}, {Pod: podOf(t, "metadata: {name: modest}"), Other: 20}, {Pod: podOf(t, "metadata: {name: many}"), Other: 300}}
	static.Pod.Annotations = map[string]string{"kubernetes.io/config.source": "file"}
	// Nobody requests processes: the pod of low priority goes first, then who has most.
	for _, want := range []string{"low", "many", "modest"} {
		if got := Choose(PIDAvailable, pidUsers); got == nil || got.Pod.Name != want {
			t.Fatalf("of processes: got %+v, want %s", got, want)
		}
		pidUsers = slices.DeleteFunc(pidUsers, func(u User) bool { return u.Pod.Name == want })
	}
	users := []User{critical, static, within, bigger, big, low}
	for _, want := range []string{"low", "big", "bigger", "within"} {
		got := Choose(MemoryAvailable, users)
		if got == nil || got.Pod.Name != want {
			t.Fatalf("got %+v, want %s", got, want)
		}
		for i := range users {
			if users[i].Pod.Name == want {
				users = append(users[:i:i], users[i+1:]...)
				break
			}
		}
	}
	if got := Choose(MemoryAvailable, users); got != nil {
		t.Errorf("with only critical pods left: got %s", got.Pod.Name)
	}
	s := Starved{MemoryAvailable, 50 * mi, 100 * mi, false}
	got, annotations := big.Message(s)
	if want := "The node was low on resource: memory. Threshold quantity: 100Mi, available: 50Mi. Container c was using 300Mi, request is 0, has larger consumption of memory. "; got != want {
		t.Errorf("message: got %q, want %q", got, want)
	}
	if want := map[string]string{"starved_resource": "memory", "offending_containers": "c", "offending_containers_usage": "300Mi"}; !maps.Equal(annotations, want) {
		t.Errorf("annotations: got %v, want %v", annotations, want)
	}
	got, annotations = within.Message(s)
	if want := map[string]string{"starved_resource": "memory"}; strings.Contains(got, "Container") || !maps.Equal(annotations, want) {
		t.Errorf("message to a pod that kept to its request: %q, %v", got, annotations)
	}
}

func TestNodeUnderPressureTakesOnlyWhatDoesNotMakeItWorse(t *testing.T) {
	memory := map[v1.NodeConditionType]bool{v1.NodeMemoryPressure: true}
	disk := map[v1.NodeConditionType]bool{v1.NodeDiskPressure: true}
	for name, tc := range map[string]struct {
		pod      string
		pressure map[v1.NodeConditionType]bool
		want     string
	}{
		"no pressure":             {"spec: {containers: [{name: c}]}", nil, ""},
		"best effort, memory":     {"spec: {containers: [{name: c}]}", memory, "The node had condition: [MemoryPressure]. "},
		"burstable, memory":       {"spec: {containers: [{name: c, resources: {requests: {cpu: 1m}}}]}", memory, ""},
		"tolerating memory":       {"spec: {tolerations: [{key: node.kubernetes.io/memory-pressure, operator: Exists}], containers: [{name: c}]}", memory, ""},
		"burstable, disk":         {"spec: {containers: [{name: c, resources: {requests: {cpu: 1m}}}]}", disk, "The node had condition: [DiskPressure]. "},
		"critical, disk":          {"spec: {priority: 2000001000, containers: [{name: c}]}", disk, ""},
		"static, disk":            {"metadata: {annotations: {kubernetes.io/config.source: file}}\nspec: {containers: [{name: c}]}", disk, ""},
		"of the API as annotated": {"metadata: {annotations: {kubernetes.io/config.source: api}}\nspec: {containers: [{name: c}]}", disk, "The node had condition: [DiskPressure]. "},
	} {
		if got := Refuse(podOf(t, tc.pod), tc.pressure); got != tc.want {
			t.Errorf("%s: got %q, want %q", name, got, tc.want)
		}
	}
}

func TestLocalStorageHasLimits(t *testing.T) {
	pod := podOf(t, `spec: {volumes: [{name: v, emptyDir: {sizeLimit: 10Mi}}, {name: m, emptyDir: {medium: Memory, sizeLimit: 5Mi}}, {name: free, emptyDir: {}}, {name: c, configMap: {name: c}}, {name: s, secret: {secretName: s}}],
		containers: [{name: a, resources: {limits: {ephemeral-storage: 20Mi}}}, {name: b, resources: {limits: {ephemeral-storage: 30Mi}}}]}`)
	if !HasLimits(pod) || HasLimits(podOf(t, "spec: {volumes: [{name: v, emptyDir: {}}], containers: [{name: a}]}")) {
		t.Error("HasLimits")
	}
	all := func(v, m, free, a, b int64) Storage {
		return Storage{Volumes: map[string]int64{"v": v * mi, "m": m * mi, "free": free * mi}, Containers: map[string]int64{"a": a * mi, "b": b * mi}}
	}
	for name, tc := range map[string]struct {
		s    Storage
		want string
	}{
		"at every limit":             {all(10, 5, 0, 20, 20), ""},
		"a volume":                   {all(11, 0, 0, 0, 0), `Usage of EmptyDir volume "v" exceeds the limit "10Mi". `},
		"a volume in memory":         {all(0, 6, 0, 0, 0), ""}, // the kernel lets it hold no more
		"a container":                {all(0, 0, 0, 21, 0), `Container a exceeded its local ephemeral storage limit "20Mi". `},
		"all together":               {all(10, 5, 41, 0, 0), "Pod ephemeral local storage usage exceeds the total limit of containers 50Mi. "},
		"memory is no local storage": {all(10, 5, 40, 0, 0), ""},
		"a ConfigMap counts":         {Storage{Volumes: map[string]int64{"free": 50 * mi, "c": 1}}, "Pod ephemeral local storage usage exceeds the total limit of containers 50Mi. "},
		"a Secret does not":          {Storage{Volumes: map[string]int64{"free": 50 * mi, "s": 1}}, ""},
	} {
		if got := OverLimit(pod, tc.s); got != tc.want {
			t.Errorf("%s: got %q, want %q", name, got, tc.want)
		}
	}
	sidecar := podOf(t, `spec: {initContainers: [{name: s, restartPolicy: Always, resources: {limits: {ephemeral-storage: 5Mi}}}], containers: [{name: a, resources: {limits: {ephemeral-storage: 20Mi}}}]}`)
	const want = `Container s exceeded its local ephemeral storage limit "5Mi". `
	if got := OverLimit(sidecar, Storage{Containers: map[string]int64{"s": 6 * mi, "a": 1 * mi}}); got != want {
		t.Errorf("a sidecar: got %q, want %q", got, want)
	}
}

func TestSignalsOfWritableLayersFollowOthers(t *testing.T) {
	list, err := Parse("containerfs.available<10%,memory.available<1Mi,containerfs.inodesFree<5%")
	if err != nil || len(list) != 1 || list[0].Signal != MemoryAvailable {
		t.Errorf("got %+v, %v, want that of memory alone", list, err)
	}
}
