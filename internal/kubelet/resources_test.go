package kubelet

import (
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"github.com/kemudi/kemudi/internal/kubelet/fakecri"
)

func TestResourceMetricsAreSummedUpByPod(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		n := newNode(t, fakecri.Options{})
		defer func() { n.end() }()
		createPod(t, n.api, "web", `{containers: [{name: a, image: web}, {name: b, image: web}]}`)
		createPod(t, n.api, "one", `{containers: [{name: a, image: web}]}`)
		n.pod("web")
		w := httptest.NewRecorder()
		n.agent.Handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics/resource", nil))
		for _, want := range []string{
			`container_cpu_usage_seconds_total{container="b",namespace="default",pod="web"} 1.5 `,
			`container_memory_working_set_bytes{container="a",namespace="default",pod="one"} 4.194304e+06 `,
			`pod_cpu_usage_seconds_total{namespace="default",pod="web"} 3 `,
			`pod_memory_working_set_bytes{namespace="default",pod="web"} 8.388608e+06 `,
			"resource_scrape_error 0\n",
		} {
			if !strings.Contains(w.Body.String(), want) {
				t.Errorf("no %s in\n%s", want, w.Body)
			}
		}
	})
}

func TestContainersAreMeasuredInTheFormOfCAdvisor(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		n := newNode(t, fakecri.Options{})
		defer func() { n.end() }()
		createPod(t, n.api, "web", `{containers: [{name: a, image: web}]}`)
		id := strings.TrimPrefix(n.pod("web").Status.ContainerStatuses[0].ContainerID, "fake://")
		w := httptest.NewRecorder()
		n.agent.Handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics/cadvisor", nil))
		labels := `image="web",name="` + id + `",namespace="default",pod="web"}`
		got := regexp.MustCompile(`id="[^"]*/`+id+`",`).ReplaceAllString(w.Body.String(), "")
		for _, want := range []string{
			`container_cpu_usage_seconds_total{container="a",cpu="total",` + labels + ` 1.5 `,
			`container_memory_working_set_bytes{container="a",` + labels + ` 4.194304e+06 `,
			`container_last_seen{container="a",` + labels + " ",
			`container_start_time_seconds{container="a",` + labels + " ",
			`machine_cpu_cores{boot_id="",machine_id="",system_uuid=""} 4` + "\n",
			`machine_memory_bytes{boot_id="",machine_id="",system_uuid=""} 8.589934592e+09` + "\n",
		} {
			if !strings.Contains(got, want) {
				t.Errorf("no %s in\n%s", want, w.Body)
			}
		}
	})
}
