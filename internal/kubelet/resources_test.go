package kubelet

import (
	"net/http"
	"net/http/httptest"
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
