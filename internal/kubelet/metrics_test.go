package kubelet

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kemudi/kemudi/internal/kubelet/fakecri"
)

// get is what the agent answers to a GET.
func (n *testNode) get(path string) string {
	n.t.Helper()
	w := httptest.NewRecorder()
	n.agent.Handler().ServeHTTP(w, httptest.NewRequestWithContext(n.t.Context(), http.MethodGet, path, nil))
	if w.Code != http.StatusOK {
		n.t.Errorf("GET %s: got %d %s", path, w.Code, w.Body)
	}
	return w.Body.String()
}

// tells checks that what is served at a path has lines, each a pattern.
func (n *testNode) tells(path string, want ...string) {
	n.t.Helper()
	got := n.get(path)
	for _, line := range want {
		if !regexp.MustCompile("(?m)^" + line + "$").MatchString(got) {
			n.t.Errorf("GET %s: no line %s in\n%s", path, line, got)
		}
	}
}

func TestAgentTellsOfPodsAndRequests(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		n := newNode(t, fakecri.Options{})
		defer func() { n.end() }()
		time.Sleep(time.Minute)
		createPod(t, n.api, "web", `{initContainers: [{name: i, image: x, command: ["true"]}], containers: [{name: a, image: web}, {name: b, image: web}]}`)
		n.pod("web")
		time.Sleep(time.Minute)
		createPod(t, n.api, "done", `{restartPolicy: Never, containers: [{name: a, image: x, command: ["true"]}]}`)
		n.pod("done")
		n.tells("/metrics",
			`kubernetes_feature_enabled\{name="KubeletTracing",stage=""\} 1`, `kubelet_node_name\{node="n1"\} 1`, `kubelet_running_pods [12]`, `kubelet_running_containers\{container_state="running"\} 2`,
			`kubelet_desired_pods\{static=""\} 2`, `kubelet_desired_pods\{static="true"\} 0`, `kubelet_active_pods\{static=""\} 1`, `kubelet_mirror_pods 0`,
			`kubelet_started_pods_total 2`, `kubelet_started_pods_errors_total 0`, `kubelet_started_containers_total\{container_type="container"\} 3`,
			`kubelet_started_containers_total\{container_type="init_container"\} 1`, `kubelet_pod_start_duration_seconds_count 2`,
			`kubelet_pod_start_sli_duration_seconds_count 2`, `kubelet_pod_start_total_duration_seconds_count 2`, `kubelet_pod_worker_start_duration_seconds_count 2`,
			`kubelet_working_pods\{config="desired",lifecycle="sync",static=""\} 1`, `kubelet_working_pods\{config="desired",lifecycle="terminated",static=""\} 1`,
			`kubelet_pod_status_sync_duration_seconds_count [1-9][0-9]*`, `kubelet_image_pull_duration_seconds_count\{image_size_in_bytes="0-10MB"\} 4`,
			`kubelet_started_user_namespaced_pods_total 0`,
			`kubelet_pleg_relist_duration_seconds_count [0-9]+`, `kubelet_evented_pleg_connection_success_count 1`, `kubelet_containers_per_pod_count_sum 3`,
		)
		n.tells("/metrics", `kubelet_http_requests_total\{long_running="false",method="GET",path="metrics",server_type="readwrite"\} 2`,
			`kubelet_http_inflight_requests\{long_running="false",method="GET",path="metrics",server_type="readwrite"\} 1`)
		n.end()
		n.run() // a pod that runs already does not start again
		n.tells("/metrics", `kubelet_pod_start_duration_seconds_count 0`, `kubelet_started_pods_total 0`, `kubelet_running_containers\{container_state="running"\} 2`)
	})
}

func TestContainersThatDoNotStartAreCounted(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		n := newNode(t, fakecri.Options{})
		defer func() { n.end() }()
		createPod(t, n.api, "web", `{containers: [{name: a, image: web, env: [{name: X, valueFrom: {configMapKeyRef: {name: none, key: x}}}]}]}`)
		n.pod("web")
		n.tells("/metrics", `kubelet_started_containers_errors_total\{code="CreateContainerConfigError",container_type="container"\} [1-9][0-9]*`)
	})
}

func TestProbesAreCountedAsLongAsTheirPodIsThere(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		n := newNode(t, fakecri.Options{Exec: func(_ *runtimeapi.ContainerConfig, command []string) (string, int32) {
			if command[0] == "false" {
				return "", 1
			}
			return "", 0
		}})
		defer func() { n.end() }()
		pod := createPod(t, n.api, "web", `{containers: [{name: a, image: web, livenessProbe: {exec: {command: ["true"]}, periodSeconds: 10}, readinessProbe: {exec: {command: ["false"]}, periodSeconds: 10}}]}`)
		n.pod("web")
		time.Sleep(95 * time.Second)
		synctest.Wait()
		of := `namespace="default",pod="web",pod_uid="` + string(pod.UID) + `"`
		n.tells("/metrics/probes", `prober_probe_total\{container="a",`+of+`,probe_type="Liveness",result="successful"\} 10`,
			`prober_probe_total\{container="a",`+of+`,probe_type="Readiness",result="failed"\} 10`,
			`prober_probe_duration_seconds_count\{container="a",namespace="default",pod="web",probe_type="Liveness"\} 10`,
			`prober_probe_duration_seconds_bucket\{container="a",namespace="default",pod="web",probe_type="Liveness",le="0.005"\} 10`)
		deletePod(t, n.api, "web", 0)
		n.pod("web")
		if got := n.get("/metrics/probes"); strings.Contains(got, "web") {
			t.Errorf("after the pod has gone: got\n%s", got)
		}
	})
}

func TestRunningPodsAreShownAsTheRuntimeHasThem(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		n := newNode(t, fakecri.Options{})
		defer func() { n.end() }()
		createPod(t, n.api, "web", `{containers: [{name: a, image: web}]}`)
		uid := n.pod("web").UID
		var list v1.PodList
		if err := json.Unmarshal([]byte(n.get("/runningpods/")), &list); err != nil {
			t.Fatal(err)
		}
		if len(list.Items) != 1 || list.Items[0].UID != uid || len(list.Items[0].Spec.Containers) != 1 || list.Items[0].Spec.Containers[0].Image != "web" || list.Kind != "PodList" {
			t.Errorf("got %+v", list)
		}
	})
}
